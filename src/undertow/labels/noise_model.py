"""How labels go wrong, read off samples whose class is known without their label.

    sure = Anchors.of(honest)                         # honest (N, C): pooled votes of honest voters
    sure.among(0.5)                                   # (N,) bool: the surer half of what each class is named for
    sure.disagreement(0.5, plan)                      # how many of them are given another label
    Anchors.of(everyone).matrix(plan, trust)          # (C, C): P(given | true)
    given_log_belief(clean, labels, matrix)           # (N,): log P(the given label is right | features, label)

Noise and honest overlap of classes cannot be told apart by the likelihood of given labels: a matrix fitted that way,
together with a temperature, calls noise that follows the input overlap and finds next to none. Anchors need another
assumption, which is said: where voters are surest, and those that never learned the labels agree, they are right.
Where these do not agree (trust 0) nothing is known of the matrix and it is even; where overlap may look like noise,
half of it is believed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from undertow.labels.shelf import IN_MEMORY, Shelf
from undertow.labels.views import Plan

MATRIX_SHARE = 0.75
"""The surer three quarters of the samples, named by all voters, tell how labels go wrong."""
PRIOR = 20.0
"""Samples' worth of even noise in each row of the matrix."""
LEAST_RATE = 0.01
SHARPER = 2.0
"""Votes are scaled to foretell given labels, which noise blurs; true classes are sharper (see `noise_kind`)."""


@dataclass(frozen=True, eq=False)
class Anchors:
    """Which class each sample is named by pooled votes, and how surely beside others named the same."""

    named: Tensor  # (N,) int64
    rank: Tensor  # (N,) float32: 0 for the surest of its named class, towards 1 for the least sure

    @classmethod
    def of(cls, pooled: Tensor, shelf: Shelf = IN_MEMORY) -> Anchors:
        """Name each sample by its highest vote, and rank it by the distance to the second."""
        tops = [pooled[rows].topk(2, 1) for rows in shelf.blocks(pooled)]
        margin = torch.cat([top.values[:, 0] - top.values[:, 1] for top in tops])
        named = torch.cat([top.indices[:, 0] for top in tops])
        order = margin.argsort(descending=True, stable=True)
        order = order[named[order].argsort(stable=True)]  # by class, the surest first
        sizes = named.bincount(minlength=pooled.shape[1])
        starts = sizes.cumsum(0) - sizes
        rank = torch.empty(len(named))
        rank[order] = (torch.arange(len(named)) - starts[named[order]]).float() / sizes[named[order]]
        return cls(named, rank)

    def among(self, share: float) -> Tensor:
        """(N,) bool: the surest share of the samples of each named class."""
        return self.rank < share

    def disagreement(self, share: float, plan: Plan) -> float:
        """The share of judged labels among them that is another than the named class."""
        chosen = self.among(share) & plan.judged
        return (
            float((plan.labels[chosen] != self.named[chosen]).float().mean()) if bool(chosen.any()) else 0.0
        )

    def matrix(self, plan: Plan, trust: float) -> Tensor:
        """(C, C) float64, row k: how labels that are truly k are given; even noise where there is no trust."""
        chosen = self.among(MATRIX_SHARE) & plan.judged
        pairs = self.named[chosen] * plan.classes + plan.labels[chosen]
        counts = pairs.bincount(minlength=plan.classes**2).double().reshape(plan.classes, plan.classes)
        rate = max(LEAST_RATE, 1 - float(counts.trace() / counts.sum().clamp(min=1)))
        even = even_matrix(rate, plan.classes)
        found = counts + PRIOR * even
        return trust * found / found.sum(1, keepdim=True) + (1 - trust) * even


def even_matrix(rate: float, classes: int) -> Tensor:
    """Labels wrong at `rate`, every wrong class as likely."""
    matrix = torch.full((classes, classes), rate / (classes - 1), dtype=torch.float64)
    return matrix.fill_diagonal_(1 - rate)


def peakedness(matrix: Tensor) -> float:
    """How far the wrong labels of a class go into one other: 0 evenly, 1 all of them; 0 for two classes."""
    if len(matrix) < 3:
        return 0.0
    wrong = matrix.clone().fill_diagonal_(0)
    most = float((wrong.amax(1) / wrong.sum(1).clamp(min=1e-12)).mean())
    even = 1 / (len(matrix) - 1)
    return max(0.0, (most - even) / (1 - even))


def true_chances(pooled: Tensor, shelf: Shelf = IN_MEMORY, sharper: float = SHARPER) -> Tensor:
    """P(true class | features) (N, C) float32 from pooled votes at the scale that foretells given labels; in place."""
    for rows in shelf.blocks(pooled):
        pooled[rows] = (sharper * pooled[rows]).softmax(1)
    return pooled


def believe(clean: Tensor, labels: Tensor, matrix: Tensor) -> Tensor:
    """P(true class | features, given label) (N, C) float32; what has no label is believed as its features say."""
    column = matrix.T[labels.clamp(min=0)].float()
    joint = torch.where(labels[:, None] >= 0, clean * column, clean)
    return joint / joint.sum(1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)


def margins(pooled: Tensor, labels: Tensor, shelf: Shelf = IN_MEMORY) -> Tensor:
    """How much likelier another label is here than the given one (N,) float64, -1 to 1, by votes that foretell labels.

    A difference of chances, not of their logarithms: where voters are unsure, nothing is far.
    """
    found = torch.zeros(len(pooled), dtype=torch.float64)
    for rows in shelf.blocks(pooled):
        likely, given = pooled[rows].double().softmax(1), labels[rows].clamp(min=0)[:, None]
        found[rows] = likely.scatter(1, given, 0.0).amax(1) - likely.gather(1, given)[:, 0]
    return found.masked_fill_(labels < 0, -1.0)


def reordered(scores: Tensor, by: Tensor, say: float) -> Tensor:
    """The same scores (N,), handed out by the mean of both ranks: `by` (N,) has so much of a say, 0 to 1."""
    if not say:
        return scores
    ranks = [one.argsort(stable=True).argsort(stable=True).double() for one in (scores, by)]
    order = ((1 - say) * ranks[0] + say * ranks[1]).argsort(stable=True)
    return torch.empty_like(scores).index_copy_(0, order, scores.sort().values)


def given_log_belief(
    pooled: Tensor, labels: Tensor, matrix: Tensor, shelf: Shelf = IN_MEMORY, sharper: float = SHARPER
) -> Tensor:
    """Log of P(given label is right | features, label) (N,) float64, from pooled votes; 0 where there is no label.

    In logarithms: ranking the surest errors needs chances far below what float32 holds beside 1.
    """
    found = torch.zeros(len(pooled), dtype=torch.float64)
    ways = matrix.log().T  # row g: log P(given g | true k)
    for rows in shelf.blocks(pooled):
        given = labels[rows].clamp(min=0)
        joint = sharper * pooled[rows].double() + ways[given]
        found[rows] = joint.log_softmax(1).gather(1, given[:, None])[:, 0]
    return found.masked_fill_(labels < 0, 0.0)
