"""1,280,000 samples x 2,048 features x 1,000 classes, streamed whole from a generator: seconds, floor, peak memory.

    python bench/many.py --part sums           # class sums and one scatter: nearest mean, LDA; their answers
    python bench/many.py --part sketches       # MASC and VeLPIC by sketches of each class; their answers on a part
    python bench/many.py --part richness       # D_LR and collapse
    python bench/many.py --part labels --rows 320000 --work DIR       # features in a file, tables on disk

Processor seconds of one thread, without those of the generator. The floor is one product A^T A of all rows, half of the
matrix, at the speed measured between the batches of the same run. Memory is the peak of the whole process.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor

import undertow as ut
from peers import TITLES, Row, row
from undertow.features.class_sums import ClassSums
from undertow.features.sketch import ClassSketches
from undertow.latent.layer import PROBES
from undertow.latent.masc import MASC
from undertow.richness.streaming import DLR, NeuralCollapse

DIM, CLASSES, BATCH, SIZE = 2048, 1000, 2048, 16
ANSWERED = 65_536
"""Rows that MASC answers for; the rest in proportion."""


class Clock:
    """Processor seconds of what is called through it, and the speed of a product beside it."""

    def __init__(self) -> None:
        self.spent, self._products, self._at = 0.0, 0.0, 0
        self._rows = torch.ones(1024, DIM)

    def __call__(self, work: Callable[[], object]) -> None:
        began = time.process_time()
        work()
        self.spent += time.process_time() - began

    def look(self) -> None:
        """Multiply a little."""
        began = time.process_time()
        _ = self._rows.T @ self._rows
        self._products += time.process_time() - began
        self._at += 1

    @property
    def speed(self) -> float:
        return 2 * 1024 * DIM**2 * self._at / self._products


class Made:
    """Rows around the centres of their classes, the same each time."""

    def __init__(self, count: int) -> None:
        draw = torch.Generator().manual_seed(0)
        self.count = count
        self.centres = 0.06 * torch.randn(CLASSES, DIM, generator=draw)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        draw = torch.Generator().manual_seed(1)
        for start in range(0, self.count, BATCH):
            size = min(BATCH, self.count - start)
            y = torch.randint(CLASSES, (size,), generator=draw)
            yield torch.randn(size, DIM, generator=draw).add_(self.centres[y]), y


def sums(made: Made) -> list[Row]:
    clock, seen = Clock(), ClassSums(DIM, CLASSES)
    for at, (x, y) in enumerate(made):
        clock(lambda x=x, y=y, seen=seen: seen.add(x, [y]))
        if at % 20 == 0:
            clock.look()
    clock(seen.settle)
    floor = made.count * DIM**2 / clock.speed
    words = f"{_size(made)}: class sums and one scatter, floor at {clock.speed / 1e9:.0f} GFLOP/s"
    found, probes = [row(words, clock.spent, floor=floor)], {"lda": Clock(), "mean": Clock()}
    pooled = seen.pooled()
    fits = {name: PROBES[name]() for name in probes}
    for name, one in fits.items():
        probes[name](lambda one=one, pooled=pooled: one.fit_moments(pooled))  # pyright: ignore
        found.append(row(f"... fitting {name}", probes[name].spent))
    seen = pooled = None  # for the memory
    answered, right = dict.fromkeys(fits, 0.0), dict.fromkeys(fits, 0)
    for x, y in made:
        for name, one in fits.items():
            began = time.process_time()
            right[name] += int((one.predict(x) == y).sum())
            answered[name] += time.process_time() - began
    for name, spent in answered.items():
        share = right[name] / made.count
        found.append(
            row(
                f"... all answers of {name} ({share:.1%} right)",
                spent,
                floor=made.count * 2 * DIM * CLASSES / clock.speed,
            )
        )
    return found


def sketches(made: Made) -> list[Row]:
    clock, seen = Clock(), ClassSketches(DIM, CLASSES, SIZE)
    counts = torch.zeros(CLASSES, dtype=torch.int64)
    for x, y in made:
        clock(lambda x=x, y=y: seen.add(x, y))
        counts += y.bincount(minlength=CLASSES)
    there = seen.squares > 0
    missed = float((seen.shed[there] / seen.squares[there]).max())
    words = f"{_size(made)}: sketches of {SIZE} rows a class (no direction misses more than {missed:.1%})"
    fit, answer, right, total = Clock(), Clock(), 0, 0
    probe = MASC()
    fit(lambda: probe.fit_sketches(seen, counts))
    for x, y in Made(min(ANSWERED, made.count)):
        told: list[Tensor] = []
        answer(lambda x=x, told=told: told.append(probe.predict(x)))
        right, total = right + int((told[0] == y).sum()), total + len(y)
    words_of_answers = f"... MASC's answers ({total:,} rows measured, {right / total:.1%} right)"
    return [
        row(words, clock.spent),
        row("... fitting MASC from them", fit.spent),
        row(words_of_answers, answer.spent * made.count / total),
    ]


def richness(made: Made) -> list[Row]:
    head = torch.randn(CLASSES, DIM, generator=torch.Generator().manual_seed(2)) / DIM**0.5
    low, collapse, clocks = DLR(precise=False), NeuralCollapse(CLASSES, precise=False), (Clock(), Clock())
    for at, (x, y) in enumerate(made):
        outputs = x @ head.T
        clocks[0](lambda x=x, outputs=outputs: low.update(x, outputs))
        clocks[1](lambda x=x, y=y: collapse.update(x, y))
        if at % 20 == 0:
            clocks[0].look()
    floor = made.count * DIM**2 / clocks[0].speed
    with_outputs = floor + made.count * 2 * DIM * CLASSES / clocks[0].speed
    clocks[0](low.compute)
    clocks[1](collapse.compute)
    return [
        row(f"{_size(made)}: D_LR", clocks[0].spent, floor=with_outputs),
        row("... neural collapse", clocks[1].spent, floor=floor),
    ]


def labels(made: Made, work: Path) -> list[Row]:
    import numpy as np

    file = work / "features.npy"
    rows = np.lib.format.open_memmap(file, "w+", np.float32, (made.count, DIM))
    given, wrong = torch.empty(made.count, dtype=torch.int64), torch.Generator().manual_seed(3)
    for at, (x, y) in enumerate(made):
        part = slice(at * BATCH, at * BATCH + len(x))
        rows[part] = x.numpy()
        given[part] = torch.where(
            torch.rand(len(y), generator=wrong) < 0.2,
            torch.randint(CLASSES, (len(y),), generator=wrong),
            y,
        )
    rows.flush()
    del rows
    clock = Clock()
    clock(lambda: ut.label_errors(features=np.load(file, mmap_mode="r"), labels=given, memory="2GB"))
    file.unlink()
    return [row(f"{_size(made)}: wrong labels, one view in a file, 2GB", clock.spent)]


def _size(made: Made) -> str:
    return f"{made.count:,} x {DIM:,}, {CLASSES:,} classes"


def peak() -> float:
    """GB of this process alone, its libraries included: getrusage's would begin with that of its parent."""
    found = re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())
    return int(found[1]) / 1e6 if found else float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=("sums", "sketches", "richness", "labels"), default="sums")
    parser.add_argument("--rows", type=int, default=1_280_000)
    parser.add_argument("--work", type=Path, default=Path())
    asked = parser.parse_args()
    torch.set_num_threads(1)
    made = Made(asked.rows)
    parts = {"sums": sums, "sketches": sketches, "richness": richness}
    found = labels(made, asked.work) if asked.part == "labels" else parts[asked.part](made)
    for one in [TITLES, ["---"] * len(TITLES), *found]:
        print(f"| {' | '.join(one)} |")
    print(f"Peak of the process: {peak():.2f} GB.")


if __name__ == "__main__":
    main()
