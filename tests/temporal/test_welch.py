"""Welch's test against scipy, its laws, and samples without spread."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from undertow.errors import BadData, UnknownName
from undertow.temporal import welch_by_cut, welch_test


@pytest.mark.parametrize(("n", "m", "ratio"), [(2, 2, 1.0), (30, 7, 5.0), (500, 400, 0.1)])
def test_it_is_scipys(n, m, ratio):
    rng = np.random.default_rng(n)
    a, b = rng.beta(5, 1, n), ratio * rng.beta(2, 1, m)
    wanted = stats.ttest_ind(a, b, equal_var=False)
    interval = wanted.confidence_interval(0.9)
    found = welch_test(a, torch.from_numpy(b), confidence=0.9)
    assert found.t == pytest.approx(wanted.statistic, rel=1e-10)
    assert found.df == pytest.approx(wanted.df, rel=1e-10)
    assert found.p == pytest.approx(wanted.pvalue, rel=1e-9)
    assert found.difference.low == pytest.approx(interval.low, rel=1e-9)
    assert found.difference.high == pytest.approx(interval.high, rel=1e-9)
    assert (found.mean_a, found.mean_b) == pytest.approx((a.mean(), b.mean()))
    assert (found.count_a, found.count_b, found.note) == (n, m, "")


def test_tiny_p_values_are_not_zero():
    """The paper reports 2e-14; 1 - cdf would round to 0."""
    rng = np.random.default_rng(0)
    found = welch_test(rng.normal(0, 1, 300), rng.normal(1.2, 1, 300))
    assert 0 < found.p < 1e-30


def test_exchange_and_shift():
    rng = np.random.default_rng(0)
    a, b = rng.random(20), rng.random(30)
    one, other = welch_test(a, b), welch_test(b, a)
    assert (one.t, one.p) == pytest.approx((-other.t, other.p))
    assert one.difference.low == pytest.approx(-other.difference.high)
    moved = welch_test(5 + 3 * a, 5 + 3 * b)
    assert (moved.t, moved.df, moved.p) == pytest.approx((one.t, one.df, one.p), rel=1e-9)


def test_false_alarms_at_the_level():
    """Unequal sizes and spreads, where the pooled test is wrong three times as often."""
    rng = np.random.default_rng(0)
    alarms = np.mean([welch_test(rng.normal(0, 4, 10), rng.normal(0, 1, 60)).p < 0.05 for _ in range(1000)])
    assert 0.03 < alarms < 0.07


@pytest.mark.parametrize(("b", "says"), [(0.1, "the same value"), (0.3, "they differ")])
def test_no_spread_at_all(b, says):
    """0.1 three times has a variance of 1e-34 in binary: t would be a huge number or NaN."""
    found = welch_test(np.full(3, 0.1), np.full(5, b))
    assert (found.t, found.df, found.p) == (None, None, None)
    assert found.difference.value == pytest.approx(0.1 - b)
    assert says in found.note


def test_one_side_without_spread():
    """Then it is the test of one sample against a number (scipy's own two-sample test warns here)."""
    b = np.random.default_rng(0).random(8)
    found = welch_test(np.ones(10), b)
    wanted = stats.ttest_1samp(b, 1.0)
    assert (found.t, found.p, found.df) == pytest.approx((-wanted.statistic, wanted.pvalue, 7))
    assert found.note == "all values of a are alike"


def test_per_cut():
    rng = np.random.default_rng(0)
    a = {"layer1": rng.random(9), "layer2": rng.random(9)}
    b = {"layer2": rng.random(5), "layer1": rng.random(5)}
    found = welch_by_cut(a, b)
    assert list(found) == ["layer1", "layer2"]
    assert found["layer2"] == welch_test(a["layer2"], b["layer2"])
    with pytest.raises(UnknownName, match="layer3"):
        welch_by_cut(a, {**b, "layer3": rng.random(5)})


def test_too_few_or_bad_numbers():
    with pytest.raises(BadData, match="b: wanted two numbers"):
        welch_test(np.arange(3.0), np.ones(1))
    with pytest.raises(BadData, match="NaN"):
        welch_test(np.array([1.0, np.nan]), np.arange(3.0))
