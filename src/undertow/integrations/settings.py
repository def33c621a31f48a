"""What a watch looks at, and when: one frozen value that needs no torch.

    WatchConfig.of(keep="every:5", measure="every:10", layers=["layer1", "layer2"], samples=500)
    WatchConfig(keep="every:500steps")                    # schedules count epochs, or optimiser steps

Epoch and step 0 are the model before training; epoch 3 is the model after three epochs.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache, cached_property
from typing import Any, Literal, Self, get_args

from undertow.errors import BadValue, unknown
from undertow.session.field_types import settle
from undertow.session.settings import ConvRule, TokenRule
from undertow.training.schedule import CheckpointSchedule, Unit

Report = Literal["quick", "full", "none"]
PROBES = ("masc", "velpic", "mean", "lda")


@dataclass(frozen=True, kw_only=True)
class WatchConfig:
    """When checkpoints are kept, when the model is looked at, and how."""

    keep: str = "paper"
    """Which checkpoints are kept: paper, every:5, log:20 or 0,1,5; each may end in steps."""
    measure: str | None = None
    """When the model is looked at, likewise; wherever a checkpoint is kept when not given."""
    layers: tuple[str, ...] = ("auto",)
    """Layers to probe: names, patterns or auto."""
    probes: tuple[str, ...] = ("masc", "velpic")
    """Closed-form probes: masc, velpic, mean, lda."""
    samples: int = 1000
    """At most so many samples of each split are looked at, drawn at random."""
    labels: bool = True
    """Whether the labels of the held-out samples are judged."""
    report: Report = "quick"
    """The audit at the end: quick, full or none."""
    scaling: str | None = None
    """How samples become inputs: half, unit, cifar, imagenet or none; fed as they are when not given."""
    conv: ConvRule = "mean"
    """Convolutional maps: flatten, mean or max over places. The mean is cheap; an audit flattens."""
    tokens: TokenRule = "mean"
    """Token outputs: mean, first, last or flatten."""
    batch_size: int = 512
    """Samples per forward pass of a look."""
    seed: int = 0
    """Seed of the draw of samples."""

    last: float = float("inf")
    """The last epoch or step, where it is known: schedules such as log:20 need it."""

    def __post_init__(self) -> None:
        settle(self)
        if self.schedule.unit != self.looks.unit:
            raise BadValue("measure", f"{self.schedule.unit}s, as in keep", self.measure)
        if self.samples < 10:
            raise BadValue("samples", "10 or more", self.samples)
        if self.report not in get_args(Report):
            raise BadValue("report", "quick, full or none", self.report)
        for name in self.probes:
            if name not in PROBES:
                raise unknown("closed-form probe", name, PROBES)

    @classmethod
    def of(cls, **given: Any) -> Self:
        """From settings as people give them: a single name for a list of one."""
        known = {own.name for own in fields(cls)}
        for name in given:
            if name not in known:
                raise unknown("setting of a watch", name, known)
        for name in ("layers", "probes"):
            if name in given:
                given[name] = tuple(given[name]) if isinstance(given[name], list) else given[name]
        return cls(**given)

    @cached_property
    def schedule(self) -> CheckpointSchedule:
        """When a checkpoint is kept."""
        return CheckpointSchedule.parse(self.keep)

    @cached_property
    def looks(self) -> CheckpointSchedule:
        """When the model is looked at."""
        return CheckpointSchedule.parse(self.measure or self.keep)

    @property
    def unit(self) -> Unit:
        """What the schedules count."""
        return self.schedule.unit


def is_due(schedule: CheckpointSchedule, at: int, last: float) -> bool:
    """Whether a schedule has `at`, in no time; the last epoch or step always is due, where it is known."""
    if at == last:
        return True
    match schedule.kind:
        case "every":
            return at % schedule.numbers[0] == 0
        case "list":
            return at in schedule.numbers
        case "paper":
            return at in _moments(schedule, 25) if at < 25 else at % 5 == 0
        case "log":
            if last == float("inf"):
                raise BadValue(
                    "keep", "a schedule without an end", f"log:{schedule.numbers[0]}",
                    "Say how long: last=..., or every:K.",
                )  # fmt: skip
            return at in _moments(schedule, int(last))


@cache
def _moments(schedule: CheckpointSchedule, last: int) -> frozenset[int]:
    return schedule.moments(last)
