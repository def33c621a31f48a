"""Welch's t-test: do two runs differ in their mean consistency?

    found = welch_test(clean.values, noisy.values)
    found.t, found.df, found.p, found.difference     # the difference of the means with its interval
    welch_by_cut({"layer1": clean1, ...}, {"layer1": noisy1, ...})      # one test per cut

    t = (mean_a - mean_b) / sqrt(v_a / n_a + v_b / n_b), v with n - 1, df by Welch and Satterthwaite,
two-sided. The samples are data points, so p speaks of these two runs on other data, not of other seeds.
Where neither side has any spread there is no test: t, df and p are None and the note says why.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from undertow.errors import BadData, unknown
from undertow.temporal.intervals import CONFIDENCE, Interval
from undertow.temporal.predictions import Array, checked_finite

TINY = 1e-12
"""Values that differ by less than this share of the largest differ by rounding."""


@dataclass(frozen=True)
class Welch:
    """The test of a - b; the interval of the difference has no width where neither side has spread."""

    t: float | None
    df: float | None
    p: float | None
    mean_a: float
    mean_b: float
    difference: Interval  # mean_a - mean_b
    count_a: int
    count_b: int
    note: str = ""


def welch_test(a: Array, b: Array, *, confidence: float = CONFIDENCE) -> Welch:
    """Test the means of samples (N,) and (M,); their sizes may differ."""
    from scipy.stats import t as student

    first, second = _sample(a, "a"), _sample(b, "b")
    means, counts = (float(first.mean()), float(second.mean())), (len(first), len(second))
    gap = means[0] - means[1]
    if _alike(first) and _alike(second):
        values = "both have the same value" if abs(gap) <= TINY else "each has one value and they differ"
        note = f"neither side has any spread, so there is no test: {values}"
        return Welch(None, None, None, *means, Interval(gap, gap, gap), *counts, note)
    parts = [float(side.var(ddof=1)) / len(side) for side in (first, second)]
    error = math.sqrt(sum(parts))
    df = sum(parts) ** 2 / sum(part**2 / (n - 1) for part, n in zip(parts, counts, strict=True))
    t = gap / error
    half = float(student.ppf((1 + confidence) / 2, df)) * error
    lone = next((name for name, side in (("a", first), ("b", second)) if _alike(side)), None)
    note = f"all values of {lone} are alike" if lone else ""
    return Welch(
        t, df, float(2 * student.sf(abs(t), df)), *means, Interval(gap, gap - half, gap + half), *counts, note
    )


def welch_by_cut(
    a: Mapping[str, Array], b: Mapping[str, Array], *, confidence: float = CONFIDENCE
) -> dict[str, Welch]:
    """One test per cut; both runs must have the same cuts."""
    for cut in (*a, *b):
        if cut not in a or cut not in b:
            raise unknown("cut in both runs called", cut, [*a] if cut in b else [*b])
    return {cut: welch_test(a[cut], b[cut], confidence=confidence) for cut in a}


def _sample(values: Array, name: str) -> NDArray[np.float64]:
    found = checked_finite(f"welch_test, {name}", values, "numbers (N,)")
    if found.ndim != 1 or len(found) < 2:
        raise BadData(f"welch_test, {name}: wanted two numbers (N,) or more, got shape {found.shape}.")
    return found


def _alike(values: NDArray[np.float64]) -> bool:
    return float(np.ptp(values)) <= TINY * float(np.abs(values).max())
