"""The one schema of rows: what a table of them holds, whatever is missing."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from pathlib import Path

import pandas as pd
import pytest
from scipy.stats import binomtest

from undertow.rows import COLUMNS, NUMBERS, WHOLE, Row, frame, share_row
from undertow.shares import Share


def test_a_table_has_the_columns_and_types_of_the_schema_whatever_is_missing():
    """Fails if a column of whole numbers turns into floats where some are missing, or one of None into objects."""
    full = Row(
        "temporal", "trajectory", 4, "layer1", 0.5, shallow=0, position=1.0, sample=3, y=0.1, label=2, n=1
    )
    for rows in (
        [],
        [full],
        [Row("model", "loss", 0, "output", None, note="why")],
        [full, Row("a", "b", 1, "c", 2)],
    ):
        table = frame(rows)
        assert tuple(table.columns) == COLUMNS
        assert {str(table[name].dtype) for name in WHOLE} == {"Int64"}
        assert {str(table[name].dtype) for name in NUMBERS} == {"float64"}
        assert len(table) == len(rows)
    assert table["sample"].tolist() == [3, pd.NA]
    assert table["value"].tolist() == [0.5, 2.0]


def test_a_table_comes_back_from_parquet_as_it_was(tmp_path: Path):
    table = frame(
        [Row("latent", "accuracy", 0, "layer1", None, note="why"), Row("a", "b", 1, "c", 0.1, shallow=7)]
    )
    table.to_parquet(tmp_path / "t.parquet", index=False)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "t.parquet"), table)


def test_the_row_of_a_share_has_wilsons_interval():
    row = share_row(Share(345, 500), "model", "accuracy", 60, "output", split="test", labels="true")
    wanted = binomtest(345, 500).proportion_ci(0.95, method="wilson")
    assert (row.value, row.low, row.high) == pytest.approx((0.69, wanted.low, wanted.high), abs=1e-12)
    assert (row.n, row.split, row.labels, row.note) == (500, "test", "true", "")


def test_a_row_does_not_change():
    with pytest.raises(FrozenInstanceError):
        Row("a", "b", 0, "c", 1.0).value = 2.0  # pyright: ignore[reportAttributeAccessIssue]
