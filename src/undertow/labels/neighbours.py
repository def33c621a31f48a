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


def neighbour_votes(rows: Tensor, plan: Plan, seed: int) -> Neighbours:
    """Shares of classes among the nearest labelled samples, without the sample itself."""
    draws = torch.Generator().manual_seed(seed)
    unit = _directions(rows, draws)
    pool = plan.labelled.nonzero()[:, 0]
    pool = pool[torch.randperm(len(pool), generator=draws)[:MOST_REFERENCES]].sort().values
    place = torch.full((len(rows),), -1).index_copy_(0, pool, torch.arange(len(pool)))
    given, prior = plan.labels[pool], PRIOR * plan.shares
    count = min(NEIGHBOURS, len(pool) - 1)
    votes, twins = torch.empty(len(rows), plan.classes), 0
    for block in torch.arange(len(rows)).split(max(1, BLOCK_CELLS // len(pool))):
        near, found = _nearest(unit, block, pool, place, count)
        twins += int((near[:, 0] > SAME).sum())
        counts = prior.repeat(len(block), 1).scatter_add_(1, given[found], torch.ones(found.shape))
        votes[block] = (counts / (count + PRIOR)).clamp(min=1e-6).log()
    return Neighbours(votes, twins)


def _nearest(unit: Tensor, block: Tensor, pool: Tensor, place: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Cosines (B, K) and places in the pool (B, K) of the nearest samples, the nearest first."""
    cosines = unit[block.to(unit.device)] @ unit[pool.to(unit.device)].T
    own = (place[block] >= 0).nonzero()[:, 0]
    cosines[own.to(unit.device), place[block[own]].to(unit.device)] = -torch.inf
    top = cosines.topk(count, 1)
    return top.values.cpu(), top.indices.cpu()


def _directions(rows: Tensor, draws: torch.Generator) -> Tensor:
    """Centred rows of length 1, narrow enough for many products."""
    rows = rows.float() - rows.float().mean(0)
    if rows.shape[1] > WIDEST:
        rows = rows @ torch.randn(rows.shape[1], DRAWN, generator=draws).to(rows)
    return functional.normalize(rows, dim=1)
