"""What one process may take of the machine: maths threads and memory.

    use_threads(2)                    # of torch, and of the maths libraries loaded later
    keep_freed_memory()               # for processes that train: a third less processor time on a CPU
    limit_memory(parse_memory("2GB"))
    ran_out(error)                    # whether that limit is what an error is about

The limit is Linux's RLIMIT_DATA: the private memory of the process, whether touched or not, with what Python and
torch take for themselves (0.2 to 0.4 GB). Mapped files and shared memory do not count, nor does a GPU's memory.
RLIMIT_AS would count the address space, of which the libraries alone reserve more than they ever use.
"""

from __future__ import annotations

import ctypes
import os
import sys

from undertow.errors import BadValue
from undertow.sizes import parse_size, show_size

LEAST = 400_000_000
"""Bytes below which a process cannot even load its libraries."""


KEPT = ((-3, 2**30), (-1, 2**31 - 1))
"""glibc's M_MMAP_THRESHOLD and M_TRIM_THRESHOLD: the heap serves blocks up to a gigabyte, and never shrinks."""


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def share_of_threads(processes: int) -> int:
    """Maths threads for each of so many processes; the user's OMP_NUM_THREADS is the most."""
    share = max(1, cores() // processes)
    most = os.environ.get("OMP_NUM_THREADS", "")
    return min(share, int(most)) if most.isdigit() and int(most) else share


def use_threads(count: int) -> None:
    """So many maths threads in this process: two on busy cores collapse.

    Libraries read the variables when they are loaded. torch is not loaded for it: that takes seconds, and not
    every task needs it.
    """
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(count)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(count)


def keep_freed_memory() -> bool:
    """Let C's allocator keep what is freed, for the next step of training; returns whether it could be told so.

    glibc hands blocks over 32 MB, and any at the heap's end, back to the system, which gives them out again page by
    page, each filled with zeros first: 10,000 pages at each step of a small CNN. Only for processes of our own, as it
    cannot be taken back.
    """
    tell = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    return tell is not None and all(tell(*option) for option in KEPT)


def parse_memory(text: str | int) -> int:
    """Bytes of a task's memory limit."""
    if sys.platform != "linux":
        raise BadValue("memory", "Linux, where a process can be held to a limit", sys.platform)
    size = parse_size(text)
    if size < LEAST:
        wanted = f"at least {show_size(LEAST)} for a task (Python and torch alone take most of it)"
        raise BadValue("memory", wanted, text)
    return size


def limit_memory(size: int) -> None:
    """Let this process have no more than `size` bytes of private memory."""
    import resource  # not on every system

    resource.setrlimit(resource.RLIMIT_DATA, (size, resource.getrlimit(resource.RLIMIT_DATA)[1]))


def ran_out(error: BaseException) -> bool:
    """Whether an error says that no memory was left; torch has no class of its own for it on a CPU."""
    told = str(error).lower()
    return isinstance(error, MemoryError) or any(
        words in told for words in ("can't allocate memory", "cannot allocate memory", "std::bad_alloc")
    )
