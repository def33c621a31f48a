"""The isotropy test: its statistic, its null, its errors of both kinds."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from undertow.errors import BadData, BadValue
from undertow.studies.temporal.isotropy import covariance_spectrum, isotropy_test, null_statistics


def naive(rows):
    """Word by word: covariance, over its mean eigenvalue, squared distance from I over d."""
    d = rows.shape[1]
    s = np.cov(rows, rowvar=False)
    s = s / (np.trace(s) / d)
    return ((s - np.eye(d)) ** 2).sum() / d


@pytest.mark.parametrize("shape", [(40, 7), (7, 40), (12, 12), (3, 2)])
def test_both_sides_give_the_definition(shape):
    rows = np.random.default_rng(0).normal(2, 1, shape) * np.linspace(1, 3, shape[1])
    rows[:, 1] = 0.1  # a dead unit, whose mean is not 0.1 to the bit
    np.testing.assert_allclose(isotropy_test(rows, draws=1).statistic, naive(rows), rtol=1e-10)


@pytest.mark.parametrize("shape", [(30, 6), (6, 30)])
def test_scale_rotation_and_offset_change_nothing(shape):
    rng = np.random.default_rng(1)
    rows = rng.normal(size=shape) * np.linspace(1, 2, shape[1])
    turn = np.linalg.qr(rng.normal(size=(shape[1], shape[1])))[0]
    plain = isotropy_test(rows, draws=1).statistic
    for other in (rows * 1e-160, rows * 1e100, rows @ turn, rows + 5.0):
        np.testing.assert_allclose(isotropy_test(other, draws=1).statistic, plain, rtol=1e-9)
    rounded = isotropy_test(torch.from_numpy(rows).float(), draws=1).statistic
    np.testing.assert_allclose(rounded, plain, rtol=1e-5)


@pytest.mark.parametrize("shape", [(20, 7), (6, 30), (3, 2), (12, 12), (4, 3)])
def test_the_null_is_that_of_gaussian_matrices(shape):
    """Catches wrong degrees of freedom in the bidiagonal draws, and a mean that is forgotten."""
    rng = np.random.default_rng(2)
    direct = [naive(rng.normal(size=shape)) for _ in range(1500)]
    drawn = null_statistics(shape[0] - 1, shape[1], 1500, rng)
    assert stats.ks_2samp(direct, drawn).pvalue > 1e-3
    # The test above can fail: one degree of freedom more or less shows.
    if shape == (4, 3):
        assert stats.ks_2samp(direct, null_statistics(shape[0] + 3, shape[1], 1500, rng)).pvalue < 1e-6


@pytest.mark.parametrize("shape", [(30, 8), (10, 50)])
def test_false_alarms_come_at_the_nominal_rate(shape):
    """Under the null p is uniform: 5 % below 0.05 within binomial bounds, and no drift elsewhere."""
    rng = np.random.default_rng(3)
    trials = 400
    p = np.array([isotropy_test(rng.normal(3, 2, shape), draws=99, seed=k).p for k in range(trials)])
    low, high = stats.binom.ppf([0.0005, 0.9995], trials, 0.05)
    assert low <= (p <= 0.05).sum() <= high
    assert stats.kstest(p - rng.random(trials) / 100, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("shape", [(60, 10), (60, 200)])
def test_a_spike_is_found(shape):
    rng = np.random.default_rng(4)
    rows = rng.normal(size=shape)
    rows[:, 0] *= 5
    found = isotropy_test(rows)
    assert found.p == 1 / 1000
    assert found.statistic > found.expected


def test_the_mean_step_is_not_noise():
    rows = np.random.default_rng(6).normal(size=(50, 10))
    rows[:, 0] += 100
    assert isotropy_test(rows).p > 0.01


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.ones((5, 3)), "no variance at all"),
        (np.ones((1, 3)), "at least 3 rows"),
        (np.random.default_rng(0).normal(size=(2, 3)), "at least 3 rows"),
        (np.random.default_rng(0).normal(size=(9, 1)), "2 columns"),
        (np.array([[1.0, np.nan], [0, 1], [1, 1]]), "NaN or infinity in 1 of 3 rows"),
    ],
)
def test_degenerate_clouds_are_answered(rows, message):
    with pytest.raises(BadData, match=message):
        isotropy_test(rows)
    with pytest.raises(BadData, match=message):
        covariance_spectrum(rows)


def test_no_draws_are_refused():
    with pytest.raises(BadValue, match="at least one draw"):
        isotropy_test(np.eye(4), draws=0)


@pytest.mark.parametrize("shape", [(40, 12), (12, 40)])
def test_the_spectrum_is_that_of_the_covariance(shape):
    rows = np.random.default_rng(7).normal(size=shape) * np.linspace(3, 1, shape[1])
    found = covariance_spectrum(rows, top=5)
    s = np.cov(rows, rowvar=False)
    np.testing.assert_allclose(found.eigenvalues, np.linalg.eigvalsh(s)[::-1][:5], rtol=1e-9)
    np.testing.assert_allclose(found.total, np.trace(s), rtol=1e-12)
    np.testing.assert_allclose(found.shares, found.eigenvalues / np.trace(s), rtol=1e-9)


@pytest.mark.parametrize("shape", [(40, 12), (12, 40)])
def test_the_isotropic_spectrum_is_that_of_gaussian_noise(shape):
    """The comparison is noise of the same size, not the flat line 1/d that no finite sample shows."""
    rng = np.random.default_rng(8)
    found = covariance_spectrum(rng.normal(size=shape), top=3, draws=400)
    direct = [np.linalg.eigvalsh(np.cov(rng.normal(size=shape), rowvar=False))[::-1] for _ in range(400)]
    shares = np.array([values[:3] / values.sum() for values in direct])
    error = 5 * shares.std(0) / np.sqrt(200)
    assert (np.abs(found.isotropic_shares - shares.mean(0)) < error).all()


def test_fewer_eigenvalues_than_asked_for():
    assert len(covariance_spectrum(np.random.default_rng(9).normal(size=(4, 9)), top=5).eigenvalues) == 3
