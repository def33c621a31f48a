"""How rich the features are that enter the head, at every checkpoint; the spectrum at a few of them.

    found = measure_run(run)                     # or a session, whose passes other verbs share
    found.at[60].found.d_lr.value, found.spectra[60].values["intensity"]
    frame(found.rows())                          # undertow.rows: a tidy table

Measures of lens "richness", on test samples at the last linear layer: d_lr with an interval, effective_dimension,
effective_dimension_rest, squared_parameter_norm, initial_kernel_alignment, nc1, nc1_stabilised, trace_within, nc2_etf,
nc3, nc4; and of some checkpoints the spectrum: quality, utilisation, intensity by position.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undertow.errors import BadData
from undertow.features.stream import Batch
from undertow.richness.eigenfunctions import feature_spectrum
from undertow.richness.head_richness import (
    COLLAPSE,
    MEASURES,
    HeadRichness,
    Measured,
    collapse_measures,
    head_richness,
    head_weight,
    kernel_richness,
)
from undertow.richness.similarity import squared_parameter_norm
from undertow.richness.streaming import DLR, NeuralCollapse
from undertow.rows import OUTPUT, Row
from undertow.session.adding import Round
from undertow.session.checkpoints import thinned
from undertow.session.gauge import Gauge, Needs
from undertow.session.progress import Progress
from undertow.session.reader import ENTERING
from undertow.session.samples import TEST, TRAIN
from undertow.session.session import Session, session_of
from undertow.session.settings import SessionConfig
from undertow.session.sight import Sight
from undertow.sizes import parse_size
from undertow.training.run import Opened

SPECTRA = 5
"""At most so many checkpoints have a spectrum."""
POSITIONS = 100
START = "initial_kernel_alignment"


@dataclass(frozen=True)
class RichnessAt:
    """Richness of the head's features, or why there is none."""

    layer: str
    count: int
    found: HeadRichness | None
    reason: str = ""
    asked: tuple[str, ...] = ()  # the measures for which there was all that they need

    def rows(self, at: int) -> Iterator[Row]:
        """One row for each measure."""
        if self.found is None:
            yield Row("richness", "d_lr", at, OUTPUT, None, split=TEST, note=self.reason)
            return
        for name in self.asked:
            one: Measured = getattr(self.found, name)
            n = 0 if one.value is None else self.count
            where: dict[str, Any] = {"low": one.low, "high": one.high, "n": n, "split": TEST}
            yield Row("richness", name, at, self.layer, one.value, note=one.reason, **where)


@dataclass(frozen=True, eq=False)
class SpectrumAt:
    """Values by position; `quality` is missing where there are no labels."""

    layer: str
    count: int
    values: dict[str, np.ndarray]
    warnings: tuple[str, ...] = ()
    reason: str = ""

    def rows(self, at: int) -> Iterator[Row]:
        """One row for each position."""
        if self.reason:
            yield Row("richness", "intensity", at, self.layer, None, split=TEST, note=self.reason)
        for measure, values in self.values.items():
            for place, value in enumerate(values.tolist(), 1):
                yield Row(
                    "richness", measure, at, self.layer, value, n=self.count, split=TEST, position=place,
                    note=" ".join(self.warnings),
                )  # fmt: skip


@dataclass(frozen=True)
class RichnessResult:
    """Richness by checkpoint."""

    at: dict[int, RichnessAt]
    spectra: dict[int, SpectrumAt]

    def rows(self) -> Iterator[Row]:
        """In the order of the checkpoints."""
        for number, one in self.at.items():
            yield from one.rows(number)
            if number in self.spectra:
                yield from self.spectra[number].rows(number)


class RichnessGauge(Gauge[RichnessAt]):
    """All measures of the features that enter the head."""

    name, kind = "richness", RichnessAt

    def __init__(self) -> None:
        self._initial: Tensor | None = None

    def needs(self) -> Needs:
        """What enters the head on held-out samples."""
        return {TEST: (ENTERING,)}

    def key(self, session: Session) -> Sequence[Any]:
        """The memory decides whether there is an interval; the start is compared with."""
        start = session.initial
        return (session.config.memory, None if start is None else session.mark(start))

    def begin(self, sight: Sight) -> Round | None:
        """D_LR and collapse add up; the interval, nc4 and what entered the head before training do not."""
        head = sight.head
        if head is None:
            return None
        session, split = sight.session, sight.session.samples.split(TEST)
        classes = len(session.samples.classes)
        sizes = None if split.labels is None else split.labels.bincount(minlength=classes)
        model = squared_parameter_norm(sight.model)
        weight = head_weight(sight.model, head.name).cpu()

        def found(seen: RichnessTally) -> RichnessAt:
            asked = tuple(
                name for name in MEASURES if name != START and (sizes is not None or name not in COLLAPSE)
            )
            return RichnessAt(head.name, seen.dlr.count, seen.found(model, weight, classes), asked=asked)

        return Round(self.needs(), RichnessTally(classes, sizes), found)

    def measure(self, sight: Sight, kept: RichnessAt | None) -> RichnessAt:
        """From one kernel of the features."""
        session = sight.session
        if sight.head is None:
            return RichnessAt(OUTPUT, 0, None, sight.why_no_head)
        features, split = sight.features(TEST, ENTERING), session.samples.split(TEST)
        weight = head_weight(sight.model, sight.head.name).cpu()
        classes = len(session.samples.classes)
        found = head_richness(
            features.cpu(), sight.outputs(TEST), labels=split.labels, model=sight.model, classes=classes,
            weight=weight if len(weight) == classes else None, initial=self._start(sight, features),
            memory=parse_size(session.config.memory), seed=session.config.seed,
        )  # fmt: skip
        missing = {
            *(COLLAPSE if split.labels is None else ()),
            *(() if session.initial is not None else (START,)),
        }
        asked = tuple(name for name in MEASURES if name not in missing)
        return RichnessAt(sight.head.name, len(features), found, asked=asked)

    def _start(self, sight: Sight, features: Tensor) -> Tensor | None:
        """What entered the head before training; seen in passing where checkpoint 0 is visited first."""
        session = sight.session
        if session.initial is None:
            return None
        if self._initial is None and sight.at == session.initial:
            self._initial = features.cpu()
        if self._initial is None:
            self._initial = entering_at(session, session.initial)
        return self._initial


class RichnessTally:
    """D_LR and neural collapse of what entered the head so far."""

    def __init__(self, classes: int, sizes: Tensor | None) -> None:
        self.dlr = DLR(precise=False)
        told = sizes if sizes is not None and bool((sizes > 0).all()) else None
        self.collapse = None if sizes is None or classes < 2 else NeuralCollapse(classes, told, precise=False)

    def take(self, session: Session, split: str, batch: Batch) -> None:
        """Take in a batch."""
        rows, labels = batch.features[ENTERING].cpu(), session.samples.split(split).labels
        self.dlr.update(rows, batch.outputs.cpu())
        if self.collapse is not None and labels is not None:
            self.collapse.update(rows, labels[batch.rows])

    def merge(self, other: RichnessTally) -> None:
        """Take in the samples that come next."""
        self.dlr.merge(other.dlr)
        if self.collapse is not None and other.collapse is not None:
            self.collapse.merge(other.collapse)

    def found(self, model: float, weight: Tensor, classes: int) -> HeadRichness:
        """All measures that follow."""
        kernel, seen = self.dlr.kernel(), self.collapse
        rich = kernel_richness(kernel, model)
        if seen is None:
            return rich
        return replace(rich, **collapse_measures(seen.compute, weight, (classes, len(kernel.mean))))


def entering_at(session: Session, at: int) -> Tensor | None:
    """What enters the head on held-out samples at a checkpoint, by a pass of its own."""
    sight = Sight(session, at, [{TEST: (ENTERING,)}])
    for _ in sight.rounds():
        return None if sight.head is None else sight.features(TEST, ENTERING).cpu()
    return None


class SpectrumGauge(Gauge[SpectrumAt]):
    """Which features express the target, which are used, and how strong they are."""

    name, kind = "spectrum", SpectrumAt

    def __init__(self, numbers: Sequence[int]) -> None:
        self._numbers = set(numbers)

    def needs(self) -> Needs:
        """What enters the head on both splits."""
        return {TRAIN: (ENTERING,), TEST: (ENTERING,)}

    def key(self, session: Session) -> Sequence[Any]:
        """The memory bounds how many samples are looked at."""
        return (session.config.memory,)

    def wanted_at(self, at: int) -> bool:
        """At a few checkpoints only."""
        return at in self._numbers

    def measure(self, sight: Sight, kept: SpectrumAt | None) -> SpectrumAt:
        """Without labels there is no target to express: the learned functions stand in, and quality is left out."""
        if sight.head is None:
            return SpectrumAt(OUTPUT, 0, {})
        memory, layer = parse_size(sight.session.config.memory), sight.head.name
        train, test = (sight.features(split, ENTERING).cpu() for split in (TRAIN, TEST))
        outputs, labels = sight.outputs(TEST), sight.session.samples.split(TEST).labels
        targets = outputs if labels is None else labels
        fitted, seen = _fitting(train, memory), _fitting(test, memory)
        try:
            found = feature_spectrum(
                train[fitted], test[seen], targets[seen], outputs[seen], positions=POSITIONS
            )
        except BadData as reason:
            return SpectrumAt(layer, 0, {}, reason=str(reason))
        names = ["utilisation", "intensity"] if labels is None else ["quality", "utilisation", "intensity"]
        values = {name: np.asarray(getattr(found, name)[:POSITIONS], dtype=np.float64) for name in names}
        return SpectrumAt(layer, len(seen), values, tuple(found.warnings))


def _fitting(features: Tensor, memory: int) -> Tensor:
    """Numbers of rows, evenly spread, whose float64 copies take a quarter of the memory at most."""
    most = memory // 4 // (2 * 8 * features.shape[1])
    count = max(1, min(len(features), most))
    return torch.linspace(0, len(features) - 1, count, dtype=torch.float64).round().long()


class RichnessLens:
    """Richness at every checkpoint."""

    name = "richness"

    def gauges(self, session: Session) -> Sequence[Gauge[Any]]:
        """The measures, and the spectrum where there are training samples."""
        spectrum = SpectrumGauge(thinned(session.checkpoints, SPECTRA))
        return [RichnessGauge(), *([] if session.samples.train is None else [spectrum])]

    def __call__(self, session: Session) -> RichnessResult:
        """By checkpoint."""
        gauges = self.gauges(session)
        session.visit(gauges)
        spectra = session.values(gauges[1]) if len(gauges) > 1 else {}
        return RichnessResult(session.values(gauges[0]), spectra)


def measure_run(
    run: Opened | Session,
    train: Any = None,
    test: Any = None,
    *,
    config: SessionConfig | None = None,
    progress: Progress | bool | None = None,
    **settings: Any,
) -> RichnessResult:
    """Richness of a run at every checkpoint.

    Args:
        run: an opened run that can build its model, or a session of one.
        train: what it was trained on, as for `audit`; only spectra need it.
        test: samples it was not trained on; all measures are taken on them.
        config: which checkpoints and samples; or give its fields as `settings`.
        progress: is told how the work goes; True shows a bar.
        settings: fields of `SessionConfig`.
    """
    session = session_of(run, train, test, SessionConfig.chosen(config, settings), progress=progress)
    session.check_fit()
    return RichnessLens()(session)
