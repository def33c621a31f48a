"""Distances between samples: MMD, sliced Wasserstein, and the classifier's bound on total variation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from undertow.errors import BadData, BadValue
from undertow.studies.temporal.bound_distances import mmd_test, sliced_wasserstein, tv_lower_bound


def mmd_squared(a, b, bandwidth=None):
    return mmd_test(a, b, bandwidth=bandwidth, permutations=1).value


def two(n=9, m=13, d=3, shift=0.5, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.normal(shift, 1, (m, d))


def naive_mmd(a, b, h):
    """Double loops over distinct pairs."""

    def k(x, y):
        return math.exp(-sum((p - q) ** 2 for p, q in zip(x, y, strict=True)) / (2 * h * h))

    n, m = len(a), len(b)
    aa = sum(k(a[i], a[j]) for i in range(n) for j in range(n) if i != j) / (n * (n - 1))
    bb = sum(k(b[i], b[j]) for i in range(m) for j in range(m) if i != j) / (m * (m - 1))
    return aa + bb - 2 * sum(k(x, y) for x in a for y in b) / (n * m)


def naive_median(rows):
    return np.median([np.linalg.norm(rows[i] - rows[j]) for i in range(len(rows)) for j in range(i)])


@pytest.mark.parametrize("bandwidth", [None, 0.7])
@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_mmd_is_the_double_sum(bandwidth, offset):
    """Catches a kernel with its diagonal, mixed-up sizes, and cancellation far from the origin."""
    a, b = two()
    h = bandwidth or naive_median(np.concatenate([a, b]))
    tolerance = 1e-12 if offset == 0 else 1e-8
    found = mmd_squared(a + offset, b + offset, bandwidth=bandwidth)
    np.testing.assert_allclose(found, naive_mmd(a, b, h), rtol=0, atol=tolerance)
    np.testing.assert_allclose(mmd_squared(b, a, bandwidth=bandwidth), naive_mmd(a, b, h), atol=1e-12, rtol=0)


def test_mmd_does_not_change_with_scale_rotation_or_order():
    a, b = two()
    rng = np.random.default_rng(1)
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    plain = mmd_squared(a, b)
    for x, y in ((a * 1e3, b * 1e3), (a @ turn, b @ turn), (rng.permutation(a), rng.permutation(b))):
        np.testing.assert_allclose(mmd_squared(x, y), plain, rtol=0, atol=1e-12)


def test_the_estimate_is_unbiased():
    """Under the null its mean is 0; with the diagonal in, it would be about 2 / n."""
    values = np.array([mmd_squared(*two(10, 10, 2, 0.0, seed), bandwidth=1.0) for seed in range(600)])
    assert abs(values.mean()) < 4 * values.std() / math.sqrt(len(values))
    assert (values < 0).any()
    # Gaussians with a shift: the true value is known in closed form.
    shifted = np.array([mmd_squared(*two(10, 14, 2, 1.0, seed), bandwidth=1.0) for seed in range(600)])
    true = (
        2 * (1 / 3) * (1 - math.exp(-2 / (2 * 3)))
    )  # E k = h^2 / (h^2 + 2) exp(-|mu|^2 / (2 (h^2 + 2))), d = 2
    assert abs(shifted.mean() - true) < 4 * shifted.std() / math.sqrt(len(shifted))


@pytest.mark.parametrize(("n", "m"), [(15, 15), (8, 30)])
def test_permutation_p_is_uniform_under_the_null(n, m):
    trials = 300
    p = np.array([mmd_test(*two(n, m, 2, 0.0, seed), permutations=99, seed=seed).p for seed in range(trials)])
    low, high = stats.binom.ppf([0.0005, 0.9995], trials, 0.05)
    assert low <= (p <= 0.05).sum() <= high
    dither = np.random.default_rng(0).random(trials) / 100
    assert stats.kstest(p - dither, "uniform").pvalue > 1e-3


def test_a_shift_is_found_and_the_value_is_the_estimate():
    a, b = two(40, 50, 3, 1.0)
    found = mmd_test(a, b)
    assert found.p == 1 / 1000
    assert found.value == mmd_squared(a, b)
    np.testing.assert_allclose(found.bandwidth, naive_median(np.concatenate([a, b])), rtol=1e-10)


def test_permutations_go_through_all_divisions():
    """Two against two has three divisions of distinct value; p of the largest is about a third, not 0."""
    rows = np.array([[0.0], [0.1], [5.0], [5.3]])
    p = mmd_test(rows[:2], rows[2:], permutations=3000, bandwidth=1.0).p
    assert abs(p - 1 / 3) < 5 * math.sqrt(2 / 9 / 3000)


def test_blocks_of_permutations_give_the_same(monkeypatch):
    a, b = two()
    whole = mmd_test(a, b)
    monkeypatch.setattr("undertow.studies.temporal.bound_distances.BLOCK", 1)
    assert mmd_test(a, b) == whole


def test_rows_that_mostly_coincide_have_a_bandwidth():
    rows = np.zeros((10, 2))
    rows[0] = (3, 4)
    found = mmd_test(rows[:5], rows[5:], permutations=1)
    assert found.bandwidth == pytest.approx(5)
    assert np.isfinite(found.value)


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        (np.ones((4, 2)), np.ones((5, 2)), "rows that differ, got 9 equal ones"),
        (np.ones((4, 2)), np.ones((5, 3)), r"one width, got \(4, 2\) and \(5, 3\)"),
        (np.ones((1, 2)), np.ones((5, 2)), "at least 2 rows"),
        (np.full((4, 2), np.nan), np.ones((5, 2)), "NaN or infinity in 4 of 4"),
    ],
)
def test_mmd_answers_degenerate_input(a, b, message):
    with pytest.raises(BadData, match=message):
        mmd_test(a, b)


def naive_wasserstein(a, b):
    """W_2^2 on a line: values are repeated until the sizes are equal, then sorted pairs are the plan."""
    size = math.lcm(len(a), len(b))
    long_a, long_b = np.sort(np.repeat(a, size // len(a))), np.sort(np.repeat(b, size // len(b)))
    return ((long_a - long_b) ** 2).mean()


@pytest.mark.parametrize(("n", "m"), [(8, 8), (8, 11), (1, 5), (6, 4)])
def test_sliced_wasserstein_averages_lines(n, m):
    """Against the same lines one by one."""
    a, b = two(n, m, 4)
    lines = torch.randn(4, 50, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    lines = (lines / lines.norm(dim=0)).numpy()
    exact = np.mean([naive_wasserstein(a @ v, b @ v) for v in lines.T]) ** 0.5
    np.testing.assert_allclose(sliced_wasserstein(a, b, directions=50, seed=3), exact, rtol=1e-10)


def test_sliced_wasserstein_of_a_shift_is_known():
    """The same rows moved by s: along each line |s . v|, so the squared mean is |s|^2 / D."""
    a = np.random.default_rng(0).normal(size=(30, 5))
    shift = np.array([3.0, 0, 4, 0, 0])
    found = sliced_wasserstein(a, a + shift, directions=20_000)
    assert found == pytest.approx(5 / math.sqrt(5), rel=0.02)
    assert sliced_wasserstein(a, a[::-1]) == 0
    np.testing.assert_allclose(sliced_wasserstein(2 * a, 2 * a + 2 * shift, directions=20_000), 2 * found)


def test_distances_refuse_what_they_cannot_compare():
    with pytest.raises(BadData, match=r"one width, got \(4, 2\) and \(4, 3\)"):
        sliced_wasserstein(np.ones((4, 2)), np.ones((4, 3)))
    with pytest.raises(BadData, match=r"at least 4 rows each of one width, got \(3, 2\)"):
        tv_lower_bound(np.ones((3, 2)), np.ones((9, 2)))
    with pytest.raises(BadValue, match="above 0 and below 1"):
        tv_lower_bound(np.ones((9, 2)), np.ones((9, 2)), confidence=1.0)


class Threshold:
    """Knows the best set for a Gaussian and its shift: nothing to learn, so the bound is as tight as can be."""

    def __init__(self, at):
        self.at = at

    def fit(self, X, y):
        return self

    def predict(self, X):
        return (X[:, 0] < self.at).astype(int)


@pytest.mark.parametrize("shift", [0.0, 1.0, 9.0])
def test_the_bound_is_that_of_exact_limits(shift):
    """Clopper and Pearson by quantiles of the beta distribution, also where no or all rows are hits."""
    a, b = two(40, 60, 1, shift)
    found = tv_lower_bound(a, b, classifier=Threshold(shift / 2), confidence=0.9)
    rng = np.random.default_rng(0)
    held_a, held_b = a[rng.permutation(40)[:20]], b[rng.permutation(60)[:30]]
    hits, alarms = int((held_a < shift / 2).sum()), int((held_b < shift / 2).sum())
    least = stats.beta.ppf(0.05, hits, 21 - hits) if hits else 0.0
    most = stats.beta.ppf(0.95, alarms + 1, 30 - alarms) if alarms < 30 else 1.0
    assert found.estimate == pytest.approx(hits / 20 - alarms / 30, abs=1e-12)
    assert found.lower == pytest.approx(max(0.0, least - most), rel=1e-9)


@pytest.mark.parametrize("shift", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("sizes", [(60, 60), (30, 120)])
def test_the_bound_holds_as_often_as_it_says(shift, sizes):
    """TV of N(0, 1) and N(s, 1) is 2 Phi(s / 2) - 1. A bound without correction fails half of the time here."""
    true, trials = 2 * stats.norm.cdf(shift / 2) - 1, 300
    found = [
        tv_lower_bound(
            *two(*sizes, 1, shift, seed), classifier=Threshold(shift / 2), confidence=0.9, seed=seed
        )
        for seed in range(trials)
    ]
    over = sum(one.lower > true for one in found)
    assert over <= stats.binom.ppf(0.999, trials, 0.1)
    if shift:
        assert sum(one.estimate > true for one in found) > 0.3 * trials  # the uncorrected one does fail
    assert np.mean([one.estimate for one in found]) == pytest.approx(true, abs=0.03)


def test_the_learned_classifier_comes_close_to_the_true_distance():
    a, b = two(2000, 2000, 5, 0.8)
    true = 2 * stats.norm.cdf(0.8 * math.sqrt(5) / 2) - 1
    found = tv_lower_bound(a, b)
    assert true - 0.12 < found.lower <= true
    assert found.held_out == (1000, 1000)


def test_more_columns_than_rows_do_not_fool_the_bound():
    """Halves are always separable there; on held-out rows nothing is left of it."""
    rng = np.random.default_rng(0)
    found = tv_lower_bound(rng.normal(size=(40, 300)), rng.normal(size=(40, 300)))
    assert found.lower == 0.0
