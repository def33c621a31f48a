"""Folders of shards as torch Datasets that read one sample at a time: .tar files and .parquet files.

    found = open_shards(Path("imagenet/train"))        # None where the folder holds no shards
    found[70_000]                                      # (x, y)

A tar shard is laid out as WebDataset does it: the files of a sample follow each other and share a name up to the first
dot (0001.jpg, 0001.cls); the input is a picture or .npy, the label .cls or .json with "label". A parquet file has a
column of pictures (encoded bytes, or a struct with them) or of lists of numbers, and a column of whole-number labels.
Files are taken in the order of their names; nothing is unpickled.
"""

from __future__ import annotations

import io
import json
import tarfile
from bisect import bisect_right
from collections.abc import Generator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor
from torch.utils.data import Dataset

from undertow.data.decode import decode_images
from undertow.data.folder import ENDINGS
from undertow.data.tables import IMAGE_COLUMNS, LABEL_COLUMNS
from undertow.errors import BadData

INPUT_COLUMNS = (*IMAGE_COLUMNS, "jpg", "png", "features", "x", "pixel_values")
LABEL_ENDINGS = (".cls", ".json")


def open_shards(folder: Path) -> Dataset[tuple[Tensor, int]] | None:
    """The shards in `folder`; None where there are none."""
    if not folder.is_dir():
        return None
    tars, tables = (sorted(folder.glob(f"*{ending}")) for ending in (".tar", ".parquet"))
    if tars and tables:
        raise BadData(
            f"{folder}: wanted .tar or .parquet files, got both. Give one kind a folder of its own."
        )
    return TarSamples(tars) if tars else ParquetSamples(tables) if tables else None


class Member(NamedTuple):
    """Where the two files of a sample lie in their shard."""

    name: str
    ending: str
    start: int
    size: int
    label_ending: str
    label_start: int
    label_size: int


class TarSamples(Dataset[tuple[Tensor, int]]):
    """Samples of tar files; their places are read once, their content when it is asked for."""

    def __init__(self, paths: list[Path]) -> None:
        self._paths = paths
        self._members = [_members(path) for path in paths]
        self._ends = list(accumulate(map(len, self._members)))
        self._open: tuple[int, Any] | None = None

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        shard = bisect_right(self._ends, row)
        one = self._members[shard][row - (self._ends[shard - 1] if shard else 0)]
        where = f"{self._paths[shard]}, {one.name}"
        content, label = (self._read(shard, *place) for place in ((one[2:4]), (one[5:7])))
        return _decoded(content, one.ending, where), _label(label, one.label_ending, where)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_open": None}

    def _read(self, shard: int, start: int, size: int) -> bytes:
        if self._open is None or self._open[0] != shard:
            if self._open is not None:
                self._open[1].close()
            self._open = shard, self._paths[shard].open("rb")
        file = self._open[1]
        file.seek(start)
        return file.read(size)

    def __del__(self) -> None:
        if getattr(self, "_open", None) is not None:
            self._open[1].close()  # pyright: ignore[reportOptionalSubscript]


def _members(path: Path) -> list[Member]:
    """The samples of a shard, in its order."""
    found: dict[str, dict[str, tuple[int, int]]] = {}
    try:
        with tarfile.open(path, "r:") as tar:
            for one in tar:
                if one.isfile():
                    place = PurePosixPath(one.name)
                    stem, _, ending = place.name.partition(".")
                    if not stem:
                        continue  # a hidden file is no sample
                    found.setdefault(str(place.with_name(stem)), {})[f".{ending.lower()}"] = (
                        one.offset_data,
                        one.size,
                    )
            _check_end(tar, path)
    except (tarfile.TarError, OSError) as error:
        raise BadData(f"{path}: wanted an uncompressed .tar, got what cannot be read ({error}).") from error
    return [_member(path, name, files) for name, files in found.items()]


def _check_end(tar: tarfile.TarFile, path: Path) -> None:
    """Refuse an archive whose reader stopped at what is no header: it takes damage for the end."""
    file: Any = tar.fileobj
    file.seek(tar.offset)
    if any(file.read(tarfile.BLOCKSIZE)):
        raise BadData(
            f"{path}: wanted an uncompressed .tar, got one that is damaged at byte {tar.offset:,}. Fetch it again."
        )


def _member(path: Path, name: str, files: dict[str, tuple[int, int]]) -> Member:
    own = next((ending for ending in files if ending in ENDINGS or ending == ".npy"), None)
    told = next((ending for ending in LABEL_ENDINGS if ending in files), None)
    if own is None or told is None:
        raise BadData(
            f"{path}, {name}: wanted a picture or .npy and a label (.cls or .json), got {', '.join(sorted(files))}."
        )
    return Member(name, own, *files[own], told, *files[told])


def _decoded(content: bytes, ending: str, where: str) -> Tensor:
    if ending != ".npy":
        return decode_images([content], lambda _: where, "RGB")[0]
    try:
        array: Any = np.load(io.BytesIO(content), allow_pickle=False)
    except Exception as error:  # numpy's reader of damaged files raises of many kinds
        raise BadData(f"{where}: wanted an array of numbers, got what cannot be read as one.") from error
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "iufb":
        raise BadData(f"{where}: wanted an array of numbers, got {getattr(array, 'dtype', 'an archive')}.")
    return torch.from_numpy(array.astype(np.float32) if array.dtype.kind == "f" else array)


def _label(content: bytes, ending: str, where: str) -> int:
    try:
        return int(content) if ending == ".cls" else int(json.loads(content)["label"])
    except (ValueError, KeyError, TypeError) as error:
        raise BadData(f"{where}: wanted a class number in {ending}, got {content[:40]!r}.") from error


class Group(NamedTuple):
    """Some rows of a file that are read together."""

    path: Path
    number: int
    rows: int


class ParquetSamples(Dataset[tuple[Tensor, int]]):
    """Rows of parquet files; one group of rows is in memory at a time."""

    def __init__(self, paths: list[Path]) -> None:
        self._groups = [
            Group(path, number, file.metadata.row_group(number).num_rows)
            for path in paths
            for file in [_opened(path)]
            for number in range(file.num_row_groups)
        ]
        self._ends = list(accumulate(one.rows for one in self._groups))
        names = _opened(paths[0]).schema_arrow.names
        self._x = _column(names, INPUT_COLUMNS, "inputs", paths[0])
        self._y = _column(names, LABEL_COLUMNS, "labels", paths[0])
        self._held: tuple[int, pa.Table] | None = None

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        number = bisect_right(self._ends, row)
        group = self._groups[number]
        if self._held is None or self._held[0] != number:
            self._held = number, _read_group(group, [self._x, self._y])
        at = row - (self._ends[number - 1] if number else 0)
        x, y = (self._held[1][name][at].as_py() for name in (self._x, self._y))
        where = f"{group.path}, row group {group.number}, row {at}"
        if not isinstance(y, int):
            raise BadData(f"{where}: wanted a whole number in column {self._y}, got {y!r}.")
        return _value(x, where), y

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_held": None}


def _opened(path: Path) -> pq.ParquetFile:
    with _readable(path):
        return pq.ParquetFile(path)


def _read_group(group: Group, names: list[str]) -> pa.Table:
    file = _opened(group.path)
    with _readable(group.path):
        return file.read_row_group(group.number, names)


@contextmanager
def _readable(path: Path) -> Generator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise BadData(f"{path}: wanted a parquet file, got what cannot be read. Fetch it again.") from error


def _column(names: list[str], usual: tuple[str, ...], what: str, path: Path) -> str:
    found = next((name for name in usual if name in names), None)
    if found is None:
        raise BadData(
            f"{path}: wanted a column of {what} ({', '.join(usual)}), got {', '.join(names)}. Rename it."
        )
    return found


def _value(x: Any, where: str) -> Tensor:
    content = x.get("bytes") if isinstance(x, dict) else x
    if isinstance(content, bytes):
        return decode_images([content], lambda _: where, "RGB")[0]
    array = np.asarray(content)
    if array.dtype.kind not in "iuf":
        raise BadData(f"{where}: wanted a picture or a list of numbers, got {type(x).__name__}.")
    return torch.from_numpy(array.astype(np.float32 if array.dtype.kind == "f" else np.int64))
