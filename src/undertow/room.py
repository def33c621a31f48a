"""How much memory is free, and a clear word before something larger is unpacked into it.

    free_memory()                                            # bytes; None where the system does not tell
    check_room(size, "mine.npz", "Use shards (.tar).")        # BadData where `size` bytes do not fit

A file of a few megabytes can unpack to more than a machine has. Systems promise such memory and then kill the process
that uses it, without a word; here the promise is checked first.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from undertow.errors import BadData
from undertow.sizes import show_size

MEMINFO = Path("/proc/meminfo")
GROUP = Path("/sys/fs/cgroup")
"""Where Linux tells of the limits of a container."""


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
