"""Votes of many voters, folded in as they come.

    pool = Pool(plan)
    pool.add_view(discriminant, directions, view)       # (N, C) votes of one view; nothing of them is kept
    pool.add_neighbours(votes, "inputs")
    pool.add_outputs(logits, epoch=4)
    pool.forget_untouched()                             # what views without labels said, to be said anew
    pool.honest()                                       # (N, C): by voters that cannot have memorised labels
    pool.everyone()                                     # (N, C): by all

A vote is centred and scaled to where, as a softmax, it foretells given labels best: out of fold, so a voter that knows
nothing shrinks to nothing. Beyond that it weighs the fourth power of what it foretells of given labels, less what it
may have by memorising them: where a network repeats more of its labels than a probe on its first layer foretells out
of fold, the difference is not credited, and at a tenth its layers count half. Votes of class directions are summed
apart: the kind of noise decides how much they are heard (`noise_kind`). Weights learned by stacking, on given labels
or on neighbours' labels, lost to plain averages: the first reward memorising, the second reward neighbours.
A network's own answers were learned from the very label that is judged, so no scale can be found for them in this
way: they get half the say of a probe. Outputs come before the views of their epoch, since they tell what is memorised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from undertow.errors import BadData
from undertow.labels.honest import skill_of
from undertow.labels.shelf import IN_MEMORY, Shelf
from undertow.labels.views import Plan, ViewSource

SCALES = torch.logspace(-2, 1.3, 23)
MOST_ROWS = 5000
"""Samples on which a scale is sought: one number needs no more."""
MEMORISED = 0.1
"""What a network may know of given labels beyond its first layer's probe until its layers count half."""
TELLING = 3
"""Class directions weigh as the discriminant of their view, times this power of how much better they tell given labels
from any other class. The first choice is no guide where labels are wrong blindly: what is asked is whether a sample may
be of the given class at all, and with many classes and few samples of each, directions know that better."""
POWER, LEAST_CREDIT = 4, 0.01
"""How much more a voter weighs that foretells more; what foretells nothing still weighs this much."""
UNTOUCHED, EARLY, LATE, NEAR, SAID = "untouched", "early", "late", "near", "said"
"""Parts of votes: of views that saw no label, of layers that saw each once or twice, of later ones, of neighbours, and
the network's own answers."""
COARSE = " directions"
"""Of the parts in which votes of class directions are summed, apart from those of discriminants."""
LEARNED_SAYS = (1.0, 0.5, 0.25, 0.1, 0.0)
"""Of voters that may have memorised labels, tried in this order."""
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

    def __init__(self, plan: Plan, shelf: Shelf = IN_MEMORY) -> None:
        self.plan, self.shelf = plan, shelf
        self.first_choices: list[Tensor] = []  # of honest voters: (N,) int32
        self._voters: dict[str, list[Voter]] = {}
        self._sums: dict[str, Tensor] = {}
        self._weights: dict[str, float] = {}
        self._repeated: dict[float, float] = {}  # epoch -> share of given labels that the network answers
        self._foretold: dict[float, float] = {}  # epoch -> agreement of the first probe on its first view
        self._untouched: set[bool] = set()  # of all views: whether no label has gone into them

    @property
    def voters(self) -> tuple[Voter, ...]:
        """Who voted, part by part."""
        return tuple(voter for part in self._voters.values() for voter in part)

    def forget_untouched(self) -> None:
        """Leave out what views that saw no label said, neighbours in them included."""
        for part in (UNTOUCHED, UNTOUCHED + COARSE, NEAR):
            for held in (self._sums, self._weights, self._voters):
                held.pop(part, None)

    def add_view(self, votes: Iterable[tuple[str, Tensor]], view: ViewSource) -> None:
        """Fold in what probes say of a view, as (kind of probe, votes); shallow layers of an epoch before deep ones."""
        first = None  # weight of the discriminant, and what it tells
        self._untouched.add(view.untouched)
        for kind, vote in votes:
            part = _part_of(view) + (COARSE if kind == "directions" else "")
            vote, voter = self._heard(vote, view.title, kind)
            shallow = self._foretold.setdefault(view.epoch, voter.agreement)
            memorised = max(0.0, self._repeated.get(view.epoch, voter.agreement) - shallow)
            if view.untouched:
                memorised = 0.0
            elif (
                kind == "directions"
            ):  # they hardly follow what the network memorises, unless it shows in their own
                memorised = min(memorised, max(0.0, voter.agreement - shallow))
            weight = self._weight_of(voter, memorised)
            if view.untouched:
                telling = max(self._telling(vote), LEAST_CREDIT)
                first = first or (weight, telling)
                weight = first[0] * (telling / first[1]) ** TELLING
            reason = "saw no label" if view.untouched else f"{100 * memorised:.0f} % of labels memorised"
            self._add(part, vote, replace(voter, weight=weight, reason=reason), honest=view.honest)
            del vote  # the next one may be made only now, in the same room

    def add_probabilities(self, likely: Tensor, name: str) -> None:
        """Fold in out-of-sample probabilities; they speak for both probes of a view."""
        logs = self._table_of(likely, lambda part: part.float().clamp(min=1e-6).log())
        vote, voter = self._heard(logs, name, "probabilities")
        weight = 2 * self._weight_of(voter, 0.0)
        self._add(EARLY, vote, replace(voter, weight=weight, reason="out of sample, as given"), honest=True)

    def add_neighbours(self, vote: Tensor, name: str) -> None:
        """Fold in votes of neighbours in a view that saw no labels, or hardly any."""
        vote, voter = self._heard(vote, name, "neighbours")
        reason = "without the sample itself"
        self._add(NEAR, vote, replace(voter, weight=self._weight_of(voter, 0.0), reason=reason), honest=True)

    def add_outputs(self, logits: Tensor, epoch: float) -> None:
        """Fold in a checkpoint's own answers."""
        vote, voter = self._heard(
            self._table_of(logits, Tensor.float), f"answers at epoch {epoch:g}", "dynamics"
        )
        self._repeated[epoch] = voter.agreement
        self._add(
            SAID, vote, replace(voter, reason="in sample: half the say of a probe, together"), honest=False
        )

    @property
    def has_honest(self) -> bool:
        """Whether any voter cannot have memorised labels."""
        honest = (UNTOUCHED, UNTOUCHED + COARSE, EARLY, EARLY + COARSE, NEAR)
        return any(part in self._sums for part in honest)

    @property
    def only_taught_views(self) -> bool:
        """Whether each view, short as it may have learned, comes from a network that learned these labels."""
        return self._untouched == {False}

    @property
    def has_learned(self) -> bool:
        """Whether any voter has learned the labels."""
        return any(part in self._sums for part in (LATE, LATE + COARSE, SAID))

    def honest(self) -> Tensor:
        """(N, C) by voters that cannot have memorised labels; by all where there are none."""
        if not self.has_honest:
            return self.everyone()
        return self._table({**self._probes((UNTOUCHED, EARLY), 1.0), NEAR: self._near(NEIGHBOURS)})

    def everyone(self, directions: float = 1.0, learned: float = 1.0) -> Tensor:
        """(N, C) by all voters.

        Args:
            directions: the say of class directions beside discriminants.
            learned: the say of voters that may have memorised labels beside the one that their weights give them.
        """
        return self._table(self._shares(directions, learned))

    def say_of_learned(self, surely_wrong: float, directions: float = 1.0) -> float:
        """The most that learned voters may say if all together are to contradict what is surely wrong.

        A pool that agrees with more labels than can be right knows them by heart. On some rows: it is one number.
        """
        if not (self.has_learned and self.has_honest):
            return 1.0
        rows = slice(None, None, max(1, len(self.plan.labels) // MOST_ROWS))
        judged, given = self.plan.judged[rows], self.plan.labels[rows]
        for say in LEARNED_SAYS:
            named = self._sum(self._shares(directions, say), rows).argmax(1)
            if float((named != given)[judged].float().mean()) >= surely_wrong:
                return say
        return LEARNED_SAYS[-1]

    def _shares(self, directions: float, learned: float) -> dict[str, float]:
        probes = self._probes((UNTOUCHED, EARLY, LATE), directions, learned)
        share = {**probes, NEAR: self._near(FEW_NEIGHBOURS if self.has_learned else NEIGHBOURS)}
        if SAID in self._sums:
            others = self._spread({part: say / 2 for part, say in probes.items()})
            share[SAID] = learned * ANSWERS * others / max(self._spread({SAID: 1.0}), 1e-12)
        return share

    def _probes(self, parts: Sequence[str], directions: float, learned: float = 1.0) -> dict[str, float]:
        """The shares of discriminants and of directions: those of two probes together."""
        fine = {part: learned if part == LATE else 1.0 for part in parts}
        says = fine | {part + COARSE: directions * say for part, say in fine.items()}
        total = sum(say * self._weights.get(part, 0.0) for part, say in says.items())
        if not total:  # directions alone, without a say: there is nobody else
            return {part: 2 / self._weight(*says) for part in says}
        return {part: 2 * say / total for part, say in says.items()}

    def _near(self, say: float) -> float:
        """The share of neighbours: less, the less they foretell beside the best probe of views that saw no label."""
        near, probes = self._voters.get(NEAR, []), self._voters.get(UNTOUCHED, [])
        if not near or not probes:
            return say / self._weight(NEAR)
        best, own = (max(self._weight_of(one, 0.0) for one in part) for part in (probes, near))
        return say * min(1.0, own / best) / self._weight(NEAR)

    def _telling(self, vote: Tensor) -> float:
        """How often given labels have a higher vote than another class, beyond chance: 0 to 1."""
        known = self.plan.labelled.nonzero()[:, 0]
        known = known[:: max(1, len(known) // MOST_ROWS)]
        rows = vote[known]
        own = rows.gather(1, self.plan.labels[known][:, None])
        lower = (rows < own).sum(1) + ((rows == own).sum(1) - 1) / 2
        return 2 * float(lower.float().mean()) / (self.plan.classes - 1) - 1

    def _weight_of(self, voter: Voter, memorised: float) -> float:
        """A power of what it foretells beyond the commonest label and beyond what the network has memorised."""
        skill = skill_of(voter.agreement - memorised, float(self.plan.shares.max()))
        return max(skill, LEAST_CREDIT) ** POWER / (1 + (memorised / MEMORISED) ** 2)

    def _weight(self, *parts: str) -> float:
        """The weights of all voters of some parts; 1 where there are none."""
        return sum(self._weights.get(part, 0.0) for part in parts) or 1.0

    def _table(self, share: Mapping[str, float]) -> Tensor:
        """The sum of parts, each times its share: one new table, whatever there is."""
        total = self.shelf.table(len(self.plan.labels), self.plan.classes)
        for rows in self.shelf.blocks(total):
            total[rows] = self._sum(share, rows)
        return total

    def _sum(self, share: Mapping[str, float], rows: slice) -> Tensor:
        there = [part for part in share if part in self._sums]
        if not there:
            raise BadData(
                "judge_labels: wanted views, outputs or probabilities, got nothing to judge labels by."
            )
        total = self._rows(there[0], rows) * share[there[0]]
        for part in there[1:]:
            total.add_(self._rows(part, rows), alpha=share[part])
        return total

    def _rows(self, part: str, rows: slice) -> Tensor:
        # Every few rows of a table on disk are pages all over it: those are not held together.
        table = self._sums[part]
        return table[rows] if rows.step is None else self.shelf.every(table, rows.step)

    def _spread(self, share: Mapping[str, float]) -> float:
        """The standard deviation of a sum of parts, on some rows; 1 where there are none."""
        if not any(part in self._sums for part in share):
            return 1.0
        step = max(1, len(self.plan.labels) // MOST_ROWS)
        return float(self._sum(share, slice(None, None, step)).std())

    def _heard(self, vote: Tensor, name: str, kind: str) -> tuple[Tensor, Voter]:
        """The vote at its scale, and who gave it."""
        if vote.shape != (len(self.plan.labels), self.plan.classes):
            raise BadData(
                f"{name}: wanted ({len(self.plan.labels)}, {self.plan.classes}), samples by classes, "
                f"got {tuple(vote.shape)}."
            )
        if not all(bool(vote[rows].isfinite().all()) for rows in self.shelf.blocks(vote)):
            raise BadData(f"{name}: wanted finite numbers, got NaN or infinity.")
        vote, scale = tempered(vote, self.plan, self.shelf)
        known, named = self.plan.labelled, self.shelf.argmax(vote)
        agreement = float((named[known] == self.plan.labels[known]).float().mean())
        return vote, Voter(name, kind, scale, agreement, 1.0, "")

    def _add(self, part: str, vote: Tensor, voter: Voter, *, honest: bool) -> None:
        self._voters.setdefault(part, []).append(voter)
        if honest:
            self.first_choices.append(self.shelf.argmax(vote).int())
        weight = max(voter.weight, LEAST_CREDIT**POWER)
        self._weights[part] = self._weights.get(part, 0.0) + weight
        held = self._sums.get(part)
        for rows in self.shelf.blocks(vote):
            if held is None:
                vote[rows] *= weight
            else:
                held[rows].add_(vote[rows], alpha=weight)
        self._sums[part] = vote if held is None else held

    def _table_of(self, votes: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
        """A table of our own, for votes that others may need as they are."""
        table = self.shelf.table(len(votes), votes.shape[1])
        for rows in self.shelf.blocks(table):
            table[rows] = change(votes[rows]).cpu()
        return table


def _part_of(view: ViewSource) -> str:
    if view.untouched:
        return UNTOUCHED
    return EARLY if view.honest else LATE


def tempered(vote: Tensor, plan: Plan, shelf: Shelf = IN_MEMORY) -> tuple[Tensor, float]:
    """The vote, each row centred, at the scale at which its softmax foretells given labels best; and that scale.

    In place: a table of all samples and classes is not copied.
    """
    squares = 0.0
    for rows in shelf.blocks(vote):
        vote[rows] -= vote[rows].mean(1, keepdim=True)
        squares += float(vote[rows].square().sum(dtype=torch.float64))
    spread = max((squares / (vote.numel() - 1)) ** 0.5, 1e-12)
    known = plan.labelled.nonzero()[:, 0]
    known = known[:: max(1, len(known) // MOST_ROWS)]
    seen, given = vote[known] / spread, plan.labels[known]
    losses = torch.stack([functional.cross_entropy(scale * seen, given) for scale in SCALES])
    scale = float(SCALES[losses.argmin()])
    for rows in shelf.blocks(vote):
        vote[rows] *= scale / spread
    return vote, scale
