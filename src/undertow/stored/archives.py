"""Archives (.npz, torch's .pt) with a seal in the comment at their end, and what they may unpack to.

    seal_archive(part, owner=facts.id)               # after np.savez or torch.save
    check_archive(path, most=200 << 20, owner=mark)  # unchanged, of this run, a real archive, and no bomb

A zip file ends with a comment that its readers pass over. What an archive says of its members' sizes is looked at
before anything is unpacked: a file of a few megabytes can hold gigabytes of zeros.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from pathlib import Path

from undertow.errors import BadFile
from undertow.sizes import show_size
from undertow.stored.door import check_regular, opened
from undertow.stored.seals import BLANK_SEAL, OWNER, check_owner, check_seal, stamp

BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    NotImplementedError,
    RuntimeError,
    EOFError,
    OSError,
    ValueError,
    KeyError,
)
"""What readers of damaged archives raise."""
END = b"PK\x05\x06"


def seal_archive(part: Path, owner: str = "") -> str:
    """Put a seal into the comment of an archive, in place of what stood there, and the mark of its run; returns it."""
    comment = f"{OWNER}:{owner} {BLANK_SEAL}".encode() if owner else BLANK_SEAL.encode()
    with zipfile.ZipFile(part) as archive:
        before = len(archive.comment)
    with part.open("r+b") as file:
        place = file.seek(0, 2) - before - 22
        file.seek(place)
        if file.read(4) != END:
            raise ValueError(f"{part} is no archive that can be sealed")
        file.seek(place + 20)
        file.truncate()
        file.write(len(comment).to_bytes(2, "little") + comment)
        return stamp(file)


def owner_of_archive(path: Path) -> str:
    """The mark of the run that an archive says it belongs to; "" where it says none."""
    with zipfile.ZipFile(path) as archive:
        return _owner_in(archive.comment)


def _owner_in(comment: bytes) -> str:
    found = re.match(rf"{re.escape(OWNER)}:(\S+) ", comment.decode(errors="replace"))
    return found[1] if found else ""


def check_archive(
    path: Path,
    most: int,
    *,
    what: str = "an archive",
    next_step: str = "",
    need: bool = False,
    owner: str = "",
) -> None:
    """Refuse an archive that changed, of another run, damaged, or one that would unpack to more than `most` bytes."""
    check_regular(path)
    try:
        with zipfile.ZipFile(path) as archive:
            full, told = sum(own.file_size for own in archive.infolist()), _owner_in(archive.comment)
    except BROKEN as error:
        reason = str(error) or type(error).__name__
        raise BadFile(
            path, "", f"wanted {what}, but the file is damaged or cut off ({reason})", next_step
        ) from error
    if full > most:
        sizes = f"of at most {show_size(most)}, got one that unpacks to {show_size(full)}"
        raise BadFile(path, "", f"wanted {what} {sizes}", next_step)
    with opened(path) as file:
        check_seal(file, path, need=need)
    check_owner(path, told, owner)
