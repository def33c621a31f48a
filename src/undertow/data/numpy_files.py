"""Arrays in .npz and .npy files, never unpickled.

read_npz(Path("mine.npz"))          # {"x": ..., "y": ...}
read_npys(Path("x_train.npy"))      # with y_train.npy, x_test.npy and y_test.npy beside it
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from undertow.errors import BadData
from undertow.room import check_room

Array = NDArray[Any]


def read_npz(path: Path) -> dict[str, Array]:
    """All arrays of an archive."""
    with path.open("rb") as file:
        archive = _open_numpy(file, path)
        if not isinstance(archive, Mapping):
            raise BadData(f"{path}: wanted an archive of arrays, got a single one. Call it .npy.")
        check_room(_full_size(archive), str(path), "Save it in parts, or as .npy files.")
        return {key: _read_key(archive, key, path) for key in archive}


def read_npys(path: Path) -> dict[str, Array]:
    """All arrays of the set that `path` belongs to: x.npy and y.npy, or those with _train and _test."""
    if path.stem not in ("x", "x_train"):
        raise BadData(f"{path}: wanted x.npy with y.npy beside it, or x_train.npy with its companions.")
    stems = (
        ("x", "y", "true") if path.stem == "x" else ("x_train", "y_train", "x_test", "y_test", "true_train")
    )
    parts: dict[str, Array] = {}
    for part in (path.with_name(f"{stem}.npy") for stem in stems):
        if part.is_file():
            with part.open("rb") as file:
                parts[part.stem] = _open_numpy(file, part)
    return parts


def _open_numpy(file: BinaryIO, path: Path) -> Any:
    """The array, or the archive that reads its arrays when asked."""
    try:
        return np.load(file, allow_pickle=False)
    except Exception as error:  # zip, header and pickle errors have no common type
        raise BadData(f"{path}: wanted plain arrays, got {reason_words(error)}") from error


def _full_size(archive: Any) -> int:
    """Bytes of all arrays of an archive of numpy's, as it says itself."""
    return sum(one.file_size for one in archive.zip.infolist())


def _read_key(archive: Mapping[str, Array], key: str, path: Path) -> Array:
    try:
        return archive[key]
    except Exception as error:  # as above
        raise BadData(f"{path}, array {key}: wanted a plain array, got {reason_words(error)}") from error


def reason_words(error: Exception) -> str:
    """Why a file could not be read."""
    if "pickle" in str(error).lower():
        return "Python objects (a pickle), which may run code. Save it as an array of numbers."
    return f"a file that cannot be read ({error}). Save it again."
