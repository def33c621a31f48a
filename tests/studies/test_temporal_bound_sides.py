"""Both sides of the theorems: by hand, on any data, and where the theorem as printed is not enough."""

from __future__ import annotations

import numpy as np
import pytest

from undertow.errors import BadData
from undertow.studies.temporal.bound_sides import class_sides, overall_bound


def test_worked_by_hand():
    """Two classes, two checkpoints: class 0 has 4 training samples, class 1 two."""
    composites = [[0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 1, 0]]
    zero, one = class_sides(
        composites, [0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 1], [0, 1, 1, 1, 0]
    )
    assert (zero.train_error, zero.test_error, zero.gap) == (0.25, 0.5, 0.25)
    assert zero.delta == pytest.approx(1 / 8)  # the third sample at the second checkpoint
    assert zero.moved == pytest.approx(3 / 8 - 1 / 4)
    assert zero.seen == pytest.approx(1 / 2 - 3 / 8)
    assert one.delta == pytest.approx(1 / 4)
    assert zero.delta_all == one.delta_all == pytest.approx(2 / 12)
    whole = overall_bound([zero, one])
    assert whole.gap == pytest.approx(abs(2 / 5 - 1 / 6))
    assert whole.labels == pytest.approx(4 / 6 - 2 / 5)
    assert whole.worst == pytest.approx(0.5)
    assert whole.seen == pytest.approx(2 / 5 * zero.seen + 3 / 5 * one.seen)


@pytest.mark.parametrize("seed", range(20))
def test_the_proofs_chain_holds_for_any_answers(seed):
    """It is a triangle inequality: random arrays of any kind cannot break it, nor the bound over all classes."""
    rng = np.random.default_rng(seed)
    train, test = np.r_[np.arange(4), rng.integers(0, 4, 30)], np.r_[np.arange(4), rng.integers(0, 4, 25)]
    answers = rng.integers(0, 4, (3, 34))
    sides = class_sides(answers, train, answers[1], test, rng.integers(0, 4, 29))
    assert all(one.chain_holds for one in sides)
    assert overall_bound(sides).gap <= overall_bound(sides).right + 1e-12


def test_the_sets_delta_is_not_enough_for_a_class():
    """One class of ten forgets all, the others nothing: delta is a tenth, the class needs 1."""
    train = np.repeat(np.arange(10), 10)
    away = np.where(train == 0, 1, train)  # the window's other checkpoints answer wrongly for class 0
    sides = class_sides(np.stack([away] * 9 + [train]), train, train, train, away)
    assert sides[0].delta == pytest.approx(0.9)
    assert sides[0].delta_all == pytest.approx(0.09)
    assert sides[0].chain_holds
    assert not sides[0].step_holds, "the proof's step (2) <= delta"
    assert not sides[0].as_printed
    assert all(one.as_printed for one in sides[1:])


def test_no_window_no_delta():
    labels = np.array([0, 1, 0, 1])
    sides = class_sides(labels[None], labels, labels, labels, [0, 0, 0, 1])
    assert [one.delta for one in sides] == [0, 0]
    assert [one.gap for one in sides] == [one.seen for one in sides] == [0, 0.5]


def test_nonsense_is_refused():
    with pytest.raises(BadData, match="wanted answers"):
        class_sides([[0, 1]], [0, 1, 1], [0, 1, 1], [0, 1], [0, 1])
    with pytest.raises(BadData, match="of class 1, got none"):
        class_sides([[0, 1]], [0, 1], [0, 1], [0, 0], [0, 1])
    with pytest.raises(BadData, match="at least one class"):
        overall_bound([])
