"""What was measured so far, kept on disk by key, so that a killed verb goes on and the next one finds it.

    cache = Cache(out / "cache")
    cache.get("probes layer2", 20, key, ProbesAt)       # None: not there, damaged, or of other weights or samples
    cache.put("probes layer2", 20, key, value)
    key_of("weights", "samples", 3)                     # a hash of plain values

A value is a frozen dataclass of plain values and numpy arrays. A file is its key, a hash of its content, and the value
as msgpack; one whose key is another, whose content does not fit its hash or its type is as good as none: values can
always be measured again. In a folder that may not be written to nothing is kept: values live as long as the process.
"""

from __future__ import annotations

import hashlib
import warnings
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from undertow.errors import BadValue, RunProblem
from undertow.files import aside, is_forbidden

T = TypeVar("T")
VERSION = 4
"""Raised when a stored value would no longer be what would be measured now."""
HASH = 16


def key_of(*things: Any) -> str:
    """A hash of plain values."""
    text = msgspec.json.encode([VERSION, *things], order="sorted")
    return hashlib.blake2b(text, digest_size=12).hexdigest()


@dataclass(frozen=True)
class Cache:
    """A folder of values."""

    folder: Path
    behind: Path | None = None
    """A second folder in which values are looked for, and which is left as it is."""
    _damaged: set[Path] = field(default_factory=set[Path], repr=False)
    values: dict[tuple[str, int, str], Any] = field(
        default_factory=dict[tuple[str, int, str], Any], repr=False
    )
    """What could not be written, as the folder may only be read."""

    def get(self, name: str, at: int, key: str, kind: type[T]) -> T | None:
        """The value, if it is there with this key and whole."""
        if (name, at, key) in self.values:
            return self.values[name, at, key]
        found = (self._read(path, key, kind) for path in self._paths(name, at))
        return next((value for value in found if value is not None), None)

    def _read(self, path: Path, key: str, kind: type[T]) -> T | None:
        try:
            stored = memoryview(path.read_bytes())
        except OSError:
            return None
        mark = key.encode()
        told, content = stored[len(mark) : len(mark) + HASH], stored[len(mark) + HASH :]
        if bytes(stored[: len(mark)]) != mark:
            return None
        if bytes(told) != _digest(content):
            self._forget(path)
            return None
        try:
            return msgspec.msgpack.decode(content, type=kind, dec_hook=_array_from)
        except (msgspec.DecodeError, ValueError, TypeError):
            return None

    def has(self, name: str, at: int, key: str) -> bool:
        """Whether a value is there with this key; whether it is whole is seen when it is read."""
        return (name, at, key) in self.values or any(
            _starts_with(path, key.encode()) for path in self._paths(name, at)
        )

    def put(self, name: str, at: int, key: str, value: T) -> T:
        """Keep a value, in place of what was there."""
        content = msgspec.msgpack.encode(value, enc_hook=_array_to)
        try:
            with aside(self.folder / self._file(name, at)) as part, part.open("wb") as stream:
                stream.writelines((key.encode(), _digest(content), content))
        except RunProblem as error:
            if not is_forbidden(error):
                raise
            self._hold(name, at, key, value, error)
        return value

    def _hold(self, name: str, at: int, key: str, value: Any, error: RunProblem) -> None:
        """Hold a value for this process, and say once that it is not kept."""
        if not self.values:
            warnings.warn(
                f"{self.folder} cannot be written to ({getattr(error.__cause__, 'strerror', error)}): nothing is "
                "kept there, and the next call measures it again.",
                stacklevel=2,
            )
        self.values[name, at, key] = value

    def _forget(self, path: Path) -> None:
        """So that it is measured again."""
        self._damaged.add(path)
        if path.parent == self.folder:
            with suppress(OSError):  # it may only be read: then it is passed over
                path.unlink(missing_ok=True)
                self._damaged.remove(path)

    def _paths(self, name: str, at: int) -> list[Path]:
        """Where a value may lie, as far as it is not known to be damaged there."""
        folders = [self.folder] if self.behind is None else [self.folder, self.behind]
        return [path for one in folders if (path := one / self._file(name, at)) not in self._damaged]

    def _file(self, name: str, at: int) -> str:
        # Layers may be called anything; their files are not.
        short = "".join(letter if letter.isalnum() else "-" for letter in name)[:40]
        mark = hashlib.blake2b(name.encode(), digest_size=4).hexdigest()
        return f"{short}-{mark}-{at:08d}.bin"


@dataclass(frozen=True)
class PassingCache(Cache):
    """Values of a process that hands them on: nothing is written."""

    def get(self, name: str, at: int, key: str, kind: type[T]) -> T | None:
        """The value, if it is there."""
        return self.values.get((name, at, key))

    def has(self, name: str, at: int, key: str) -> bool:
        """Whether it is there."""
        return (name, at, key) in self.values

    def put(self, name: str, at: int, key: str, value: T) -> T:
        """Keep a value until the process ends."""
        self.values[name, at, key] = value
        return value


def _starts_with(path: Path, mark: bytes) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(mark)) == mark
    except OSError:
        return False


def _digest(content: bytes | memoryview) -> bytes:
    return hashlib.blake2b(content, digest_size=HASH).digest()


def _array_to(value: object) -> Any:
    if isinstance(value, np.ndarray):
        array = cast("NDArray[Any]", value)
        plain = np.ascontiguousarray(array)
        content = plain.reshape(-1).view(np.uint8).data if plain.size else b""  # no copy
        return [array.dtype.str, list(array.shape), content]
    raise BadValue(
        "a gauge's value", "plain values and numpy arrays", type(value).__name__, "Tensors: .numpy()."
    )


def _array_from(kind: type, value: Any) -> Any:
    if kind is np.ndarray or getattr(kind, "__origin__", None) is np.ndarray:
        dtype, shape, content = value
        return np.frombuffer(content, np.dtype(dtype)).reshape(shape).copy()
    raise BadValue("a gauge's kind", "fields of plain values and numpy arrays", kind.__name__)
