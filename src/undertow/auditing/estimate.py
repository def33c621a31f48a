"""How long an audit will take and how much memory, from a timed small batch.

    found = estimate(loader, material, config, plan)
    found.seconds, found.memory                    # rough: the machine may be busier later
    found.share("latent")                          # of the whole, for one progress bar over all stages
    print(found)                                   # about 40 s and 130 MB of memory for features: probes 24 s, ...

One batch goes through the model, and the probes are fitted once at each layer on its features; the rest is counting:
passes, fits, pairs of checkpoints. Fits grow with the samples, which overstates some of them and understates others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from undertow.auditing.change import SAMPLES
from undertow.auditing.loader import Loader
from undertow.auditing.material import Material
from undertow.auditing.settings import AuditConfig
from undertow.data.inputs import preparing
from undertow.errors import UndertowError
from undertow.features.stream import stream_features
from undertow.latent.layer import PROBES
from undertow.richness.intervals import GROUPS, d_lr_interval
from undertow.sizes import parse_size, show_size

BATCH = 256
DEEP = 0.5
"""The part of a forward pass that runs behind a cut, on average."""


@dataclass(frozen=True)
class Plan:
    """What is to be computed: numbers of checkpoints, as far as they are not there yet."""

    layers: tuple[str, ...]
    readings: int
    grids: int
    changes: int
    pairs: int  # composites at all cuts
    repairs: int


@dataclass(frozen=True)
class Estimate:
    """Seconds by stage, and the most bytes held at once for features; model and samples come on top."""

    stages: Mapping[str, float]
    memory: int

    @property
    def seconds(self) -> float:
        """Of all stages."""
        return sum(self.stages.values())

    def share(self, stage: str) -> float:
        """The stage's part of the whole."""
        return self.stages.get(stage, 0.0) / max(self.seconds, 1e-9)

    def __str__(self) -> str:
        parts = [f"{name} {show_time(each)}" for name, each in self.stages.items() if each >= 0.05]
        listed = f": {', '.join(parts)}" if parts else ""
        return f"about {show_time(self.seconds)} and {show_size(self.memory)} of memory for features{listed}"


def show_time(seconds: float) -> str:
    """A time for people: 4 s, 3 min, 2.5 h."""
    if seconds < 99.5:
        return f"{seconds:.0f} s" if seconds >= 9.5 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5970 else f"{seconds / 3600:.1f} h"


def estimate(loader: Loader, material: Material, config: AuditConfig, plan: Plan, at: int) -> Estimate:
    """What the plan will take, by one batch through the model of checkpoint `at`."""
    model = loader.model(at)
    few = (material.train or material.test).take(
        torch.arange(min(BATCH, len(material.train or material.test)))
    )

    def batch() -> tuple[Tensor, dict[str, Tensor]]:
        stream = stream_features(
            model, few.x, plan.layers or "input", prepare=preparing(few.x, material.scaling), batch_size=BATCH
        )
        found = next(stream)
        return found.outputs.reshape(len(few), -1), found.features

    load = _timed(lambda: loader.model(at))
    batch()  # the first call pays for what later ones find ready
    outputs, features = batch()
    each = _timed(batch) / len(few)  # seconds for a sample
    train, test = len(material.train) if material.train else 0, len(material.test)
    matrix = min(test, config.matrix_samples)
    widest = list(features.values())[-1] if features else outputs
    richness = _timed(lambda: d_lr_interval(widest, outputs)) if "richness" in config.lenses else 0.0
    stages = {
        "reading": plan.readings * (load + each * (train + test) + 4 * richness),
        "probes": plan.grids * (load + each * (train + test) + _probing(features, few.labels, config, train)),
        "drift": plan.changes * (load + each * SAMPLES),
        "composites": plan.pairs * each * matrix * DEEP + plan.changes * load,
        "repair": plan.repairs * (load + 2 * each * (train + 2 * test)),
    }
    return Estimate(stages, _memory(material, config, features, outputs, matrix, plan))


def _probing(features: Mapping[str, Tensor], labels: Tensor | None, config: AuditConfig, train: int) -> float:
    """Seconds for all probes at one checkpoint."""
    if labels is None:
        return 0.0
    spent = 0.0
    for rows in features.values():
        for name in config.probes:

            def fit(rows: Tensor = rows, name: str = name) -> object:
                return PROBES[name]().fit(rows.cpu(), labels).predict(rows.cpu())

            spent += _timed(fit) * train / len(rows)
    return spent * len(config.fits)


def _memory(
    material: Material, config: AuditConfig, features: Mapping[str, Tensor], outputs: Tensor, matrix: int,
    plan: Plan,
) -> int:  # fmt: skip
    train, test = len(material.train) if material.train else 0, len(material.test)
    widths = [part.shape[1] for part in features.values()] or [0]
    held = 3 * (train + test) * sum(widths) * 4  # a third for the features, the rest to fit them
    reading = (train + 2 * test) * (widths[-1] + outputs.shape[1]) * 4 + GROUPS * widths[-1] ** 2 * 8
    composites = plan.pairs * matrix * 2 + matrix * sum(widths) * 4
    budget = parse_size(config.memory)
    return max(min(held, budget), reading, min(composites, budget))


def _timed(work: Callable[[], object]) -> float:
    """Seconds of one call; what cannot be done here is told where it is wanted, not in an estimate."""
    began = time.perf_counter()
    try:
        work()
    except (UndertowError, RuntimeError):
        return 0.0
    return time.perf_counter() - began
