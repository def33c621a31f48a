"""How much memory is free, how much this process takes, and a clear word before it takes too much.

    free_memory()                                            # bytes; None where the system does not tell
    check_room(size, "mine.npz", "Use shards (.tar).")        # BadData where `size` bytes do not fit
    in_all(200_000_000)              # "at most 730 MB of memory in all (Python, libraries, model and samples counted)"
    give_back()                                              # freed memory goes to the system

A file of a few megabytes can unpack to more than a machine has. Systems promise such memory and then kill the process
that uses it, without a word; here the promise is checked first.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

from undertow.errors import BadData
from undertow.sizes import show_size

STATUS = Path("/proc/self/status")
MEMINFO = Path("/proc/meminfo")
GROUP = Path("/sys/fs/cgroup")
"""Where Linux tells of the limits of a container."""
PROGRAM = 350_000_000
"""Bytes that Python and torch take before any sample."""
LATER = 150_000_000
"""Bytes for libraries that are loaded with the work, and for gaps between pieces: 5 to 115 MB where it was measured."""


def free_memory() -> int | None:
    """Bytes that can be taken without harm, of the machine and of the container."""
    known = [size for size in (_of_machine(), _of_container()) if size is not None]
    return min(known) if known else None


def check_room(size: int, who: str, next_step: str = "") -> None:
    """Refuse what takes more memory than is free."""
    free = free_memory()
    if free is not None and size > free:
        wanted = f"at most {show_size(free)} (the free memory), got what takes {show_size(size)}"
        raise BadData(f"{who}: wanted {wanted}. {next_step}".strip())


def taken() -> int:
    """The most bytes that this process has held so far; what Python and torch take where the system does not tell."""
    with suppress(OSError, ValueError, StopIteration):
        lines = STATUS.read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    with suppress(ImportError):
        from resource import RUSAGE_SELF, getrusage  # not on Windows

        return getrusage(RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return PROGRAM


def further(before: int, rows: int, batch: int) -> int:
    """What a whole batch takes beyond the rows that were tried, since when `taken` was `before`."""
    return (taken() - before) * max(0, batch - rows) // max(1, rows)


def whole(work: int) -> int:
    """Bytes that the process will hold at its peak, with so many for the work that begins: libraries counted."""
    return taken() + LATER + work


def in_all(work: int) -> str:
    """The same for people."""
    free, most = free_memory(), show_size(whole(work))
    short = ""
    if free is not None and work + LATER > free:
        short = f", more than the {show_size(free)} that are free: give a smaller --memory or fewer --samples"
    return f"at most {most} of memory in all (Python, libraries, model and samples counted{short})"


def give_back() -> None:
    """Hand freed memory to the system; glibc would keep much of it, and a later piece may not fit into the gaps."""
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Callable[[int], object] | None:
    with suppress(OSError, TypeError, AttributeError):  # no glibc
        return ctypes.CDLL(None).malloc_trim
    return None


def _of_machine() -> int | None:
    with suppress(OSError, ValueError, IndexError):
        lines = MEMINFO.read_text(encoding="ascii").splitlines()
        free = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
        return free[0]
    return None


def _of_container() -> int | None:
    with suppress(OSError, ValueError):  # no container, or "max": no limit
        limit, used = (
            int((GROUP / name).read_text(encoding="ascii")) for name in ("memory.max", "memory.current")
        )
        return max(0, limit - used)
    return None
