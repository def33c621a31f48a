"""Tidy rows -> curves and grids, the two shapes that charts are drawn from.

    for curve in curves(rows, "layer", "probe"):        # one per layer and probe, over checkpoints
        curve.tags["layer"], curve.x, curve.mean, curve.low, curve.high
    found = grid(rows, down="layer", across="checkpoint")
    found.down, found.across, found.value               # (D, A), NaN where nothing was measured
    prefer(rows, "labels", "true", "given")             # the rows of the first that is there

Where the same thing was measured twice, the later row counts. `plain` makes JSON of all this: five significant
digits, null for what is no finite number.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from undertow.report.saved import Frame

Numbers = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Curve:
    """Values over an axis with their intervals; low and high equal the mean where there is none."""

    tags: dict[str, str]
    x: Numbers
    mean: Numbers
    low: Numbers
    high: Numbers

    @property
    def banded(self) -> bool:
        """Whether there are intervals to be shown."""
        return bool((self.low < self.high).any())

    def json(self) -> dict[str, Any]:
        """The tags and the numbers; no edges where there is no band."""
        edges = {"low": plain(self.low), "high": plain(self.high)} if self.banded else {}
        return {**self.tags, "x": plain(self.x), "y": plain(self.mean), **edges}


@dataclass(frozen=True, eq=False)
class Grid:
    """Values over two axes."""

    down: list[Any]
    across: list[Any]
    value: Numbers  # (D, A)


def prefer(rows: Frame, column: str, *order: str) -> Frame:
    """The rows whose `column` is the first of `order` that occurs; all rows where none does."""
    for name in order:
        if (found := rows[rows[column] == name]).size:
            return found
    return rows


def curves(rows: Frame, *by: str, over: str = "checkpoint") -> list[Curve]:
    """One curve for every combination of the columns `by`, in the order in which they first occur."""
    rows = rows[rows[over].notna()].drop_duplicates([*by, over], keep="last")
    if rows.empty:
        return []
    groups = rows.groupby(list(by), sort=False, dropna=False) if by else [((), rows)]
    return [_curve(dict(zip(by, cast(tuple[Any, ...], key), strict=True)), own, over) for key, own in groups]


def _curve(tags: dict[str, Any], rows: Frame, over: str) -> Curve:
    rows = rows.sort_values(over)
    x, mean, low, high = (rows[name].to_numpy("float64") for name in (over, "value", "low", "high"))
    known = {name: str(value) for name, value in tags.items() if isinstance(value, str) or value == value}
    return Curve(known, x, mean, np.where(np.isnan(low), mean, low), np.where(np.isnan(high), mean, high))


def grid(
    rows: Frame,
    *,
    down: str,
    across: str,
    field: str = "value",
    ys: Sequence[Any] | None = None,
    xs: Sequence[Any] | None = None,
) -> Grid:
    """A table of `field` over the axes `ys` and `xs`, or over the rising values that occur."""
    rows = rows[rows[down].notna() & rows[across].notna()].drop_duplicates([down, across], keep="last")
    axes = [list(given or sorted(rows[own].unique())) for given, own in ((ys, down), (xs, across))]
    place_y, place_x = ({name: place for place, name in enumerate(axis)} for axis in axes)
    value = np.full((len(axes[0]), len(axes[1])), np.nan)
    at_y, at_x = rows[down].map(place_y).to_numpy("int64"), rows[across].map(place_x).to_numpy("int64")
    value[at_y, at_x] = rows[field].to_numpy("float64")
    return Grid(axes[0], axes[1], value)


def in_order(found: Iterable[str], known: Sequence[str]) -> list[str]:
    """Names in the order of `known`; unknown ones behind, as they come."""
    names = list(dict.fromkeys(found))
    return [name for name in known if name in names] + [name for name in names if name not in known]


def plain(value: Any, digits: int = 5) -> Any:
    """Numbers, arrays and containers of them as JSON can hold them."""
    if isinstance(value, np.ndarray):
        return _short(value, digits)
    if isinstance(value, dict):
        return {str(key): plain(inner, digits) for key, inner in cast(dict[Any, Any], value).items()}
    if isinstance(value, list | tuple):
        return [plain(inner, digits) for inner in cast(Sequence[Any], value)]
    if isinstance(value, float):
        if not math.isfinite(value) or value.is_integer():
            return int(value) if math.isfinite(value) else None
        short = float(f"{value:.{digits}g}")
        return int(short) if short.is_integer() else short
    return value


def _short(values: Numbers, digits: int) -> list[Any]:
    """An array's numbers with so many significant digits; whole arrays at once, for a page has half a million."""
    known = np.isfinite(values)
    size = np.abs(np.where(known & (values != 0), values, 1.0))
    # Dividing by a power of ten, not multiplying by its inverse, gives the decimal's nearest float: short to print.
    scale = 10.0 ** np.clip(digits - 1 - np.floor(np.log10(size)), 0, 22)
    short = np.round(np.where(known, values, 0.0) * scale) / scale
    if known.all():
        return short.tolist()
    holed = short.astype(object)
    holed[~known] = None
    return holed.tolist()
