"""What a layer says of each training sample's class, learned from the other samples.

    folds = split_folds(labels, classes=10, count=5, seed=0)
    directions_votes(features, labels, folds, classes=10)     # (N, C): cosines with VeLPIC's vectors
    judge = Discriminant(features, folds)
    judge.votes(one_hot(labels))                              # (N, C): log-likelihoods, shared covariance
    judge.votes(beliefs)                                      # the same, learned from shares instead of labels

No sample takes part in what judges it: each fold is judged by class vectors and means of the others. The
covariance of all rows has no labels in it, so one factor serves all folds; leaving a fold out changes only
the class means, and what remains is a solve for C columns and algebra of C x C matrices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from undertow.errors import BadData
from undertow.features.moments import check_rows
from undertow.training.seeds import stream

RIDGE = 0.1
"""Added to the covariance, relative to its mean variance: directions below it are noise more than signal."""
WITHIN_FLOOR = 0.01
"""The least share of a direction's variance that lies within classes: a collapsed layer has next to none."""
WIDEST = 1024
"""Wider features are first turned onto their leading `LEADING` directions."""
LEADING = 512
MOST_STEPS = 100


def split_folds(labels: Tensor, *, classes: int, count: int, seed: int) -> list[Tensor]:
    """`count` disjoint sets of sample numbers, each with its share of every class."""
    sizes = labels.bincount(minlength=classes)
    rare = ((sizes > 0) & (sizes < count)).nonzero()[:, 0].tolist()
    if rare:
        raise BadData(
            f"label_errors: wanted at least {count} samples of each class, one for each fold, got "
            f"{int(sizes[rare[0]])} of class {rare[0]}. Ask for fewer folds (at least 2), or leave such classes out."
        )
    order = torch.randperm(len(labels), generator=stream(seed, "folds of the training samples"))
    by_class = order[labels[order].argsort(stable=True)]
    return [by_class[start::count].sort().values for start in range(count)]


def directions_votes(
    features: Tensor, labels: Tensor, folds: Sequence[Tensor], *, classes: int, where: str = "features"
) -> Tensor:
    """Cosines (N, C) float64 of the rows with VeLPIC's vectors, each fold with those of the other folds.

    Power iterations for all folds of a class at once: a row counts in every column but that of its own fold.
    """
    check_rows(features, where)
    features = _sized(features)
    outside = _outside(folds, len(features), features)
    vectors = features.new_zeros(len(folds), classes, features.shape[1])
    for c in range(classes):
        rows = (labels == c).nonzero()[:, 0].to(features.device)
        if len(rows):
            vectors[:, c] = _leading(features[rows], outside[rows])
    lengths = torch.linalg.vector_norm(features, dim=1, keepdim=True).clamp(
        min=torch.finfo(features.dtype).tiny
    )
    votes = torch.zeros(len(features), classes, dtype=torch.float64)
    for at, fold in enumerate(folds):
        rows = fold.to(features.device)
        votes[fold] = ((features[rows] / lengths[rows]) @ vectors[at].T).cpu().double()
    return votes


def _leading(rows: Tensor, outside: Tensor) -> Tensor:
    """(F, D): for each column of weights `outside` (N, F), the leading direction of the rows, towards their mean."""
    # Few directions lie in rows, not in columns: such products took a sixth of the time here.
    weights = outside.T.contiguous()  # (F, N)
    means = weights @ rows
    now, step = _unit(means), 0
    while step < MOST_STEPS:
        after = _unit(((now @ rows.T) * weights) @ rows)
        still = float((after - now).abs().max()) < 1e-5
        now, step = after, step + 1
        if still:
            break
    return now * torch.where((now * means).sum(1, keepdim=True) < 0, -1.0, 1.0)


def _unit(directions: Tensor) -> Tensor:
    lengths = torch.linalg.vector_norm(directions, dim=1, keepdim=True)
    return directions / torch.where(lengths > 0, lengths, torch.ones_like(lengths))


def _outside(folds: Sequence[Tensor], count: int, like: Tensor) -> Tensor:
    """(N, F): 0 for the fold of a sample, 1 for the others."""
    weights = like.new_ones(count, len(folds))
    for at, fold in enumerate(folds):
        weights[fold.to(like.device), at] = 0
    return weights


def _sized(rows: Tensor) -> Tensor:
    """Divided by a power of two near their largest magnitude: no vote changes, and squares of squares stay finite."""
    largest = float(rows.abs().max())
    return rows / 2.0 ** math.frexp(largest)[1] if largest else rows


class Discriminant:
    """Gaussians of one covariance on the features, out of fold; the covariance of all rows is kept, with a ridge."""

    def __init__(self, features: Tensor, folds: Sequence[Tensor], *, where: str = "features") -> None:
        check_rows(features, where)
        self.folds = folds
        features = _sized(features)
        rows = _narrowed(features - features.mean(0))
        self._factor = _factor(rows)
        self._parts = [rows[fold.to(features.device)] for fold in folds]

    @property
    def bytes(self) -> int:
        """What it takes of memory."""
        return sum(part.numel() * part.element_size() for part in (*self._parts, self._factor))

    def votes(self, beliefs: Tensor) -> Tensor:
        """Log-likelihoods (N, C) float64 of the classes, up to a constant of each row.

        Args:
            beliefs: (N, C) float64 on the CPU: the share of each sample in each class; labels as ones and zeros,
                or better ones.
        """
        sizes = [beliefs[fold].sum(0) for fold in self.folds]
        sums = [
            (beliefs[fold].to(part.device, part.dtype).T @ part).cpu().double()
            for fold, part in zip(self.folds, self._parts, strict=True)
        ]
        all_sizes, all_sums = torch.stack(sizes).sum(0), torch.stack(sums).sum(0)
        votes = torch.empty(len(beliefs), beliefs.shape[1], dtype=torch.float64)
        for fold, part, size, own in zip(self.folds, self._parts, sizes, sums, strict=True):
            left = all_sizes - size
            means = (all_sums - own) / torch.where(left > 0, left, torch.ones_like(left))[:, None]
            solved = torch.cholesky_solve(means.T, self._factor)  # (D, C)
            along = (part @ solved.to(part.device, part.dtype)).cpu().double()
            votes[fold] = _likelihoods(along, means @ solved, left)
        return votes


def _likelihoods(along: Tensor, gram: Tensor, sizes: Tensor) -> Tensor:
    """X' W^-1 m - m' W^-1 m / 2 of Gaussians with one covariance W within classes.

    Where S is the covariance of all rows, M the class means and P their shares on a diagonal, W = S - M' P M.
    With B = sqrt(P) M S^-1 M' sqrt(P), which is C x C, W^-1 M' = S^-1 M' sqrt(P) (I - B)^-1 / sqrt(P).

    Args:
        along: x' S^-1 M' of the rows (N, C).
        gram: M S^-1 M' (C, C).
        sizes: of the classes (C,).
    """
    shares = (sizes / sizes.sum()).sqrt()
    there = sizes > 0
    scale = torch.where(there, shares, torch.ones_like(shares))
    between, turn = torch.linalg.eigh(shares[:, None] * gram * shares)
    within = (1 - between).clamp(min=WITHIN_FLOOR)
    solve = scale[:, None] * ((turn / within) @ turn.T) / scale
    found = along @ solve - (gram @ solve).diagonal() / 2
    return torch.where(there, found, torch.full_like(found, -torch.inf))


def _factor(rows: Tensor) -> Tensor:
    """(D, D) float64 on the CPU: Cholesky's factor of the rows' covariance with its ridge."""
    covariance = (rows.T @ rows).to("cpu", torch.float64) / len(rows)
    mean_variance = covariance.diagonal().mean()
    # Where all rows are the same they are zeros now and tell no classes apart, whatever they are divided by.
    covariance.diagonal().add_(RIDGE * mean_variance if mean_variance > 0 else 1.0)
    return torch.linalg.cholesky(covariance)


def _narrowed(rows: Tensor) -> Tensor:
    """Wide rows, turned onto their leading directions (a randomised range finder with two power steps)."""
    if rows.shape[1] <= WIDEST:
        return rows
    draws = torch.Generator().manual_seed(0)
    probe = torch.randn(rows.shape[1], min(LEADING, *rows.shape), generator=draws).to(rows.device, rows.dtype)
    basis = torch.linalg.qr(rows.T @ (rows @ probe)).Q
    basis = torch.linalg.qr(rows.T @ (rows @ basis)).Q
    return rows @ basis
