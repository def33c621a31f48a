"""What features say of each sample's class, learned from the other samples' given labels.

    rows = narrowed(view.rows)
    discriminant_votes(rows, plan)        # (N, C) float32: log-likelihoods of Gaussians with one covariance
    direction_votes(rows, plan)           # (N, C) float32: cosines with VeLPIC's class vectors

Each fold is judged by class means and vectors of the others. The covariance of all rows has no label in it, so that
one factor serves all folds; leaving a fold out changes class means only, and the rest is algebra of C x C matrices.
A class that the other folds do not have gets the lowest vote of the row.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from undertow.labels.views import Plan

RIDGE = 0.1
"""Added to the covariance, relative to its mean variance: directions below it are noise more than signal."""
WITHIN_FLOOR = 0.01
"""The least share of a direction's variance that lies within classes: a collapsed layer has next to none."""
WIDEST, LEADING = 1024, 512
"""Wider features are turned onto their leading directions."""
MOST_STEPS = 100
BLOCK = 16_384
"""Rows that are judged at once, in float64."""


def narrowed(rows: Tensor) -> Tensor:
    """Rows in float32, of a size whose squares are finite; wide ones on their leading directions, mean kept."""
    rows = rows.float()
    largest = float(rows.abs().max())
    rows = rows / 2.0 ** math.frexp(largest)[1] if largest else rows
    if rows.shape[1] <= WIDEST:
        return rows
    draws = torch.Generator().manual_seed(0)
    probe = torch.randn(rows.shape[1], min(LEADING, *rows.shape), generator=draws).to(rows)
    basis = torch.linalg.qr(rows.T @ (rows @ probe)).Q
    basis = torch.linalg.qr(rows.T @ (rows @ basis)).Q
    return rows @ basis


def discriminant_votes(rows: Tensor, plan: Plan) -> Tensor:
    """Log-likelihoods (N, C) of the classes, up to a constant of each row, out of fold."""
    rows = rows - rows.mean(0)
    factor = _factor(rows)
    parts = [_sums(rows, plan.labels, fold, plan.classes) for fold in plan.folds]
    all_sizes, all_sums = sum(size for size, _ in parts), sum(total for _, total in parts)
    votes = torch.empty(len(rows), plan.classes)
    for fold, (size, total) in zip(plan.folds, parts, strict=True):
        left = all_sizes - size
        means = (all_sums - total) / left.clamp(min=1)[:, None]
        solved = torch.cholesky_solve(means.T, factor)  # (D, C)
        for block in fold.split(BLOCK):
            along = (rows[block.to(rows.device)] @ solved.to(rows)).cpu().double()
            votes[block] = _likelihoods(along, means @ solved, left).float()
    return votes


def direction_votes(rows: Tensor, plan: Plan) -> Tensor:
    """Cosines (N, C) with the leading direction of each class, out of fold.

    Power iterations for all folds of a class at once: a row counts in every column but that of its own fold.
    """
    fold_of = plan.fold_of()
    vectors = rows.new_zeros(len(plan.folds), plan.classes, rows.shape[1])
    for one in range(plan.classes):
        mine = (plan.labels == one).nonzero()[:, 0]
        if len(mine):
            outside = fold_of[mine] != torch.arange(len(plan.folds))[:, None]  # (F, N of the class)
            vectors[:, one] = _leading(rows[mine.to(rows.device)], outside.to(rows))
    lengths = torch.linalg.vector_norm(rows, dim=1, keepdim=True).clamp(min=torch.finfo(rows.dtype).tiny)
    votes = torch.empty(len(rows), plan.classes)
    for at, fold in enumerate(plan.folds):
        for block in fold.split(BLOCK):
            mine = block.to(rows.device)
            votes[block] = _lowest_where(
                ~vectors[at].any(1), (rows[mine] / lengths[mine]) @ vectors[at].T
            ).cpu()
    return votes


def _sums(rows: Tensor, labels: Tensor, fold: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Sizes (C,) and sums (C, D) float64 of a fold's classes; unlabelled samples count nowhere."""
    taught = fold[labels[fold] >= 0]
    total = rows.new_zeros(classes, rows.shape[1])
    total.index_add_(0, labels[taught].to(rows.device), rows[taught.to(rows.device)])
    return labels[taught].bincount(minlength=classes).double(), total.cpu().double()


def _likelihoods(along: Tensor, gram: Tensor, sizes: Tensor) -> Tensor:
    """X' W^-1 m - m' W^-1 m / 2 of Gaussians with one covariance W within classes.

    Where S is the covariance of all rows, M the class means and P their shares on a diagonal, W = S - M' P M.
    With B = sqrt(P) M S^-1 M' sqrt(P), which is C x C, W^-1 M' = S^-1 M' sqrt(P) (I - B)^-1 / sqrt(P).

    Args:
        along: x' S^-1 M' of the rows (N, C).
        gram: M S^-1 M' (C, C).
        sizes: of the classes (C,).
    """
    shares = (sizes / sizes.sum().clamp(min=1)).sqrt()
    there = sizes > 0
    scale = torch.where(there, shares, torch.ones_like(shares))
    between, turn = torch.linalg.eigh(shares[:, None] * gram * shares)
    within = (1 - between).clamp(min=WITHIN_FLOOR)
    solve = scale[:, None] * ((turn / within) @ turn.T) / scale
    return _lowest_where(~there, along @ solve - (gram @ solve).diagonal() / 2)


def _lowest_where(absent: Tensor, votes: Tensor) -> Tensor:
    """Votes (N, C) with the lowest of each row for classes (C,) that nobody could learn."""
    if bool(absent.all()):
        return votes
    return torch.where(absent, votes.masked_fill(absent, torch.inf).amin(1, keepdim=True), votes)


def _factor(rows: Tensor) -> Tensor:
    """(D, D) float64 on the CPU: Cholesky's factor of the rows' covariance with its ridge."""
    covariance = (rows.T @ rows).to("cpu", torch.float64) / len(rows)
    mean_variance = covariance.diagonal().mean()
    # Where all rows are the same they are zeros now and tell no classes apart, whatever they are divided by.
    covariance.diagonal().add_(RIDGE * mean_variance if mean_variance > 0 else 1.0)
    return torch.linalg.cholesky(covariance)


def _leading(rows: Tensor, weights: Tensor) -> Tensor:
    """(F, D): for each row of `weights` (F, N) the leading direction of the rows, towards their mean."""
    means = weights @ rows
    now = _unit(means)
    for _ in range(MOST_STEPS):
        after = _unit(((now @ rows.T) * weights) @ rows)
        still = float((after - now).abs().max()) < 1e-5
        now = after
        if still:
            break
    return now * torch.where((now * means).sum(1, keepdim=True) < 0, -1.0, 1.0)


def _unit(directions: Tensor) -> Tensor:
    lengths = torch.linalg.vector_norm(directions, dim=1, keepdim=True)
    return directions / torch.where(lengths > 0, lengths, torch.ones_like(lengths))
