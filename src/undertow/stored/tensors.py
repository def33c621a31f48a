"""Reading and writing files of tensors: safetensors, sealed in two steps.

    write_tensors(path, tensors, {"epoch": "20", "metrics": "{...}"})
    read_header(path)                      # its words; the tensors themselves are not read
    read_tensors(path)                     # name -> tensor; flipped bytes are noticed
    read_tensors(path, need_seal=True)     # in a folder of sealed files, one without a seal was exchanged

The header has a hash of the tensors' bytes, and one of itself with that hash in it: `undertow runs` looks at the
headers of a thousand checkpoints without reading their weights. Files of others have neither and need none.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import msgspec

from undertow.errors import BadFile, ChangedFile, NotThere
from undertow.files import aside
from undertow.stored.door import check_regular, opened
from undertow.stored.seals import BLANK, digest_of

if TYPE_CHECKING:
    import torch
    from torch import Tensor

CONTENT, HEADER = "undertow.content", "undertow.header"
METADATA = "__metadata__"
LONGEST_HEADER = 100_000_000
"""Bytes; safetensors itself reads no longer one."""


class Header(NamedTuple):
    """What stands before the tensors."""

    values: dict[str, Any]  # by tensor: dtype, shape, data_offsets
    words: dict[str, str]  # what the writer said besides
    begin: int  # where the tensors' bytes begin

    @property
    def sealed(self) -> bool:
        """Whether undertow sealed the file."""
        return HEADER in self.words and CONTENT in self.words


def write_tensors(path: Path, tensors: dict[str, Tensor], words: Mapping[str, str] | None = None) -> None:
    """Write a sealed safetensors file, as a whole or not at all."""
    with aside(path) as part:
        write_tensors_part(part, tensors, words)


def write_tensors_part(
    part: Path, tensors: dict[str, Tensor], words: Mapping[str, str] | None = None
) -> None:
    """Write such a file to a path that nobody reads yet."""
    from safetensors import SafetensorError
    from safetensors.torch import save, save_file

    try:
        said = {**(words or {}), CONTENT: BLANK, HEADER: BLANK}
        if _speakable(part):
            save_file(tensors, part, metadata=said)
        else:
            part.write_bytes(save(tensors, said))
    except SafetensorError as error:
        # The library hides the system's error number in its text.
        number = re.search(r"os error (\d+)", str(error))
        raise OSError(int(number.group(1)) if number else 5, str(error)) from error
    seal_file(part)


@cache
def storable(dtype: torch.dtype) -> bool:
    """Whether the format holds numbers of this type."""
    import torch
    from safetensors.torch import save

    try:
        save({"x": torch.empty(0, dtype=dtype)})
    except (KeyError, ValueError, RuntimeError):
        return False
    return True


def seal_file(part: Path) -> None:
    """Fill in both seals of a safetensors file that has them blank, or anything else in their place."""
    with part.open("r+b") as file:
        header = _parse(file, part)
        file.seek(header.begin)
        words = {**header.words, CONTENT: digest_of(file)}
        words[HEADER] = _header_seal(header.values, words)
        _put(file, header, words)


def read_header(path: Path, *, need_seal: bool = False) -> Header:
    """The header, if it is as it was written."""
    check_regular(path)
    with opened(path) as file:
        header = _parse(file, path)
    if header.sealed and header.words[HEADER] != _header_seal(header.values, header.words):
        raise ChangedFile(path)
    if need_seal and not header.sealed:
        raise ChangedFile(path, "it has lost its seal")
    return header


def read_tensors(path: Path, *, need_seal: bool = False) -> dict[str, Tensor]:
    """The tensors by name, on the CPU."""
    from safetensors import SafetensorError
    from safetensors.torch import load, load_file

    if not path.exists():
        raise NotThere(f"There is no checkpoint {path}.")
    check_content(path, need_seal=need_seal)
    try:
        return load_file(path) if _speakable(path) else load(path.read_bytes())
    except (SafetensorError, OSError, ValueError, KeyError, RuntimeError) as error:
        raise damaged(path, error) from error


def check_content(path: Path, *, need_seal: bool = False) -> Header:
    """Refuse a sealed file whose tensors are others than were written."""
    header = read_header(path, need_seal=need_seal)
    if header.sealed:
        with opened(path) as file:
            file.seek(header.begin)
            if digest_of(file) != header.words[CONTENT]:
                raise ChangedFile(path)
    return header


def damaged(path: Path, error: Exception | str) -> BadFile:
    """The error for a file that is no checkpoint, or one no more."""
    reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
    return BadFile(path, "", f"wanted a checkpoint, but the file is damaged or cut off ({reason})")


def _speakable(path: Path) -> bool:
    """Whether the path is text; the library takes no others."""
    try:
        return bool(str(path).encode())
    except UnicodeEncodeError:
        return False


def _parse(file: BinaryIO, path: Path) -> Header:
    size = file.seek(0, 2)
    file.seek(0)
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > min(LONGEST_HEADER, size - 8):
        raise damaged(path, "its header is longer than the file")
    try:
        values = msgspec.json.decode(file.read(length), type=dict[str, dict[str, Any]])
        words = msgspec.convert(values.pop(METADATA, {}), dict[str, str])
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise damaged(path, error) from None
    return Header(values, words, 8 + length)


def _header_seal(values: dict[str, Any], words: Mapping[str, str]) -> str:
    said = {name: word for name, word in words.items() if name != HEADER}
    return hashlib.blake2b(msgspec.json.encode([values, said], order="sorted"), digest_size=16).hexdigest()


def _put(file: BinaryIO, header: Header, words: Mapping[str, str]) -> None:
    """Write both seals over the letters in their place; nothing else moves."""
    file.seek(8)
    text = file.read(header.begin - 8)
    for name in (CONTENT, HEADER):
        old, new = (
            json.dumps({name: own[name]})[1:-1].replace(": ", ":").encode() for own in (header.words, words)
        )
        if text.count(old) != 1 or len(old) != len(new):
            raise ValueError(f"the header has no room for {name}")
        text = text.replace(old, new)
    file.seek(8)
    file.write(text)
