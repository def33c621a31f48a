"""How long an audit will take and how much memory, from a timed small batch.

    found = estimate(session, config, layers, gauges, Work(passes=8, pairs=128))
    found.seconds, found.memory, found.disk        # rough: the machine may be busier later
    print(found)            # about 40 s, 4.2 MB of disk and at most 690 MB of memory in all (...): passes 24 s, ...

One batch goes through the model, and the probes are fitted once at each layer on its features; the rest is counting:
passes, fits, pairs of checkpoints. Fits grow with the samples, which overstates some of them and understates others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from undertow.auditing.settings import AuditConfig
from undertow.errors import UndertowError
from undertow.latent.probe_plan import layer_memory, seconds_to_fit, timed
from undertow.latent.probes_gauge import ProbesGauge
from undertow.richness.alignment import d_lr
from undertow.room import further, in_all, taken
from undertow.session.gauge import Gauge
from undertow.session.samples import TEST
from undertow.session.session import Session, count_of
from undertow.sizes import parse_size, show_size, show_time

BATCH = 256
ANSWER = 2
"""Bytes of a composite's answer to a sample."""
DEEP = 0.5
"""The part of a forward pass that runs behind a cut, on average."""
DECOMPOSITIONS = 4
"""What all measures of richness cost, in calls of D_LR."""


@dataclass(frozen=True)
class Work:
    """What is to be computed, as far as it is not there yet."""

    passes: int  # checkpoints
    pairs: int  # composites at all cuts


@dataclass(frozen=True)
class Estimate:
    """Seconds by stage, bytes of disk, and the most bytes for features and their products.

    As text it says what the process will hold in all, with Python, its libraries, the model and the samples.
    """

    stages: Mapping[str, float]
    memory: int
    disk: int = 0
    batch: int = 0
    """Bytes that a batch takes beyond those that were tried."""

    @property
    def seconds(self) -> float:
        """Of all stages."""
        return sum(self.stages.values())

    def share(self, stage: str) -> float:
        """The stage's part of the whole."""
        return self.stages.get(stage, 0.0) / max(self.seconds, 1e-9)

    def __str__(self) -> str:
        if not self.seconds:
            return "nothing new to compute"
        parts = [f"{name} {show_time(each)}" for name, each in self.stages.items() if each >= 0.05]
        listed = f": {', '.join(parts)}" if parts else ""
        room = f"{show_size(self.disk)} of disk and {in_all(self.memory + self.batch)}"
        return f"about {show_time(self.seconds)}, {room}{listed}"


def estimate(
    session: Session, config: AuditConfig, layers: Sequence[str], gauges: Sequence[Gauge[Any]], work: Work
) -> Estimate:
    """What the work will take, by one batch through the model of the last sound checkpoint."""
    if not work.passes and not work.pairs:
        return Estimate({}, 0)
    split = session.samples.train or session.samples.split(TEST)
    few = split.take(torch.arange(min(BATCH, len(split))))
    reader = session.example_reader

    def batch() -> tuple[Tensor, dict[str, Tensor]]:
        found = next(reader.stream(few.x, layers))
        return found.outputs.reshape(len(found.outputs), -1), found.features

    load = timed(lambda: session.model(session.example))
    before = taken()
    batch()  # the first call pays for what later ones find ready
    outputs, features = batch()
    larger = further(before, len(outputs), session.config.batch_size)
    each = timed(batch) / len(outputs)  # seconds for a sample
    train, test = count_of(session.samples.train), count_of(session.samples.test)
    matrix = min(test, config.matrix_samples)
    widest = list(features.values())[-1] if features else outputs
    richness = timed(lambda: d_lr(widest, outputs)) if "richness" in config.lenses else 0.0
    probing = (
        seconds_to_fit(features, few.labels, config.probes, len(config.fits), train)
        if "latent" in config.lenses
        else 0.0
    )
    stages = {
        "passes": work.passes * (load + each * (train + test) + DECOMPOSITIONS * richness + probing),
        "composites": work.pairs * each * matrix * DEEP + bool(work.pairs) * work.passes * load,
    }
    pairs = work.pairs * matrix * ANSWER
    return Estimate(
        stages, _memory(session, config, features, outputs, pairs), pairs + _disk(session, gauges), larger
    )


def _disk(session: Session, gauges: Sequence[Gauge[Any]]) -> int:
    """What is kept of all checkpoints, and the widest layer that lies in files while it is probed."""
    kept = sum(
        one.disk(session) * (sum(map(one.wanted_at, session.checkpoints)) if one.depends_on_weights else 1)
        for one in gauges
    )
    stored = 0
    for one in gauges:
        if isinstance(one, ProbesGauge):
            with suppress(UndertowError):  # what has no room is told where it is wanted
                stored = max(stored, layer_memory(session, one).stored)
    return kept + stored


def _memory(
    session: Session, config: AuditConfig, features: Mapping[str, Tensor], outputs: Tensor, pairs: int
) -> int:
    count = count_of(session.samples.train) + count_of(session.samples.test)
    widths = [part.shape[1] for part in features.values()] or [0]
    budget = parse_size(config.memory)
    held = 3 * count * sum(widths) * 4  # a third for the features, the rest to fit them
    return max(min(held, budget), count * outputs.shape[1] * 4, min(pairs, budget))
