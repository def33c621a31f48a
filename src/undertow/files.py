"""Writing files so that a reader never sees half of one, and so that nothing unfinished stays behind.

    with aside(path) as part:            # part lies in a hidden folder of this writer alone, beside path
        save_file(tensors, part)
    # now path is whole; after an exception it is as it was, and the hidden folder is gone
    with together(folder):               # one writer at a time for files that belong together
        ...

A link stays a link: what it names is written, but for links under names that undertow gives by itself (kept.py), which
are replaced. A pipe, a device or a folder is refused, and so is the file that holds what undertow prints.

The file is synced and renamed: a process killed at any moment leaves the old file or the new one. The hidden folder
has a random name, not the process's number, which two containers may share. Its writer holds a lock on it, which
the system gives up when the writer dies: whoever writes into the same folder next removes what dead writers left,
and never what a live one needs.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from undertow.errors import RunProblem
from undertow.kept import is_own

try:
    import fcntl
except ImportError:  # Windows has no such locks: what is old enough counts as left behind
    fcntl = None

PART = ".part"
"""What the name of something unfinished ends with; readers pass such names over."""
DAY = 86_400
WAIT = 600.0
"""Seconds for others who write the same files, which takes them a moment."""
PAUSE = 0.02
_PREFIX = ".undertow-"
_swept: set[Path] = set()


@contextmanager
def aside(path: Path) -> Generator[Path]:
    """A path to write to; it takes the place of `path` when the block ends well."""
    place = place_of(path)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.parent not in _swept:
            sweep(place.parent)
        with _own_folder(place.parent) as own:
            part = own / f"file{PART}"  # not its name: whoever looks for such files must not find it here
            part.touch()
            mode = part.stat().st_mode  # as the umask has it; some writers would hide the file from others
            yield part
            part.chmod(mode)
            with part.open("rb") as written:
                os.fsync(written.fileno())
            part.replace(place)
    except RunProblem:
        raise
    except OSError as error:
        raise _cannot_write(path, error) from error


def place_of(path: Path) -> Path:
    """Where what is written to `path` goes, links followed; refused where something else than a file is there."""
    place = path
    try:
        if path.is_symlink():
            if is_own(path):
                return path
            place = Path(os.path.realpath(path))
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):  # nothing is there yet, or mkdir will say what is
        return place
    except OSError as error:
        raise _cannot_write(path, error) from error
    except ValueError as error:  # a zero letter
        raise RunProblem(f"Cannot write {str(path)!r}: {error}. Name another file.") from error
    kind = next((word for test, word in _KINDS if test(found.st_mode)), "what undertow prints")
    if not stat.S_ISREG(found.st_mode) or _is_printed_to(found):
        raise RunProblem(f"Cannot write {path}: wanted a file, got {kind}. Name a file, or a new one.")
    return place


_KINDS = (
    (stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"), (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)  # fmt: skip


def _is_printed_to(found: os.stat_result) -> bool:
    """Whether a file is where standard output or standard error go: putting another in its place would lose them."""
    for stream in (1, 2):
        with suppress(OSError):  # closed
            if os.path.samestat(found, os.fstat(stream)):
                return True
    return False


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path` as a whole or not at all."""
    with aside(path) as part:
        part.write_text(text, encoding="utf-8")


def is_unfinished(path: Path) -> bool:
    """Whether `path` is what a writer has not finished, or did not live to finish."""
    return path.name.endswith(PART)


def sweep(folder: Path) -> None:
    """Remove what dead writers left directly in `folder`; what live ones write stays."""
    _swept.add(folder)
    for left in folder.glob(f".*{PART}"):
        with suppress(OSError):  # another sweeper was quicker, or we may not
            if not left.is_dir():  # written by an undertow that knew no locks
                if time.time() - left.stat().st_mtime > DAY:
                    left.unlink()
            else:
                _remove_if_dead(left)


def _remove_if_dead(left: Path) -> None:
    try:
        lock = _lock(left)
    except OSError:  # a filesystem without locks
        lock = None
        if time.time() - left.stat().st_mtime > DAY:
            shutil.rmtree(left, ignore_errors=True)
    if lock is not None:
        shutil.rmtree(left, ignore_errors=True)
        os.close(lock)


@contextmanager
def together(folder: Path) -> Generator[None]:
    """One writer at a time of this folder's files that belong together; others wait, but not for ever."""
    lock = None
    try:
        with suppress(OSError):  # a folder that cannot be made is told by who writes into it
            folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(folder, os.O_RDONLY)
        if lock is not None:
            _wait_for(lock, folder)
        yield
    finally:
        if lock is not None:
            os.close(lock)


def _wait_for(lock: int, folder: Path) -> None:
    late = time.monotonic() + WAIT
    while fcntl is not None:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > late:
                raise RunProblem(
                    f"Cannot write into {folder}: another process has held it for {WAIT // 60:.0f} minutes. End that "
                    "process, or wait, and give the command again."
                ) from None
            time.sleep(PAUSE)
        except OSError:  # a filesystem without locks: then as it comes
            return None
    return None


@contextmanager
def _own_folder(parent: Path) -> Generator[Path]:
    """A hidden folder under a lock of this writer's."""
    own, lock = _claim(parent)
    try:
        yield own
    finally:
        shutil.rmtree(own, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _claim(parent: Path) -> tuple[Path, int | None]:
    while True:
        own = parent / f"{_PREFIX}{secrets.token_hex(8)}{PART}"
        own.mkdir()
        if fcntl is None:
            return own, None
        try:
            lock = _lock(own)
        except OSError:
            if own.is_dir():  # no locks here; its age will tell
                return own, None
            continue  # a sweeper took it in the moment before it was locked
        if lock is not None:
            return own, lock


def _lock(folder: Path) -> int | None:
    """A lock on the folder; None where another holds it, or where it is gone."""
    if fcntl is None:
        raise OSError("no locks")
    opened = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if folder.stat().st_ino == os.fstat(opened).st_ino:
            return opened
    except BlockingIOError:
        pass
    except OSError:
        os.close(opened)
        raise
    os.close(opened)
    return None


def _cannot_write(path: Path, error: OSError) -> RunProblem:
    return RunProblem(f"Cannot write {path}: {error.strerror or error}. {_way_out(error)}")


FORBIDDEN = (1, 13, 30)
"""EPERM, EACCES, EROFS: whoever asks again gets the same answer."""


def is_forbidden(error: RunProblem) -> bool:
    """Whether a file could not be written because its folder may not be written to."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in FORBIDDEN


def why_forbidden(folder: Path) -> str:
    """Why a folder, which need not be there yet, may not be written to; nothing where it may."""
    try:
        place = next(one for one in (folder, *folder.parents) if one.exists())
        with _own_folder(place):  # asked of the system itself: rights alone tell of no read-only disk
            return ""
    except OSError as error:
        return str(error.strerror) if error.errno in FORBIDDEN else ""  # the rest is told by who writes


def _way_out(error: OSError) -> str:
    match error.errno:
        case 28 | 122 | 27:  # ENOSPC, EDQUOT, EFBIG
            return "Free some space and give the command again (train: with --resume); what was saved before is intact."
        case 13 | 30 | 1:  # EACCES, EROFS, EPERM
            return "Choose a folder that you may write to."
        case 2:  # ENOENT
            return "Was its folder moved or deleted meanwhile?"
        case _:
            return "What was saved before is intact."


def cache_folder() -> Path:
    """Where what can be made again is kept, for this user: decoded sets, work for clusters, a key."""
    return Path(os.environ.get("UNDERTOW_CACHE") or "~/.cache/undertow").expanduser()
