"""Spearman's rank correlation with an interval and a p-value, for rows that come in groups.

    found = rank_correlation(x, y, clusters=classes)     # numbers (N,); rows of one class stand or fall together
    found.rho, found.low, found.high, found.p

The interval is a percentile bootstrap, the p-value (two-sided) a permutation test. Rows that share something,
such as the gap of one class seen at many layers, are no new evidence each: whole clusters are drawn and exchanged,
which scipy's own tests cannot do. Their rows must be in the same order (first layer, second layer, ...) in each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undertow.errors import BadData
from undertow.temporal.intervals import RESAMPLES, edges
from undertow.temporal.predictions import Array, as_numpy, checked_finite

Floats = NDArray[np.float64]

FEWEST = 4
"""With fewer clusters an interval would say nothing."""


@dataclass(frozen=True)
class RankCorrelation:
    """Spearman's rho with its interval and two-sided p-value."""

    rho: float
    low: float
    high: float
    p: float  # at least 1 / (permutations + 1)
    clusters: int


def rank_correlation(
    x: Array, y: Array, *, clusters: Array, permutations: int = 999, resamples: int = RESAMPLES, seed: int = 0
) -> RankCorrelation:
    """Spearman's rank correlation of numbers (N,); equal numbers share their mean rank."""
    first, second = (checked_finite("rank_correlation", part, "numbers (N,)") for part in (x, y))
    if first.ndim != 1 or first.shape != second.shape:
        raise BadData(
            f"rank_correlation: wanted as many x as y, got shapes {first.shape} and {second.shape}."
        )
    blocks = _blocks(len(first), clusters)  # (C, R) rows
    rho = float(_spearman(first[None], second[None])[0])
    if np.isnan(rho):
        raise BadData(
            "rank_correlation: wanted numbers that differ, got one side constant. No ranks differ there."
        )
    rng, size = np.random.default_rng(seed), len(blocks)
    exchanged = blocks[rng.permuted(np.tile(np.arange(size), (permutations, 1)), axis=1)]  # (P, C, R)
    null = _spearman(first[blocks].reshape(1, -1), second[exchanged].reshape(permutations, -1))
    p = (1 + int((np.abs(null) >= abs(rho) - 1e-12).sum())) / (permutations + 1)
    drawn = blocks[rng.integers(0, size, (resamples, size))].reshape(resamples, -1)
    again = _spearman(first[drawn], second[drawn])
    defined = again[~np.isnan(again)]  # a draw of one side only equal numbers says nothing
    if len(defined) < resamples / 2:
        raise BadData(
            "rank_correlation: wanted numbers that mostly differ, got a constant side in most resamples."
        )
    low, high = edges(defined)
    return RankCorrelation(rho, float(low), float(high), p, size)


def _spearman(x: Floats, y: Floats) -> Floats:
    """(P,) rho of each row of (P, N), or (1, N), with its counterpart; NaN where one is constant."""
    from scipy.stats import rankdata  # slow to import; spearmanr takes one pair of rows at a time

    a, b = (np.asarray(rankdata(part, axis=1)) - (part.shape[1] + 1) / 2 for part in (x, y))
    size = np.sqrt((a**2).sum(1) * (b**2).sum(1))
    return np.divide((a * b).sum(1), size, out=np.full(size.shape, np.nan), where=size > 0)


def _blocks(count: int, clusters: Array) -> NDArray[Any]:
    """(C, R) the rows of each cluster."""
    names = as_numpy(clusters)
    if names.shape != (count,):
        raise BadData(
            f"rank_correlation: wanted a cluster for each of {count} rows, got shape {names.shape}."
        )
    sizes = np.unique(names, return_counts=True)[1]
    if len(sizes) < FEWEST or sizes.min() != sizes.max():
        raise BadData(
            f"rank_correlation: wanted at least {FEWEST} clusters of one size, "
            f"got {len(sizes)} of {sizes.min()} to {sizes.max()} rows."
        )
    return np.argsort(names, kind="stable").reshape(len(sizes), -1)
