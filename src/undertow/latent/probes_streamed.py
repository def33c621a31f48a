"""Probes of a layer whose samples stream by: fitted from what adds up, judged in a second pass.

    first = begin_probes(session, "layer2", ("masc", "lda"), ("given", "shuffled"))     # a Round: see session/adding.py

Where a second moment for each class fits into the memory, all that follows from them is exact. Where it does not (many
classes, wide layers), nearest mean and LDA follow from class sums and one scatter, exactly too; MASC and VeLPIC take
their directions from sketches of the classes, and a note says how much these may miss. Logistic probes and neighbours
need all features at once and give a reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from undertow.errors import BadValue
from undertow.features.class_sums import ClassSums, Pooled
from undertow.features.moments import Moments, MomentsAccumulator
from undertow.features.sketch import ClassSketches
from undertow.features.stream import Batch
from undertow.latent.discriminant import LDA
from undertow.latent.layer import PROBES, Key, Outcome, answer_layer, fit_moments, needs_rows
from undertow.latent.masc import MASC
from undertow.latent.nearest import NearestMean
from undertow.latent.probe import Probe
from undertow.latent.probe_cells import ProbeCell, ProbesAt, dimensions_of, label_sets
from undertow.latent.velpic import VeLPIC
from undertow.session.adding import Round
from undertow.session.answers import Accuracy
from undertow.session.samples import TEST, TRAIN
from undertow.session.session import Session
from undertow.shares import Share
from undertow.sizes import parse_size, show_size

SMALLEST, LARGEST = 4, 64
"""Rows of a sketch."""


def begin_probes(session: Session, layer: str, probes: Sequence[str], fits: tuple[str, ...]) -> Round:
    """The round in which probes are fitted, which is followed by the one in which they are judged."""
    classes, dim = len(session.samples.classes), session.widths([layer])[layer]
    room = parse_size(session.config.memory) // 2
    exact = len(fits) * classes * dim**2 * 8 <= room
    tally = (
        MomentsTally(layer, fits, classes, dim)
        if exact
        else SumsTally(layer, fits, classes, dim, probes, room)
    )

    def fitted(seen: MomentsTally | SumsTally) -> Round:
        found, notes = seen.fitted(probes, room)
        judged = JudgeTally(layer, found)
        return Round(
            {TRAIN: (layer,), TEST: (layer,)}, judged, lambda seen: _found(session, found, notes, seen.hits)
        )

    return Round({TRAIN: (layer,)}, tally, fitted)


def streamed_memory(classes: int, dim: int, fits: int, memory: int) -> int:
    """Bytes in which a layer of streamed samples is probed.

    Raises:
        BadValue: that is more than half of the memory, even without sketches; says how much would do.
    """
    full = fits * classes * dim**2 * 8
    if full <= memory // 2:
        return full
    left = _checked_room(fits, classes, dim, memory // 2)
    size = min(LARGEST, ClassSketches.size_for(dim, classes, left // fits))
    return fits * 2 * max(size, 0) * classes * dim * 4 + memory // 2 - left


def _checked_room(fits: int, classes: int, dim: int, room: int) -> int:
    """What is left for sketches beside class sums and a scatter."""
    left = _for_sketches(fits, classes, dim, room)
    if left < 0:
        need = show_size(2 * (room - left))
        wanted = f"at least {need} for {classes:,} classes of {dim:,} features"
        raise BadValue("memory", wanted, show_size(2 * room))
    return left


def _for_sketches(fits: int, classes: int, dim: int, room: int) -> int:
    return room - 8 * (3 * dim**2 + fits * classes * dim)


def _sets(session: Session, fits: tuple[str, ...]) -> Mapping[str, Tensor]:
    return session.held(("label sets", fits), lambda: label_sets(session, fits))


class MomentsTally:
    """A second moment for each class and set of labels."""

    def __init__(self, layer: str, fits: tuple[str, ...], classes: int, dim: int) -> None:
        self._layer, self._fits = layer, fits
        self._seen = {fit: MomentsAccumulator(dim, classes, where=f"layer {layer!r}") for fit in fits}
        self._whole: dict[str, Moments] = {}

    def take(self, session: Session, split: str, batch: Batch) -> None:
        """Take in a batch."""
        for fit, labels in _sets(session, self._fits).items():
            self._seen[fit].update(batch.features[self._layer].cpu(), labels[batch.rows])

    def merge(self, other: MomentsTally) -> None:
        """Take in the samples that come next."""
        self._whole = {fit: self.moments(fit).merge(other.moments(fit)) for fit in self._fits}

    def moments(self, fit: str) -> Moments:
        """Of all samples so far, by one set of labels."""
        if fit not in self._whole:
            self._whole[fit] = self._seen[fit].compute()
        return self._whole[fit]

    def __getstate__(self) -> dict[str, Any]:
        whole = {fit: self.moments(fit) for fit in self._fits if self._seen or fit in self._whole}
        unseen = not any(one.count for one in whole.values())
        return {**vars(self), "_whole": {} if unseen else whole, "_seen": self._seen if unseen else {}}

    def fitted(self, probes: Sequence[str], room: int) -> tuple[dict[Key, Outcome], dict[Key, str]]:
        """All probes that follow."""
        return fit_moments({fit: self.moments(fit) for fit in self._fits}, probes, room=room), {}


class SumsTally:
    """Class sums and one scatter; sketches where MASC or VeLPIC are asked for."""

    def __init__(
        self, layer: str, fits: tuple[str, ...], classes: int, dim: int, probes: Sequence[str], room: int
    ) -> None:
        self._layer, self._fits = layer, fits
        where = f"layer {layer!r}"
        left = _checked_room(len(fits), classes, dim, room)
        self._sums = ClassSums(dim, classes, len(fits), where)
        size = min(LARGEST, ClassSketches.size_for(dim, classes, left // len(fits)))
        wanted = size >= SMALLEST and any(name in ("masc", "velpic") for name in probes)
        self._sketches = [ClassSketches(dim, classes, size, where) for _ in fits] if wanted else []

    def take(self, session: Session, split: str, batch: Batch) -> None:
        """Take in a batch."""
        rows = batch.features[self._layer].cpu()
        labels = [own[batch.rows] for own in _sets(session, self._fits).values()]
        self._sums.add(rows, labels)
        for sketch, own in zip(self._sketches, labels, strict=False):
            sketch.add(rows, own)

    def merge(self, other: SumsTally) -> None:
        """Take in the samples that come next."""
        self._sums.merge(other._sums)
        for sketch, own in zip(self._sketches, other._sketches, strict=True):
            sketch.merge(own)

    def fitted(self, probes: Sequence[str], room: int) -> tuple[dict[Key, Outcome], dict[Key, str]]:
        """All probes that follow, and what to know of those that follow only nearly."""
        found: dict[Key, Outcome] = {}
        notes: dict[Key, str] = {}
        for at, fit in enumerate(self._fits):
            pooled = self._sums.pooled(at)
            sketch = self._sketches[at] if self._sketches else None
            for name in (one for one in PROBES if one in probes):
                found[fit, name] = _from_sums(name, pooled, sketch)
                if name in ("masc", "velpic") and sketch is not None:
                    notes[fit, name] = sketch_note(sketch, name)
        return found, notes


def _from_sums(name: str, pooled: Pooled, sketch: ClassSketches | None) -> Outcome:
    probe = PROBES[name]()
    if isinstance(probe, LDA | NearestMean):
        return probe.fit_moments(pooled)  # pyright: ignore[reportArgumentType]
    if not isinstance(probe, MASC | VeLPIC):
        return needs_rows(name)
    if sketch is None:
        return f"{name} needs {SMALLEST} rows for each of {pooled.classes:,} classes; give more --memory"
    if isinstance(probe, MASC):
        return probe.fit_sketches(sketch, pooled.counts)
    bases = [sketch.directions(c)[1][:, :1] for c in range(sketch.classes)]
    return probe.fit_bases(bases, pooled.means, pooled.counts)


def sketch_note(sketch: ClassSketches, name: str) -> str:
    """How much the directions of the sketches may miss, at worst over the classes."""
    there = sketch.squares > 0
    missed = float((sketch.shed[there] / sketch.squares[there]).max()) if bool(there.any()) else 0.0
    most = f", at most {sketch.size} directions" if name == "masc" else ""
    return (
        f"by sketches of {sketch.size} rows a class: no direction misses more than {missed:.1%} of it{most}"
    )


class JudgeTally:
    """How many answers of fitted probes are right."""

    def __init__(self, layer: str, found: Mapping[Key, Outcome]) -> None:
        self._layer, self._found = layer, {key: one for key, one in found.items() if isinstance(one, Probe)}
        self.hits: Counter[tuple[Key, str, str]] = Counter()

    def take(self, session: Session, split: str, batch: Batch) -> None:
        """Take in a batch."""
        said = answer_layer(self._found, batch.features[self._layer]) if self._found else {}
        for which, labels in session.samples.split(split).label_sets().items():
            own = labels[batch.rows]
            for key, answers in said.items():
                self.hits[key, split, which] += int((answers.cpu() == own).sum())

    def merge(self, other: JudgeTally) -> None:
        """Take in the samples that come next."""
        self.hits.update(other.hits)

    def __getstate__(self) -> dict[str, Any]:
        # What was judged goes back without the judge.
        return {**vars(self), "_found": {} if self.hits else self._found}


def _found(
    session: Session,
    found: Mapping[Key, Outcome],
    notes: Mapping[Key, str],
    hits: Counter[tuple[Key, str, str]],
) -> ProbesAt:
    cells: list[ProbeCell] = []
    for (fit, name), outcome in found.items():
        if isinstance(outcome, str):
            cells.append(ProbeCell(name, fit, reason=outcome))
            continue
        judged = tuple(
            Accuracy(split, which, Share(hits[(fit, name), split, which], len(labels)))
            for split in (TEST, TRAIN)
            for which, labels in session.samples.split(split).label_sets().items()
        )
        cells.append(ProbeCell(name, fit, judged, dimensions_of(outcome), note=notes.get((fit, name), "")))
    return ProbesAt(tuple(cells))
