"""Memory of single samples and of the whole set at (delta, window), and how the two are related.

    found = memory_levels(predictions, checkpoints, at=300, reach=50)   # (T, N) of one deep part
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
from undertow.temporal.intervals import Interval, bootstrap_mean
from undertow.temporal.predictions import (
    Array,
    Times,
    agreement,
    checked_predictions,
    checked_times,
    place_of,
)

FACTORS = (1.5, 2.0, 3.0, 5.0, 10.0)

ROUNDING = 1 + 1e-9
"""3 misses of 10 are within delta = 0.3, which is a little less than 3/10 in binary.

One factor on delta at both levels: the theorem holds for the enlarged delta, so it stays true.
"""


class MemoryShare(NamedTuple):
    """The samples that have memory at `factor` times delta, beside what the theorem promises."""

    factor: float
    share: float
    bound: float  # 1 - 1 / factor


@dataclass(frozen=True)
class Relation:
    """Theorem 2 on data."""

    delta: float
    shares: tuple[MemoryShare, ...]
    holds: bool | None  # None: neither premise is met, so the theorem says nothing


@dataclass(frozen=True, eq=False)
class Memory:
    """Disagreement of every sample with the model at one checkpoint, over a window around it."""

    misses: NDArray[np.int64]  # (N,) checkpoints of the window with another answer
    used: tuple[int, ...]  # the recorded checkpoints in the window, the deep part's among them
    delta: Interval  # mean disagreement: the smallest delta of empirical-level memory

    @property
    def deltas(self) -> NDArray[np.float64]:
        """The smallest delta of particle-level memory, for each sample."""
        return self.misses / len(self.used)

    def particle(self, delta: float) -> NDArray[np.bool_]:
        """Which samples have particle-level memory at `delta`."""
        return self.misses <= delta * ROUNDING * len(self.used)

    def empirical(self, delta: float) -> bool:
        """Whether the set has empirical-level memory at `delta`."""
        return int(self.misses.sum()) <= delta * ROUNDING * len(self.used) * len(self.misses)

    def relation(self, delta: float | None = None, factors: Sequence[float] = FACTORS) -> Relation:
        """Theorem 2 at `delta` (by default the smallest that the set has memory at) and factors q > 1."""
        delta = self.delta.value if delta is None else delta
        if not factors or min(factors) <= 1 or not delta >= 0:
            raise BadValue("relation", "a delta of 0 or more and factors above 1", (delta, *factors))
        shares = tuple(
            MemoryShare(factor, float(self.particle(factor * delta).mean()), 1 - 1 / factor)
            for factor in factors
        )
        if self.empirical(delta):
            return Relation(delta, shares, all(one.share > one.bound for one in shares))
        # If all samples had memory here although the set has none, part (1) would be broken.
        return Relation(delta, shares, False if self.particle(delta).all() else None)


def memory_levels(predictions: Array, checkpoints: Times, at: int, reach: int, *, seed: int = 0) -> Memory:
    """Disagreement over the checkpoints from `at` - `reach` to `at` + `reach`.

    Args:
        predictions: classes (T, N) of the composites with the deep part of `at`, by their shallow part.
        checkpoints: their T epochs or steps.
        at: t', the checkpoint of the deep part.
        reach: Delta t, in epochs or steps to each side.
        seed: of the bootstrap over samples.
    """
    who = "memory_levels"
    if reach < 0:
        raise BadValue(who, "a reach of 0 or more", reach)
    column = checked_predictions(who, predictions, dims=(2,))
    times = checked_times(who, checkpoints, len(column))
    place = place_of(who, times, at)
    used = np.flatnonzero(np.abs(times - at) <= reach)
    misses = (~agreement(column[used], column[place])).sum(0)
    delta = bootstrap_mean(misses / len(used), seed=seed)
    delta = delta._replace(value=int(misses.sum()) / (len(used) * len(misses)))
    return Memory(misses, tuple(times[used].tolist()), delta)
