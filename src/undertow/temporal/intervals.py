"""Bootstrap intervals over samples, for one mean or for many that share their samples.

    bootstrap_mean(values)                       # Interval(value, low, high) of the mean of (N,) numbers
    share_interval(hits, count)                  # of shares, without drawing: Wilson's
    draws = resampled_means(rows)                # (B, K) means of rows (K, N), resampled together
    edges(draws[:, 0] - draws[:, 1])             # a paired difference: both rows saw the same samples

Percentiles of the resampled means, 95 % unless told otherwise. They speak of other samples of the same kind,
not of other runs. Values that are all alike give an interval without width.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertow.errors import BadValue
from undertow.temporal.predictions import Array, checked_finite

RESAMPLES = 1000
CONFIDENCE = 0.95
BLOCK = 4_000_000
"""Drawn numbers that are held at once."""


class Interval(NamedTuple):
    """A value and the ends of its interval."""

    value: float
    low: float
    high: float


def bootstrap_mean(
    values: Array, *, confidence: float = CONFIDENCE, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """The mean of (N,) numbers with its percentile bootstrap interval."""
    row = checked_finite("bootstrap_mean", values, "numbers (N,)").reshape(1, -1)
    low, high = edges(resampled_means(row, resamples=resamples, seed=seed), confidence)
    return Interval(float(row.mean()), float(low[0]), float(high[0]))


def share_interval(
    hits: NDArray[Any], count: int, confidence: float = CONFIDENCE
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Ends of Wilson's intervals of hits / count, as every share has them (undertow.shares)."""
    share = np.asarray(hits, dtype=np.float64) / count
    z = NormalDist().inv_cdf(1 - _tail(confidence))
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    reach = z / (1 + z * z / count) * np.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    # By rounding alone an end could come to lie on the wrong side of 0, of 1, or of a share that is 0 or 1.
    return np.clip(middle - reach, 0.0, share), np.clip(middle + reach, share, 1.0)


def resampled_means(
    rows: NDArray[Any], *, resamples: int = RESAMPLES, seed: int = 0
) -> NDArray[np.float64]:  # (B, K)
    """Means of each of the rows (K, N) over B samples of the N columns; all rows see the same columns."""
    if resamples < 1:
        raise BadValue("bootstrap", "at least one resample", resamples)
    columns = np.ascontiguousarray(rows.T, dtype=np.float64)  # (N, K)
    count, generator = len(columns), np.random.default_rng(seed)
    # Means of what lies around the first column: rows that are all alike stay so to the bit.
    offsets = columns[0].copy()
    columns = columns - offsets
    parts: list[NDArray[np.float64]] = []
    for first in range(0, resamples, step := max(1, BLOCK // count)):
        size = min(step, resamples - first)
        drawn = generator.integers(0, count, (size, count)) + count * np.arange(size)[:, None]
        weights = np.bincount(drawn.ravel(), minlength=size * count).reshape(size, count)
        parts.append(weights.astype(np.float64) @ columns / count + offsets)
    return np.concatenate(parts)


def edges(
    draws: NDArray[np.float64], confidence: float = CONFIDENCE
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The percentiles of draws (B, ...) that enclose `confidence` of them."""
    tail = _tail(confidence)
    low, high = np.quantile(draws, [tail, 1 - tail], axis=0)
    return low, high


def _tail(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise BadValue("confidence", "a share above 0 and below 1", confidence, "For 95 % give 0.95.")
    return (1 - confidence) / 2
