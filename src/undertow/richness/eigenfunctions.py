"""The spectrum view: which features express the target, which are used, and how strong they are.

    seen = feature_spectrum(train_features, test_features, test_targets, test_outputs)
    seen.quality                     # (K,) share of the target space that e_1..e_k express, in [0, 1]
    seen.utilisation                 # (K,) the same for the learned functions
    seen.intensity                   # (K,) eigenvalues over the first
    seen.warnings                    # in words, for example too few test samples
    feature_spectrum(..., positions=100)         # only the first: the same numbers for a fraction of the time

From training samples: eigenvalues rho_k of the second moment of the features (not centred, so the first
eigenfunction is mostly the constant) and eigenfunctions e_k(x) = Phi(x)^T u_k / sqrt(rho_k). They are
functions, so they can be evaluated on test samples, where they are orthonormalised in order of eigenvalue
(QR keeps the span of the first k). Quality is sum_k |P e_k|^2 / dim with P the projection on the target
space: the cumulative share. The paper's eq. 5 prints a further square, which its eq. 75 and 76 do not have.

Without QR (`qr=False`) eigenfunctions of small eigenvalues overlap on test samples, parts of the target
are counted twice, and sums exceed 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from undertow.errors import BadData, BadValue
from undertow.latent.spectrum import eigh
from undertow.richness.rows import TOLERANCE, Array, as_tensor, float_rows, same_count


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Eigenvalues and what the eigenfunctions express; all (K,) float64, K the rank or `positions`."""

    eigenvalues: Tensor  # falling
    quality: Tensor  # cumulative, of the target space
    utilisation: Tensor  # cumulative, of the learned space
    intensity: Tensor  # eigenvalues over the first
    feature_quality: Tensor  # each eigenfunction's own part: quality is its running sum
    feature_utilisation: Tensor
    target_rank: int  # dimension of the target space
    learned_rank: int  # dimension of the learned space
    warnings: tuple[str, ...]


def feature_spectrum(
    train_features: Array,
    test_features: Array,
    test_targets: Array,
    test_outputs: Array,
    qr: bool = True,
    *,
    positions: int | None = None,
) -> Spectrum:
    """The spectrum view of features (N, P), evaluated on test samples (M, P).

    Args:
        train_features: give the eigenvalues and eigenfunctions; more samples than features are wanted.
        test_features: of the samples on which everything is compared; more than features are wanted.
        test_targets: target functions (M, C), or class numbers (M,), which become one-hot.
        test_outputs: the network's outputs (M, C).
        qr: orthonormalise the eigenfunctions on the test samples.
        positions: how many eigenfunctions at most, from the largest eigenvalue on; None for all.
    """
    if positions is not None and positions < 1:
        raise BadValue("positions", "1 or more", positions)
    train = float_rows(train_features, "spectrum, train features").double()
    test = float_rows(test_features, "spectrum, test features").double().to(train.device)
    if train.shape[1] != test.shape[1]:
        raise BadData(f"spectrum: wanted test features of width {train.shape[1]}, got {test.shape[1]}.")
    targets, outputs = _functions(test_targets, "test targets"), _functions(test_outputs, "test outputs")
    for functions in (targets, outputs):
        same_count("spectrum", test, functions)
    eigenvalues, vectors = _eigen(train, positions)
    values = test @ vectors / eigenvalues.sqrt()  # (M, K) eigenfunctions at the test samples
    basis = ordered_basis(values) if qr else _unit(values)
    (quality, target_rank), (used, learned_rank) = (
        _expressed(basis, functions.to(train.device), name)
        for functions, name in ((targets, "targets"), (outputs, "outputs"))
    )
    return Spectrum(
        eigenvalues, quality.cumsum(0), used.cumsum(0), eigenvalues / eigenvalues[0], quality, used,
        target_rank, learned_rank, _warnings(train, test, basis, qr),
    )  # fmt: skip


def ordered_basis(columns: Tensor) -> Tensor:
    """(M, K) orthonormal columns whose first k span the same as the first k of `columns`.

    A column that depends on those before it (up to 1e-6 of its length) becomes zeros.
    """
    basis, found = torch.zeros_like(columns), columns.new_zeros(len(columns), 0)
    sizes = columns.norm(dim=0)
    left = torch.arange(columns.shape[1], device=columns.device)
    while len(left):
        rest = columns[:, left]
        if found.shape[1]:
            for _ in range(2):  # once leaves rounding errors of the size of what was taken off
                rest = rest - found @ (found.T @ rest)
        alive = rest.norm(dim=0) > TOLERANCE * sizes[left]
        left = left[alive]
        q, r = torch.linalg.qr(rest[:, alive])
        dependent = (r.diagonal().abs() <= TOLERANCE * sizes[left[: len(r)]]).nonzero().flatten()
        # After a dependent column QR puts an arbitrary direction: go on from there with what is left.
        good = int(dependent[0]) if len(dependent) else len(r)
        basis[:, left[:good]] = q[:, :good]
        found = torch.cat([found, q[:, :good]], 1)
        left = left[good:]
    return basis


def _eigen(train: Tensor, positions: int | None) -> tuple[Tensor, Tensor]:
    """Eigenvalues (K,) above rounding, falling, and their eigenvectors (P, K)."""
    if not float(train.norm()):
        raise BadData("spectrum: wanted training features, got zeros only. The layer is dead.")
    count, wide = len(train), len(train) < train.shape[1]  # on the smaller side
    if wide and positions is None:
        _, sizes, vectors = torch.linalg.svd(train, full_matrices=False)
        values, vectors = sizes.square() / count, vectors.T
    else:
        values, vectors = _largest((train @ train.T if wide else train.T @ train) / count, positions)
    kept = values > max(train.shape) * torch.finfo(torch.float64).eps * values[0]
    values, vectors = values[kept][:positions], vectors[:, kept][:, :positions]
    return values, vectors if len(vectors) == train.shape[1] else train.T @ vectors / (count * values).sqrt()


def _largest(moment: Tensor, positions: int | None) -> tuple[Tensor, Tensor]:
    """Eigenvalues, falling, and eigenvectors of (P, P); a few of many without the rest."""
    size = len(moment)
    if positions is None or 2 * positions > size:
        values, vectors = eigh(moment)
    else:
        from scipy.linalg import eigh as some  # torch has none that stops early

        which = [size - positions, size - 1]
        values, vectors = (
            torch.from_numpy(part).to(moment) for part in some(moment.cpu(), subset_by_index=which)
        )
    return values.flip(0), vectors.flip(1)


def _functions(given: Array, name: str) -> Tensor:
    """(M, C) float64 values of functions at the samples; class numbers become one-hot."""
    found = as_tensor(given)
    if found.ndim == 1:
        whole = not found.is_floating_point() and found.dtype != torch.bool
        if whole and len(found) and int(found.min()) < 0:
            raise BadData(f"spectrum, {name}: wanted class numbers from 0, got {int(found.min())}.")
        found = torch.nn.functional.one_hot(found.long()).double() if whole else found[:, None]
    return float_rows(found, f"spectrum, {name}").double()


def _expressed(basis: Tensor, functions: Tensor, name: str) -> tuple[Tensor, int]:
    """(K,) share of the functions' span that each column of the basis lies in, and the span's dimension."""
    sizes = functions.norm(dim=0)
    if not bool((sizes > 0).any()):
        raise BadData(f"spectrum, test {name}: wanted functions, got zeros only.")
    span, values, _ = torch.linalg.svd(functions[:, sizes > 0] / sizes[sizes > 0], full_matrices=False)
    span = span[:, values > TOLERANCE * values[0]]
    return (span.T @ basis).square().sum(0) / span.shape[1], span.shape[1]


def _unit(columns: Tensor) -> Tensor:
    sizes = columns.norm(dim=0)
    return columns / torch.where(sizes > 0, sizes, 1)


def _warnings(train: Tensor, test: Tensor, basis: Tensor, qr: bool) -> tuple[str, ...]:
    width = train.shape[1]
    zeros = int((basis.norm(dim=0) == 0).sum())
    told = {
        f"{len(test)} test samples for {width} features: with so few the curves reach 1 whatever the features "
        f"(finite size). Take more than {width}.": len(test) <= width,
        f"{len(train)} training samples for {width} features: eigenfunctions of small eigenvalues are noise. "
        f"Take more than {width}.": len(train) <= width,
        f"{zeros} of {basis.shape[1]} eigenfunctions depend on earlier ones on the test samples: they add 0.": zeros,
        "Without QR the eigenfunctions overlap: sums may exceed 1.": not qr,
    }  # fmt: skip
    return tuple(text for text, holds in told.items() if holds)
