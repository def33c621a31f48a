"""Forgetting against loops, a linear model that cannot forget, and what nobody can tell."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from undertow.errors import BadData, BadValue
from undertow.temporal import find_forgetting

TIMES = [0, 2, 5, 9]


def draw(n=200, seed=0):
    return np.random.default_rng(seed).exponential(1.0, (4, 4, n))


def test_differences_and_paired_intervals_are_the_definition():
    losses = draw()
    found = find_forgetting(torch.from_numpy(losses), TIMES, resamples=500, seed=7)
    rng = np.random.default_rng(7)
    index = rng.integers(0, 200, (500, 200))  # the same resamples, taken by hand
    place = 0
    for s in range(4):
        for t in range(s + 1, 4):
            more = np.array([losses[s, t, n] - losses[s, s, n] for n in range(200)])
            drawn = [more[row].mean() for row in index]
            assert found.pairs[place] == (TIMES[s], TIMES[t])
            assert found.difference[place] == pytest.approx(more.mean(), abs=1e-12)
            assert found.low[place] == pytest.approx(np.percentile(drawn, 2.5), abs=1e-12)
            assert found.high[place] == pytest.approx(np.percentile(drawn, 97.5), abs=1e-12)
            place += 1
    assert place == len(found.pairs)


def test_pairing_tells_what_separate_intervals_cannot():
    """The same small rise on very different samples: fails if both losses are resampled apart."""
    rng = np.random.default_rng(0)
    base = rng.exponential(5.0, 300)
    losses = np.broadcast_to(base, (4, 4, 300)).copy()
    losses[0, 3] += 0.02 + 0.01 * rng.random(300)
    losses[1, 2] -= 0.02 + 0.01 * rng.random(300)
    losses[0, 1] += rng.normal(0, 3, 300)
    found = find_forgetting(losses, TIMES)
    assert found.where("larger") == ((0, 9),)
    assert found.where("cannot tell") == ((0, 2),)
    assert (2, 5) in found.where("not larger")
    assert (5, 9) in found.where("not larger")  # no change at all is not larger
    assert "Forgetting in 1 of 6 pairs" in found.reading
    assert "features of 0 at 9" in found.reading
    assert "1 of 6 pairs cannot be told" in found.reading


def test_a_linear_model_does_not_forget():
    """Least squares by gradient descent, the two halves of the weights as shallow and deep part: the paper's claim
    where it is true, with features that do not overlap.
    """
    rng = np.random.default_rng(0)
    basis, _ = np.linalg.qr(rng.normal(size=(300, 8)))
    x, y = basis * 300**0.5, rng.normal(size=300) + basis.sum(1) * 9
    weights = [np.zeros(8)]
    for _ in range(3):
        weights.append(weights[-1] - 0.5 * x.T @ (x @ weights[-1] - y) / 300)

    def loss(s, t):
        merged = np.concatenate([weights[s][:4], weights[t][4:]])
        return 0.5 * (x @ merged - y) ** 2

    losses = np.array([[loss(s, t) for t in range(4)] for s in range(4)])
    found = find_forgetting(losses, TIMES)
    assert (found.difference <= 1e-12).all()
    assert not found.where("larger")
    assert found.reading.startswith("No forgetting is seen")
    # Time turned round (an earlier deep part under later features) does show it.
    assert find_forgetting(losses[::-1, ::-1], TIMES).where("larger")


def test_false_alarms_are_rare_for_equal_losses():
    rng = np.random.default_rng(0)
    found = [find_forgetting(rng.random((2, 2, 60)), [0, 1], resamples=200, seed=i) for i in range(300)]
    assert sum(len(one.where("larger")) for one in found) <= 18  # 7.5 expected


def test_a_column_is_enough():
    losses = draw()
    steps = np.arange(4)
    whole = find_forgetting(losses, TIMES)
    column = find_forgetting(losses[:, 3], TIMES, at=9, models=losses[steps, steps])
    assert column.pairs == ((0, 9), (2, 9), (5, 9))
    np.testing.assert_allclose(column.difference, [whole.difference[k] for k in (2, 4, 5)])
    with pytest.raises(BadValue, match="models="):
        find_forgetting(losses[:, 3], TIMES, at=9)
    with pytest.raises(BadData, match="same shape"):
        find_forgetting(losses[:, 3], TIMES, at=9, models=losses[0, 0])
    with pytest.raises(BadData, match="before the deep part's, got none"):
        find_forgetting(losses[:, 0], TIMES, at=0, models=losses[steps, steps])


def test_means_alone_cannot_tell():
    found = find_forgetting(draw().mean(2), TIMES)
    assert set(found.verdicts) == {"cannot tell"}
    assert found.low is None
    assert found.reading.startswith("Cannot tell: mean losses alone")


def test_bad_losses_are_refused():
    losses = draw()
    losses[0, 1, 3] = np.inf
    with pytest.raises(BadData, match="in 1 of 3200 places"):
        find_forgetting(losses, TIMES)
    with pytest.raises(BadData, match="For a column give at="):
        find_forgetting(draw()[:, 0], TIMES)
