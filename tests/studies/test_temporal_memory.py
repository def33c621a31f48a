"""Memory at two levels against loops over the definition, and the relation between them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from undertow.errors import BadValue
from undertow.studies.temporal.memory_levels import memory_levels

TIMES = [0, 1, 2, 5, 9, 10]


def draw(t=6, n=50, seed=0, same=0.7):
    rng = np.random.default_rng(seed)
    base = rng.integers(0, 4, n)
    return np.where(rng.random((t, t, n)) < same, base, rng.integers(0, 4, (t, t, n)))


def naive_agreement(predictions, at, reach):
    """The integral over the window of 1[f_deep(t', z) = f_deep(t', z_t'(x))], for each sample."""
    place = TIMES.index(at)
    shares = []
    for n in range(predictions.shape[2]):
        inside = [s for s, time in enumerate(TIMES) if at - reach <= time <= at + reach]
        same = [predictions[s, place, n] == predictions[place, place, n] for s in inside]
        shares.append(sum(same) / len(same))
    return np.array(shares)


@pytest.mark.parametrize(("at", "reach"), [(5, 4), (9, 100), (0, 2), (2, 0)])
def test_both_levels_are_the_definitions(at, reach):
    predictions = draw()
    agreement = naive_agreement(predictions, at, reach)
    found = memory_levels(torch.from_numpy(predictions[:, TIMES.index(at)]), TIMES, at, reach)
    np.testing.assert_allclose(found.deltas, 1 - agreement, atol=1e-15)
    assert found.delta.value == pytest.approx(1 - agreement.mean(), abs=1e-15)
    for delta in (0.0, 0.11, 0.35, 0.77, 1.0):
        np.testing.assert_array_equal(found.particle(delta), agreement >= 1 - delta - 1e-12)
        assert found.empirical(delta) == (agreement.mean() >= 1 - delta - 1e-12)


def test_later_features_are_compared_with_the_same_model():
    """Fails if the reference moves with u, as it does in point-wise consistency."""
    column = np.array([[0], [0], [0], [1], [1], [1]])
    assert memory_levels(column, TIMES, 2, 8).misses.tolist() == [3]


def test_a_share_on_the_edge_holds():
    """29 misses of 100 are within 0.29, although 0.29 * 100 is 28.999999999999996."""
    column = np.zeros((100, 2), dtype=int)
    column[:29, 0] = 1
    column[:57, 1] = 1
    found = memory_levels(column, list(range(100)), 99, 99)
    assert found.particle(0.29).tolist() == [True, False]
    assert found.particle(0.57).tolist() == [True, True]
    assert found.particle(0.28).tolist() == [False, False]
    assert found.empirical(0.43)
    assert not found.empirical(0.42)


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.05, 1.0), st.floats(0.0, 0.5), st.integers(1, 30))
def test_the_theorem_holds_on_any_data(seed, same, more, samples):
    predictions = draw(n=samples, seed=seed, same=same)
    found = memory_levels(predictions[:, TIMES.index(5)], TIMES, 5, 10)
    for delta in (None, found.delta.value + more):
        relation = found.relation(delta, factors=(1.0001, 1.5, 2, 3, 4, 7, 50))
        assert found.empirical(relation.delta)
        assert relation.holds is True
        for one in relation.shares:
            assert one.share == np.mean(found.deltas <= one.factor * relation.delta * (1 + 1e-9))
            assert one.share > one.bound == 1 - 1 / one.factor
    most = float(found.deltas.max())
    assert found.particle(most).all()
    assert found.empirical(most)  # part (1)


def test_the_bound_is_nearly_reached():
    """Half of the samples miss 2 delta: the share at 1.999 delta is 1/2 of a promised 0.4997."""
    column = np.zeros((10, 100), dtype=int)
    column[:4, :50] = 1
    relation = memory_levels(column, list(range(10)), 9, 9).relation(factors=(1.999,))
    assert relation.delta == pytest.approx(0.2)
    assert relation.shares[0].share == 0.5
    assert relation.holds


def test_nothing_is_promised_without_the_premise():
    found = memory_levels(draw()[:, TIMES.index(5)], TIMES, 5, 10)
    assert found.relation(found.delta.value / 2).holds is None


def test_a_broken_relation_would_be_noticed():
    """The check can fail: misses that are not what they should be."""
    found = memory_levels(np.zeros((6, 4), dtype=int), TIMES, 5, 10)
    object.__setattr__(found, "misses", np.array([5, 5, -9, -9]))
    assert found.relation(0.0).holds is False


def test_perfect_memory_and_bad_settings():
    found = memory_levels(np.zeros((6, 4), dtype=int), TIMES, 5, 4)
    assert found.delta == (0, 0, 0)
    assert found.relation().holds
    assert found.used == (1, 2, 5, 9)
    with pytest.raises(BadValue, match="factors above 1"):
        found.relation(factors=(1,))
    with pytest.raises(BadValue, match="delta"):
        found.relation(-0.1)
    with pytest.raises(BadValue, match="reach"):
        memory_levels(draw()[:, 3], TIMES, 5, -1)
    with pytest.raises(BadValue, match="nearest"):
        memory_levels(draw()[:, 3], TIMES, 4, 1)
