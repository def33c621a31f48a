"""Probes of one layer at one checkpoint: fitted with given, true and shuffled labels, judged on both splits.

    gauge = ProbesGauge("layer2", ("masc", "velpic"), label_sets(session, ("given", "shuffled")))
    session.visit([gauge]); session.value(gauge, 20).cells         # one ProbeCell for each probe and set of labels

The input does not change while a model is trained, so its probes are fitted once for all checkpoints. A layer whose
features do not fit into the memory goes by moments or files; what cannot be fitted is a reason, not the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from undertow.data.samples import Samples
from undertow.features.budget import choose_route
from undertow.features.layers import INPUT
from undertow.features.stream import Batch
from undertow.latent.layer import PROBES, Answers, Key, Outcome, answer_layer, fit_and_answer
from undertow.latent.probe_cells import Dimensions as Dimensions
from undertow.latent.probe_cells import ProbeCell, ProbesAt, dimensions_of
from undertow.latent.probe_cells import label_sets as label_sets
from undertow.latent.probes_streamed import begin_probes
from undertow.latent.sources import Moving, room_for_fits
from undertow.session.adding import Round
from undertow.session.answers import Accuracy
from undertow.session.gauge import Gauge, Needs
from undertow.session.samples import TEST, TRAIN
from undertow.session.session import Session
from undertow.session.sight import Sight
from undertow.session.splits import Split
from undertow.shares import Share
from undertow.sizes import parse_size

NO_INPUT = "the inputs are tokens: their numbers are names, not features that a probe could read"


class ProbesGauge(Gauge[ProbesAt]):
    """Fits and judges the probes of a layer."""

    kind = ProbesAt

    def __init__(self, layer: str, probes: Sequence[str], labels: Mapping[str, Tensor]) -> None:
        self.layer, self.probes, self._labels = layer, tuple(probes), labels
        self.name = f"probes {layer}"
        self.depends_on_weights = layer != INPUT

    def needs(self) -> Needs:
        """The layer on both splits."""
        return {TRAIN: (self.layer,), TEST: (self.layer,)}

    def complete(self, kept: ProbesAt) -> bool:
        """Whether every cell has numbers; a reason why there are none is tried again."""
        return not self._missing(kept)

    @property
    def fits(self) -> tuple[str, ...]:
        """The sets of labels, by name."""
        return tuple(self._labels)

    @property
    def cells(self) -> int:
        """How many probes it fits at a checkpoint."""
        return len(self.probes) * len(self._labels)

    def asked(self, kept: ProbesAt) -> ProbesAt:
        """The cells that this gauge asks for, in its order."""
        places = [(name, fit) for name in self.probes for fit in self._labels]
        found = {(one.probe, one.fit): one for one in kept.cells}
        return ProbesAt(tuple(found[place] for place in places if place in found))

    def _missing(self, kept: ProbesAt | None) -> dict[str, list[str]]:
        """Probes that are wanted by the labels that they lack."""
        there = {(one.probe, one.fit) for one in kept.cells if one.judged} if kept else set()
        wanted = {fit: [name for name in self.probes if (name, fit) not in there] for fit in self._labels}
        return {fit: names for fit, names in wanted.items() if names}

    def begin(self, sight: Sight) -> Round | None:
        """Fitted from sums and moments in one round, judged in another."""
        if self.layer == INPUT and sight.session.tokens_by_name:
            return None
        return begin_probes(sight.session, self.layer, self.probes, self.fits)

    def measure(self, sight: Sight, kept: ProbesAt | None) -> ProbesAt:
        """Fit what is missing, and judge it on both splits."""
        missing = self._missing(kept)
        probes = [name for name in PROBES if any(name in names for names in missing.values())]
        labels = {fit: self._labels[fit] for fit in missing}
        if self.layer == INPUT and sight.session.tokens_by_name:
            new = [ProbeCell(name, fit, reason=NO_INPUT) for fit in labels for name in probes]
        else:
            new = list(_cells(sight, self.layer, labels, probes))
        fresh = {(one.probe, one.fit) for one in new}
        old = [one for one in kept.cells if (one.probe, one.fit) not in fresh] if kept else []
        return ProbesAt((*old, *new))


def _fitted(
    sight: Sight, layer: str, labels: Mapping[str, Tensor], probes: Sequence[str]
) -> tuple[dict[Key, Outcome], dict[str, Answers]]:
    """Every probe with every set of labels, and what it answers for both splits."""
    session = sight.session
    classes, budget = len(session.samples.classes), parse_size(session.config.memory)
    if sight.holds({TRAIN: (layer,), TEST: (layer,)}):
        room = room_for_fits(budget)
        found, said = fit_and_answer(sight.features(TRAIN, layer), labels, probes, classes=classes, room=room)
        return found, {TEST: answer_layer(found, sight.features(TEST, layer)), TRAIN: said}
    counts = session.samples.split(TRAIN).y.bincount(minlength=classes).tolist()
    width = session.widths([layer])[layer]
    route = choose_route(counts, width, budget, batch_size=session.config.batch_size)
    train, test = (_numbered(session.samples.split(name)) for name in (TRAIN, TEST))

    def batches(samples: Samples, layers: Sequence[str]) -> Iterator[Batch]:
        return sight.stream(TRAIN if samples is train else TEST, layers)

    room = room_for_fits(budget, route)
    return Moving(batches, train, test, layer, route.kind, classes, room).fit_and_answer(
        layer, labels, probes
    )


def _numbered(split: Split) -> Samples:
    """Samples known by their number: their inputs may be dicts of tensors, and stay where they are."""
    return Samples.of(torch.arange(len(split)), split.y)


def _cells(
    sight: Sight, layer: str, labels: Mapping[str, Tensor], probes: Sequence[str]
) -> Iterator[ProbeCell]:
    """One cell for each probe and set of labels."""
    for some in _in_turns(sight, layer, labels, probes):
        outcomes, said = _fitted(sight, layer, some, probes)
        for (fit, name), outcome in outcomes.items():
            if isinstance(outcome, str):
                yield ProbeCell(name, fit, reason=outcome)
                continue
            answers = {split: said[split][fit, name] for split in (TEST, TRAIN)}
            yield ProbeCell(name, fit, tuple(_judged(sight.session, answers)), dimensions_of(outcome))


def _in_turns(
    sight: Sight, layer: str, labels: Mapping[str, Tensor], probes: Sequence[str]
) -> list[Mapping[str, Tensor]]:
    """All sets of labels together, or one by one where MASC's directions of all would exceed the memory.

    Those of one set may be as many numbers as the features, and fitting them takes as much again.
    """
    if "masc" not in probes:
        return [labels]
    if sight.holds({TRAIN: (layer,), TEST: (layer,)}):
        rows = sight.features(TRAIN, layer)
        each = rows.numel() * rows.element_size()
        if (2 * len(labels) + 1) * each <= room_for_fits(parse_size(sight.session.config.memory)):
            return [labels]
    return [{fit: own} for fit, own in labels.items()]


def _judged(session: Session, answers: Mapping[str, Tensor]) -> Iterator[Accuracy]:
    """Answers on both splits, compared with all labels that are known."""
    for name, own in answers.items():
        for which, labels in session.samples.split(name).label_sets().items():
            yield Accuracy(name, which, Share(int((own.cpu() == labels).sum()), len(labels)))
