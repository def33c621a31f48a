"""The density of consistency values: a kernel estimate that stays between 0 and 1.

    found = consistency_density(pointwise.values)
    found.points, found.density        # a grid from 0 to 1 and the density on it
    found.point_mass                   # the value all samples share, where there is no density

Gaussian kernels, reflected at both edges as often as it takes: what a plain estimate would put outside comes
back inside, so the mass is 1, and values heaped at 1 show their full height there (a plain estimate shows half).

The bandwidth is Silverman's, 0.9 min(sd, IQR / 1.34) n^(-1/5), with sd alone where the middle half is one value.
It is at least half the smallest gap between values: consistency over K checkpoints takes K + 1 values, and with
less each would show as a peak of its own (at half a gap their ripple is below 2 %).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from undertow.errors import BadData, BadValue
from undertow.temporal.predictions import Array, checked_finite

POINTS = 501


@dataclass(frozen=True, eq=False)
class Density:
    """A density on [0, 1]; None where all samples share one value."""

    points: NDArray[np.float64]  # (P,)
    density: NDArray[np.float64] | None  # (P,)
    bandwidth: float | None
    count: int
    mean: float
    point_mass: float | None = None
    note: str = ""


def consistency_density(values: Array, *, bandwidth: float | None = None, points: int = POINTS) -> Density:
    """The density of values (N,) from 0 to 1 on `points` places from 0 to 1."""
    who = "consistency_density"
    samples = checked_finite(who, values, "values (N,)")
    if samples.ndim != 1 or samples.min() < 0 or samples.max() > 1:
        raise BadData(
            f"{who}: wanted values (N,) from 0 to 1, got shape {samples.shape} from {samples.min():.4g} "
            f"to {samples.max():.4g}."
        )
    if bandwidth is not None and not 0 < bandwidth < math.inf:
        raise BadValue(who, "a bandwidth above 0", bandwidth)
    if points < 2:
        raise BadValue(who, "two points or more", points)
    grid = np.linspace(0.0, 1.0, points)
    mean = float(samples.mean())
    if np.ptp(samples) == 0:
        shared = float(samples[0])
        note = f"all {len(samples)} samples have {shared:.4g}: a point mass, which has no density"
        return Density(grid, None, None, len(samples), mean, shared, note)
    chosen, note = (bandwidth, "") if bandwidth is not None else _bandwidth(samples)
    if points - 1 < 2 / chosen:
        note = f"{note}; " * bool(note) + "the grid is coarse for this bandwidth: take more points"
    return Density(grid, reflected_density(samples, grid, chosen), chosen, len(samples), mean, note=note)


def reflected_density(
    samples: NDArray[np.float64], at: NDArray[np.float64], bandwidth: float
) -> NDArray[np.float64]:
    """The kernel estimate on [0, 1] at the places `at`, with every reflection that reaches the interval."""
    from scipy.stats import gaussian_kde  # slow to import

    places, counts = np.unique(samples, return_counts=True)  # consistency takes few values: group them
    kernel = gaussian_kde(places, bw_method=1.0, weights=counts)
    kernel.set_bandwidth(bandwidth / float(kernel.covariance[0, 0]) ** 0.5)
    # Reflecting the places instead of the samples gives the same sum; kernels end at 9 bandwidths (1e-17 of their top).
    most = math.ceil((9 * bandwidth + 1) / 2)
    turns = 2.0 * np.arange(-most, most + 1)[:, None]
    return kernel(np.stack([turns + at, turns - at]).ravel()).reshape(-1, len(at)).sum(0)


def _bandwidth(samples: NDArray[np.float64]) -> tuple[float, str]:
    low, high = np.quantile(samples, [0.25, 0.75])
    spread = min(filter(None, [float(samples.std(ddof=1)), float(high - low) / 1.34]))
    rule = 0.9 * spread * len(samples) ** -0.2
    half_gap = float(np.diff(np.unique(samples)).min()) / 2
    if half_gap > rule:
        return half_gap, "bandwidth raised to half the gap between values"
    return rule, ""
