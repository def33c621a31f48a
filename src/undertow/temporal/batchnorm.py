"""Batch-norm statistics of a composite's deep part, estimated anew on the features it now gets.

    fixed = recalibrated(composite, x, cut="layer2")     # a copy; statistics after the cut come from x
    fixed = recalibrated(composite, x)                   # all statistics

A deep part's statistics describe the features of its own time. In a composite it gets those of another time, and
part of what it misunderstands is only their mean and variance. Estimating the statistics on the composite takes that
part away. The paper leaves them as they are ("own"), and so do we unless asked.

Each batch is normalised by its own mean and variance while the averages over all batches are taken, as in training;
batches are of equal size (to within one sample) and count alike. Dropout stays off.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Generator, Iterable
from contextlib import contextmanager
from copy import deepcopy
from itertools import pairwise

import torch
from torch import Tensor, nn

from undertow.errors import BadValue
from undertow.features.layers import unwrap
from undertow.features.stopping import evaluating
from undertow.features.stream import count_samples, rows_of
from undertow.features.tap import Inputs, call, device_of, to_device, uncompiled
from undertow.temporal.cuts import find_cut

KINDS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)

Norm = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d | nn.SyncBatchNorm
Statistics = list[tuple[Tensor, Tensor]]
"""Mean and variance of each norm."""


def recalibrated(model: nn.Module, x: Inputs, *, cut: str | None = None, batch_size: int = 256) -> nn.Module:
    """A copy of `model` whose batch-norm statistics come from `x`; the model stays as it was.

    Args:
        model: a composite, or any module.
        x: inputs as the model takes them; two or more.
        cut: only statistics of what runs after this module; all if not given.
        batch_size: about how many samples make a batch.
    """
    made = deepcopy(unwrap(model))
    kept: Container[str] = frozenset() if cut is None else find_cut(made, cut, x, who="recalibrated").shallow
    norms = norms_after(made, kept)
    with evaluating(made):
        found = estimate(norms, lambda: _run(made, x, batch_size))
    for norm, (mean, variance) in zip(norms, found, strict=True):
        _put(norm, mean, variance)
    return made


def norms_after(model: nn.Module, shallow: Container[str]) -> list[Norm]:
    """Batch norms that keep statistics, except those whose statistics are among the `shallow` buffers."""
    return [
        module
        for name, module in unwrap(model).named_modules()
        if isinstance(module, KINDS) and module.running_mean is not None
        and (f"{name}.running_mean" if name else "running_mean") not in shallow
    ]  # fmt: skip


def estimate(norms: Iterable[Norm], run: Callable[[], object]) -> Statistics:
    """The statistics that the norms gather while `run` runs; they have their own ones back after it."""
    norms = list(norms)
    with own_statistics(norms):
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum, norm.training = None, True  # None: each batch counts alike
        run()
        return [(_buffer(norm.running_mean), _buffer(norm.running_var)) for norm in norms]


@contextmanager
def with_statistics(norms: list[Norm], statistics: Statistics) -> Generator[None]:
    """These statistics inside the block, the norms' own ones after it."""
    with own_statistics(norms):
        for norm, (mean, variance) in zip(norms, statistics, strict=True):
            _put(norm, mean, variance)
        yield


@contextmanager
def own_statistics(norms: Iterable[Norm]) -> Generator[None]:
    """Whatever the block does to the norms' statistics and modes is undone after it."""
    saved = [
        (norm, norm.training, norm.momentum, {name: part.clone() for name, part in norm.named_buffers()})
        for norm in norms
    ]
    try:
        yield
    finally:
        for norm, mode, momentum, buffers in saved:
            norm.training, norm.momentum = mode, momentum
            for name, part in norm.named_buffers():
                part.copy_(buffers[name])


def even_batches(count: int, batch_size: int) -> list[slice]:
    """Rows 0 to `count` in batches of about one size; none of a single sample, which has no variance."""
    if count < 2:
        raise BadValue("recalibration", "at least two samples", count)
    parts = max(1, min(round(count / batch_size), count // 2))
    ends = [count * part // parts for part in range(parts + 1)]
    return [slice(first, last) for first, last in pairwise(ends)]


def _run(model: nn.Module, x: Inputs, batch_size: int) -> None:
    device = device_of(model)
    with torch.no_grad(), uncompiled():
        for rows in even_batches(count_samples(x), batch_size):
            call(model, to_device(rows_of(x, rows), device))


def _put(norm: Norm, mean: Tensor, variance: Tensor) -> None:
    _place(norm.running_mean).copy_(mean)
    _place(norm.running_var).copy_(variance)


def _buffer(buffer: Tensor | None) -> Tensor:
    return _place(buffer).clone()


def _place(buffer: Tensor | None) -> Tensor:
    if buffer is None:  # `norms_after` leaves such norms out
        raise BadValue("batch norm", "one that keeps statistics", None)
    return buffer
