"""Reading and writing the JSON documents that undertow keeps.

    facts = read_document(path, RunDocument)        # plain values, all of them checked
    write_document(path, facts)                     # laid out for people, sealed
    read_bytes(path, most=64 << 20)                 # regular files of a size that can be meant, nothing else

What is not right is a `BadFile` that names the file and the field; what changed since it was written, a `ChangedFile`.
A document that a newer undertow wrote is told from a damaged one by its `format`.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

import msgspec

from undertow.errors import BadFile, ChangedFile, NotThere, UndertowError
from undertow.files import write_text
from undertow.sizes import show_size
from undertow.stored.documents import Document
from undertow.stored.seals import FIELD, check_owner, document_seal

MOST_JSON = 64 << 20
"""Bytes of a document that can be meant."""
Kind = TypeVar("Kind")
DEEPEST = 60
"""Levels of nesting that can be meant; below what readers of JSON can bear."""


def read_document(
    path: Path, kind: type[Document], *, next_step: str = "", owner: str = ""
) -> dict[str, Any]:
    """The values of a document, checked against its schema and its seal.

    Args:
        path: the file.
        kind: what it should hold.
        next_step: what to do about a file that is no good.
        owner: the mark of the run that it must belong to, if it says one.
    """
    values = check_document(read_bytes(path, MOST_JSON), str(path), kind, next_step=next_step)
    check_owner(path, str(values.get(kind.owner, "")), owner)
    return values


def check_document(content: bytes, path: str, kind: type[Document], *, next_step: str = "") -> dict[str, Any]:
    """The values of a document whose text was read from `path`."""
    values = decode(content, path, next_step)
    if not isinstance(values, dict):
        raise BadFile(path, "", f"wanted a JSON object, got {_kind_of(values)}", next_step)
    stored = cast("dict[str, Any]", values)
    _check_format(stored, path, kind)
    told = stored.pop(FIELD, None)
    if told is not None and told != document_seal(stored):
        raise ChangedFile(path)
    as_kind(stored, kind, path, next_step)
    return stored


def as_kind(values: Any, kind: type[Kind], path: str, next_step: str = "") -> Kind:
    """Plain values as `kind`; what does not fit is refused with its place."""
    try:
        return msgspec.convert(values, kind)
    except (msgspec.ValidationError, RecursionError, OverflowError) as error:
        raise _said(error, path, next_step) from None


def write_document(path: Path, values: Mapping[str, Any]) -> None:
    """Write plain values as JSON that people can read, with a seal, as a whole or not at all."""
    write_text(path, document_text(values))


def document_text(values: Mapping[str, Any]) -> str:
    """The text of a document with its seal."""
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(speakable(dict(values)), enc_hook=_plain))
    sealed = msgspec.json.encode({**plain, FIELD: document_seal(plain)})
    return msgspec.json.format(sealed, indent=2).decode() + "\n"


def decode(content: bytes, path: str, next_step: str = "") -> Any:
    """The values of a JSON text; what is no JSON, or JSON that nobody means, is refused."""
    try:
        values = msgspec.json.decode(content)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        reason = "nested too deep" if isinstance(error, RecursionError) else str(error)
        raise BadFile(path, "", f"wanted JSON, but it cannot be read ({reason})", next_step) from None
    if _depth(values) > DEEPEST:
        raise BadFile(path, "", f"wanted at most {DEEPEST} levels, got JSON that is nested deeper", next_step)
    return values


def read_bytes(path: Path, most: int) -> bytes:
    """The content of a regular file of at most `most` bytes: no device, no pipe, nothing that never ends."""
    check_regular(path, most)
    with opened(path) as file:
        return file.read(most)


@contextmanager
def opened(path: Path) -> Generator[BinaryIO]:
    """The file, for reading; a disk that gives up meanwhile, or says no, is told with its reason."""
    try:
        with path.open("rb") as file:
            yield file
    except UndertowError:
        raise
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: OSError) -> BadFile:
    """The error for a file that the system does not give us."""
    advice = "Give yourself the right to read it." if isinstance(error, PermissionError) else ""
    return BadFile(path, "", f"it cannot be read ({error.strerror or error})", advice)


def check_regular(path: Path, most: int | None = None) -> int:
    """The size of a regular file; anything else under that name is refused."""
    try:
        found = path.stat()
    except FileNotFoundError:
        raise NotThere(f"There is no file {path}.") from None
    except OSError as error:
        raise unreadable(path, error) from error
    except ValueError as error:
        raise BadFile(path, "", f"it cannot be read ({error})") from error
    if not stat.S_ISREG(found.st_mode):
        raise BadFile(
            path, "", "wanted a file, got something else under its name (a folder, a pipe, a device)"
        )
    if most is not None and found.st_size > most:
        raise BadFile(
            path, "", f"wanted at most {show_size(most)}, got {show_size(found.st_size)}; undertow writes no such file"
        )  # fmt: skip
    return found.st_size


def speakable(value: Any) -> Any:
    """The value with every text as one that can be written: lone surrogates of odd file names are spelt out."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        return {speakable(str(key)): speakable(inner) for key, inner in value.items()}  # pyright: ignore
    if isinstance(value, list | tuple):
        return [speakable(inner) for inner in value]  # pyright: ignore
    return value


def _plain(value: Any) -> Any:
    """Numbers of numpy as plain ones."""
    if hasattr(value, "item"):
        return value.item()
    if isinstance(value, Path):
        return speakable(str(value))
    raise TypeError(f"{type(value).__name__} is no plain value")


def _check_format(stored: dict[str, Any], path: str, kind: type[Document]) -> None:
    given = stored.get("format", kind.newest)
    if isinstance(given, int) and not isinstance(given, bool) and given > kind.newest:
        by = stored.get("undertow")
        said = f" (undertow {by[:20]})" if isinstance(by, str) else ""
        raise BadFile(
            path, "format", f"wanted format {kind.newest} or older, got {given}{said}", "Update undertow to read it."
        )  # fmt: skip


def _said(error: Exception, path: str, next_step: str) -> BadFile:
    """The library's sentence in ours: file, field, wanted, got."""
    text = str(error)
    match = re.fullmatch(r"(?s)(.*?)(?: - at `(?:key in )?\$\.?(.*?)`)?", text)
    problem, field = (match[1], match[2] or "") if match else (text, "")
    if found := re.fullmatch(r"Object contains unknown field `(.*)`", problem):
        return BadFile(path, _under(field, found[1]), "undertow knows no such field", next_step)
    if found := re.fullmatch(r"Object missing required field `(.*)`", problem):
        return BadFile(path, _under(field, found[1]), "wanted a value, but there is none", next_step)
    problem = problem.replace("`", "").replace("Expected ", "wanted ", 1)
    return BadFile(path, field, problem[:1].lower() + problem[1:], next_step)


def _under(field: str, name: str) -> str:
    return f"{field}.{name}" if field else name


def _depth(value: Any) -> int:
    """How deep the nesting is, counted level by level so that nothing recurses."""
    level: list[Any] = [value]
    for depth in range(DEEPEST + 2):
        level = [
            inner
            for own in level
            if isinstance(own, dict | list)
            for inner in (own.values() if isinstance(own, dict) else own)
        ]
        if not level:
            return depth
    return DEEPEST + 1


def _kind_of(value: Any) -> str:
    return {list: "an array", str: "a text", type(None): "null"}.get(type(value), "a number")
