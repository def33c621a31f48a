"""Votes of many voters, folded in as they come.

    pool = Pool(plan)
    pool.add_view(discriminant, directions, view)       # (N, C) votes of one view; nothing of them is kept
    pool.add_neighbours(votes, "inputs")
    pool.add_outputs(logits, epoch=4)
    pool.honest()                                       # (N, C): by voters that cannot have learned labels
    pool.everyone(trust)                                # (N, C): by all

A vote is centred and scaled to where, as a softmax, it foretells given labels best: out of fold, so a voter that knows
nothing shrinks to nothing. Weights beyond that were tried (stacking on given labels, on neighbours' labels) and lost
to plain averages: given labels reward voters that learned them by heart, neighbours' labels reward neighbours.
A network's own answers were learned from the very label that is judged, so their scale cannot be found in this way:
they get the share of one probe.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from undertow.errors import BadData
from undertow.labels.views import Plan, Seen

SCALES = torch.logspace(-2, 1.3, 23)
MOST_ROWS = 5000
"""Samples on which a scale is sought: one number needs no more."""


@dataclass(frozen=True)
class Voter:
    """Who voted, and what it weighs."""

    name: str
    kind: str
    scale: float  # of its centred votes in units of their own spread; 0.01 is next to nothing
    agreement: float  # share of labelled samples whose given label is its first choice
    reason: str


class Pool:
    """Sums of scaled votes (N, C) float32; what is never added takes no memory."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.voters: list[Voter] = []
        self.first_choices: list[Tensor] = []  # of honest voters: (N,) int32
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}

    def add_view(self, votes: Iterable[tuple[str, Tensor]], view: Seen) -> None:
        """Fold in what probes say of a view, as (kind of probe, votes)."""
        part = "early" if view.honest else "late"
        reason = "made without these labels" if view.untouched else "out of fold"
        for kind, vote in votes:
            self._add(part, vote, Voter(view.title, kind, 0.0, 0.0, reason), honest=view.honest)

    def add_probabilities(self, likely: Tensor, name: str) -> None:
        """Fold in out-of-sample probabilities; they speak for both probes of a view."""
        vote = likely.float().clamp(min=1e-6).log()
        self._add(
            "early",
            vote,
            Voter(name, "probabilities", 0.0, 0.0, "out of sample, as given"),
            honest=True,
            share=2,
        )

    def add_neighbours(self, vote: Tensor, name: str) -> None:
        """Fold in votes of neighbours in a view that saw no labels, or hardly any."""
        self._add("near", vote, Voter(name, "neighbours", 0.0, 0.0, "without the sample itself"), honest=True)

    def add_outputs(self, logits: Tensor, epoch: float) -> None:
        """Fold in a checkpoint's own answers."""
        voter = Voter(
            f"answers at epoch {epoch:g}", "dynamics", 0.0, 0.0, "in sample: together as much as one probe"
        )
        self._add("said", logits.float().cpu(), voter, honest=False)

    @property
    def has_honest(self) -> bool:
        """Whether any voter cannot have memorised labels."""
        return "early" in self._sums or "near" in self._sums

    def honest(self) -> Tensor:
        """(N, C) by voters that cannot have learned labels; by all where there are none."""
        if not self.has_honest:
            return self.everyone(0.0)
        return _add_up([(self._mean("early"), 2.0), (self._mean("near"), 1.0)])

    def everyone(self, trust: float) -> Tensor:
        """(N, C) by all voters; neighbours count in full where `trust` is 1, half where it is 0."""
        probes = self._probes()
        near, said = self._mean("near"), self._mean("said")
        spread = float(probes.std()) if probes is not None else 1.0
        level = 1.0 if said is None else spread / max(float(said.std()), 1e-12)
        return _add_up([(probes, 2.0), (near, 0.5 + 0.5 * trust), (said, level)])

    def _probes(self) -> Tensor | None:
        """The mean vote of probes on all views."""
        parts = [name for name in ("early", "late") if name in self._sums]
        if not parts:
            return None
        total = sum(self._counts[name] for name in parts)
        return _add_up([(self._sums[name], 1.0 / total) for name in parts])

    def _mean(self, part: str) -> Tensor | None:
        return self._sums[part] / self._counts[part] if part in self._sums else None

    def _add(self, part: str, vote: Tensor, voter: Voter, *, honest: bool, share: int = 1) -> None:
        if vote.shape != (len(self.plan.labels), self.plan.classes):
            raise BadData(
                f"{voter.name}: wanted ({len(self.plan.labels)}, {self.plan.classes}), samples by classes, "
                f"got {tuple(vote.shape)}."
            )
        vote, scale = tempered(vote, self.plan)
        first = vote.argmax(1).int()
        known = self.plan.labelled
        agreement = float((first[known] == self.plan.labels[known]).float().mean())
        self.voters.append(Voter(voter.name, voter.kind, scale, agreement, voter.reason))
        if honest:
            self.first_choices.append(first)
        self._counts[part] = self._counts.get(part, 0) + share
        held = self._sums.get(part)
        self._sums[part] = vote.mul_(share) if held is None else held.add_(vote, alpha=share)


def tempered(vote: Tensor, plan: Plan) -> tuple[Tensor, float]:
    """The vote, each row centred, at the scale at which its softmax foretells given labels best; and that scale."""
    if not torch.isfinite(vote).all():
        raise BadData("votes: wanted finite numbers, got NaN or infinity.")
    vote = vote - vote.mean(1, keepdim=True)
    vote /= max(float(vote.std()), 1e-12)
    known = plan.labelled.nonzero()[:, 0]
    known = known[:: max(1, len(known) // MOST_ROWS)]
    seen, given = vote[known], plan.labels[known]
    losses = torch.stack([functional.cross_entropy(scale * seen, given) for scale in SCALES])
    scale = float(SCALES[losses.argmin()])
    return vote.mul_(scale), scale


def _add_up(parts: list[tuple[Tensor | None, float]]) -> Tensor:
    """The weighted sum of those that are there."""
    there = [(part, weight) for part, weight in parts if part is not None]
    if not there:
        raise BadData("judge_labels: wanted views, outputs or probabilities, got nothing to judge labels by.")
    total = there[0][0] * there[0][1]
    for part, weight in there[1:]:
        total.add_(part, alpha=weight)
    return total
