"""Judge given labels by everything that is known of the samples.

    found = judge_labels(labels, 10, views=[View(x)])                                  # features and labels, no run
    found = judge_labels(labels, 10, views=views_of(run), outputs=outputs_of(run))     # a run's checkpoints
    found = judge_labels(labels, 10, probabilities=[pred_probs])                       # out-of-sample probabilities
    found.scores, found.flagged, found.proposed, found.rate, found.matrix, found.beliefs

Views and outputs may be generators: outputs, then layers are read once and forgotten. Give views that never saw the
labels (inputs, frozen features) first, then layers from shallow to deep. What is kept is a few tables of samples x
classes in float32, and views that never saw the labels: they are taught twice, the second time with labels of which
those that are surely wrong were put right (`put_right`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor

from undertow.labels.decide import proposals, suspects
from undertow.labels.honest import HonestCounts
from undertow.labels.neighbours import neighbour_votes
from undertow.labels.noise_kind import NoiseKind
from undertow.labels.noise_model import Anchors, believe, given_log_belief, margins, reordered, true_chances
from undertow.labels.pool import Pool, Voter, tempered
from undertow.labels.rate import LabelEvidence, RateAnswer, rate_answer
from undertow.labels.shelf import IN_MEMORY, Shelf
from undertow.labels.views import FEWEST, Plan, View, ViewSource
from undertow.labels.voters import are_few, direction_votes, discriminant_votes, narrowed

DEFAULT_ROOM = 1_000_000_000
LEAST_PUT_RIGHT = 0.01
"""The share of labels that are surely wrong from which probes are taught again."""
TWINS_TOLD = 0.005
"""The share of samples that are there twice from which it is said."""


@dataclass(frozen=True, eq=False)
class LabelBeliefs:
    """What is believed of the labels; row i is sample i."""

    labels: Tensor  # (N,) int64, -1 where missing
    pred_probs: Tensor  # (N, C) float32: P(true class | features), without the sample's own label
    matrix: Tensor  # (C, C) float64: row k says how labels that are truly k are given
    scores: Tensor  # (N,) float64, 0 to 1: the belief that a label is wrong
    flagged: Tensor  # (N,) bool
    judged: Tensor  # (N,) bool: False for missing labels and for classes too small to judge
    rate: RateAnswer
    evidence: LabelEvidence
    voters: tuple[Voter, ...]
    notes: tuple[str, ...]
    shelf: Shelf = IN_MEMORY

    @cached_property
    def beliefs(self) -> Tensor:
        """(N, C) float32: P(true class | features, given label)."""
        table = self.shelf.table(*self.pred_probs.shape)
        for rows, part in self.believed():
            table[rows] = part
        return table

    @cached_property
    def proposed(self) -> Tensor:
        """(N,) int64: a class for flagged and unlabelled samples, -1 where there is none to propose."""
        parts = [proposals(part, self.labels[rows], self.flagged[rows]) for rows, part in self.believed()]
        return torch.cat(parts)

    def believed(self) -> Generator[tuple[slice, Tensor]]:
        """Blocks of `beliefs`: for what can do without the whole table."""
        for rows in self.shelf.blocks(self.pred_probs):
            yield rows, believe(self.pred_probs[rows], self.labels[rows], self.matrix)

    def belief_in(self, classes: Tensor) -> Tensor:
        """(N,) float32: the belief in one class (N,) of each sample."""
        numbers = classes.long()[:, None]
        return torch.cat([part.gather(1, numbers[rows])[:, 0] for rows, part in self.believed()])


@dataclass(frozen=True, eq=False)
class ViewVotes:
    """What probes and neighbours say of the samples in one view; arrays, so that they can be kept."""

    discriminant: np.ndarray  # (N, C) float32
    directions: np.ndarray  # (N, C) float32
    near: np.ndarray | None  # (N, C) float32: of neighbours, where they were asked
    twins: int = 0


def view_votes(
    rows: Tensor, plan: Plan, seed: int, *, untouched: bool, ask_neighbours: bool, shelf: Shelf = IN_MEMORY
) -> ViewVotes:
    """Votes on all samples from their features (N, D), out of fold; `untouched`: these saw no label."""
    rows = narrowed(rows, shelf)
    few = untouched and are_few(rows)
    near = neighbour_votes(rows, plan, seed, shelf) if ask_neighbours else None
    return ViewVotes(
        discriminant_votes(rows, plan, shelf, few=few).numpy(), direction_votes(rows, plan, shelf).numpy(),
        None if near is None else near.votes.numpy(), 0 if near is None else near.twins,
    )  # fmt: skip


def judge_labels(
    labels: Tensor,
    classes: int,
    views: Iterable[View] = (),
    outputs: Iterable[tuple[float, Tensor]] = (),
    probabilities: Iterable[Tensor] = (),
    *,
    folds: int = 5,
    seed: int = 0,
    room: int = DEFAULT_ROOM,
) -> LabelBeliefs:
    """Which labels are wrong, how many, and what they should be.

    Args:
        labels: (N,) class numbers; -1 where a label is missing.
        classes: how many there are.
        views: features of the samples, those that never saw the labels first.
        outputs: (epoch, logits (N, C)) of a network trained on these labels.
        probabilities: (N, C), each by a model that was not trained on the sample.
        folds: no label is judged by probes that learned it.
        seed: of the folds.
        room: bytes that tables of samples x classes may take in memory; larger ones lie on disk.
    """
    judge = Judge(Plan.of(labels, classes, folds, seed), Shelf.of(len(labels), classes, room))
    for likely in probabilities:
        judge.pool.add_probabilities(likely.cpu(), "probabilities")
    for epoch, logits in outputs:
        judge.pool.add_outputs(logits, epoch)
    untouched = list[View]()
    for view in views:
        view.check(len(labels))
        judge.look(view, seed)
        untouched += [view] if view.untouched else []
    return judge.conclude(untouched, seed)


class Judge:
    """Folds in votes as they come, then concludes."""

    def __init__(self, plan: Plan, shelf: Shelf = IN_MEMORY) -> None:
        self.plan, self.shelf, self.pool, self.notes = plan, shelf, Pool(plan, shelf), _notes_on(plan)
        self._asked = self._told_twins = False
        self._learned = 1.0  # the say of voters that may have memorised labels

    def look(self, view: View, seed: int, taught: Plan | None = None) -> None:
        """Fold in what probes and neighbours say of a view, one after the other: no two tables of votes at once.

        They learn the labels of `taught`, which has the same folds; what they say is judged by the given ones.
        """
        if view.file is not None:
            self.shelf.watch(view.file)
        rows, own = narrowed(view.rows, self.shelf), (taught or self.plan, self.shelf)
        finely = partial(discriminant_votes, few=view.untouched and are_few(rows))
        probes = (("discriminant", finely), ("directions", direction_votes))
        self.pool.add_view(((kind, votes(rows, *own)) for kind, votes in probes), view)
        if self.asks_neighbours(view):
            near = neighbour_votes(rows, own[0], seed, self.shelf)
            self._heed(near.votes, 0 if taught else near.twins, view)

    def asks_neighbours(self, view: View | ViewSource) -> bool:
        """Neighbours cost most: inputs or embeddings are asked, else the first honest checkpoint."""
        return view.untouched or (view.honest and not self._asked)

    def add(self, view: View | ViewSource, votes: ViewVotes) -> None:
        """Fold in what was said of a view."""
        self.pool.add_view(
            [
                ("discriminant", torch.from_numpy(votes.discriminant)),
                ("directions", torch.from_numpy(votes.directions)),
            ],
            view,
        )
        if votes.near is not None:
            self._heed(torch.from_numpy(votes.near), votes.twins, view)

    def _heed(self, near: Tensor, twins: int, view: ViewSource) -> None:
        self.pool.add_neighbours(near, view.title)
        self._asked = True
        if twins > TWINS_TOLD * len(self.plan.labels) and not self._told_twins:
            self._told_twins = True
            self.notes.append(
                f"{twins} samples have a twin, with the same numbers in {view.title}. Twins in other folds vouch for "
                "their own label, so wrong labels among them are found less often."
            )

    def conclude(self, untouched: Iterable[View] = (), seed: int = 0) -> LabelBeliefs:
        """What follows from all votes, and from those of untouched views that are taught again.

        Bounds of the rate, the matrix and the kind of noise are those of the first round: voters that share
        corrections agree more than they know.
        """
        kind, seen, pooled = self._evidence()
        found = self._found(kind, seen, pooled)
        taught = put_right(found, self.plan)
        views = list(untouched) if taught is not None else []
        if not views:
            return found
        matrix = found.matrix
        del found, pooled  # their tables make room for those of the second round
        self.pool.forget_untouched()
        for view in views:
            self.look(view, seed, taught)
        return self._found(kind, seen, self._pooled(kind), matrix)

    def _evidence(self) -> tuple[NoiseKind, LabelEvidence, Tensor]:
        # Honest votes are counted and forgotten before the table of all voters is made: both take twice the memory.
        pool, plan, shelf = self.pool, self.plan, self.shelf
        honest = HonestCounts.of(pool.honest(), plan, pool.first_choices, shelf) if pool.has_honest else None
        kind = NoiseKind.of(honest, float(plan.shares.max()))
        self._learned = pool.say_of_learned(
            honest.surely_wrong(float(plan.shares.max())) if honest else 0.0, kind.directions
        )
        pooled = self._pooled(kind)
        seen = LabelEvidence.of(
            honest, pooled, plan, learned=pool.has_learned, only_taught=pool.only_taught_views, shelf=shelf
        )
        return kind, seen, pooled

    def _pooled(self, kind: NoiseKind) -> Tensor:
        return tempered(self.pool.everyone(kind.directions, self._learned), self.plan, self.shelf)[0]

    def _found(
        self, kind: NoiseKind, seen: LabelEvidence, pooled: Tensor, matrix: Tensor | None = None
    ) -> LabelBeliefs:
        plan, shelf = self.plan, self.shelf
        if matrix is None:
            matrix = Anchors.of(pooled, shelf).matrix(plan, seen.matrix_trust)
        sharper = kind.sharpness(matrix)
        scores = 1 - given_log_belief(pooled, plan.labels, matrix, shelf, sharper).exp()
        if kind.margins:
            scores = reordered(scores, margins(pooled, plan.labels, shelf), kind.margins)
        scores = torch.where(plan.judged, scores.clamp(0, 1), torch.zeros_like(scores))
        share = seen.suspected(scores[plan.judged], kind.margins)
        flagged, rate = suspects(scores, plan.judged, share), rate_answer(seen, share)
        return LabelBeliefs(
            plan.labels, true_chances(pooled, shelf, sharper), matrix, scores, flagged,
            plan.judged, rate, seen, self.pool.voters, (*self.notes, *_note_on_flags(flagged, rate)), shelf,
        )  # fmt: skip


def put_right(found: LabelBeliefs, plan: Plan) -> Plan | None:
    """The plan with as many of the likeliest errors put right as are surely wrong; None where hardly any are.

    Only so many: where overlap and noise look alike, labels that are put right by mistake would teach the mistake.
    """
    share = found.evidence.to_put_right
    if share < LEAST_PUT_RIGHT:
        return None
    wrong = suspects(found.scores, plan.judged, share)
    labels = plan.labels.clone()
    for rows, part in found.believed():
        others = part.scatter(1, labels[rows].clamp(min=0)[:, None], -1.0)
        labels[rows] = torch.where(wrong[rows], others.argmax(1), labels[rows])
    return replace(plan, labels=labels)


def _note_on_flags(flagged: Tensor, rate: RateAnswer) -> list[str]:
    """Flags are a guess where the rate is unknown: whoever drops them must know."""
    count = int(flagged.sum())
    if rate.told or not count:
        return []
    perhaps = "perhaps none is wrong" if rate.low == 0 else "how many are wrong cannot be told"
    return [
        f"{count} labels are flagged as the most suspicious, not as wrong: {perhaps}. Review some before you drop or "
        "relabel them."
    ]


def _notes_on(plan: Plan) -> list[str]:
    notes = []
    if missing := int((~plan.labelled).sum()):
        which = "1 sample has" if missing == 1 else f"{missing} samples have"
        notes.append(f"{which} no label: a class is proposed where one stands out, nothing is judged.")
    if small := int((plan.labelled & ~plan.judged).sum()):
        which = "1 label is of a class" if small == 1 else f"{small} labels are of classes"
        verb = "is" if small == 1 else "are"
        notes.append(f"{which} with fewer than {FEWEST} samples and {verb} not judged.")
    return notes
