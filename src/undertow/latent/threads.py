"""Classes solved side by side, each with its share of the maths threads.

    found = side_by_side(solve, parts, device)          # [solve(part) for part in parts], in order
    found = side_by_side(solve, in_groups(parts), device)      # parts whose steps are short, some as one

A class's matrices are small: products of 16 rows and decompositions of 200 x 200 gain nothing from a second
thread, but two classes at once do. Between whole decompositions and large products lie matrices (`SHORT`) whose steps
are so short that Python threads only wait for each other; there, classes that take each step together help.

torch's number of threads is one setting of the whole process, so it is changed by one caller at a time and put
back in any case; a second caller meanwhile works one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock
from typing import TypeVar

import torch

from undertow.latent.arrays import as_written

Part = TypeVar("Part")
Found = TypeVar("Found")

SHORT = range(257, 768)
"""Sizes of matrices whose steps are so short that one class at a time gains nothing from a second thread."""
GROUP = 5
"""Classes that take their steps together, at most: the matrices of more do not stay in the cache."""

_SETTING = Lock()


def in_groups(parts: Sequence[Part]) -> list[Sequence[Part]]:
    """The parts in order, in groups that give every maths thread one, if there are enough."""
    each = max(1, min(GROUP, -(-len(parts) // torch.get_num_threads())))
    return [parts[start : start + each] for start in range(0, len(parts), each)]


def side_by_side(solve: Callable[[Part], Found], parts: Sequence[Part], device: torch.device) -> list[Found]:
    """`solve` of each part, in order; on a CPU with several maths threads, several parts at once."""
    threads = torch.get_num_threads()
    workers = min(threads, len(parts))
    if device.type != "cpu" or workers < 2 or not _SETTING.acquire(blocking=False):
        return [solve(part) for part in parts]

    def quietly(part: Part) -> Found:
        with as_written(device):  # a new thread knows nothing of the caller's no_grad
            return solve(part)

    try:
        # New threads take the number that holds when they first compute.
        with _maths_threads(threads // workers, threads), ThreadPoolExecutor(workers) as pool:
            return list(pool.map(quietly, parts))
    finally:
        _SETTING.release()


@contextmanager
def _maths_threads(count: int, before: int) -> Generator[None]:
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
