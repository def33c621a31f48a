"""The memory window: how far back a deep part still understands the shallow ones, and whether it widens.

    found = memory_window(matrix.values, matrix.checkpoints, threshold=0.8)
    found.earliest, found.steps, found.span      # for each t: the checkpoint, and the way back to it
    found.trend().tau, found.trend().widens      # by 2,000 permutations, so only where it is asked for

For each t the window runs back from t while consistency(s, t) stays above the threshold, without a gap. One
that reaches the first checkpoint may be longer than can be seen: it is `open`.

The trend is Kendall's tau between t and the span, over the pairs of windows whose order is certain: an open
window is longer than a closed one that is shorter than what is seen of it, nothing else is known of it. Plain
correlation would call every window widening, because late checkpoints have more past. The p-value is
two-sided, from permutations; windows of neighbouring checkpoints are alike, so it is rather too small.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from undertow.errors import BadData, BadValue
from undertow.temporal.predictions import Array, Times, checked_finite, checked_times

LEVEL = 0.05
PERMUTATIONS = 2000


@dataclass(frozen=True)
class Trend:
    """Whether the windows grow with time; None where nobody can tell, and the note says why."""

    tau: float | None  # from -1 to 1, over the pairs whose order is certain
    p: float | None
    pairs: int  # how many pairs these are, equal ones included
    widens: bool | None  # False: they narrow
    note: str = ""


@dataclass(frozen=True, eq=False)
class MemoryWindow:
    """For each checkpoint t the stretch of earlier ones whose features it understands."""

    checkpoints: tuple[int, ...]
    threshold: float
    earliest: NDArray[np.int64]  # (T,) epoch or step of the window's first checkpoint
    steps: NDArray[np.int64]  # (T,) how many checkpoints back that is
    span: NDArray[np.int64]  # (T,) how many epochs or steps back
    open: NDArray[np.bool_]  # (T,) whether it reaches the first checkpoint

    def trend(self, *, seed: int = 0) -> Trend:
        """Whether the windows grow with time; `seed` is that of the permutations."""
        return trend_of(self.span, self.open, seed=seed)


def memory_window(consistency: Array, checkpoints: Times, threshold: float = 0.8) -> MemoryWindow:
    """The windows of consistency (T, T), rows the shallow and columns the deep checkpoints."""
    who = "memory_window"
    values = checked_finite(who, consistency, "consistency (T, T)")
    if values.ndim != 2 or values.shape[0] != values.shape[1] or values.min() < 0 or values.max() > 1:
        raise BadData(f"{who}: wanted shares (T, T) from 0 to 1, got other numbers or shape {values.shape}.")
    if not 0 <= threshold < 1:
        raise BadValue(who, "a threshold from 0 to below 1", threshold)
    times = checked_times(who, checkpoints, len(values))
    first = np.array([_first_above(values[: t + 1, t], threshold) for t in range(len(times))])
    return MemoryWindow(
        checkpoints=tuple(times.tolist()),
        threshold=threshold,
        earliest=times[first],
        steps=np.arange(len(times)) - first,
        span=times - times[first],
        open=first == 0,
    )


def trend_of(
    span: NDArray[np.int64], reaches: NDArray[np.bool_], *, seed: int = 0, permutations: int = PERMUTATIONS
) -> Trend:
    """Kendall's tau of spans in the order of time, some of which are only known to be at least so long."""
    order = _certain_order(span, reaches)
    known = _certain(span, reaches)
    upper = np.triu(np.ones(order.shape, dtype=bool), 1)
    pairs, score = int(known[upper].sum()), int(order[upper].sum())
    if not order.any():
        reason = "the windows whose length is known are all equal" if pairs else "no two can be compared"
        return Trend(None, None, pairs, None, f"cannot tell: {reason}; {int(reaches.sum())} reach the start")
    generator = np.random.default_rng(seed)
    as_far = 0
    for _ in range(permutations):
        mixed = generator.permutation(len(span))
        as_far += abs(int(order[np.ix_(mixed, mixed)][upper].sum())) >= abs(score)
    p = (1 + as_far) / (1 + permutations)
    widens = score > 0 if p < LEVEL else None
    note = "" if p < LEVEL else f"cannot tell: p = {p:.2g}"
    return Trend(score / pairs, p, pairs, widens, note)


def _first_above(column: NDArray[np.float64], threshold: float) -> int:
    """Where the unbroken stretch above the threshold begins that ends just before the column's last entry."""
    below = np.flatnonzero(column[:-1] <= threshold)
    return int(below[-1]) + 1 if len(below) else 0


def _certain(span: NDArray[np.int64], reaches: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether two windows can be compared: both closed, or the closed one shorter than what is seen of the other."""
    closed = ~reaches
    one_open = (closed[:, None] & reaches[None, :]) & (span[:, None] < span[None, :])
    return (closed[:, None] & closed[None, :]) | one_open | one_open.T


def _certain_order(span: NDArray[np.int64], reaches: NDArray[np.bool_]) -> NDArray[np.int64]:
    """(T, T): 1 where the second of two windows is certainly longer, -1 where shorter, else 0."""
    return np.sign(span[None, :] - span[:, None]) * _certain(span, reaches)
