"""Forgetting against loops, a linear model that cannot forget, and what nobody can tell."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from undertow.errors import BadData
from undertow.studies.temporal.forgetting import find_forgetting

TIMES = [0, 2, 5, 9]


def draw(n=200, seed=0):
    """Losses of composites with the last deep part, and of the models themselves."""
    both = np.random.default_rng(seed).exponential(1.0, (2, 4, n))
    both[:, 3] = both[0, 3]
    return both


def test_differences_and_paired_intervals_are_the_definition():
    losses, own = draw()
    found = find_forgetting(torch.from_numpy(losses), TIMES, at=9, models=own, resamples=500, seed=7)
    index = np.random.default_rng(7).integers(0, 200, (500, 200))  # the same resamples, taken by hand
    assert found.shallow == (0, 2, 5)
    for s in range(3):
        more = np.array([losses[s, n] - own[s, n] for n in range(200)])
        drawn = [more[row].mean() for row in index]
        assert found.difference[s] == pytest.approx(more.mean(), abs=1e-12)
        assert found.low[s] == pytest.approx(np.percentile(drawn, 2.5), abs=1e-12)
        assert found.high[s] == pytest.approx(np.percentile(drawn, 97.5), abs=1e-12)


def test_pairing_tells_what_separate_intervals_cannot():
    """The same small rise on very different samples: fails if both losses are resampled apart."""
    rng = np.random.default_rng(0)
    own = np.broadcast_to(rng.exponential(5.0, 300), (4, 300))
    losses = own.copy()
    losses[0] += 0.02 + 0.01 * rng.random(300)
    losses[1] += rng.normal(0, 3, 300)
    assert find_forgetting(losses, TIMES, at=9, models=own).verdicts == (
        "larger",
        "cannot tell",
        "not larger",
    )
    losses[2] -= 0.02 + 0.01 * rng.random(300)
    assert find_forgetting(losses, TIMES, at=9, models=own).verdicts[2] == "not larger"


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

    own = np.array([loss(s, s) for s in range(4)])
    found = find_forgetting(np.array([loss(s, 3) for s in range(4)]), TIMES, at=9, models=own)
    assert (found.difference <= 1e-12).all()
    assert "larger" not in found.verdicts
    # Time turned round (an earlier deep part under later features) does show it.
    turned = np.array([loss(s, 0) for s in (3, 2, 1, 0)])
    assert "larger" in find_forgetting(turned, TIMES, at=9, models=own[::-1]).verdicts


def test_false_alarms_are_rare_for_equal_losses():
    rng = np.random.default_rng(0)
    found = [
        find_forgetting(rng.random((2, 60)), [0, 1], at=1, models=rng.random((2, 60)), resamples=200, seed=i)
        for i in range(300)
    ]
    assert sum(one.verdicts.count("larger") for one in found) <= 18  # 7.5 expected


def test_bad_losses_are_refused():
    losses, own = draw()
    with pytest.raises(BadData, match="same shape"):
        find_forgetting(losses, TIMES, at=9, models=own[0])
    with pytest.raises(BadData, match="before the deep part's, got none"):
        find_forgetting(losses, TIMES, at=0, models=own)
    losses[0, 3] = np.inf
    with pytest.raises(BadData, match="in 1 of 800 places"):
        find_forgetting(losses, TIMES, at=9, models=own)
