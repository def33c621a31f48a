"""Tables of samples x classes that may be larger than the memory.

    shelf = Shelf.of(count, classes, room=10**9)      # in memory where all tables of a search fit, else on disk
    votes = shelf.table(count, classes)               # (N, C) float32, a tensor like any other
    for rows in shelf.blocks(votes):                  # slices; pages that were looked at leave the memory again
        votes[rows] -= votes[rows].mean(1, keepdim=True)

A table on disk is a file without a name in the folder for temporary files (TMPDIR): it goes with its tensor, and with
the process, however that ends. Its place is taken at once, so that a full disk is said and not met half-way.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from collections.abc import Generator

import numpy as np
import torch
from torch import Tensor

from undertow.errors import RunProblem
from undertow.sizes import show_size

TABLES = 10
"""Tables of samples x classes that a search holds at most: eight sums of votes of a run (three without one), and two
more: a vote and what follows, or chances and beliefs."""
BLOCK_CELLS = 4_000_000
"""Numbers of a table that are worked on at once."""
MOST_ROWS = 16_384


class Shelf:
    """Where tables lie."""

    def __init__(self, *, on_disk: bool = False) -> None:
        self.on_disk = on_disk
        self._files: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()

    def __reduce__(self) -> tuple[type[Shelf], tuple[()], dict[str, bool]]:
        """Files do not travel: in another process it is a shelf of the same kind."""
        return Shelf, (), {"on_disk": self.on_disk}

    @classmethod
    def of(cls, count: int, columns: int, room: int) -> Shelf:
        """In memory where all tables of a search fit into `room` bytes, else on disk."""
        return cls(on_disk=TABLES * count * columns * 4 > room)

    def table(self, count: int, columns: int) -> Tensor:
        """An empty (count, columns) float32 table."""
        if not self.on_disk or not count * columns:
            return torch.empty(count, columns)
        return self.filed(count, columns)

    def beside(self, rows: Tensor, columns: int) -> Tensor:
        """An empty (N, columns) table for what is made of features (N, D), in a file if these may lie in one."""
        if self._files and rows.device.type == "cpu":
            return self.filed(len(rows), columns)
        return rows.new_empty(len(rows), columns)

    def filed(self, count: int, columns: int) -> Tensor:
        """An empty (count, columns) float32 table in a file, wherever others lie."""
        size = count * columns * 4
        with tempfile.TemporaryFile() as file:
            try:
                os.posix_fallocate(file.fileno(), 0, size)
            except OSError as error:
                raise RunProblem(
                    f"labels: wanted {show_size(size)} on disk in {tempfile.gettempdir()} ({error.strerror}). Free "
                    "some space, set TMPDIR to another folder, or give more --memory."
                ) from error
            mapped = mmap.mmap(file.fileno(), size)
        self.watch(mapped)
        return torch.from_numpy(np.frombuffer(mapped, np.float32).reshape(count, columns))

    def watch(self, mapped: mmap.mmap) -> None:
        """Let go of the pages of this file too, between blocks."""
        self._files.add(mapped)

    def rest(self) -> None:
        """Give pages of files back to the system; what was written is kept there."""
        for mapped in self._files:
            mapped.madvise(mmap.MADV_DONTNEED)

    def blocks(self, table: Tensor) -> Generator[slice]:
        """Slices of rows, in order."""
        for rows in slices(len(table), table.shape[1]):
            yield rows
            self.rest()

    def mean(self, table: Tensor) -> Tensor:
        """(D,) the mean of each column."""
        parts = [table[rows].mean(0) * (len(table[rows]) / len(table)) for rows in self.blocks(table)]
        return torch.stack(parts).sum(0)

    def every(self, table: Tensor, step: int) -> Tensor:
        """The rows 0, step, 2 step and so on, copied."""
        return torch.cat([table[rows][-rows.start % step :: step] for rows in self.blocks(table)])

    def argmax(self, table: Tensor) -> Tensor:
        """(N,) int64: the column of each row's largest number."""
        return torch.cat([table[rows].argmax(1) for rows in self.blocks(table)])


IN_MEMORY = Shelf()


def slices(count: int, columns: int) -> list[slice]:
    """All of `count` rows, in blocks of a bounded number of cells."""
    step = block_rows(columns)
    return [slice(start, min(start + step, count)) for start in range(0, count, step)]


def block_rows(columns: int) -> int:
    """How many rows of so many columns are worked on at once."""
    return max(256, min(MOST_ROWS, BLOCK_CELLS // max(1, columns)))
