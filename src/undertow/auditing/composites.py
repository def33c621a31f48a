"""Composites of a run's checkpoints for an audit: what they answer, kept pair by pair, and what follows from it.

    composites = Composites(loader, material, config, parts, cuts)
    composites.compute((0, 10, 60), tell)            # only pairs that are not there yet
    composites.rows((0, 10, 60), best=10)            # accuracy, consistency, window, density, swap profile

Answers are kept by shallow checkpoint: for each cut and each deep checkpoint (N,) classes. A new checkpoint costs its
own row and column, a new cut its own matrix, and a killed audit loses a few shallow checkpoints at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undertow.auditing.loader import Loader
from undertow.auditing.material import Material
from undertow.auditing.parts import Part, Parts, key_of
from undertow.auditing.rows import Row, row, share_row
from undertow.auditing.rules import UNDERSTOOD
from undertow.auditing.settings import AuditConfig
from undertow.auditing.swaps import swap_words
from undertow.data.entries import rows_of
from undertow.errors import BadData
from undertow.temporal.consistency import ConsistencyMatrix, consistency_matrix, pointwise_consistency
from undertow.temporal.density import consistency_density
from undertow.temporal.intervals import Interval
from undertow.temporal.matrix import Composer
from undertow.temporal.matrix_data import Given
from undertow.temporal.swap import swap_profile
from undertow.temporal.window import memory_window

STAGE = "composites"
ROUNDS, FEWEST = 6, 4
"""After so many rounds, of so many shallow checkpoints at least, what was found is kept.

In each round all deep parts are loaded, and the whole models answer once more.
"""
POINTS = 101

Ints = NDArray[np.signedinteger[Any]]
Missing = tuple[tuple[str, ...], tuple[int, ...]]


@dataclass(eq=False)
class Composites:
    """Answers of composites on some test samples."""

    loader: Loader
    material: Material
    config: AuditConfig
    parts: Parts
    cuts: tuple[str, ...]
    _known: dict[tuple[int, str, int], Ints] = field(default_factory=dict[tuple[int, str, int], Ints])
    _composers: dict[tuple[str, ...], Composer] = field(default_factory=dict[tuple[str, ...], Composer])

    def __post_init__(self) -> None:
        self.drawn = self.material.some_test(
            self.config.matrix_samples, self.config.seed, "samples of composites"
        )
        self.given = Given(rows_of(self.material.test.x, self.drawn), {}, "test", self.material.scaling)
        self.key = key_of(self.material.fingerprint, len(self.drawn), self.config.seed)

    def compute(self, numbers: Sequence[int], tell: Callable[[int, float], None]) -> None:
        """Compute the pairs that are missing; `tell` hears of each shallow checkpoint, and its share of all."""
        for at in numbers:
            self._read(at, numbers)
        most = max(FEWEST, ceil(len(numbers) / ROUNDS))
        for missing, group in groupby(numbers, lambda at: self._missing(at, numbers)):
            shallow = list(group)
            for first in range(0, len(shallow), most):
                some = shallow[first : first + most]
                if missing[0]:
                    self._answer(some, *missing)
                tell(some[-1], len(some) / len(numbers))

    def missing(self, numbers: Sequence[int]) -> int:
        """How many composites are not there yet."""
        for at in numbers:
            self._read(at, numbers)
        return sum(
            (at, cut, deep) not in self._known for at in numbers for cut in self.cuts for deep in numbers
        )

    def _missing(self, at: int, numbers: Sequence[int]) -> Missing:
        pairs = [(cut, deep) for cut in self.cuts for deep in numbers if (at, cut, deep) not in self._known]
        wanted = {deep for _, deep in pairs}
        return tuple(dict.fromkeys(cut for cut, _ in pairs)), tuple(at for at in numbers if at in wanted)

    def _answer(self, shallow: Sequence[int], cuts: tuple[str, ...], deep: tuple[int, ...]) -> None:
        if cuts not in self._composers:
            self._composers[cuts] = Composer(
                self.loader.run, cuts, x=self.given, memory=self.config.memory,
                batch_size=self.config.batch_size, device=self.config.device,
            )  # fmt: skip
        found = self._composers[cuts].matrix(self.given, shallow=shallow, deep=deep)
        for at in shallow:
            self._known |= {(at, cut, to): found.pair(cut, at, to) for cut in cuts for to in deep}
            self._keep(at)

    def _read(self, at: int, numbers: Sequence[int]) -> None:
        """What is kept of a shallow checkpoint, as far as the deep checkpoints are still the same."""
        part = self.parts.get(STAGE, at, key_of(self.key, self.loader.mark(at)))
        if part is None:
            return
        marks = {self.loader.mark(deep): deep for deep in numbers}
        for (cut, mark), answers in zip(part.about["pairs"], part.arrays["answers"], strict=True):
            if mark in marks:
                self._known.setdefault((at, cut, marks[mark]), answers)

    def _keep(self, at: int) -> None:
        pairs = [(cut, deep) for shallow, cut, deep in self._known if shallow == at]
        answers = np.stack([self._known[at, cut, deep] for cut, deep in pairs])
        about = {"pairs": [[cut, self.loader.mark(deep)] for cut, deep in pairs]}
        self.parts.put(
            STAGE, at, key_of(self.key, self.loader.mark(at)), Part([], {"answers": answers}, about)
        )

    def answers(self, cut: str, numbers: Sequence[int]) -> Ints:
        """(T, T, N) classes, rows the shallow and columns the deep checkpoints."""
        return np.stack([np.stack([self._known[s, cut, t] for t in numbers]) for s in numbers])

    def rows(self, numbers: Sequence[int], best: int | None) -> list[Row]:
        """All rows that follow from the composites of these checkpoints."""
        found: list[Row] = []
        for cut in self.cuts:
            answers = self.answers(cut, numbers)
            matrix = consistency_matrix(answers, numbers)
            found += self._pair_rows(cut, answers, numbers, matrix)
            found += self._window_rows(cut, matrix)
            found += self._density_rows(cut, answers, numbers)
        if best is not None and best != numbers[-1]:
            found += self._swap_rows(best, numbers[-1])
        return found

    def _pair_rows(
        self, cut: str, answers: Ints, numbers: Sequence[int], matrix: ConsistencyMatrix
    ) -> Iterator[Row]:
        right = self._right()
        for i, shallow in enumerate(numbers):
            for j, deep in enumerate(numbers):
                edges = {"low": float(matrix.low[i, j]), "high": float(matrix.high[i, j])}
                where: dict[str, Any] = {"split": "test", "shallow": shallow}
                value = float(matrix.values[i, j])
                yield row("temporal", "consistency", deep, cut, value, **edges, n=matrix.count, **where)
                if right is not None:
                    where["labels"] = self.material.test_labels
                    hits = int((answers[i, j] == right).sum())
                    yield share_row("temporal", "accuracy", deep, cut, hits, matrix.count, **where)

    def _window_rows(self, cut: str, matrix: ConsistencyMatrix) -> Iterator[Row]:
        """How far back; low and high: by the lower and the upper end of consistency's interval."""
        spans = [
            memory_window(shares, matrix.checkpoints, UNDERSTOOD, seed=self.config.seed)
            for shares in (matrix.values, matrix.low, matrix.high)
        ]
        for place, at in enumerate(matrix.checkpoints):
            value, low, high = (float(found.span[place]) for found in spans)
            note = "reaches the first checkpoint" if spans[0].open[place] else ""
            where: dict[str, Any] = {"n": matrix.count, "split": "test", "note": note}
            yield row("temporal", "window", at, cut, value, low=low, high=high, **where)

    def _density_rows(self, cut: str, answers: Ints, numbers: Sequence[int]) -> Iterator[Row]:
        """Of the samples' consistency over the second half of training."""
        last = numbers[-1]
        start = next(at for at in numbers if at >= (numbers[0] + last) / 2)
        values = pointwise_consistency(answers[:, -1], numbers, start, last).values
        found = consistency_density(values, points=POINTS)
        where: dict[str, Any] = {"split": "test", "shallow": start}
        if found.density is None:
            point: dict[str, Any] = {"position": found.point_mass, "note": found.note}
            yield row("temporal", "density", last, cut, None, **where, **point)
            return
        for place, height in zip(found.points, found.density, strict=True):
            yield row(
                "temporal", "density", last, cut, float(height), position=float(place), n=found.count,
                note=found.note, **where,
            )  # fmt: skip

    def _swap_rows(self, early: int, late: int) -> Iterator[Row]:
        right = self._right()
        if right is None:
            return

        def hits(shallow: int, deep: int) -> NDArray[np.bool_]:
            return np.stack([self._known[shallow, cut, deep] == right for cut in self.cuts])

        profile = swap_profile(
            hits(early, late), hits(late, early), hits(early, early)[0], hits(late, late)[0], self.cuts,
            seed=self.config.seed,
        )  # fmt: skip
        where: dict[str, Any] = {
            "n": profile.count, "split": "test", "labels": self.material.test_labels, "shallow": early,
            "note": swap_words(profile, self.loader.run.unit, early, late, len(self.material.test)),
        }  # fmt: skip
        for one in profile.cuts:
            parts: dict[str, Interval] = {
                "swap_early_late": one.early_late, "swap_late_early": one.late_early,
                "swap_early": profile.early, "swap_late": profile.late,
            }  # fmt: skip
            for measure, (value, low, high) in parts.items():
                yield row("temporal", measure, late, one.cut, value, low=low, high=high, **where)

    def _right(self) -> NDArray[np.int64] | None:
        labels = self.material.test.labels
        return None if labels is None else labels[self.drawn].cpu().numpy()


def check_enough(numbers: Sequence[int], material: Material) -> None:
    """Refuse composites of fewer than two checkpoints or samples."""
    if len(numbers) < 2 or len(material.test) < 2:
        raise BadData(
            f"composites: wanted two checkpoints and two test samples or more, got {len(numbers)} and "
            f"{len(material.test)}."
        )
