"""What a linear model on given features learns, against draws, root finding by hand and differential equations."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

from undertow.errors import BadData, BadValue
from undertow.richness import constant_share, generalisation_loss, gradient_flow, learnability


def power_law(count, exponent):
    return np.arange(1, count + 1, dtype=float) ** -exponent


@pytest.mark.parametrize("samples", [0.5, 1, 7, 39.5])
@pytest.mark.parametrize("exponent", [0.0, 1.0, 6.0])
def test_shares_add_up_to_the_samples(samples, exponent):
    """Fails if kappa is not the root, or is lost in rounding where eigenvalues span ten orders."""
    values = power_law(40, exponent)
    found = learnability(values, samples)
    assert float(found.shares.sum()) == pytest.approx(samples, rel=1e-10)
    np.testing.assert_allclose(found.shares, values / (values + found.kappa), rtol=1e-14)


def test_equal_eigenvalues_share_alike():
    found = learnability(np.full(10, 3.0), 4)
    np.testing.assert_allclose(found.shares, 0.4, rtol=1e-12)
    assert found.kappa == pytest.approx(3 * 6 / 4, rel=1e-12)


@pytest.mark.parametrize("scale", [1e-200, 1e-8, 1e8, 1e200])
def test_the_scale_of_features_changes_nothing(scale):
    values, wanted = power_law(30, 1.5), np.ones(30)
    one, other = learnability(values, 9), learnability(values * scale, 9)
    np.testing.assert_allclose(other.shares, one.shares, rtol=1e-10)
    assert generalisation_loss(values * scale, wanted, 9) == pytest.approx(
        generalisation_loss(values, wanted, 9), rel=1e-9
    )


@pytest.mark.parametrize("samples", [12, 13, 1000])
def test_with_as_many_samples_as_features_all_is_learned(samples):
    values = np.array([*power_law(12, 1), 0.0])
    found = learnability(values, samples)
    assert found.kappa == 0
    assert found.shares.tolist() == [1.0] * 12 + [0.0]
    assert generalisation_loss(values, np.array([1.0] * 12 + [0.0]), samples) == 0


def test_regression_on_drawn_samples_learns_these_shares():
    """Eq. 15 and 16 against 400 ridgeless regressions; fails if eigenvalue and root are exchanged."""
    random, count, samples = np.random.default_rng(0), 200, 40
    values = power_law(count, 1.0)
    wanted = np.zeros(count)
    wanted[:20] = random.standard_normal(20)
    learned, losses = [], []
    for _ in range(400):
        functions = random.standard_normal((samples, count))  # e_k at the samples
        features = functions * np.sqrt(values)
        weights = np.linalg.pinv(features) @ (functions @ wanted)
        learned.append(np.sqrt(values) * weights)
        losses.append(np.square(learned[-1] - wanted).sum())
    shares = np.mean(learned, 0)[:20] / wanted[:20]
    told = learnability(values, samples).shares[:20].numpy()
    error = np.std(learned, 0)[:20] / 20 / np.abs(wanted[:20])
    assert (np.abs(shares - told) < 4 * error + 0.01).all()
    assert np.mean(losses) == pytest.approx(generalisation_loss(values, wanted, samples), rel=0.1)


def test_gradient_flow_solves_its_equation():
    values, wanted = power_law(6, 2.0), np.linspace(-1, 1, 6)
    solved = solve_ivp(lambda _, f: -values * (f - wanted), (0, 5), np.zeros(6), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(gradient_flow(values, wanted, 5.0), solved.y[:, -1], rtol=1e-7)
    both = gradient_flow(values, np.stack([wanted, 2 * wanted], 1), 5.0)
    np.testing.assert_allclose(both[:, 1], 2 * both[:, 0], rtol=1e-14)
    assert gradient_flow(values, wanted, 0.0).abs().max() == 0


@pytest.mark.parametrize(
    ("values", "match"),
    [([-1.0, 2.0], "0 or more"), ([0.0, 0.0], "one above 0"), ([1.0, float("nan")], "finite")],
)
def test_what_is_no_spectrum_is_refused(values, match):
    with pytest.raises(BadData, match=match):
        learnability(np.array(values), 1)


def test_wrong_counts_are_refused():
    with pytest.raises(BadValue, match="samples"):
        learnability(np.ones(3), 0)
    with pytest.raises(BadData, match="coefficients of 3 eigenfunctions"):
        generalisation_loss(np.ones(3), np.ones(4), 1)
    with pytest.raises(BadValue, match="time"):
        gradient_flow(np.ones(3), np.ones(3), -1)


# -- the first eigenfunction


def features(count, width, shift, seed=0):
    return (
        torch.randn(count, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + shift
    )


@pytest.mark.parametrize(("count", "width"), [(300, 5), (20, 60)])
@pytest.mark.parametrize("shift", [0.0, 0.3, 5.0])
def test_the_share_of_the_constant_is_that_of_the_first_eigenvector(count, width, shift):
    rows = features(count, width, shift).numpy()
    first = np.linalg.svd(rows, full_matrices=False)[0][:, 0]
    wanted = abs(first @ np.full(count, count**-0.5))
    assert constant_share(rows) == pytest.approx(wanted, abs=1e-9)
    assert 0 <= constant_share(rows) <= 1 + 1e-12


def test_far_from_zero_the_first_function_is_constant():
    assert constant_share(features(200, 8, 50.0)) > 0.999
    assert constant_share(torch.cat([features(50, 3, 0), -features(50, 3, 0)])) < 1e-9


def test_dead_features_have_no_first_function():
    with pytest.raises(BadData, match="zeros only"):
        constant_share(torch.zeros(4, 2))
