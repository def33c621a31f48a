"""Writing files so that a reader never sees half of one.

    with aside(path) as part:            # part lies beside path
        save_file(tensors, part)
    # now path is whole; after an exception it is as it was, and part is gone

The file is synced and renamed: a process killed at any moment leaves the old file or the new one.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from undertow.errors import RunProblem

PART = ".part"
"""What the name of an unfinished file ends with; readers pass such files over."""


@contextmanager
def aside(path: Path) -> Generator[Path]:
    """A path to write to; it takes the place of `path` when the block ends well."""
    part = path.with_name(f".{path.name}.{os.getpid()}{PART}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.touch()
        mode = (
            part.stat().st_mode
        )  # what the user's umask allows; some writers would hide the file from others
        yield part
        part.chmod(mode)
        with part.open("rb") as written:
            os.fsync(written.fileno())
        part.replace(path)
    except OSError as error:
        raise RunProblem(f"Cannot write {path}: {error.strerror or error}. {_way_out(error)}") from error
    finally:
        with suppress(OSError):  # the folder itself may be what is wrong
            part.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path` as a whole or not at all."""
    with aside(path) as part:
        part.write_text(text, encoding="utf-8")


def _way_out(error: OSError) -> str:
    match error.errno:
        case 28:  # ENOSPC
            return "Free some space and go on with --resume; what was saved before is intact."
        case 13 | 30 | 1:  # EACCES, EROFS, EPERM
            return "Choose a folder that you may write to."
        case _:
            return "What was saved before is intact."
