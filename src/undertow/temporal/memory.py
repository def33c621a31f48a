"""Memory of single samples and of the whole set at (delta, window), and how the two are related.

    found = memory_levels(predictions, checkpoints, at=300, reach=50)   # (T, T, N), or the column (T, N)
    found.deltas                      # (N,) the smallest delta at which each sample has memory
    found.delta                       # the smallest one for the set, with its interval
    found.particle(0.1), found.empirical(0.1)
    found.relation(0.05).holds        # theorem 2 on this data

With the deep part of checkpoint t' and u running over the recorded checkpoints within `reach` of t', before and
after, a sample's disagreement is the share of u with composite(u, t')(x) != f(theta_t')(x). It has particle-level
memory at delta if its disagreement is at most delta; the set has empirical-level memory if the mean is.
Unlike in point-wise consistency the reference is f(theta_t') for later u too.

Theorem 2: (1) if every sample has memory at delta, the set has; (2) if the set has memory at delta, more than
1 - 1/q of the samples have it at q delta, for every q > 1. It holds for all data (it is Markov's inequality), so
a relation that fails means that the arrays are not what they should be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertow.errors import BadValue
from undertow.temporal.intervals import CONFIDENCE, RESAMPLES, Interval, bootstrap_mean
from undertow.temporal.predictions import (
    Array,
    Times,
    agreement,
    checked_predictions,
    checked_times,
    coverage_note,
    place_of,
)

FACTORS = (1.5, 2.0, 3.0, 5.0, 10.0)

ROUNDING = 1 + 1e-9
"""3 misses of 10 are within delta = 0.3, which is a little less than 3/10 in binary.

One factor on delta at both levels: the theorem holds for the enlarged delta, so it stays true.
"""


class Share(NamedTuple):
    """The samples that have memory at `factor` times delta, beside what the theorem promises."""

    factor: float
    share: float
    bound: float  # 1 - 1 / factor
    holds: bool  # share > bound


@dataclass(frozen=True)
class Relation:
    """Theorem 2 on data."""

    delta: float
    empirical: bool  # the set has memory at delta
    everyone: bool  # every sample has
    shares: tuple[Share, ...]
    holds: bool | None  # None: neither premise is met, so the theorem says nothing
    note: str = ""


@dataclass(frozen=True, eq=False)
class Memory:
    """Disagreement of every sample with the model at one checkpoint, over a window around it."""

    misses: NDArray[np.int64]  # (N,) checkpoints of the window with another answer
    used: tuple[int, ...]  # the recorded checkpoints in the window, `at` among them
    at: int
    reach: int
    delta: Interval  # mean disagreement: the smallest delta of empirical-level memory
    note: str = ""

    @property
    def deltas(self) -> NDArray[np.float64]:
        """The smallest delta of particle-level memory, for each sample."""
        return self.misses / len(self.used)

    def particle(self, delta: float) -> NDArray[np.bool_]:
        """Which samples have particle-level memory at `delta`."""
        return self.misses <= _checked(delta) * ROUNDING * len(self.used)

    def empirical(self, delta: float) -> bool:
        """Whether the set has empirical-level memory at `delta`."""
        total = int(self.misses.sum())
        return total <= _checked(delta) * ROUNDING * len(self.used) * len(self.misses)

    def relation(self, delta: float | None = None, factors: Sequence[float] = FACTORS) -> Relation:
        """Theorem 2 at `delta` (by default the smallest that the set has memory at) and factors q > 1."""
        delta = self.delta.value if delta is None else delta
        if not factors or min(factors) <= 1:
            raise BadValue("relation", "factors above 1", tuple(factors))
        empirical, everyone = self.empirical(delta), bool(self.particle(delta).all())
        shares = tuple(self._share(delta, factor) for factor in factors)
        if not empirical:  # then not everyone has it either, or part (1) would be broken
            note = f"the set has no memory at {delta:.4g} (its delta is {self.delta.value:.4g}): nothing is promised"
            return Relation(delta, empirical, everyone, shares, False if everyone else None, note)
        return Relation(delta, empirical, everyone, shares, all(one.holds for one in shares))

    def _share(self, delta: float, factor: float) -> Share:
        share, bound = float(self.particle(factor * delta).mean()), 1 - 1 / factor
        return Share(factor, share, bound, share > bound)


def memory_levels(
    predictions: Array,
    checkpoints: Times,
    at: int,
    reach: int,
    *,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Memory:
    """Disagreement over the checkpoints from `at` - `reach` to `at` + `reach`.

    Args:
        predictions: classes (T, T, N) of all composites, or (T, N) of those with the deep part of `at`.
        checkpoints: their T epochs or steps.
        at: t', the checkpoint of the deep part.
        reach: Delta t, in epochs or steps to each side.
        confidence: of the interval of the set's delta.
        resamples: of the bootstrap over samples.
        seed: of the bootstrap.
    """
    who = "memory_levels"
    if reach < 0:
        raise BadValue(who, "a reach of 0 or more", reach)
    answers = checked_predictions(who, predictions, dims=(3, 2))
    times = checked_times(who, checkpoints, len(answers))
    place = place_of(who, times, at)
    column = answers[:, place] if answers.ndim == 3 else answers
    used = np.flatnonzero(np.abs(times - at) <= reach)
    misses = (~agreement(column[used], column[place])).sum(0)
    delta = bootstrap_mean(misses / len(used), confidence=confidence, resamples=resamples, seed=seed)
    delta = delta._replace(value=int(misses.sum()) / (len(used) * len(misses)))
    note = coverage_note(times[used], at - reach, at + reach)
    return Memory(misses, tuple(times[used].tolist()), at, reach, delta, note)


def _checked(delta: float) -> float:
    if not delta >= 0:
        raise BadValue("memory", "a delta of 0 or more", delta)
    return delta
