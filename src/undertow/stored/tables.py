"""Reading and writing the tables that undertow keeps: parquet, with the columns they should have.

    write_table(path, table, owner=facts.id)   # a pyarrow table, a pandas frame or rows; sealed
    read_table(path, METRICS)                  # a pyarrow table; a damaged or strange one is a BadFile
    read_rows(path, METRICS)                   # dicts without the cells that were left out
    read_table(path, AUDIT, need_seal=True)    # in a folder of sealed files, one without a seal was exchanged
    read_table(path, AUDIT, owner=facts.id)    # and one that says another run

What a file says of its own size is looked at before anything is unpacked: a small file can claim a billion rows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

from undertow.errors import RESTORE, BadFile
from undertow.files import aside
from undertow.stored.door import check_regular
from undertow.stored.seals import BLANK_SEAL, OWNER, RUN, check_owner, check_seal, stamp

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

Kind = Literal["whole", "number", "text", "label"]
KEY = "undertow.seal"
OURS = (KEY.encode(), OWNER.encode())
CELLS = 400_000_000
"""Rows times columns that can be meant in any table of ours."""


@dataclass(frozen=True)
class TableSchema:
    """The columns of a table: which must be there, what each holds, and what others may."""

    name: str
    columns: Mapping[str, Kind]
    needed: Sequence[str] = ()
    others: Kind | Literal["any"] | None = None  # None: no other column is known
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])
    most: int = 20_000_000
    again: str = ""
    """What to do about a table that is no good."""
    owner: str = RUN
    """What it belongs to."""
    restore: str = RESTORE
    """What to do about a table that was changed or exchanged."""


METRICS = TableSchema(
    "metrics", {"epoch": "whole", "step": "whole"}, others="number", ranges={"epoch": (0, 2**53), "step": (0, 2**53)},
    again="Move it away: the numbers of kept checkpoints are in their own files too.",
)  # fmt: skip
LABELS = TableSchema(
    "labels", {"index": "whole", "given": "whole", "true": "whole"}, needed=("index", "given"),
    ranges={"index": (0, 2**53), "given": (-1, 2**31), "true": (-1, 2**31)}, most=400_000_000,
)  # fmt: skip
ROWS = TableSchema(
    "rows",
    {
        "lens": "text", "measure": "text", "checkpoint": "whole", "layer": "text", "value": "number", "split": "text",
        "low": "number", "high": "number", "n": "whole", "note": "text", "probe": "text", "fit": "text",
        "labels": "text", "shallow": "whole", "position": "number", "sample": "whole", "y": "number", "label": "whole",
    },
    needed=("lens", "measure", "value"), ranges={"n": (0, 2**53)}, again="Run the command that made it again.",
)  # fmt: skip
SUSPECTS = TableSchema(
    "suspects",
    {
        "sample": "whole", "given": "label", "proposed": "label", "true": "label", "score": "number",
        "confidence": "number", "given_label": "text", "proposed_label": "text", "text": "text", "filepath": "text",
    },
    needed=("sample",), others="any", ranges={"sample": (0, 2**53)}, most=1_000_000,
    again="Run `undertow labels` again.",
)  # fmt: skip
STUDY_ROWS = TableSchema(
    "study rows", {"case": "text", "measure": "text", "value": "number", "seed": "whole", "checkpoint": "whole"},
    needed=("case", "measure", "value"), others="any", again="Run the study again.",
)  # fmt: skip


def write_table(path: Path, table: Any, owner: str = "") -> str:
    """Write a pyarrow table, a pandas frame or a list of rows, with the mark of its run; returns its seal."""
    with aside(path) as part:
        return write_part(part, table, owner)


def write_part(part: Path, table: Any, owner: str = "") -> str:
    """Write a table to a path that nobody reads yet; returns its seal."""
    from pyarrow import parquet

    arrow = as_arrow(table)
    # A table that was read from a file of ours brings that file's marks along.
    said = {name: own for name, own in (arrow.schema.metadata or {}).items() if name not in OURS}
    arrow = arrow.replace_schema_metadata(said or None)
    with part.open("wb") as file, parquet.ParquetWriter(file, arrow.schema) as writer:
        writer.write_table(arrow)
        writer.add_key_value_metadata({**({OWNER: owner} if owner else {}), KEY: BLANK_SEAL})
    with part.open("r+b") as file:
        return stamp(file)


def table_bytes(table: Any, owner: str = "") -> bytes:
    """The sealed table as the bytes of a file, for places that are no folders."""
    with TemporaryDirectory(prefix="undertow-") as folder:
        part = Path(folder) / "table"
        write_part(part, table, owner)
        return part.read_bytes()


def owner_of_table(path: Path) -> str:
    """The mark of the run or task that a table says it belongs to; "" where it says none."""
    from pyarrow import parquet

    return _owner_in(parquet.read_metadata(path))


def _owner_in(told: Any) -> str:
    return (told.metadata or {}).get(OWNER.encode(), b"").decode(errors="replace")


def as_arrow(table: Any) -> pa.Table:
    """A pyarrow table of one, of a pandas frame, or of dicts, whose missing cells are null."""
    import pyarrow as pa

    if isinstance(table, pa.Table):
        return table
    if isinstance(table, list):
        rows: list[dict[str, Any]] = table
        columns = list(dict.fromkeys(name for row in rows for name in row))
        return pa.table({name: [row.get(name) for row in rows] for name in columns})
    return pa.Table.from_pandas(table, preserve_index=False)


def read_table(
    path: Path | str,
    schema: TableSchema,
    *,
    content: bytes | None = None,
    need_seal: bool = False,
    seal: str | None = None,
    owner: str = "",
) -> pa.Table:
    """The table in `path`, if it is one of `schema` and unchanged since it was written.

    Args:
        path: the file; with `content`, only its name in messages.
        schema: what it should hold.
        content: the bytes of the file, where it is no local one.
        need_seal: refuse a table without a seal.
        seal: the seal that another file says it has.
        owner: the mark of the run or task that it must belong to, if it says one.
    """
    import pyarrow as pa
    from pyarrow import parquet

    if content is None:
        check_regular(Path(path))
    try:
        with arrow_file(path, content) as file:
            with parquet.ParquetFile(file) as opened:
                _check_claims(path, opened.metadata, schema)
                told = _owner_in(opened.metadata)
            found = check_seal(file, path, need=need_seal or seal is not None, next_step=schema.restore)
            check_owner(path, told, owner, schema.owner, schema.restore)
            if seal is not None and found != seal:
                raise BadFile(path, "", "it does not belong to the files beside it", schema.again)
            file.seek(0)
            # One thread: pyarrow's own pool dies with what a damaged page raises in it.
            table = parquet.read_table(file, use_threads=False)
            table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, UnicodeError) as error:
        if isinstance(error, BadFile):
            raise
        raise _unreadable(path, schema, error) from error
    return _checked(path, table, schema)


def arrow_file(path: Path | str, content: bytes | None = None) -> Any:
    """The file, or its content, as one that Arrow's threads can read without asking Python for anything.

    Such a thread may outlive the reading by a moment. If what it lets go of then were a Python object, and Python were
    ending, the process would abort ("terminate called without an active exception").
    """
    import pyarrow as pa

    if content is None:
        return pa.OSFile(os.fsencode(path))
    copied = pa.BufferOutputStream()
    copied.write(content)
    return pa.BufferReader(copied.getvalue())


def read_frame(path: Path, schema: TableSchema, **how: Any) -> pd.DataFrame:
    """The same as a pandas table, with the types that it was written with."""
    return _through(path, schema, lambda: read_table(path, schema, **how).to_pandas(use_threads=False))


def read_rows(path: Path, schema: TableSchema, **how: Any) -> list[dict[str, Any]]:
    """The same as rows; a cell that was left out is left out again."""
    rows = _through(path, schema, lambda: read_table(path, schema, **how).to_pylist())
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def _through(path: Path, schema: TableSchema, make: Callable[[], Any]) -> Any:
    """What `make` gives; what a file says of pandas may be damaged too."""
    import pyarrow as pa

    try:
        return make()
    except (pa.ArrowException, ValueError, KeyError, TypeError, AttributeError, UnicodeError) as error:
        raise _unreadable(path, schema, error) from error


def _unreadable(path: Path | str, schema: TableSchema, error: Exception) -> BadFile:
    reason = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
    return BadFile(
        path, "", f"wanted a table of {schema.name}, but it cannot be read ({reason})", schema.again
    )


def _check_claims(path: Path | str, told: Any, schema: TableSchema) -> None:
    """Refuse by what the file says of itself, before anything is unpacked."""
    if told.num_rows > schema.most or told.num_rows * max(1, told.num_columns) > CELLS:
        claim = f"{told.num_rows:,} rows of {told.num_columns:,} columns"
        raise BadFile(path, "", f"wanted at most {schema.most:,} rows, got {claim}", schema.again)


def _checked(path: Path | str, table: pa.Table, schema: TableSchema) -> pa.Table:
    for name in schema.needed:
        if name not in table.column_names and table.num_columns:
            raise BadFile(path, f"column {name}", "wanted it, but there is none", schema.again)
    if len(set(table.column_names)) < table.num_columns:
        raise BadFile(path, "", "wanted each column once, got one twice", schema.again)
    for name in table.column_names:
        _check_column(path, name, table.column(name), schema)
    return table


def _check_column(path: Path | str, name: str, column: Any, schema: TableSchema) -> None:
    kind = schema.columns.get(name, schema.others)
    if kind is None:
        raise BadFile(path, f"column {name}", "undertow knows no such column", schema.again)
    if column.null_count == len(column):
        return  # of nothing, no writer knows the type
    if not _fits(column.type, kind):
        raise BadFile(path, f"column {name}", f"wanted {_WORDS[kind]}, got {column.type}", schema.again)
    if name in schema.ranges:
        _check_range(path, name, column, schema)


def _fits(given: Any, kind: str) -> bool:
    import pyarrow as pa

    kinds = pa.types
    if kinds.is_null(given):
        return True
    if kinds.is_dictionary(given):
        given = given.value_type
    text = kinds.is_string(given) or kinds.is_large_string(given) or kinds.is_string_view(given)
    whole = kinds.is_integer(given)
    number = whole or kinds.is_floating(given) or kinds.is_boolean(given)
    if kind == "whole":
        return whole or kinds.is_floating(given)  # pandas makes floats of whole numbers with gaps
    return {"number": number, "text": text, "label": number or text, "any": number or text}[kind]


_WORDS = {
    "whole": "whole numbers",
    "number": "numbers",
    "text": "texts",
    "label": "numbers or names of classes",
    "any": "numbers or texts",
}


def _check_range(path: Path | str, name: str, column: Any, schema: TableSchema) -> None:
    from pyarrow import compute

    low, high = schema.ranges[name]
    found: dict[str, Any] = compute.min_max(column, skip_nulls=True).as_py() or {}  # pyright: ignore
    for value in (found.get("min"), found.get("max")):
        if value is not None and not low <= value <= high:
            wanted = f"numbers from {low:g} to {high:g}"
            raise BadFile(path, f"column {name}", f"wanted {wanted}, got {value}", schema.again)
