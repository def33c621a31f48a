"""Several processes that train one model: each looks at its part of the samples, all know the whole.

    rows = own_rows(1000)                         # numbers of samples; as many on each process
    with same_buffers(model):                     # the statistics of rank 0 on every process, and back
        part = model(x[rows])
    whole = gathered(part, 1000)                  # (1000, ...) on every process, in order
    found = from_first(lambda: judge(whole))      # computed on rank 0, known to all

Every process must call these, in the same order: they talk to one another. With one process they do nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, distributed, nn

T = TypeVar("T")


def world() -> int:
    """How many processes train together."""
    ready = distributed.is_available() and distributed.is_initialized()
    return distributed.get_world_size() if ready else 1


def is_first() -> bool:
    """Whether this is the process that writes files and speaks."""
    return world() == 1 or distributed.get_rank() == 0


def own_rows(count: int) -> Tensor:
    """(K,) numbers of the samples for this process, as many for each: the last sample fills up."""
    size = -(-count // world())
    start = 0 if world() == 1 else distributed.get_rank() * size
    return torch.arange(start, start + size).clamp(max=count - 1)


def gathered(part: Tensor, count: int) -> Tensor:
    """The rows of all processes in the order of `own_rows`, without what filled up."""
    if world() == 1:
        return part
    parts = [torch.empty_like(part) for _ in range(world())]
    distributed.all_gather(parts, part.contiguous())
    return torch.cat(parts)[:count]


def from_first(work: Callable[[], T]) -> T:
    """What `work` gives on the first process; an exception there is raised everywhere, so that nobody waits."""
    if world() == 1:
        return work()
    box: list[Any] = [None, None]
    if is_first():
        try:
            box[0] = work()
        except Exception as error:  # raised below, on all processes
            box[1] = error
    distributed.broadcast_object_list(box, src=0)
    if box[1] is not None:
        raise cast("Exception", box[1])
    return cast("T", box[0])


@contextmanager
def same_buffers(model: nn.Module) -> Generator[None]:
    """Lend every process the buffers of the first one (the statistics of batch norm), and take them back."""
    if world() == 1:
        yield
        return
    own = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    try:
        for buffer, _ in own:
            distributed.broadcast(buffer, src=0)
        yield
    finally:
        for buffer, kept in own:
            buffer.copy_(kept)
