"""Intervals of shares against scipy, and what must hold of differences."""

from __future__ import annotations

import pytest
from scipy.stats import binomtest, norm
from undertow.auditing.shares import LEVEL, difference, wilson


@pytest.mark.parametrize(("hits", "count"), [(0, 40), (1, 7), (345, 500), (500, 500)])
@pytest.mark.parametrize("tries", [1, 9])
def test_wilson_is_scipys(hits: int, count: int, tries: int):
    """Fails if the level is not split among the tries, or at the ends of the range."""
    level = 1 - (1 - LEVEL) / tries
    wanted = binomtest(hits, count).proportion_ci(level, method="wilson")
    found = wilson(hits / count, count, tries)
    assert found.low == pytest.approx(wanted.low, abs=1e-12)
    assert found.high == pytest.approx(wanted.high, abs=1e-12)


def test_difference_is_antisymmetric_and_holds_its_value():
    one, other = wilson(0.94, 500), wilson(0.69, 500)
    there, back = difference(one, other), difference(other, one)
    assert there.low < there.value < there.high
    assert (there.low, there.high) == pytest.approx((-back.high, -back.low))


def test_difference_of_large_samples_is_the_normal_one():
    """Newcombe's interval goes over into Wald's."""
    n, p, q = 10**6, 0.5, 0.4
    reach = norm.ppf(0.975) * ((p * (1 - p) + q * (1 - q)) / n) ** 0.5
    found = difference(wilson(p, n), wilson(q, n))
    assert found.low == pytest.approx(p - q - reach, abs=1e-6)
    assert found.high == pytest.approx(p - q + reach, abs=1e-6)
