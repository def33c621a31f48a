"""How long an audit will take and how much memory, from a timed small batch.

    found = estimate(session, config, layers, Work(passes=8, pairs=128))
    found.seconds, found.memory                    # rough: the machine may be busier later
    print(found)                                   # about 40 s and 130 MB of memory for features: passes 24 s, ...

One batch goes through the model, and the probes are fitted once at each layer on its features; the rest is counting:
passes, fits, pairs of checkpoints. Fits grow with the samples, which overstates some of them and understates others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from undertow.auditing.settings import AuditConfig
from undertow.latent.probe_plan import seconds_to_fit, timed
from undertow.richness.alignment import d_lr
from undertow.session.samples import TEST
from undertow.session.session import Session, count_of
from undertow.sizes import parse_size, show_size, show_time

BATCH = 256
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
        if not self.seconds:
            return "nothing new to compute"
        parts = [f"{name} {show_time(each)}" for name, each in self.stages.items() if each >= 0.05]
        listed = f": {', '.join(parts)}" if parts else ""
        return f"about {show_time(self.seconds)} and {show_size(self.memory)} of memory for features{listed}"


def estimate(session: Session, config: AuditConfig, layers: Sequence[str], work: Work) -> Estimate:
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
    batch()  # the first call pays for what later ones find ready
    outputs, features = batch()
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
    return Estimate(stages, _memory(session, config, features, outputs, work.pairs * matrix * 2))


def _memory(
    session: Session, config: AuditConfig, features: Mapping[str, Tensor], outputs: Tensor, pairs: int
) -> int:
    count = count_of(session.samples.train) + count_of(session.samples.test)
    widths = [part.shape[1] for part in features.values()] or [0]
    budget = parse_size(config.memory)
    held = 3 * count * sum(widths) * 4  # a third for the features, the rest to fit them
    return max(min(held, budget), count * outputs.shape[1] * 4, min(pairs, budget))
