"""Curves, grids and numbers for JSON."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from undertow.report.tables import curves, grid, in_order, plain, prefer


def rows(**columns):
    count = len(next(iter(columns.values())))
    base = {name: [None] * count for name in ("checkpoint", "value", "low", "high", "layer", "labels")}
    made = pd.DataFrame({**base, **columns})
    numbers = [name for name in ("checkpoint", "value", "low", "high", "shallow") if name in made]
    return made.astype(dict.fromkeys(numbers, "float64"))


def test_curves_rise_and_the_later_row_counts():
    """Fails if an audit that was done again shows the old number, or a zigzag."""
    table = rows(checkpoint=[2, 1, 2], value=[0.1, 0.2, 0.3], layer=["a", "a", "a"])
    (curve,) = curves(table, "layer")
    assert curve.x.tolist() == [1, 2]
    assert curve.mean.tolist() == [0.2, 0.3]
    assert not curve.banded
    assert "low" not in curve.json()


def test_one_curve_for_each_name_even_a_missing_one():
    table = rows(checkpoint=[1, 1], value=[0.1, 0.2], layer=["a", None])
    assert [curve.tags for curve in curves(table, "layer")] == [{"layer": "a"}, {}]


def test_a_band_with_holes_falls_back_to_the_line():
    table = rows(checkpoint=[1, 2], value=[0.5, 0.6], low=[0.4, np.nan], high=[0.7, np.nan])
    (curve,) = curves(table)
    assert curve.low.tolist() == [0.4, 0.6]
    assert curve.json()["high"] == [0.7, 0.6]


def test_no_rows_give_no_curves():
    assert curves(rows(checkpoint=[], value=[]), "layer") == []


def test_a_grid_has_holes_where_nothing_was_measured():
    table = rows(checkpoint=[10, 5, 10], value=[0.1, 0.2, 0.3], layer=["b", "a", "a"])
    found = grid(table, down="layer", across="checkpoint", ys=["b", "a"])
    assert (found.down, found.across) == (["b", "a"], [5.0, 10.0])
    np.testing.assert_array_equal(found.value, [[np.nan, 0.1], [0.2, 0.3]])


def test_prefer_takes_the_first_that_is_there():
    table = rows(value=[1, 2], labels=["given", "shuffled"])
    assert prefer(table, "labels", "true", "given")["value"].tolist() == [1]
    assert len(prefer(table, "labels", "true")) == 2


def test_in_order_keeps_unknown_names_behind():
    assert in_order(["x", "b", "a", "b"], ["a", "b", "c"]) == ["a", "b", "x"]


@pytest.mark.parametrize("digits", [3, 4, 5])
def test_arrays_are_shortened_like_single_numbers(digits):
    """Fails if the whole-array rounding leaves long tails such as 0.30000000000000004."""
    random = np.random.default_rng(0)
    values = np.concatenate(
        [random.normal(size=300) * 10.0 ** random.integers(-12, 2, 300), [0.0, 1.0, -2.5, 0.1]]
    )
    for exact, short in zip(values, plain(values, digits), strict=True):
        assert short == pytest.approx(float(f"{exact:.{digits}g}"), rel=1e-12)
        assert len(repr(abs(short)).replace(".", "").strip("0")) <= digits + 4  # an exponent may follow


def test_json_has_no_not_a_number():
    """JSON.parse would refuse the whole page."""
    found = plain(
        {"a": np.array([[1.0, np.nan], [np.inf, 2.0]]), "b": float("nan"), "c": [float("-inf"), 3.0]}
    )
    assert json.loads(json.dumps(found, allow_nan=False)) == {
        "a": [[1, None], [None, 2]],
        "b": None,
        "c": [None, 3],
    }
