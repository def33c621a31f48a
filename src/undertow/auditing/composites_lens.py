"""Composites of a run's checkpoints: what they answer, kept pair by pair, and what follows from it.

    found = CompositesLens(("layer1", "layer2"), checkpoints=30, samples=1000)(session)
    found.cuts["layer2"].window(60), found.swap            # how far back; where accuracy was lost

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

from undertow.errors import BadData
from undertow.rows import Row, share_row
from undertow.session.answers import AnswersGauge
from undertow.session.cache import key_of
from undertow.session.checkpoints import thinned
from undertow.session.samples import TEST
from undertow.session.session import Session
from undertow.session.splits import take
from undertow.shares import Share
from undertow.temporal.consistency import ConsistencyMatrix, consistency_matrix, pointwise_consistency
from undertow.temporal.density import Density, consistency_density
from undertow.temporal.matrix import Composer
from undertow.temporal.matrix_data import CompositeSamples
from undertow.temporal.swap import SwapProfile, swap_profile
from undertow.temporal.window import MemoryWindow, memory_window

UNDERSTOOD = 0.8
"""Consistency (the share of answers that stay the same) above which deep layers are said to understand features."""
ROUNDS, FEWEST = 6, 8
"""After so many rounds, of so many shallow checkpoints at least, what was found is kept.

In each round all deep parts are loaded, and the whole models answer once more.
"""
POINTS = 101

Ints = np.ndarray
Missing = tuple[tuple[str, ...], tuple[int, ...]]
Tell = Callable[[int, float], None]


@dataclass(frozen=True, eq=False)
class ComposedAt:
    """What composites of one shallow checkpoint answer; deep ones are known by the hash of their weights."""

    pairs: tuple[tuple[str, str], ...]  # cut, hash
    answers: np.ndarray  # (pairs, N)


@dataclass(frozen=True, eq=False)
class CutResult:
    """All composites at one cut."""

    cut: str
    numbers: tuple[int, ...]
    consistency: ConsistencyMatrix
    windows: tuple[MemoryWindow, MemoryWindow, MemoryWindow]  # of the value, the lower and the upper end
    density: Density
    density_from: int
    hits: np.ndarray | None  # (T, T) right answers; None without labels
    test_labels: str

    def window(self, at: int) -> tuple[float, float, float, bool]:
        """How far back deep layers understand shallow ones, its ends, and whether to the first checkpoint."""
        place = self.numbers.index(at)
        value, low, high = (float(found.span[place]) for found in self.windows)
        return value, low, high, bool(self.windows[0].open[place])

    def rows(self) -> Iterator[Row]:
        """Pairs, windows and the density."""
        yield from self._pair_rows()
        for at in self.numbers:
            value, low, high, is_open = self.window(at)
            note = "reaches the first checkpoint" if is_open else ""
            yield Row(
                "temporal", "window", at, self.cut, value, low=low, high=high, n=self.consistency.count, split=TEST,
                note=note,
            )  # fmt: skip
        yield from self._density_rows()

    def _pair_rows(self) -> Iterator[Row]:
        own = self.consistency
        for i, shallow in enumerate(self.numbers):
            for j, deep in enumerate(self.numbers):
                where: dict[str, Any] = {"split": TEST, "shallow": shallow}
                same = Share(round(float(own.values[i, j]) * own.count), own.count)
                yield share_row(same, "temporal", "consistency", deep, self.cut, **where)
                if self.hits is not None:
                    share = Share(int(self.hits[i, j]), own.count)
                    where["labels"] = self.test_labels
                    yield share_row(share, "temporal", "accuracy", deep, self.cut, **where)

    def _density_rows(self) -> Iterator[Row]:
        """Of the samples' consistency over the second half of training."""
        own, last = self.density, self.numbers[-1]
        where: dict[str, Any] = {"split": TEST, "shallow": self.density_from, "note": own.note}
        if own.density is None:
            yield Row("temporal", "density", last, self.cut, None, position=own.point_mass, **where)
            return
        for place, height in zip(own.points, own.density, strict=True):
            yield Row(
                "temporal",
                "density",
                last,
                self.cut,
                float(height),
                position=float(place),
                n=own.count,
                **where,
            )


@dataclass(frozen=True, eq=False)
class Swap:
    """The swap profile between two checkpoints."""

    early: int
    late: int
    profile: SwapProfile
    total: int  # test samples there are, of which the profile saw some
    test_labels: str

    def rows(self) -> Iterator[Row]:
        """Accuracies of the composites over cuts, beside those of the two models."""
        own = self.profile
        for one in own.cuts:
            parts = {
                "swap_early_late": one.early_late, "swap_late_early": one.late_early, "swap_early": own.early,
                "swap_late": own.late,
            }  # fmt: skip
            for measure, (value, low, high) in parts.items():
                yield Row(
                    "temporal", measure, self.late, one.cut, value, low=low, high=high, n=own.count, split=TEST,
                    labels=self.test_labels, shallow=self.early,
                )  # fmt: skip


@dataclass(frozen=True, eq=False)
class CompositesResult:
    """Cuts in order, and where accuracy was lost."""

    cuts: dict[str, CutResult] = field(default_factory=dict[str, CutResult])
    swap: Swap | None = None

    def rows(self) -> Iterator[Row]:
        """Cut by cut, then the swap profile."""
        for one in self.cuts.values():
            yield from one.rows()
        if self.swap is not None:
            yield from self.swap.rows()


@dataclass(frozen=True)
class CompositesLens:
    """Puts checkpoints together."""

    cuts: tuple[str, ...]
    checkpoints: int
    samples: int
    tell: Tell | None = None
    name = "temporal"

    def __call__(self, session: Session) -> CompositesResult:
        """All pairs of checkpoints at all cuts, as far as they are not there yet."""
        if not self.cuts:
            raise BadData("no composites, as the network can be cut at none of its layers")
        best = best_checkpoint(session)
        wanted: set[int] = {*thinned(session.sound, self.checkpoints), *([] if best is None else [best])}
        numbers = sorted(wanted)
        check_enough(session, len(numbers))
        work = _Composing(session, self.cuts, self.samples)
        work.compute(numbers, self.tell or (lambda at, share: None))
        found = {cut: work.cut_result(cut, numbers) for cut in self.cuts}
        swapped = best is not None and best != numbers[-1]
        return CompositesResult(found, work.swap(best, numbers[-1]) if best is not None and swapped else None)


def best_checkpoint(session: Session) -> int | None:
    """The checkpoint with the best test accuracy, the first of equal ones; None without labels."""
    found = session.values(AnswersGauge(session.samples))
    shares = {at: one.accuracy(TEST, session.samples.test_labels) for at, one in found.items()}
    known = {at: one.value for at, one in shares.items() if one is not None}
    return max(known, key=lambda at: (known[at], -at)) if known else None


def check_enough(session: Session, checkpoints: int) -> None:
    """Refuse what has no composites."""
    if checkpoints < 2:
        raise BadData("one checkpoint gives no composites; two or more are needed")
    if session.unread:
        raise BadData(f"no answers of composites to compare: {session.unread}")
    if len(session.samples.split(TEST)) < 2:
        raise BadData("one test sample gives no shares; two or more are needed")


@dataclass(frozen=True)
class Compose:
    """A job: shallow parts of some checkpoints with deep parts of others, at some cuts."""

    shallow: tuple[int, ...]
    cuts: tuple[str, ...]
    deep: tuple[int, ...]
    samples: int

    def __call__(self, session: Session) -> dict[tuple[int, str, int], Ints]:
        """What each composite answers."""
        work = session.held(
            ("composites", self.samples), lambda: _Composing(session, self.cuts, self.samples)
        )
        found = work.composer(self.cuts).matrix(work.given, shallow=self.shallow, deep=self.deep)
        return {
            (at, cut, to): found.pair(cut, at, to)
            for at in self.shallow
            for cut in self.cuts
            for to in self.deep
        }


class _Composing:
    """Answers of composites on some test samples."""

    def __init__(self, session: Session, cuts: tuple[str, ...], samples: int) -> None:
        self.session, self.cuts, self.samples = session, cuts, samples
        self.drawn = session.some(TEST, samples, "samples of composites")
        x = take(session.samples.split(TEST).x, self.drawn)
        self.given = CompositeSamples(x, {}, TEST, session.samples.scaling)
        self.key = key_of(session.samples.fingerprint, len(self.drawn), session.config.seed)
        self._known: dict[tuple[int, str, int], Ints] = {}
        self._composers: dict[tuple[str, ...], Composer] = {}

    def compute(self, numbers: Sequence[int], tell: Tell) -> None:
        """Compute the pairs that are missing; `tell` hears of each shallow checkpoint, and its share of all."""
        for at in numbers:
            self._read(at, numbers)
        most = max(FEWEST, ceil(len(numbers) / ROUNDS))
        jobs: list[Compose] = []
        for (cuts, deep), group in groupby(numbers, lambda at: self._missing(at, numbers)):
            shallow = list(group)
            parts = [tuple(shallow[first : first + most]) for first in range(0, len(shallow), most)]
            if not cuts:
                tell(shallow[-1], len(shallow) / len(numbers))
                continue
            jobs += [Compose(part, cuts, deep, self.samples) for part in parts]
        for job, found in self.session.spread(jobs):
            self._known |= found
            for at in job.shallow:
                self._keep(at)
            tell(job.shallow[-1], len(job.shallow) / len(numbers))

    def _missing(self, at: int, numbers: Sequence[int]) -> Missing:
        pairs = [(cut, deep) for cut in self.cuts for deep in numbers if (at, cut, deep) not in self._known]
        wanted = {deep for _, deep in pairs}
        return tuple(dict.fromkeys(cut for cut, _ in pairs)), tuple(at for at in numbers if at in wanted)

    def composer(self, cuts: tuple[str, ...]) -> Composer:
        """One for these cuts, made once."""
        own = self.session.config
        if cuts not in self._composers:
            self._composers[cuts] = Composer(
                self.session, cuts, x=self.given, memory=own.memory, batch_size=own.batch_size
            )  # fmt: skip
        return self._composers[cuts]

    def _key(self, at: int) -> str:
        return key_of(self.key, self.session.mark(at))

    def _read(self, at: int, numbers: Sequence[int]) -> None:
        """What is kept of a shallow checkpoint, as far as the deep checkpoints are still the same."""
        kept = self.session.cache.get("composites", at, self._key(at), ComposedAt)
        if kept is None:
            return
        marks = {self.session.mark(deep): deep for deep in numbers}
        for (cut, mark), answers in zip(kept.pairs, kept.answers, strict=True):
            if mark in marks:
                self._known.setdefault((at, cut, marks[mark]), answers)

    def _keep(self, at: int) -> None:
        pairs = [(cut, deep) for shallow, cut, deep in self._known if shallow == at]
        answers = np.stack([self._known[at, cut, deep] for cut, deep in pairs])
        marked = tuple((cut, self.session.mark(deep)) for cut, deep in pairs)
        self.session.cache.put("composites", at, self._key(at), ComposedAt(marked, answers))

    def cut_result(self, cut: str, numbers: Sequence[int]) -> CutResult:
        """What follows from the composites at a cut."""
        answers = np.stack([np.stack([self._known[s, cut, t] for t in numbers]) for s in numbers])
        matrix = consistency_matrix(answers, numbers)
        windows = tuple(
            memory_window(shares, matrix.checkpoints, UNDERSTOOD)
            for shares in (matrix.values, matrix.low, matrix.high)
        )
        last = numbers[-1]
        start = next(at for at in numbers if at >= (numbers[0] + last) / 2)
        values = pointwise_consistency(answers[:, -1], numbers, start, last).values
        right = self._right()
        hits = None if right is None else (answers == right).sum(-1)
        return CutResult(
            cut, tuple(numbers), matrix, windows, consistency_density(values, points=POINTS), start, hits,  # pyright: ignore
            self.session.samples.test_labels,
        )  # fmt: skip

    def swap(self, early: int, late: int) -> Swap | None:
        """Where accuracy was lost between two checkpoints; None without labels."""
        right = self._right()
        if right is None:
            return None

        def hits(shallow: int, deep: int) -> np.ndarray:
            return np.stack([self._known[shallow, cut, deep] == right for cut in self.cuts])

        profile = swap_profile(
            hits(early, late), hits(late, early), hits(early, early)[0], hits(late, late)[0], self.cuts,
            seed=self.session.config.seed,
        )  # fmt: skip
        total = len(self.session.samples.split(TEST))
        return Swap(early, late, profile, total, self.session.samples.test_labels)

    def _right(self) -> np.ndarray | None:
        labels = self.session.samples.split(TEST).labels
        return None if labels is None else labels[self.drawn].numpy()
