"""Seals: a hash of a file's content inside the file itself, so that a change since it was written is noticed.

    stamp(file)                             # parquet, npz, pt: fills in the seal that was written blank
    seal_of(path)                           # the seal that a file carries; None: nobody sealed it
    check_seal(file, path, need=True)       # ChangedFile where the content is another, or the seal is missing
    check_owner(path, told, run_mark)       # and where what it says of its run is another run's mark

A seal lies in the file, so that it is renamed, copied and replaced with it and no second file can fall behind. In
binary files it is a mark followed by 32 hex letters; the hash is of all bytes with those letters blank. Documents
have it in the field `seal`, over their values, so that an editor may lay out the text anew. Files of others have no
seal and need none. A seal tells nothing of where a file belongs: beside it stands the mark of its owner, the run or the
task. Files of older versions have none, and are taken where they lie.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from undertow.errors import RESTORE, ChangedFile

FIELD = "seal"
OWNER = "undertow.owner"
"""What the mark of a file's run or task is called in its footer or comment."""
RUN = "run than run.json"
"""Which of the two was exchanged, nobody knows."""
MARK = b"undertow-seal:"
BLANK = "0" * 32
BLANK_SEAL = MARK.decode() + BLANK
TAIL = 8 << 20
"""The mark is looked for in so many last bytes: what tells of a parquet file or an archive lies at its end."""
CHUNK = 1 << 20


def document_seal(values: Mapping[str, Any]) -> str:
    """The seal of a document: of its values, whatever their order and layout."""
    plain = {name: value for name, value in values.items() if name != FIELD}
    return hashlib.blake2b(msgspec.json.encode(plain, order="sorted"), digest_size=16).hexdigest()


def stamp(file: BinaryIO) -> str:
    """Fill in the blank seal of a file that was just written; returns it."""
    place = _place(file)
    if place is None:
        raise ValueError("the file was written without a blank seal")
    seal = _digest(file, place)
    file.seek(place)
    file.write(seal.encode())
    return seal


def seal_of(path: Path) -> str | None:
    """The seal that a file carries, whether it fits or not."""
    with path.open("rb") as file:
        place = _place(file)
        if place is None:
            return None
        file.seek(place)
        return file.read(len(BLANK)).decode(errors="replace")


def check_seal(
    file: BinaryIO, path: Path | str, *, need: bool = False, next_step: str = RESTORE
) -> str | None:
    """The seal of an open file; refused where the bytes are others than were written, or with `need`, without one."""
    place = _place(file)
    if place is None:
        if need:
            raise ChangedFile(path, "it has lost its seal", next_step)
        return None
    file.seek(place)
    told = file.read(len(BLANK)).decode(errors="replace")
    if told != _digest(file, place):
        raise ChangedFile(path, next_step=next_step)
    return told


def check_owner(path: Path | str, told: str, wanted: str, kind: str = RUN, next_step: str = RESTORE) -> None:
    """Refuse a file that says the mark of another run or task than is wanted; either mark may be unknown."""
    if told and wanted and told != wanted:
        raise ChangedFile(path, f"it belongs to another {kind}", next_step)


def digest_of(file: BinaryIO) -> str:
    """The hash of the rest of an open file."""
    seen = _hash()
    while chunk := file.read(CHUNK):
        seen.update(chunk)
    return seen.hexdigest()


def file_hash(path: Path) -> str:
    """The hash of a file's bytes, for another file that names it."""
    with path.open("rb") as file:
        return digest_of(file)


def _place(file: BinaryIO) -> int | None:
    """Where the letters of the seal begin."""
    size = file.seek(0, 2)
    start = max(0, size - TAIL)
    file.seek(start)
    found = file.read().rfind(MARK)
    place = start + found + len(MARK)
    return None if found < 0 or place + len(BLANK) > size else place


def _digest(file: BinaryIO, place: int) -> str:
    seen = _hash()
    file.seek(0)
    left = place
    while left and (chunk := file.read(min(CHUNK, left))):
        seen.update(chunk)
        left -= len(chunk)
    seen.update(BLANK.encode())
    file.seek(place + len(BLANK))
    while chunk := file.read(CHUNK):
        seen.update(chunk)
    return seen.hexdigest()


def _hash() -> Any:
    return hashlib.blake2b(digest_size=16)
