"""The audit's tidy rows: one number each, with where and when it was measured.

    row("richness", "d_lr", 60, "head", 0.16, low=0.14, high=0.18, n=500, split="test")
    share_row("model", "accuracy", 60, "output", hits=345, count=500, split="test", labels="true")
    frame(rows)                                   # pandas, the columns and types of audit.parquet

`value` is None where there is no number, and `note` then says why. Coordinates that do not apply are None.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]

COORDINATES = ("probe", "fit", "labels", "shallow", "position", "sample", "y", "label")
COLUMNS = (
    "lens", "measure", "checkpoint", "layer", "split", "value", "low", "high", "n", "note", *COORDINATES,
)  # fmt: skip
WHOLE = ("checkpoint", "n", "shallow", "sample", "label")
"""Columns of whole numbers, which may be missing."""
NUMBERS = ("value", "low", "high", "position", "y")
OUTPUT = "output"
"""In place of a layer: the model itself."""


def row(
    lens: str,
    measure: str,
    checkpoint: int,
    layer: str,
    value: float | None,
    *,
    low: float | None = None,
    high: float | None = None,
    n: int = 0,
    split: str | None = None,
    note: str = "",
    **coordinates: Any,
) -> Row:
    """One row with all columns."""
    made = dict.fromkeys(COLUMNS) | coordinates
    made |= {"lens": lens, "measure": measure, "checkpoint": checkpoint, "layer": layer, "split": split}
    return made | {"value": value, "low": low, "high": high, "n": n, "note": note}


def share_row(
    lens: str, measure: str, checkpoint: int, layer: str, hits: int, count: int, *, note: str = "", **where: Any
) -> Row:  # fmt: skip
    """A share with its 95 % bootstrap interval; where all are alike that has no width, and the note says so."""
    from undertow.temporal.intervals import share_interval

    low, high = (float(edge) for edge in share_interval(_one(hits), count))
    if hits in (0, count):
        note = "; ".join(filter(None, [note, "all answers alike: the bootstrap has no width"]))
    return row(
        lens, measure, checkpoint, layer, hits / count, low=low, high=high, n=count, note=note, **where
    )


def _one(number: int) -> Any:
    import numpy as np

    return np.asarray(number)


def frame(rows: Iterable[Row]) -> pd.DataFrame:
    """The rows as a table; whole numbers stay whole where some are missing."""
    import pandas as pd

    made = pd.DataFrame(list(rows), columns=list(COLUMNS))
    types = dict.fromkeys(WHOLE, "Int64") | dict.fromkeys(NUMBERS, "float64")
    return made.astype(types)  # pyright: ignore[reportArgumentType, reportCallIssue]


def find(rows: Iterable[Row], lens: str, *measures: str, **where: Any) -> list[Row]:
    """The rows with a number whose columns are as wanted; a tuple allows several values."""
    return [
        one
        for one in rows
        if one["lens"] == lens
        and (not measures or one["measure"] in measures)
        and one["value"] is not None
        and all(_fits(one[name], wanted) for name, wanted in where.items())
    ]


def _fits(value: Any, wanted: Any) -> bool:
    return value in wanted if isinstance(wanted, tuple) else value == wanted


def thinned(numbers: Sequence[int], most: int) -> tuple[int, ...]:
    """At most `most` of the numbers, spread evenly over their places; the first and the last stay."""
    if len(numbers) <= most:
        return tuple(numbers)
    if most == 1:
        return (numbers[-1],)
    places = {round(step * (len(numbers) - 1) / (most - 1)) for step in range(most)}
    return tuple(numbers[place] for place in sorted(places))
