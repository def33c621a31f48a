"""Cells of the tables that people give, and the files that they stand in.

head, body = read_rows(Path("y.csv"), "--labels")     # all as text
as_labels(body_column)                                # numbers where all are, else names; None where one is missing
whole_number("3.0")                                   # 3; None where it is none that can be meant
"""

import csv
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undertow.errors import BadData, BadValue, NotThere
from undertow.spreadsheets import unguarded

DIGITS = 15
"""Of a whole number that can be meant: more are not exact as floats."""
WHOLE = re.compile(r"[-+]?(0|[1-9]\d*)(\.\d*)?")


def whole_number(text: str) -> int | None:
    """The whole number that a cell says, as 3 or as 3.0; None where it says none that can be meant."""
    if not text.isascii() or not WHOLE.fullmatch(text):
        return None
    whole, _, rest = text.partition(".")
    return int(whole) if not rest.strip("0") and len(whole) <= DIGITS else None


def as_labels(cells: Sequence[str]) -> NDArray[Any]:
    """Cells of a text file as numbers where all are, else as names; None where one is missing."""
    texts = [unguarded(cell.strip()) for cell in cells]
    known = [None if text.lower() in ("", "nan") else text for text in texts]
    if all(text is None or WHOLE.fullmatch(text) for text in known):
        return np.array([-1.0 if text is None else float(text) for text in known])
    return np.array(known, dtype=object)


def read_rows(path: Path, who: str) -> tuple[list[str], list[list[str]]]:
    """The head and the rows of a csv file, all as text; a blank line is an empty cell of the only column."""
    check_file(path, who, (".csv",))
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            first = stream.readline()
            stream.seek(0)
            split = max(",;\t", key=first.count)
            rows = list(csv.reader(stream, delimiter=split))
    except (csv.Error, UnicodeDecodeError, OSError) as error:
        raise unreadable(path, who, "a csv file in UTF-8", error) from error
    if not rows:
        raise BadData(f"{who}: {path} is empty. Wanted a head and one row for each sample.")
    head = [name.strip() for name in rows[0]]
    if twice := next((name for name in head if name and head.count(name) > 1), None):
        raise BadData(f"{who}: wanted each column of {path} once, got {twice} twice. Leave one out.")
    body = [row or [""] for row in rows[1:] if row or len(head) == 1]
    for number, row in enumerate(body, 2):
        if len(row) != len(head):
            raise BadData(
                f"{who}: wanted {len(head)} cells in each row of {path}, got {len(row)} in row {number}. Put texts "
                "with commas in quotes."
            )
    return head, body


def check_file(path: Path, who: str, endings: Sequence[str]) -> None:
    """Refuse what is not there or is of another kind."""
    if path.suffix not in endings:
        raise BadValue(who, f"a {' or '.join(endings)} file", str(path))
    if not path.is_file():
        raise NotThere(
            f"{who}: there is no file {path}. Wanted a {' or '.join(endings)} file; check its path."
        )


def unreadable(path: Path, who: str, what: str, error: Exception) -> BadData:
    """The error for a file that is there and is not what its name says."""
    reason = (str(error).splitlines() or ["damaged"])[0]
    return BadData(f"{who}: wanted {what}, but {path} cannot be read as one ({reason}).")
