"""Neural collapse: how far each class has shrunk to its mean, and the means to a simplex.

    found = neural_collapse(features, labels, weights=head.weight, predictions=logits.argmax(1))
    found.nc1, found.nc1_stabilised, found.trace_within
    found.nc2_equinorm, found.nc2_equiangle, found.nc2_etf, found.nc3, found.nc4
    NeuralCollapse(classes=10)                   # batch by batch (streaming.py): all but nc4, which needs the samples

With class means mu_c and their plain mean mu (each class counts the same, however large):
    Sigma_W = sum_c E_c[(x - mu_c)(x - mu_c)^T]           the paper's eq. 33, a sum over the classes
    Sigma_b = (1/C) sum_c (mu_c - mu)(mu_c - mu)^T        eq. 34, with 1/C; proposition 1 has no 1/C,
                                                          which would make nc1 smaller by that factor
    nc1             tr(Sigma_b^+ Sigma_W); directions below 1e-6 of the means' largest are left out
    nc1_stabilised  tr((Sigma_b + 1e-4 I)^+ Sigma_W), as in the paper's tables
    trace_within    tr(Sigma_W)
    nc2_equinorm    standard deviation over mean of |mu_c - mu|
    nc2_equiangle   mean over pairs of |cos + 1/(C - 1)|, cos between mu_c - mu and mu_d - mu
    nc2_etf         |G/|G| - E/|E||, Frobenius: G the products of mu_c - mu, E = I - 1/C; from 0 to sqrt 2
    nc3             mean over classes of |w_c/|w_c| - (mu_c - mu)/|mu_c - mu||, eq. 28; from 0 to 2
    nc4             share of samples whose predicted class is that of the nearest mean, eq. 29
All are 0 for complete collapse, but nc4, which is 1. Sigma_b has rank C - 1 at most, so nothing (P, P) is
inverted: the means' singular vectors v_k and v_k^T Sigma_W v_k are enough.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from undertow.errors import BadData
from undertow.features.moments import check_labels
from undertow.richness.rows import TOLERANCE, Array, as_tensor, class_numbers, float_rows, same_count

STABILISER = 1e-4
"""What the paper adds to the eigenvalues of Sigma_b for its tables."""

BLOCK = 256
"""Rows that are made float64 at once."""


@dataclass(frozen=True)
class Collapse:
    """The measures of neural collapse; the module's docstring defines them. None where one has no value."""

    nc1: float
    nc1_stabilised: float
    trace_within: float
    nc2_equinorm: float
    nc2_equiangle: float | None
    nc2_etf: float
    nc3: float | None
    nc4: float | None
    count: int
    classes: int
    note: str = ""  # why a measure has no value, and what else to know


class ClassMeans(NamedTuple):
    """Counts (C,) and means (C, P) of the classes, and how the means spread around their centre."""

    counts: Tensor
    means: Tensor
    off: Tensor  # (C, P), around the plain mean of the means: shares * sizes @ directions
    shares: Tensor  # (C, K) orthonormal columns
    sizes: Tensor  # (K,) singular values, falling
    directions: Tensor  # (K, P) orthonormal rows

    @classmethod
    def of(cls, counts: Tensor, means: Tensor) -> ClassMeans:
        """Refuses classes that have no spread to compare."""
        check_counts(counts)
        off = means - means.mean(0)
        return cls(counts, means, off, *torch.linalg.svd(off, full_matrices=False))


class Within(NamedTuple):
    """The spread within the classes."""

    trace: float  # of Sigma_W
    along: Tensor  # (K,) values of v^T Sigma_W v in the directions of the means


def neural_collapse(
    features: Array,
    labels: Array,
    weights: Array | None = None,
    classes: int | None = None,
    predictions: Array | None = None,
) -> Collapse:
    """Neural collapse of features (N, P) with class numbers (N,).

    Args:
        features: what enters the last linear layer.
        labels: class numbers from 0; each class needs samples.
        weights: of the last linear layer (C, P), for `nc3`.
        classes: how many; by default one more than the largest label.
        predictions: classes that the network answers (N,), or its outputs (N, C), for `nc4`.
    """
    rows = float_rows(features, "neural_collapse, features")
    numbers = class_numbers(labels, "neural_collapse, labels").to(rows.device)
    classes = classes or int(numbers.max()) + 1
    check_labels(numbers, len(rows), classes, "neural_collapse")
    counts = numbers.bincount(minlength=classes)
    check_counts(counts)
    of = ClassMeans.of(counts, _class_means(rows, numbers, counts))
    within, nearest = _spread(rows, numbers, of)
    found = collapse_of(of, within, weights)
    if predictions is None:
        return found
    same_count("neural_collapse", rows, answers := as_tensor(predictions, "neural_collapse, predictions"))
    answers = answers.argmax(1) if answers.ndim == 2 else answers
    answers = class_numbers(answers, "neural_collapse, predictions").to(rows.device)
    return replace(found, nc4=float((nearest == answers).double().mean()))


def _class_means(rows: Tensor, numbers: Tensor, counts: Tensor) -> Tensor:
    """(C, P) float64."""
    sums = torch.zeros(len(counts), rows.shape[1], dtype=torch.float64, device=rows.device)
    for part, own in zip(rows.split(BLOCK), numbers.split(BLOCK), strict=True):
        sums += functional.one_hot(own, len(counts)).double().T @ part.double()
    return sums / counts[:, None]


def _spread(rows: Tensor, numbers: Tensor, of: ClassMeans) -> tuple[Within, Tensor]:
    """The spread within, and the nearest mean of each row (N,), from one pass."""
    products = of.off @ of.off.T  # (C, C)
    trace, along, nearest = 0.0, torch.zeros_like(of.sizes), list[Tensor]()
    for part, own in zip(rows.split(BLOCK), numbers.split(BLOCK), strict=True):
        off, counts = part.double() - of.means[own], of.counts[own].double()
        trace += float(torch.linalg.vecdot(off, off) @ (1 / counts))
        told = off @ of.directions.T  # (N, K)
        along += (1 / counts) @ told.square()
        # Half the squared distance, but for what all means share. Rows lie around their own mean and means around
        # their centre: products of rows as they come would lose means that lie close together.
        shared = (told * of.sizes) @ of.shares.T + products[own]
        nearest.append((products.diagonal() / 2 - shared).argmin(1))
    return Within(trace, along), torch.cat(nearest)


def collapse_of(of: ClassMeans, within: Within, weights: Array | None) -> Collapse:
    """The measures of the classes' means and the spread within; all but `nc4`."""
    plain, stabilised = _nc1(of, within)
    angle, angle_note = _equiangle(of.off)
    duality, duality_note = _self_duality(of.off, weights)
    norms = of.off.norm(dim=1)
    return Collapse(
        nc1=plain,
        nc1_stabilised=stabilised,
        trace_within=within.trace,
        nc2_equinorm=float(norms.std(correction=0) / norms.mean()),
        nc2_equiangle=angle,
        nc2_etf=_etf_distance(of.off),
        nc3=duality,
        nc4=None,
        count=int(of.counts.sum()),
        classes=len(of.off),
        note=joined(_size_note(of), angle_note, duality_note),
    )


def _nc1(of: ClassMeans, within: Within) -> tuple[float, float]:
    """tr(Sigma_b^+ Sigma_W) without and with the stabiliser; refuses means that coincide."""
    (trace, along), sizes = within, of.sizes
    if float(sizes[0]) <= 1e-12 * (float(of.means.norm()) + trace**0.5):
        raise BadData(
            "neural_collapse: wanted class means that differ, got means that coincide: there is no spread "
            "between classes to compare with. Is the layer dead, or do the labels belong to other samples?"
        )
    between, kept = sizes.square() / len(of.off), sizes > TOLERANCE * sizes[0]
    rest = max(trace - float(along.sum()), 0.0)  # below 0 by rounding only
    stabilised = float((along / (between + STABILISER)).sum()) + rest / STABILISER
    return float((along[kept] / between[kept]).sum()), stabilised


def _equiangle(off: Tensor) -> tuple[float | None, str]:
    norms = off.norm(dim=1, keepdim=True)
    if float(norms.min()) <= TOLERANCE * float(norms.max()):
        return None, "a class mean lies at the centre of all: it has no angle"
    cosines = (off / norms) @ (off / norms).T
    pairs = ~torch.eye(len(off), dtype=torch.bool, device=off.device)
    return float((cosines[pairs] + 1 / (len(off) - 1)).abs().mean()), ""


def _etf_distance(off: Tensor) -> float:
    products = off @ off.T
    simplex = torch.eye(len(off), dtype=off.dtype, device=off.device) - 1 / len(off)
    return float(torch.linalg.matrix_norm(products / products.norm() - simplex / simplex.norm()))


def _self_duality(off: Tensor, weights: Array | None) -> tuple[float | None, str]:
    if weights is None:
        return None, ""
    rows = float_rows(weights, "neural_collapse, weights").to(off)
    if rows.shape != off.shape:
        raise BadData(
            f"neural_collapse: wanted weights of shape {tuple(off.shape)}, one row per class, "
            f"got {tuple(rows.shape)}. Give the last linear layer's weight."
        )
    sizes, norms = rows.norm(dim=1, keepdim=True), off.norm(dim=1, keepdim=True)
    if float(sizes.min()) == 0 or float(norms.min()) <= TOLERANCE * float(norms.max()):
        return None, "a class without a direction (weights of 0, or a mean at the centre of all): no nc3"
    return float((rows / sizes - off / norms).norm(dim=1).mean()), ""


def check_counts(counts: Tensor) -> None:
    """Refuse classes that have no spread to compare."""
    if len(counts) < 2:
        raise BadData(
            "neural_collapse: wanted two classes or more, got one: there is nothing to set it apart from."
        )
    empty = (counts == 0).nonzero().flatten().tolist()
    if empty:
        raise BadData(
            f"neural_collapse: wanted samples of all {len(counts)} classes, got none of class {empty[0]} "
            f"({len(empty)} such classes). Give more samples, or number the classes that are there from 0."
        )
    if int(counts.max()) < 2:
        raise BadData(
            "neural_collapse: wanted a class with two samples, got one of each: no spread within classes."
        )


def _size_note(of: ClassMeans) -> str:
    single, (classes, dim) = int((of.counts < 2).sum()), of.means.shape
    return joined(
        f"{single} classes have one sample and no spread" if single else "",
        f"{dim} features cannot hold the simplex of {classes} classes" if dim < classes - 1 else "",
    )


def joined(*parts: str) -> str:
    """Notes as one."""
    return "; ".join(filter(None, parts))
