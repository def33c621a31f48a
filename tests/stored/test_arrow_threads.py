"""What Arrow's own threads may hold: nothing of Python's, which may be ending."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from undertow.stored.tables import TableSchema, arrow_file, read_table, table_bytes, write_table
from undertow.training.labels_file import LabelsFile

ANY = TableSchema("numbers", {}, others="number")
ROWS = [{"sample": at, "label": at % 3, "a": 0.5, "b": 0.5, "c": 0.5} for at in range(20)]


class Watched(io.FileIO):
    """An open file that notes which threads read it."""

    readers: set[int]

    def readinto(self, buffer: Any, /) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        self.readers.add(threading.get_ident())
        return super().readinto(buffer)

    def read(self, size: int | None = -1, /) -> bytes:  # pyright: ignore[reportIncompatibleMethodOverride]
        self.readers.add(threading.get_ident())
        return super().read(-1 if size is None else size)


@pytest.mark.parametrize(
    "read", [lambda path: read_table(path, ANY), LabelsFile.read], ids=["table", "labels"]
)
def test_no_thread_but_ours_reads_through_python(tmp_path: Path, monkeypatch, read: Callable[[Path], Any]):
    """Fails for a table that is read from a Python file: a process that ended meanwhile aborted."""
    write_table(tmp_path / "some.parquet", ROWS)
    Watched.readers = set()
    monkeypatch.setattr(Path, "open", lambda path, mode="r", **_: Watched(path, mode.replace("b", "")))
    read(tmp_path / "some.parquet")
    assert Watched.readers <= {threading.get_ident()}


class Content(bytes):
    """Bytes that tell when nobody holds them any more."""

    gone: list[str]

    def __del__(self) -> None:
        self.gone.append("gone")


def test_content_is_copied_out_of_python():
    """Fails if Arrow is handed the bytes themselves: its threads were the last to hold them, one time in fifteen."""
    Content.gone = []
    file = arrow_file("somewhere", Content(table_bytes(ROWS)))
    assert Content.gone == ["gone"]
    assert read_table("somewhere", ANY, content=file.read()).to_pylist() == ROWS
