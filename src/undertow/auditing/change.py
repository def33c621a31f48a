"""How far weights and features move: drift to the last checkpoint, and trajectories over all of them.

    change = Change(loader, material, config, last=60)
    part = change.part(20, ["layer1", "layer2"])       # rows of drift at 20, and features for trajectories
    trajectory_rows(parts, ...)        # where some samples are on the principal directions of all checkpoints

Features are those of at most 200 test samples, drawn once; trajectories follow 100 of them. Where a layer is wide its
features are projected at random on 512 directions first (distances keep within a few per cent), so that those of all
checkpoints can be held together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from undertow.auditing.loader import Loader
from undertow.auditing.material import Material
from undertow.auditing.parts import Part
from undertow.auditing.rows import Row, row
from undertow.auditing.settings import AuditConfig
from undertow.data.entries import rows_of
from undertow.data.inputs import preparing
from undertow.errors import BadData, BadValue
from undertow.features.head import last_layer
from undertow.features.layers import named_layers
from undertow.features.stream import stream_features
from undertow.temporal.drift import feature_drift, feature_trajectories, parameter_drift
from undertow.training.seeds import stream

SAMPLES = 200
FOLLOWED = 100
WIDE = 512
ALL = "all"
"""In place of a layer: all parameters."""


@dataclass(eq=False)
class Change:
    """Drift of one run's checkpoints towards its last."""

    loader: Loader
    material: Material
    config: AuditConfig
    last: int
    _features_there: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    _mixers: dict[int, Tensor] = field(default_factory=dict[int, Tensor])

    def __post_init__(self) -> None:
        self.drawn = self.material.some_test(SAMPLES, self.config.seed, "followed samples")

    def part(self, at: int, layers: Sequence[str]) -> Part:
        """Rows of drift, and the features that trajectories are made of, by layer."""
        new = [name for name in layers if name not in self._features_there]
        if new:
            self._features_there |= self._features(self._last_model, new)
        model = self.loader.model(at)
        own = self._features(model, layers)
        weights = self._weights(at, model, layers)
        few = {name: self._narrow(part[:FOLLOWED]).numpy() for name, part in own.items()}
        others = [one["layer"] for one in weights if one["layer"] not in layers]
        return Part([*weights, *self._moved(at, own)], few, {"others": others})

    @cached_property
    def _last_model(self) -> nn.Module:
        return self.loader.model(self.last)

    def _features(self, model: nn.Module, layers: Sequence[str]) -> dict[str, Tensor]:
        x = rows_of(self.material.test.x, self.drawn)
        parts: dict[str, list[Tensor]] = {}
        for batch in stream_features(
            model, x, layers, prepare=preparing(x, self.material.scaling), batch_size=self.config.batch_size
        ):
            for name, features in batch.features.items():
                parts.setdefault(name, []).append(features.cpu())
        return {name: torch.cat(found) for name, found in parts.items()}

    def _weights(self, at: int, model: nn.Module, layers: Sequence[str]) -> list[Row]:
        last, note = self._last_model, f"relative to {self.last}"
        found = parameter_drift(last, model, layers=_weighty(last, layers))
        values = {ALL: found.value, **found.layers}
        return [
            row("temporal", "parameter_drift", at, layer, value, note=note) for layer, value in values.items()
        ]

    def _moved(self, at: int, own: Mapping[str, Tensor]) -> list[Row]:
        rows: list[Row] = []
        for name, features in own.items():
            try:
                value = feature_drift([features, self._features_there[name]]).to_reference[0]
                note = f"relative to {self.last}"
            except BadData as reason:
                value, note = None, str(reason)
            count = 0 if value is None else len(features)
            rows.append(row("temporal", "feature_drift", at, name, value, n=count, split="test", note=note))
        return rows

    def _narrow(self, features: Tensor) -> Tensor:
        dim = features.shape[1]
        if dim <= WIDE:
            return features
        if dim not in self._mixers:
            random = stream(self.config.seed, "random projection", dim)
            self._mixers[dim] = torch.randn(dim, WIDE, generator=random) / WIDE**0.5
        return features.float() @ self._mixers[dim]


def _weighty(model: nn.Module, layers: Sequence[str]) -> list[str] | None:
    """The layers and the head, as far as they have parameters; None for each module on its own."""
    modules = named_layers(model)
    try:
        names = [*layers, last_layer(model)]
    except (BadValue, BadData):
        names = list(layers)
    kept = [name for name in names if name in modules and next(modules[name].parameters(), None) is not None]
    return list(dict.fromkeys(kept)) or None


def trajectory_rows(
    features: Mapping[int, NDArray[np.float32]], layer: str, material: Material, drawn: Tensor
) -> list[Row]:
    """Places of the followed samples at each checkpoint; `features` (N, D) by checkpoint."""
    numbers = sorted(features)
    try:
        found = feature_trajectories([features[at] for at in numbers])
    except (BadData, BadValue) as reason:
        return [row("temporal", "trajectory", numbers[-1], layer, None, split="test", note=str(reason))]
    labels = material.test.labels
    classes: Sequence[int | None] = (
        [None] * len(drawn) if labels is None else labels[drawn].tolist()  # pyright: ignore[reportUnknownMemberType]
    )
    share = f"the plane holds {100 * float(found.explained.sum()):.0f} % of the variance"
    return [
        row(
            "temporal", "trajectory", at, layer, float(x), y=float(y), sample=int(drawn[place]), split="test",
            label=classes[place], n=1, note=share,
        )
        for step, at in enumerate(numbers)
        for place, (x, y) in enumerate(found.points[step])
    ]  # fmt: skip
