"""Archives (.npz, torch's .pt) with a seal in the comment at their end, and what they may unpack to.

    seal_archive(part)                               # after np.savez or torch.save
    check_archive(path, most=200 << 20)              # unchanged, a real archive, and no bomb

A zip file ends with a comment that its readers pass over. What an archive says of its members' sizes is looked at
before anything is unpacked: a file of a few megabytes can hold gigabytes of zeros.
"""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

from undertow.errors import BadFile
from undertow.sizes import show_size
from undertow.stored.door import check_regular, opened
from undertow.stored.seals import BLANK_SEAL, check_seal, stamp

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


def seal_archive(part: Path) -> str:
    """Put a seal into the comment of an archive that has none; returns it."""
    comment = BLANK_SEAL.encode()
    with part.open("r+b") as file:
        size = file.seek(0, 2)
        file.seek(size - 22)
        if file.read(4) != END:
            raise ValueError(f"{part} is no archive without a comment")
        file.seek(size - 2)
        file.write(len(comment).to_bytes(2, "little") + comment)
        return stamp(file)


def check_archive(
    path: Path, most: int, *, what: str = "an archive", next_step: str = "", need: bool = False
) -> None:
    """Refuse an archive that changed, that is damaged, or that would unpack to more than `most` bytes."""
    check_regular(path)
    try:
        with zipfile.ZipFile(path) as archive:
            full = sum(own.file_size for own in archive.infolist())
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
