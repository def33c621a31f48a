"""What the labels of a sample's neighbours say, in blocks: memory never grows with the square of the samples.

    near = neighbour_votes(rows, plan, seed=0)
    near.votes                      # (N, C) float32: log of the smoothed shares of classes among the neighbours
    near.twins                      # how many samples have another with the same features

Neighbours are the nearest by cosine of centred rows. The sample itself is left out, so its label has no vote.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from undertow.labels.shelf import IN_MEMORY, Shelf, slices
from undertow.labels.views import Plan

NEIGHBOURS = 25
PRIOR = 3.0
"""Neighbours' worth of the classes' shares: no class is ruled out by 25 labels."""
WIDEST, DRAWN = 600, 400
"""Wider rows are first thrown onto so many random directions, which keeps cosines within a few hundredths."""
MOST_REFERENCES = 20_000
"""Labelled samples that neighbours are looked for among; a random choice of more."""
BLOCK_CELLS = 8_000_000
"""Cosines held at once."""
SAME = 1 - 1e-6


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Votes of neighbours, and samples that are there twice."""

    votes: Tensor  # (N, C) float32
    twins: int


def neighbour_votes(rows: Tensor, plan: Plan, seed: int, shelf: Shelf = IN_MEMORY) -> Neighbours:
    """Shares of classes among the nearest labelled samples, without the sample itself."""
    draws = torch.Generator().manual_seed(seed)
    directions = _Directions(rows, draws, shelf.mean(rows))
    pool = plan.labelled.nonzero()[:, 0]
    pool = pool[torch.randperm(len(pool), generator=draws)[:MOST_REFERENCES]].sort().values
    references = directions.all_of(pool)
    place = torch.full((len(rows),), -1).index_copy_(0, pool, torch.arange(len(pool)))
    given, prior = plan.labels[pool], PRIOR * plan.shares
    count = min(NEIGHBOURS, len(pool) - 1)
    votes, twins = shelf.table(len(rows), plan.classes), 0
    for block in torch.arange(len(rows)).split(max(1, BLOCK_CELLS // len(pool))):
        near, found = _nearest(directions.of(block), references, place[block], count)
        twins += int((near[:, 0] > SAME).sum())
        counts = prior.repeat(len(block), 1).scatter_add_(1, given[found], torch.ones(found.shape))
        votes[block] = (counts / (count + PRIOR)).clamp(min=1e-6).log()
        shelf.rest()
    return Neighbours(votes, twins)


def _nearest(rows: Tensor, references: Tensor, own: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Cosines (B, K) and places (B, K) of the nearest references, the nearest first; `own` (B,) is not among them."""
    cosines = rows @ references.T
    among = (own >= 0).nonzero()[:, 0]
    cosines[among.to(rows.device), own[among].to(rows.device)] = -torch.inf
    top = cosines.topk(count, 1)
    return top.values.cpu(), top.indices.cpu()


class _Directions:
    """Centred rows of length 1, narrow enough for many products; made when they are asked for."""

    def __init__(self, rows: Tensor, draws: torch.Generator, centre: Tensor) -> None:
        self._rows, self._centre = rows, centre
        wide = rows.shape[1] > WIDEST
        self._onto = torch.randn(rows.shape[1], DRAWN, generator=draws).to(rows) if wide else None

    def all_of(self, numbers: Tensor) -> Tensor:
        """(K, D) of many samples, some at a time: what is made on the way is as large again."""
        width = self._rows.shape[1] if self._onto is None else self._onto.shape[1]
        made = self._rows.new_empty(len(numbers), width)
        for block in slices(len(numbers), 4 * self._rows.shape[1]):
            made[block] = self.of(numbers[block])
        return made

    def of(self, numbers: Tensor) -> Tensor:
        """(K, D) of some samples."""
        rows = self._rows[numbers.to(self._rows.device)] - self._centre
        return functional.normalize(rows if self._onto is None else rows @ self._onto, dim=1)
