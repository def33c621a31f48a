"""Tables for people's spreadsheets: csv in which no cell of text is a formula.

    write_csv(Path("rows.csv"), table)         # whole or not at all; =1+1 becomes '=1+1
    unguarded("'=1+1")                         # as it was

Names of classes, layers and files come from anywhere, and a spreadsheet runs a cell that begins with = + - or @.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from undertow.files import aside

if TYPE_CHECKING:
    import pandas as pd

GUARD, RISKY = "'", "=+-@\t\r\n"


def write_csv(path: Path, table: pd.DataFrame) -> None:
    """Write the table; an apostrophe keeps a cell of text from being run."""
    texts = table.select_dtypes(["object", "string", "category"]).columns
    safe = table.assign(**{name: [_guarded(cell) for cell in table[name]] for name in texts})
    with aside(path) as part:
        # The writer quotes only the line ends that it knows of: a bare \r would begin a row, and with it a cell.
        safe.to_csv(part, index=False, lineterminator="\r\n")


def unguarded(text: str) -> str:
    """A text without the apostrophe that keeps spreadsheets from running it."""
    return text[1:] if text[:1] == GUARD and text[1:2] and text[1] in RISKY else text


def _guarded(cell: Any) -> Any:
    return GUARD + cell if isinstance(cell, str) and cell[:1] and cell[0] in RISKY else cell
