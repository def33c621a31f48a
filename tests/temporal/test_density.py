"""The density on [0, 1]: its mass, its edges, its bandwidth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

from undertow.errors import BadData, BadValue
from undertow.temporal import consistency_density
from undertow.temporal.density import reflected_density


def naive(samples, x, bandwidth, turns=60):
    """Reflections written out, sample by sample."""
    total = 0.0
    for value in samples:
        for turn in range(-turns, turns + 1):
            for image in (2 * turn + value, 2 * turn - value):
                total += stats.norm.pdf(x, image, bandwidth)
    return total / len(samples)


@pytest.mark.parametrize("bandwidth", [0.01, 0.1, 0.8, 5.0])
def test_density_is_the_sum_over_all_reflections(bandwidth):
    """Fails if only one reflection per edge is taken (bandwidth 5)."""
    samples = np.array([0.0, 0.03, 0.5, 0.5, 0.97, 1.0])
    at = np.array([0.0, 0.02, 0.31, 0.5, 1.0])
    wanted = [naive(samples, x, bandwidth) for x in at]
    np.testing.assert_allclose(reflected_density(samples, at, bandwidth), wanted, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("shape", [(0.3, 0.3), (50, 1), (2, 5)])
@pytest.mark.parametrize("bandwidth", [None, 0.02, 3.0])
def test_mass_is_one(shape, bandwidth):
    """A plain estimate loses up to half of the mass at an edge."""
    samples = np.random.default_rng(0).beta(*shape, 300)
    found = consistency_density(samples, bandwidth=bandwidth)
    assert found.density.min() >= 0
    exact, _ = quad(
        lambda x: reflected_density(samples, np.array([x]), found.bandwidth)[0], 0, 1, limit=400, epsabs=1e-9
    )
    assert exact == pytest.approx(1, abs=1e-7)
    assert np.trapezoid(found.density, found.points) == pytest.approx(1, abs=1e-3)
    assert found.note == ""


def test_heaps_at_an_edge_keep_their_height():
    """Uniform data has density 1 up to the edge; a plain estimate shows 1/2 there."""
    samples = (np.arange(4000) + 0.5) / 4000
    found = consistency_density(samples, bandwidth=0.05)
    np.testing.assert_allclose(found.density, 1, atol=1e-6)
    assert stats.gaussian_kde(samples)(0.0)[0] == pytest.approx(0.5, abs=0.02)


def test_turning_the_samples_round_turns_the_density_round():
    samples = np.random.default_rng(0).beta(9, 1, 200)
    one, other = consistency_density(samples), consistency_density(1 - samples)
    np.testing.assert_allclose(one.density, other.density[::-1], rtol=1e-9)


def test_bandwidth_is_silvermans():
    samples = np.random.default_rng(0).beta(4, 2, 500)
    spread = min(samples.std(ddof=1), np.subtract(*np.quantile(samples, [0.75, 0.25])) / 1.34)
    assert consistency_density(samples).bandwidth == pytest.approx(0.9 * spread * 500**-0.2, rel=1e-12)


def test_few_values_show_no_comb():
    """Consistency over 10 checkpoints: with Silverman's bandwidth every tenth would be a peak."""
    rng = np.random.default_rng(0)
    samples = rng.integers(0, 11, 20000) / 10
    found = consistency_density(samples)
    assert found.bandwidth == pytest.approx(0.05)
    assert "half the gap" in found.note
    inner = found.density[(found.points > 0.3) & (found.points < 0.7)]
    assert inner.max() / inner.min() < 1.15
    silverman = reflected_density(samples, found.points, 0.9 * samples.std() * 20000**-0.2)
    assert silverman.max() / silverman[100:400].min() > 1.15


def test_most_samples_at_one_value():
    """The middle half has no width, the rest does: sd stands in, not a bandwidth of 0."""
    samples = np.concatenate([np.ones(900), np.linspace(0, 0.9, 100)])
    found = consistency_density(samples)
    assert found.bandwidth == pytest.approx(0.9 * samples.std(ddof=1) * 1000**-0.2)
    assert math.isfinite(found.density.max())
    assert found.density.argmax() == len(found.points) - 1


def test_all_alike_is_a_point_mass():
    found = consistency_density(np.ones(7))
    assert found.density is None
    assert found.point_mass == 1
    assert found.note == "all 7 samples have 1: a point mass, which has no density"


def test_bad_values_are_refused():
    with pytest.raises(BadData, match="from 0 to 1"):
        consistency_density(np.array([0.2, 1.2]))
    with pytest.raises(BadData, match="NaN"):
        consistency_density(np.array([0.2, np.nan]))
    with pytest.raises(BadValue, match="bandwidth"):
        consistency_density(np.array([0.2, 0.3]), bandwidth=0)
    assert "coarse" in consistency_density(np.array([0.2, 0.8]), bandwidth=1e-3).note
