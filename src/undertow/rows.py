"""The one schema of tidy rows: one number each, with where and when it was measured.

    Row("richness", "d_lr", 60, "head", 0.16, low=0.14, high=0.18, n=500, split="test")
    share_row(Share(345, 500), "model", "accuracy", 60, "output", split="test", labels="true")
    frame(rows)                                   # pandas, the columns and types of audit.parquet and probes.parquet

`value` is None where there is no number, and `note` then says why. Coordinates that do not apply are None. Notes are
for people: nothing reads them back. Tables, pandas, the report and gates all use this schema; it needs no torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from undertow.shares import Share

if TYPE_CHECKING:
    import pandas as pd

OUTPUT = "output"
"""In place of a layer: the model itself."""


@dataclass(frozen=True, slots=True)
class Row:
    """One number."""

    lens: str
    measure: str
    checkpoint: int
    layer: str
    value: float | None
    split: str | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    note: str = ""
    probe: str | None = None
    fit: str | None = None  # the labels that a probe was fitted with: given, true or shuffled
    labels: str | None = None  # the labels that answers were compared with: given or true
    shallow: int | None = None  # the checkpoint of a composite's shallow part
    position: float | None = None
    sample: int | None = None
    y: float | None = None
    label: int | None = None


COLUMNS = tuple(one.name for one in fields(Row))
WHOLE = ("checkpoint", "n", "shallow", "sample", "label")
"""Columns of whole numbers, which may be missing."""
NUMBERS = ("value", "low", "high", "position", "y")


def share_row(share: Share, lens: str, measure: str, checkpoint: int, layer: str, **where: Any) -> Row:
    """A share with its 95 % interval."""
    value, low, high = share.sure()
    return Row(lens, measure, checkpoint, layer, value, low=low, high=high, n=share.count, **where)


def frame(rows: Iterable[Row]) -> pd.DataFrame:
    """The rows as a table; whole numbers stay whole where some are missing."""
    import pandas as pd

    # Not astuple, which copies every value deeply: tables have tens of thousands of rows.
    made = pd.DataFrame(list(map(attrgetter(*COLUMNS), rows)), columns=list(COLUMNS))
    types = dict.fromkeys(WHOLE, "Int64") | dict.fromkeys(NUMBERS, "float64")
    return made.astype(types)  # pyright: ignore[reportArgumentType, reportCallIssue]
