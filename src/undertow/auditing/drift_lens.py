"""How far weights and features move: drift to the last checkpoint, and trajectories over all of them.

Features are those of at most 200 test samples, drawn once; trajectories follow 100 of them. Where a layer is wide its
features are projected at random on 512 directions first (distances keep within a few per cent), so that those of all
checkpoints can be held together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from undertow.errors import BadData, BadValue
from undertow.features.head import last_layer
from undertow.features.layers import named_layers
from undertow.rows import Row
from undertow.session.gauge import Gauge, Needs
from undertow.session.samples import TEST
from undertow.session.session import Session
from undertow.session.sight import Sight
from undertow.session.splits import take
from undertow.temporal.drift import feature_drift, feature_trajectories, parameter_drift
from undertow.training.seeds import stream

SAMPLES = 200
FOLLOWED = 100
WIDE = 512
ALL = "all"
"""In place of a layer: all parameters."""
FOLLOWED_SAMPLES = "followed samples"


@dataclass(frozen=True)
class WeightDriftAt:
    """The relative change of parameters to the last checkpoint, by layer."""

    values: dict[str, float | None]


@dataclass(frozen=True, eq=False)
class FeatureDriftAt:
    """How far a layer's features are from those of the last checkpoint, and where some samples are."""

    value: float | None
    count: int
    reason: str
    places: np.ndarray  # (FOLLOWED, D) or projected


@dataclass(frozen=True)
class Trajectory:
    """Where followed samples are on the two leading directions of all checkpoints together."""

    layer: str
    numbers: tuple[int, ...]
    points: np.ndarray | None  # (T, K, 2)
    explained: float = 0.0
    reason: str = ""


@dataclass(frozen=True, eq=False)
class DriftResult:
    """Drift by checkpoint, and trajectories by layer."""

    last: int
    weights: dict[int, WeightDriftAt]
    features: dict[int, dict[str, FeatureDriftAt]]
    trajectories: tuple[Trajectory, ...]
    samples: tuple[int, ...]
    labels: tuple[int | None, ...]

    def rows(self) -> Iterator[Row]:
        """Drift first, then where samples went."""
        note = f"relative to {self.last}"
        for at, found in self.weights.items():
            for layer, value in found.values.items():
                yield Row("temporal", "parameter_drift", at, layer, value, note=note)
            for layer, one in self.features.get(at, {}).items():
                yield Row(
                    "temporal", "feature_drift", at, layer, one.value, n=0 if one.value is None else one.count,
                    split=TEST, note=one.reason or note,
                )  # fmt: skip
        for one in self.trajectories:
            yield from self._trajectory_rows(one)

    def _trajectory_rows(self, one: Trajectory) -> Iterator[Row]:
        if one.points is None:
            yield Row("temporal", "trajectory", one.numbers[-1], one.layer, None, split=TEST, note=one.reason)
            return
        share = f"the plane holds {100 * one.explained:.0f} % of the variance"
        for step, at in enumerate(one.numbers):
            for place, (x, y) in enumerate(one.points[step]):
                yield Row(
                    "temporal", "trajectory", at, one.layer, float(x), y=float(y), sample=self.samples[place],
                    label=self.labels[place], n=1, split=TEST, note=share,
                )  # fmt: skip


class WeightDriftGauge(Gauge[WeightDriftAt]):
    """Compares parameters with those of the last checkpoint."""

    kind = WeightDriftAt

    def __init__(self, layers: Sequence[str]) -> None:
        self._layers, self._last = tuple(layers), None
        self.name = f"weight drift {','.join(layers)}"
        self._model: nn.Module | None = None

    def key(self, session: Session) -> Sequence[Any]:
        """The last checkpoint is compared with."""
        return (session.mark(session.example),)

    def measure(self, sight: Sight, kept: WeightDriftAt | None) -> WeightDriftAt:
        """Of all parameters together, and of each layer."""
        last = self._model = self._model or sight.session.example_model
        found = parameter_drift(last, sight.model, layers=_weighty(last, self._layers))
        return WeightDriftAt({ALL: found.value, **found.layers})


class FeatureDriftGauge(Gauge[FeatureDriftAt]):
    """Compares features of a layer with those of the last checkpoint."""

    kind = FeatureDriftAt

    def __init__(self, layer: str) -> None:
        self.layer, self.name = layer, f"feature drift {layer}"
        self._there: Tensor | None = None

    def needs(self) -> Needs:
        """The layer on held-out samples."""
        return {TEST: (self.layer,)}

    def key(self, session: Session) -> Sequence[Any]:
        """The last checkpoint is compared with."""
        return (session.mark(session.example),)

    def disk(self, session: Session) -> int:
        """Where the followed samples are."""
        return 4 * FOLLOWED * min(WIDE, session.widths([self.layer])[self.layer])

    def measure(self, sight: Sight, kept: FeatureDriftAt | None) -> FeatureDriftAt:
        """Of the followed samples."""
        session, rows = sight.session, self._rows(sight)
        try:
            value, reason = feature_drift([rows, self._last(sight, rows)]).to_reference[0], ""
        except BadData as error:
            value, reason = None, str(error)
        return FeatureDriftAt(value, len(rows), reason, _narrow(session, rows[:FOLLOWED]).numpy())

    def _last(self, sight: Sight, rows: Tensor) -> Tensor:
        """Features at the last checkpoint, which are `rows` if it is this one."""
        session = sight.session
        if sight.at == session.example:
            return rows
        if self._there is None:
            self._there = _features(session, session.example_model, self.layer)
        return self._there

    def _rows(self, sight: Sight) -> Tensor:
        if not sight.holds(self.needs()):
            return _features(sight.session, sight.model, self.layer)
        drawn = sight.session.some(TEST, SAMPLES, FOLLOWED_SAMPLES)
        held = sight.features(TEST, self.layer)
        return held[drawn.to(held.device)].cpu()


def _features(session: Session, model: nn.Module, layer: str) -> Tensor:
    """Features of the followed samples, by a small pass of their own."""
    drawn = session.some(TEST, SAMPLES, FOLLOWED_SAMPLES)
    x = take(session.samples.split(TEST).x, drawn)
    return torch.cat([batch.features[layer].cpu() for batch in session.reader(model).stream(x, [layer])])


def _narrow(session: Session, features: Tensor) -> Tensor:
    dim = features.shape[1]
    if dim <= WIDE:
        return features
    random = stream(session.config.seed, "random projection", dim)
    return features.float() @ (torch.randn(dim, WIDE, generator=random) / WIDE**0.5)


def _weighty(model: nn.Module, layers: Sequence[str]) -> list[str] | None:
    """The layers and the head, as far as they have parameters; None for each module on its own."""
    modules = named_layers(model)
    try:
        names = [*layers, last_layer(model)]
    except (BadValue, BadData):
        names = list(layers)
    kept = [name for name in names if name in modules and next(modules[name].parameters(), None) is not None]
    return list(dict.fromkeys(kept)) or None


@dataclass(frozen=True)
class DriftLens:
    """Follows weights and features."""

    layers: tuple[str, ...]
    name = "temporal"

    def gauges(self, session: Session) -> list[Gauge[Any]]:
        """Of the weights, and of each layer's features."""
        return [WeightDriftGauge(self.layers), *(FeatureDriftGauge(layer) for layer in self.layers)]

    def __call__(self, session: Session) -> DriftResult:
        """By checkpoint."""
        weights, *features = self.gauges(session)
        session.visit([weights, *features])
        by_layer = {one.layer: session.values(one) for one in features if isinstance(one, FeatureDriftGauge)}
        drawn = session.some(TEST, SAMPLES, FOLLOWED_SAMPLES)[:FOLLOWED]
        labels = session.samples.split(TEST).labels
        classes = [None] * len(drawn) if labels is None else labels[drawn].tolist()
        moved = {at: {name: own[at] for name, own in by_layer.items() if at in own} for at in session.sound}
        return DriftResult(
            session.example, session.values(weights), moved,
            tuple(_trajectory(layer, own) for layer, own in by_layer.items() if own),
            tuple(drawn.tolist()), tuple(classes),
        )  # fmt: skip


def _trajectory(layer: str, found: Mapping[int, FeatureDriftAt]) -> Trajectory:
    numbers = tuple(sorted(found))
    try:
        seen = feature_trajectories([found[at].places for at in numbers])
    except (BadData, BadValue) as reason:
        return Trajectory(layer, numbers, None, reason=str(reason))
    return Trajectory(layer, numbers, np.asarray(seen.points), float(seen.explained.sum()))
