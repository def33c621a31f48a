"""Decoded sets on disk, found by the hash of the files they came from.

    key = content_key("parquet", "RGB", *files)     # files are hashed, not decoded
    decoded = cached(key, lambda: decode(files))    # decodes only where the cache has no such entry
    decoded.tensors["train_x"]                      # mapped from disk: pages are read when touched

The folder is UNDERTOW_CACHE or ~/.cache/undertow; UNDERTOW_CACHE_LIMIT (10GB unless set, "500MB",
"0" for none) bounds it: what was used longest ago goes first. Entries are safetensors, written aside
and renamed, and sealed: a torn, changed or foreign file counts as missing. Where the folder cannot be
written, nothing is kept and one warning says so. Only files that are named as ours are ever deleted.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from undertow.files import cache_folder
from undertow.sizes import parse_size
from undertow.stored.tensors import CONTENT, HEADER, check_content, write_tensors

LIMIT = "10GB"
ENTRIES = "data-*.safetensors"
STAMP = "undertow_key"


@dataclass(frozen=True)
class Decoded:
    """Tensors by name and a few words about them."""

    tensors: dict[str, Tensor]
    notes: dict[str, str] = field(default_factory=dict[str, str])


def cached(key: str, make: Callable[[], Decoded]) -> Decoded:
    """The entry under `key`; made and kept if it is not there."""
    path = cache_folder() / f"data-{key[:40]}.safetensors"
    found = _read(path, key)
    if found is None:
        found = make()
        _keep(path, found, key)
    return found


def content_key(*parts: str | Path) -> str:
    """A hash of words and of the content of files, in the order given."""
    seen = hashlib.sha256()
    for part in parts:
        if isinstance(part, Path):
            with part.open("rb") as file:
                seen.update(hashlib.file_digest(file, "sha256").digest())
        else:
            seen.update(f"{len(part)}:{part}".encode())
    return seen.hexdigest()


def cache_limit() -> int:
    """How many bytes the cache folder may take."""
    return parse_size(os.environ.get("UNDERTOW_CACHE_LIMIT") or LIMIT, "UNDERTOW_CACHE_LIMIT", least=0)


def _read(path: Path, key: str) -> Decoded | None:
    try:
        check_content(path, need_seal=True)
        with safe_open(path, framework="pt") as file:
            notes = {
                name: own for name, own in (file.metadata() or {}).items() if name not in (CONTENT, HEADER)
            }
            if notes.pop(STAMP, None) != key:
                return None
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no iteration)
    except (OSError, SafetensorError):
        return None
    with suppress(OSError):  # a cache that may only be read is still a cache
        os.utime(path)
    return Decoded(tensors, notes)


def _keep(path: Path, decoded: Decoded, key: str) -> None:
    size = sum(tensor.nbytes for tensor in decoded.tensors.values())
    limit = cache_limit()
    if size > limit:
        return
    try:
        _make_room(path.parent, limit - size)
        write_tensors(path, decoded.tensors, {**decoded.notes, STAMP: key})
    except (OSError, SafetensorError) as error:  # safetensors wraps a full disk in an error of its own
        warn_once(path.parent, str(error))


def _make_room(folder: Path, left: int) -> None:
    """Delete entries, the least recently used first, until they take at most `left` bytes."""
    entries = sorted((entry.stat().st_mtime, entry.stat().st_size, entry) for entry in folder.glob(ENTRIES))
    total = sum(size for _, size, _ in entries)
    for _, size, entry in entries:
        if total <= left:
            return
        entry.unlink(missing_ok=True)
        total -= size


@cache
def warn_once(folder: Path, reason: str) -> None:
    """Say once for each folder that nothing is kept in it."""
    warnings.warn(
        f"Decoded data is not kept, so it is decoded anew each time: {reason} (cache folder {folder}). "
        "Set UNDERTOW_CACHE to a folder that you may write to.",
        RuntimeWarning,
        stacklevel=2,
    )
