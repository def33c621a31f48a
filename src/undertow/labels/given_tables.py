"""Tables of features and labels, csv or parquet, and whose features and labels they are.

    table_arrays(path, "--features", {"label"})    # {"": (N, D)}, or an array for each column of lists
    csv_arrays(path, "--features", {"label"})
    placed_labels(path, count)                     # cells in the order of the samples; None without a column sample
    in_order(path, "--texts")                      # the rows in the order of the samples
    unread_names(path, {"label"})                  # a note on a column that names rows, and that nobody read

A column sample says whose the rest of a row is, from 0 on. Other columns that number the rows are no features.
"""

from collections.abc import Sequence, Set
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from undertow.errors import BadData
from undertow.labels.cells import WHOLE, read_rows, unreadable, whole_number
from undertow.room import check_room

SAMPLE = "sample"
NO_CHANCE = 8
"""Rows from which on measurements do not happen to be 0 to N - 1 in some order."""


# -- features


def table_arrays(path: Path, who: str, others: Set[str]) -> dict[str, NDArray[Any]]:
    """Columns of lists, each on its own, or else all columns of numbers together."""
    table = read_parquet(path, who)
    if SAMPLE in table and (order := _order(_texts_of(table[SAMPLE]), path, who)) is not None:
        table = table.iloc[order].drop(columns=SAMPLE)
    lists = [name for name in table if len(table) and np.ndim(table[name].iloc[0]) == 1]
    if lists:
        return {name: _stacked(table[name].tolist(), f"{who}: column {name} of {path}") for name in lists}
    _check_columns(list(table), others, path, who)
    numbers = table.drop(columns=[name for name in others if name in table]).select_dtypes("number")
    for name in numbers:
        _check_column(numbers[name].to_numpy(), str(name), path, who)
    return {"": numbers.to_numpy()} if len(table.columns) else {}


def csv_arrays(path: Path, who: str, others: Set[str]) -> dict[str, NDArray[Any]]:
    """All columns of a csv file but `others`; each must hold numbers."""
    head, body = read_rows(path, who)
    _check_columns(head, others, path, who)
    if SAMPLE in head and (order := _order([row[head.index(SAMPLE)] for row in body], path, who)) is not None:
        body, others = [body[row] for row in order], {*others, SAMPLE}
    columns = [
        _numbers([row[at] for row in body], name or f"{at + 1} (it has no name)", path, who)
        for at, name in enumerate(head)
        if name not in others
    ]
    return {"": np.stack(columns, 1)} if columns and body else {}


def _numbers(cells: Sequence[str], name: str, path: Path, who: str) -> NDArray[np.float64]:
    """Cells as numbers; an empty one is NaN, of which the search will complain with its row."""
    try:
        values = np.array([float(cell) if cell.strip() else np.nan for cell in cells])
    except ValueError as error:
        got = str(error).partition(": ")[2]
        raise BadData(
            f"{who}: wanted numbers in column {name} of {path}, got {got}. Leave it out."
        ) from error
    _check_column(values, name, path, who)
    return values


def _check_columns(names: Sequence[str], others: Set[str], path: Path, who: str) -> None:
    if "label" in names and "label" not in others:
        raise BadData(
            f"{who}: {path} has a column label beside its numbers. Labels must not be features: leave it out, or give "
            "the same file to --labels."
        )


def _check_column(values: NDArray[Any], name: str, path: Path, who: str) -> None:
    """Refuse a column without a number, and a row's number as a feature.

    Where samples lie class by class their numbers tell their labels, in whatever order the rows were put since.
    """
    if len(values) and values.dtype.kind == "f" and np.isnan(values).all():
        raise BadData(f"{who}: column {name} of {path} is empty. Leave it out.")
    if len(values) > 1 and _numbers_rows(values):
        hint = "Leave it out, or call it sample if it says from 0 on whose features they are."
        raise BadData(f"{who}: column {name} of {path} only numbers the rows. {hint}")


def _numbers_rows(values: NDArray[Any]) -> bool:
    """Whether each row has its own number from 0 or 1 on, in any order where that is no chance."""
    counted, ordered = np.arange(len(values)), np.sort(values) if len(values) >= NO_CHANCE else values
    return any(np.array_equal(ordered, counted + first) for first in (0, 1))


def _stacked(rows: list[Any], who: str) -> NDArray[Any]:
    sizes = {np.shape(row) for row in rows}
    if len(sizes) > 1:
        raise BadData(f"{who}: wanted lists of one length, got {len(sizes)} lengths. Fill or cut them.")
    return np.stack(rows)


def read_parquet(path: Path, who: str) -> Any:
    """The table, unless it claims more than there is room for."""
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as table:
            told = table.metadata  # a small file can claim, and hold, rows without end
            check_room(8 * told.num_rows * told.num_columns, f"{who}: {path}")
            return table.read(use_threads=False).to_pandas(use_threads=False)
    except BadData:
        raise
    except Exception as error:  # damaged files: pyarrow's errors, and Python's own
        raise unreadable(path, who, "a parquet table", error) from error


# -- whose they are


def in_order(path: Path, who: str) -> list[int] | None:
    """The rows of a table in the order of the samples; None where it does not say."""
    columns = _text_columns(path, who, {SAMPLE})
    return _order(columns[SAMPLE], path, who) if SAMPLE in columns else None


def _order(cells: Sequence[str], path: Path, who: str) -> list[int] | None:
    """Where each sample stands; None where the samples have names, not numbers."""
    if (samples := _samples(cells, path, who)) is None:
        return None
    places = {sample: row for row, sample in enumerate(samples)}
    lacking = next((one for one in range(len(samples)) if one not in places), None)
    if lacking is not None:
        raise BadData(
            f"{who}: wanted each sample from 0 to {len(samples) - 1} once in column sample of {path}, got none with "
            f"number {lacking}. Give one row for each."
        )
    return [places[one] for one in range(len(samples))]


def _samples(cells: Sequence[str], path: Path, who: str) -> list[int] | None:
    if not all(map(WHOLE.fullmatch, cells)):
        return None
    return [_sample_number(one, path, who) for one in cells]


def _sample_number(cell: str, path: Path, who: str) -> int:
    if (number := whole_number(cell)) is None:
        raise BadData(f"{who}: wanted whole numbers in column sample of {path}, got {cell[:40]}.")
    return number


def placed_labels(path: Path, count: int | None) -> list[str] | None:
    """Labels of a table that says which sample each belongs to, as labels that were cleaned or reviewed do."""
    columns = _text_columns(path, "--labels", {SAMPLE, "label", "name"})
    if not {SAMPLE, "label"} <= columns.keys():
        return None
    if (samples := _samples(columns[SAMPLE], path, "--labels")) is None:
        return None
    total = max(samples, default=-1) + 1 if count is None else count
    if outside := [one for one in samples if not 0 <= one < total]:
        raise BadData(
            f"--labels: {path} has sample {outside[0]}, but there are {total} samples, 0 to {total - 1}."
        )
    different, counts = np.unique(samples, return_counts=True)
    if (counts > 1).any():
        twice = different[counts.argmax()]
        raise BadData(f"--labels: {path} has sample {twice} more than once. Keep one row for each.")
    check_room(8 * total, f"--labels: {path}")
    cells = [""] * total
    for sample, cell in zip(samples, columns.get("name", columns["label"]), strict=True):
        cells[sample] = cell
    return cells


def unread_names(path: Path, read: Set[str]) -> tuple[str, ...]:
    """A note where a column of labels names each row, and labels were taken in the order of the rows."""
    columns = _text_columns(path, "--labels")
    if SAMPLE in columns or "label" not in columns:
        return ()
    naming = [name for name, cells in columns.items() if name not in read and _names_rows(cells)]
    return tuple(
        f"Labels were taken in the order of the rows of {path}; its column {name} was not read. A column sample, from "
        "0 on, says whose they are."
        for name in naming[:1]
    )


def _names_rows(cells: Sequence[str]) -> bool:
    """Whether each cell is the name of its row, or its number where the rows are in another order."""
    if len(cells) < 2 or len(set(cells)) < len(cells):
        return False
    whole = [whole_number(cell) for cell in cells]
    numbers = [one for one in whole if one is not None]
    if len(numbers) == len(cells):
        return numbers != sorted(numbers)
    return not any(map(WHOLE.fullmatch, cells))


def _text_columns(path: Path, who: str, wanted: Set[str] = frozenset()) -> dict[str, list[str]]:
    """The columns of a table as texts, or the wanted ones; nothing where it is none."""
    if path.suffix not in (".csv", ".parquet") or not path.is_file():
        return {}
    if path.suffix == ".csv":
        head, body = read_rows(path, who)
        return {
            name: [row[at] for row in body] for at, name in enumerate(head) if not wanted or name in wanted
        }
    table = read_parquet(path, who)
    # Broken numbers name nothing, and there may be thousands of columns of them.
    kept = [name for name in table if (name in wanted if wanted else table[name].dtype.kind in "iuO")]
    return {str(name): _texts_of(table[name]) for name in kept}


def _texts_of(column: Any) -> list[str]:
    return ["" if one is None or one != one else str(one) for one in cast("Sequence[Any]", column)]
