"""Votes of many voters, folded in as they come.

    pool = Pool(plan)
    pool.add_view(discriminant, directions, view)       # (N, C) votes of one view; nothing of them is kept
    pool.add_neighbours(votes, "inputs")
    pool.add_outputs(logits, epoch=4)
    pool.honest()                                       # (N, C): by voters that cannot have memorised labels
    pool.everyone()                                     # (N, C): by all

A vote is centred and scaled to where, as a softmax, it foretells given labels best: out of fold, so a voter that knows
nothing shrinks to nothing. Beyond that it weighs the square of its agreement with given labels, unless it comes by
that through memorising them: where a network repeats more of its labels than a probe on its first layer
foretells out of fold, by a tenth, its layers count half. Weights learned by stacking, on given labels or on
neighbours' labels, lost to plain averages: the first reward memorising, the second reward neighbours.
A network's own answers were learned from the very label that is judged, so no scale can be found for them in this
way: they get half the say of a probe. Outputs come before the views of their epoch, since they tell what is memorised.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from undertow.errors import BadData
from undertow.labels.views import Plan, ViewSource

SCALES = torch.logspace(-2, 1.3, 23)
MOST_ROWS = 5000
"""Samples on which a scale is sought: one number needs no more."""
MEMORISED = 0.1
"""What a network may know of given labels beyond its first layer's probe until its layers count half."""
ANSWERS = 0.5
"""The say of the network's answers beside that of a probe."""
NEIGHBOURS, FEW_NEIGHBOURS = 1.0, 0.4
"""The say of neighbours beside that of a probe: without and with voters that learned, which know classes better."""


@dataclass(frozen=True)
class Voter:
    """Who voted, and what it weighs."""

    name: str
    kind: str
    scale: float  # of its centred votes in units of their own spread; 0.01 is next to nothing
    agreement: float  # share of labelled samples whose given label is its first choice
    weight: float  # beside others of its part: probes, neighbours or answers
    reason: str


class Pool:
    """Sums of scaled votes (N, C) float32; what is never added takes no memory."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.voters: list[Voter] = []
        self.first_choices: list[Tensor] = []  # of honest voters: (N,) int32
        self._sums: dict[str, Tensor] = {}
        self._weights: dict[str, float] = {}
        self._repeated: dict[float, float] = {}  # epoch -> share of given labels that the network answers
        self._foretold: dict[float, float] = {}  # epoch -> agreement of the first probe on its first view

    def add_view(self, votes: Iterable[tuple[str, Tensor]], view: ViewSource) -> None:
        """Fold in what probes say of a view, as (kind of probe, votes); shallow layers of an epoch before deep ones."""
        part = "early" if view.honest else "late"
        for kind, vote in votes:
            vote, voter = self._heard(vote, view.title, kind)
            shallow = self._foretold.setdefault(view.epoch, voter.agreement)
            memorised = max(0.0, self._repeated.get(view.epoch, voter.agreement) - shallow)
            if view.untouched:
                memorised = 0.0
            weight = voter.agreement**2 / (1 + (memorised / MEMORISED) ** 2)
            reason = "saw no label" if view.untouched else f"{100 * memorised:.0f} % of labels memorised"
            self._add(part, vote, replace(voter, weight=weight, reason=reason), honest=view.honest)

    def add_probabilities(self, likely: Tensor, name: str) -> None:
        """Fold in out-of-sample probabilities; they speak for both probes of a view."""
        vote, voter = self._heard(likely.float().clamp(min=1e-6).log(), name, "probabilities")
        weight = 2 * voter.agreement**2
        self._add("early", vote, replace(voter, weight=weight, reason="out of sample, as given"), honest=True)

    def add_neighbours(self, vote: Tensor, name: str) -> None:
        """Fold in votes of neighbours in a view that saw no labels, or hardly any."""
        vote, voter = self._heard(vote, name, "neighbours")
        self._add("near", vote, replace(voter, reason="without the sample itself"), honest=True)

    def add_outputs(self, logits: Tensor, epoch: float) -> None:
        """Fold in a checkpoint's own answers."""
        vote, voter = self._heard(
            logits.to("cpu", torch.float32, copy=True), f"answers at epoch {epoch:g}", "dynamics"
        )
        self._repeated[epoch] = voter.agreement
        self._add(
            "said", vote, replace(voter, reason="in sample: half the say of a probe, together"), honest=False
        )

    @property
    def has_honest(self) -> bool:
        """Whether any voter cannot have memorised labels."""
        return "early" in self._sums or "near" in self._sums

    @property
    def has_learned(self) -> bool:
        """Whether any voter has learned the labels."""
        return "late" in self._sums or "said" in self._sums

    def honest(self) -> Tensor:
        """(N, C) by voters that cannot have memorised labels; by all where there are none."""
        if not self.has_honest:
            return self.everyone()
        return self._table({"early": 2 / self._weight("early"), "near": 1 / self._weight("near")})

    def everyone(self) -> Tensor:
        """(N, C) by all voters."""
        probe = 2 / self._weight("early", "late")
        near = FEW_NEIGHBOURS if self.has_learned else NEIGHBOURS
        share = {"early": probe, "late": probe, "near": near / self._weight("near")}
        if "said" in self._sums:
            others = self._spread({"early": probe / 2, "late": probe / 2})
            share["said"] = ANSWERS * others / max(self._spread({"said": 1.0}), 1e-12)
        return self._table(share)

    def _weight(self, *parts: str) -> float:
        """The weights of all voters of some parts; 1 where there are none."""
        return sum(self._weights.get(part, 0.0) for part in parts) or 1.0

    def _table(self, share: Mapping[str, float], rows: slice = slice(None)) -> Tensor:
        """The sum of parts, each times its share: one new table, whatever there is."""
        there = [part for part in share if part in self._sums]
        if not there:
            raise BadData(
                "judge_labels: wanted views, outputs or probabilities, got nothing to judge labels by."
            )
        total = self._sums[there[0]][rows] * share[there[0]]
        for part in there[1:]:
            total.add_(self._sums[part][rows], alpha=share[part])
        return total

    def _spread(self, share: Mapping[str, float]) -> float:
        """The standard deviation of a sum of parts, on some rows; 1 where there are none."""
        if not any(part in self._sums for part in share):
            return 1.0
        step = max(1, len(self.plan.labels) // MOST_ROWS)
        return float(self._table(share, slice(None, None, step)).std())

    def _heard(self, vote: Tensor, name: str, kind: str) -> tuple[Tensor, Voter]:
        """The vote at its scale, and who gave it."""
        if vote.shape != (len(self.plan.labels), self.plan.classes):
            raise BadData(
                f"{name}: wanted ({len(self.plan.labels)}, {self.plan.classes}), samples by classes, "
                f"got {tuple(vote.shape)}."
            )
        if not torch.isfinite(vote).all():
            raise BadData(f"{name}: wanted finite numbers, got NaN or infinity.")
        vote, scale = tempered(vote, self.plan)
        known = self.plan.labelled
        agreement = float((vote[known].argmax(1) == self.plan.labels[known]).float().mean())
        return vote, Voter(name, kind, scale, agreement, 1.0, "")

    def _add(self, part: str, vote: Tensor, voter: Voter, *, honest: bool) -> None:
        self.voters.append(voter)
        if honest:
            self.first_choices.append(vote.argmax(1).int())
        weight = max(voter.weight, 1e-6)
        self._weights[part] = self._weights.get(part, 0.0) + weight
        held = self._sums.get(part)
        self._sums[part] = vote.mul_(weight) if held is None else held.add_(vote, alpha=weight)


def tempered(vote: Tensor, plan: Plan) -> tuple[Tensor, float]:
    """The vote, each row centred, at the scale at which its softmax foretells given labels best; and that scale.

    In place: a table of all samples and classes is not copied.
    """
    vote -= vote.mean(1, keepdim=True)
    vote /= max(float(vote.std()), 1e-12)
    known = plan.labelled.nonzero()[:, 0]
    known = known[:: max(1, len(known) // MOST_ROWS)]
    seen, given = vote[known], plan.labels[known]
    losses = torch.stack([functional.cross_entropy(scale * seen, given) for scale in SCALES])
    scale = float(SCALES[losses.argmin()])
    return vote.mul_(scale), scale
