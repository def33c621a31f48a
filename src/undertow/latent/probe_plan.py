"""What probes of a run will take, said before they begin: time, memory and disk.

    plan = ProbePlan.of(session, gauges, numbers)
    plan.seconds, plan.memory, plan.disk            # one process; bytes for features, their products and probes
    print(plan)

One batch goes through the model and each probe is fitted once on its features; the rest is counting. What cannot be
done in the memory is refused here, with what would do.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from undertow.errors import UndertowError
from undertow.features.budget import MemoryEstimate, choose_route
from undertow.features.layers import INPUT
from undertow.latent.layer import PROBES
from undertow.latent.probes_gauge import ProbesGauge
from undertow.latent.probes_streamed import streamed_memory
from undertow.room import further, in_all, taken
from undertow.session.samples import TRAIN
from undertow.session.session import Session, count_of
from undertow.session.sight import pack
from undertow.sizes import parse_size, show_size, show_time

BATCH = 256
"""Samples by which a pass and the fits are timed."""


@dataclass(frozen=True)
class ProbePlan:
    """How many probes there are, and what they take."""

    probes: int
    known: int  # of them, from an earlier time
    seconds: float
    memory: int
    disk: int
    words: str  # how features are held
    batch: int = 0  # bytes that a batch takes beyond the one that was tried

    @classmethod
    def of(cls, session: Session, gauges: Sequence[ProbesGauge], numbers: Sequence[int]) -> ProbePlan:
        """Of all gauges at all checkpoints.

        Raises:
            BadValue: the memory is too small for a layer; says how much would do.
        """
        whole = len(numbers) * sum(one.cells for one in gauges)
        known = sum(_known(session, one, at) for at in numbers for one in gauges)
        needs = {one.layer: layer_memory(session, one) for one in gauges}
        left = 1 - known / max(whole, 1)
        before = taken()
        spent = left * len(numbers) * _seconds(session, gauges) if left else 0.0
        larger = further(before, min(BATCH, len(session.samples.split(TRAIN))), session.config.batch_size)
        held = pack(
            {name: one.held for name, one in needs.items() if not one.work},
            parse_size(session.config.memory) // 3,
        )
        rounds = [3 * sum(needs[name].held for name in one) for one in held]
        # A layer that goes by files or moments takes what the others leave.
        by_itself = any(one.work for one in needs.values())
        memory = parse_size(session.config.memory) if by_itself else max(rounds, default=0)
        disk = max((one.stored for one in needs.values()), default=0)
        return cls(whole, known, spent, memory, disk, session.memory_words(list(needs)), larger)

    def __str__(self) -> str:
        there = f", {self.known:,} of them there already" if self.known else ""
        disk = f", {show_size(self.disk)} of disk while it works" if self.disk else ""
        takes = f"about {show_time(self.seconds)}, {in_all(self.memory + self.batch)}{disk}"
        return f"{self.probes:,} probes to fit{there}: {takes}.\n  {self.words}"


def timed(work: Callable[[], object]) -> float:
    """Seconds of one call; what cannot be done here is told where it is wanted, not in a plan."""
    began = time.perf_counter()
    try:
        with warnings.catch_warnings(action="ignore"):  # a batch is small, the samples may be enough
            work()
    except (UndertowError, RuntimeError):
        return 0.0
    return time.perf_counter() - began


def seconds_to_fit(
    features: Mapping[str, Tensor], labels: Tensor | None, probes: Sequence[str], fits: int, train: int
) -> float:
    """Seconds for all probes at one checkpoint, by those of one batch; in proportion to the samples."""
    if labels is None:
        return 0.0
    spent = 0.0
    for rows in features.values():
        for name in probes:

            def fit(rows: Tensor = rows, name: str = name) -> object:
                return PROBES[name]().fit(rows.cpu(), labels[: len(rows)]).predict(rows.cpu())

            spent += timed(fit) * train / len(rows)
    return spent * fits


def _known(session: Session, gauge: ProbesGauge, at: int) -> int:
    found = session.value(gauge, at)
    return 0 if found is None else sum(bool(cell.judged) for cell in gauge.asked(found).cells)


def layer_memory(session: Session, gauge: ProbesGauge) -> MemoryEstimate:
    """Of one layer; without work where its features are held."""
    samples, width = session.samples, session.widths([gauge.layer])[gauge.layer]
    budget, train = parse_size(session.config.memory), samples.split(TRAIN)
    classes = len(samples.classes)
    if gauge.layer == INPUT and session.tokens_by_name:  # gives a reason
        return MemoryEstimate(0, 0)
    if samples.stream:
        return MemoryEstimate(0, streamed_memory(classes, width, len(gauge.fits), budget))
    held = sum(map(len, session.splits())) * width * 4
    if held <= budget // 3:
        return MemoryEstimate(held, 0)
    counts = train.y.bincount(minlength=classes).tolist()
    return choose_route(counts, width, budget, batch_size=session.config.batch_size).estimate


def _seconds(session: Session, gauges: Sequence[ProbesGauge]) -> float:
    """At one checkpoint."""
    split = session.samples.split(TRAIN)
    few = split.take(torch.arange(min(BATCH, len(split))))
    reader, layers = session.reader(session.example_model), [one.layer for one in gauges]
    found: dict[str, Tensor] = {}

    def batch() -> None:
        found.update(next(reader.stream(few.x, layers)).features)

    batch()  # the first call pays for what later ones find ready
    each = timed(batch) / len(few)
    count = sum(map(len, session.splits()))
    probes = list(dict.fromkeys(name for one in gauges for name in one.probes))
    fits = max((len(one.fits) for one in gauges), default=0)
    load = timed(lambda: session.model(session.example))
    return load + each * count + seconds_to_fit(found, few.labels, probes, fits, count_of(split))
