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
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from undertow.labels.shelf import IN_MEMORY, Shelf, block_rows
from undertow.labels.views import Plan

RIDGES, COARSE = (0.1, 1.0), 3.0
"""Added to the covariance, relative to its mean variance: directions below it are noise more than signal. The one that
foretells given labels best, out of fold, is taken: few samples, many classes and wrong labels want more of it. The
last is tried too where samples are few."""
FEW, LUCK = 4, 1.0
"""Samples by the width of features, below which they are few: a covariance of so few is mostly chance. And the
standard errors by which a larger ridge may foretell labels worse then: that is luck, and it follows wrong ones less."""
MOST_TRIED, TRIED_SCALES = 5000, (0.5, 1.0, 2.0, 4.0)
"""Samples on which ridges are tried, and scales of their votes by the spread of these."""
WITHIN_FLOOR = 0.01
"""The least share of a direction's variance that lies within classes: a collapsed layer has next to none."""
WIDEST, LEADING = 1024, 512
"""Wider features are turned onto their leading directions."""
MOST_STEPS = 100
LARGEST = 1e4
"""Of rows whose fourth powers, and sums of them, are far from the ends of float32; others are scaled."""
MANY = 4
"""Rows of a class by their width, from which their second moments cost less than steps over all rows."""


def narrowed(rows: Tensor, shelf: Shelf = IN_MEMORY) -> Tensor:
    """Rows in float32, of a size whose powers are finite; wide ones on their leading directions, mean kept."""
    rows = rows.float()
    largest = max(abs(float(end)) for block in shelf.blocks(rows) for end in rows[block].aminmax())
    scale = 2.0 ** math.frexp(largest)[1] if largest and not 1 / LARGEST < largest < LARGEST else 1.0
    if rows.shape[1] <= WIDEST:
        return rows if scale == 1 else _changed(rows, rows.shape[1], lambda part: part / scale, shelf)
    draws = torch.Generator().manual_seed(0)
    basis = torch.randn(rows.shape[1], min(LEADING, *rows.shape), generator=draws).to(rows)
    for _ in range(2):
        turned = torch.zeros_like(basis)
        for block in shelf.blocks(rows):
            part = rows[block] / scale
            turned += part.T @ (part @ basis)
        basis = torch.linalg.qr(turned).Q
    return _changed(rows, basis.shape[1], lambda part: (part / scale) @ basis, shelf)


def _changed(rows: Tensor, columns: int, change: Callable[[Tensor], Tensor], shelf: Shelf) -> Tensor:
    """What becomes of all rows, block by block."""
    made = shelf.beside(rows, columns)
    for block in shelf.blocks(rows):
        made[block] = change(rows[block])
    return made


def are_few(rows: Tensor) -> bool:
    """Whether there are so few samples that the covariance of their features (N, D) is mostly chance."""
    return len(rows) < FEW * rows.shape[1]


def discriminant_votes(rows: Tensor, plan: Plan, shelf: Shelf = IN_MEMORY, *, few: bool = False) -> Tensor:
    """Log-likelihoods (N, C) of the classes, up to a constant of each row, out of fold.

    Args:
        rows: features (N, D).
        plan: who judges whom.
        shelf: where tables lie.
        few: whether a larger ridge is tried too.
    """
    ridges = (*RIDGES, COARSE) if few else RIDGES
    centre = shelf.mean(rows)
    covariance, sizes, sums = _moments(rows, centre, plan, shelf)
    votes = shelf.table(len(rows), plan.classes)
    step = max(1, len(rows) // MOST_TRIED)
    tried = [fold[::step] for fold in plan.folds]
    known = torch.cat(tried)
    known = known[plan.labels[known] >= 0]
    losses = list[Tensor]()
    for ridge in ridges:
        _discriminate(votes, rows, centre, tried, sizes, sums, _factor(covariance, ridge), shelf)
        losses.append(least_losses(votes[known], plan.labels[known]))
    best = _factor(covariance, ridges[coarsest(losses, LUCK if few else 0.0)])
    _discriminate(votes, rows, centre, plan.folds, sizes, sums, best, shelf)
    return votes


def least_losses(votes: Tensor, labels: Tensor) -> Tensor:
    """-log softmax (N,) of labels (N,) by centred votes (N, C), at the scale at which its mean is least."""
    centred = votes - votes.mean(1, keepdim=True)
    centred /= centred.std().clamp(min=1e-12)
    every = [functional.cross_entropy(scale * centred, labels, reduction="none") for scale in TRIED_SCALES]
    return min(every, key=lambda losses: float(losses.mean()))


def coarsest(losses: Sequence[Tensor], luck: float) -> int:
    """The last of some losses (N,) whose mean is the least, or above it by at most so many standard errors."""
    every = torch.stack(list(losses)).double()
    beyond = every - every[every.mean(1).argmin()]
    level = beyond.mean(1) <= luck * beyond.std(1) / every.shape[1] ** 0.5
    return int(level.nonzero()[-1])


def _discriminate(
    votes: Tensor, rows: Tensor, centre: Tensor, folds: Sequence[Tensor], sizes: Tensor, sums: Tensor,
    factor: Tensor, shelf: Shelf,
) -> None:  # fmt: skip
    """Write the votes of samples of each fold, by class means of the others."""
    for at, fold in enumerate(folds):
        left = sizes.sum(0) - sizes[at]
        means = (sums.sum(0) - sums[at]) / left.clamp(min=1)[:, None]
        weights, offsets = (part.to(rows) for part in _discriminants(means, factor, left))
        for block in fold.split(block_rows(max(rows.shape[1], votes.shape[1]))):
            found = (rows[block.to(rows.device)] - centre) @ weights - offsets
            votes[block] = _lowest_where((left == 0).to(rows.device), found).cpu()
            shelf.rest()


def direction_votes(rows: Tensor, plan: Plan, shelf: Shelf = IN_MEMORY) -> Tensor:
    """Cosines (N, C) with the leading direction of each class, out of fold.

    Power iterations for all folds of a class at once: a row counts in every column but that of its own fold.
    """
    vectors = _class_vectors(rows, plan, shelf)
    votes = shelf.table(len(rows), plan.classes)
    for at, fold in enumerate(plan.folds):
        absent = ~vectors[at].any(1)
        for block in fold.split(block_rows(max(rows.shape[1], plan.classes))):
            mine = rows[block.to(rows.device)]
            votes[block] = _lowest_where(absent, _unit(mine) @ vectors[at].T).cpu()
            shelf.rest()
    return votes


def _moments(rows: Tensor, centre: Tensor, plan: Plan, shelf: Shelf) -> tuple[Tensor, Tensor, Tensor]:
    """The covariance (D, D), and each fold's class sizes (F, C) and sums (F, C, D), in float64.

    Of rows less their centre; unlabelled samples count in no class.
    """
    folds, dim = len(plan.folds), rows.shape[1]
    covariance = torch.zeros(dim, dim, dtype=torch.float64)
    sums = torch.zeros(folds * plan.classes, dim, dtype=torch.float64)
    place = torch.where(plan.labelled, plan.fold_of() * plan.classes + plan.labels, -1)
    for block in shelf.blocks(rows):
        part = rows[block] - centre
        covariance += (part.T @ part).cpu()
        taught = plan.labelled[block]
        sums.index_add_(0, place[block][taught], part.cpu()[taught].double())
    sizes = place[plan.labelled].bincount(minlength=len(sums)).double()
    shape = (folds, plan.classes)
    return covariance / len(rows), sizes.reshape(shape), sums.reshape(*shape, dim)


def _discriminants(means: Tensor, factor: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
    """W^-1 M' (D, C) and m' W^-1 m / 2 (C,) of Gaussians with one covariance W within classes.

    Where S is the covariance of all rows, M the class means and P their shares on a diagonal, W = S - M' P M.
    With B = sqrt(P) M S^-1 M' sqrt(P), which is C x C, W^-1 M' = S^-1 M' sqrt(P) (I - B)^-1 / sqrt(P).

    Args:
        means: M (C, D).
        factor: Cholesky's of S (D, D).
        sizes: of the classes (C,).
    """
    solved = torch.cholesky_solve(means.T, factor)  # (D, C)
    shares = (sizes / sizes.sum().clamp(min=1)).sqrt()
    scale = torch.where(sizes > 0, shares, torch.ones_like(shares))
    between, turn = torch.linalg.eigh(shares[:, None] * (means @ solved) * shares)
    within = (1 - between).clamp(min=WITHIN_FLOOR)
    weights = solved @ (scale[:, None] * ((turn / within) @ turn.T) / scale)
    return weights, (means.T * weights).sum(0) / 2


def _lowest_where(absent: Tensor, votes: Tensor) -> Tensor:
    """Votes (N, C) with the lowest of each row for classes (C,) that nobody could learn."""
    if bool(absent.all()):
        return votes
    return torch.where(absent, votes.masked_fill(absent, torch.inf).amin(1, keepdim=True), votes)


def _factor(covariance: Tensor, ridge: float) -> Tensor:
    """Cholesky's factor of a covariance with its ridge."""
    mean_variance = covariance.diagonal().mean()
    # Where all rows are the same they are zeros now and tell no classes apart, whatever they are divided by.
    added = ridge * mean_variance if mean_variance > 0 else torch.ones(())
    return torch.linalg.cholesky(covariance + added * torch.eye(len(covariance)).to(covariance))


def _class_vectors(rows: Tensor, plan: Plan, shelf: Shelf) -> Tensor:
    """(F, C, D): for each fold the leading direction of each class in the others; zeros where there is none."""
    folds, fold_of = torch.arange(len(plan.folds)), plan.fold_of()
    vectors = rows.new_zeros(len(folds), plan.classes, rows.shape[1])
    order = plan.labels.argsort(stable=True)[int((~plan.labelled).sum()) :]
    for one, mine in enumerate(order.split(plan.labels[order].bincount(minlength=plan.classes).tolist())):
        if len(mine) > MANY * rows.shape[1]:
            vectors[:, one] = _leading_of_many(rows, mine, fold_of[mine], len(folds), shelf)
        elif len(mine):
            outside = fold_of[mine] != folds[:, None]  # (F, N of the class)
            vectors[:, one] = _leading(rows[mine.to(rows.device)], outside.to(rows))
        shelf.rest()
    return vectors


def _leading(rows: Tensor, weights: Tensor) -> Tensor:
    """(F, D): for each row of `weights` (F, N) the leading direction of the rows, towards their mean."""
    return _powered(weights @ rows, lambda now: ((now @ rows.T) * weights) @ rows)


def _leading_of_many(rows: Tensor, mine: Tensor, fold_of: Tensor, folds: int, shelf: Shelf) -> Tensor:
    """The same of rows without those of each fold, by their second moments."""
    dim = rows.shape[1]
    sums, seconds = rows.new_zeros(folds, dim).double(), rows.new_zeros(folds, dim, dim).double()
    for at in range(folds):
        for block in mine[fold_of == at].split(block_rows(dim)):
            part = rows[block.to(rows.device)]
            sums[at] += part.double().sum(0)
            seconds[at] += part.T @ part
            shelf.rest()
    others = (seconds.sum(0) - seconds).to(rows)
    return _powered((sums.sum(0) - sums).to(rows), lambda now: (others @ now[:, :, None])[:, :, 0])


def _powered(means: Tensor, step: Callable[[Tensor], Tensor]) -> Tensor:
    """(F, D): where power iterations from the means end, towards the means."""
    now = _unit(means)
    for _ in range(MOST_STEPS):
        after = _unit(step(now))
        still = float((after - now).abs().max()) < 1e-5
        now = after
        if still:
            break
    return now * torch.where((now * means).sum(1, keepdim=True) < 0, -1.0, 1.0)


def _unit(directions: Tensor) -> Tensor:
    lengths = torch.linalg.vector_norm(directions, dim=1, keepdim=True)
    return directions / torch.where(lengths > 0, lengths, torch.ones_like(lengths))
