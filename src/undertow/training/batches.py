"""Batches straight from tensors in memory: no per-sample Python work.

    batches = Batches(samples, scaling="half", batch_size=64, seed=0, device=device)
    for x, y in batches.epoch(7):          # the order of epoch 7, whatever ran before
        ...
    for x, y in batches.in_order(1000):    # for evaluation: unshuffled, not augmented

Inputs are scaled once when the float copy fits into `float_budget` bytes, otherwise batch by batch; both
give the same bits. A last batch of one sample joins the batch before it: batch norm cannot train on one.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from undertow.data.inputs import crop_flip, to_inputs
from undertow.data.samples import Samples
from undertow.training.seeds import stream

FLOAT_BUDGET = 2 * 2**30
"""Bytes that scaled inputs may take; beyond them pixels stay uint8 until their batch is due."""


class Batches:
    """The batches of one split on one device."""

    def __init__(
        self,
        samples: Samples,
        *,
        scaling: str,
        batch_size: int,
        seed: int = 0,
        shuffle: bool = True,
        augment: bool = False,
        device: torch.device | str = "cpu",
        float_budget: int = FLOAT_BUDGET,
    ) -> None:
        self.batch_size, self.seed, self.shuffle, self.augment = batch_size, seed, shuffle, augment
        self.device = torch.device(device)
        # Crops pad with black pixels, so augmentation works on pixels and scaling comes after it.
        fits = samples.tensor.numel() * 4 <= float_budget
        self._scaling = None if fits and not augment else scaling
        x = samples.tensor if self._scaling else to_inputs(samples.tensor, scaling)
        self.x, self.y = x.to(self.device), samples.y.to(self.device)

    def __len__(self) -> int:
        return len(list(self._bounds(self.batch_size)))

    @property
    def count(self) -> int:
        """How many samples there are."""
        return len(self.x)

    def epoch(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The training batches of one epoch."""
        if self.shuffle:
            order = torch.randperm(self.count, generator=stream(self.seed, "order", epoch))
        else:
            order = torch.arange(self.count)
        order = order.to(self.device)
        noise = stream(self.seed, "augment", epoch, self.device)
        for first, last in self._bounds(self.batch_size):
            rows = order[first:last]
            x = self.x[rows]
            yield self._scaled(crop_flip(x, noise) if self.augment else x), self.y[rows]

    def in_order(self, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """All samples as they stand."""
        for first in range(0, self.count, batch_size):
            rows = slice(first, first + batch_size)
            # A copy where nothing is scaled: a forward may change its input in place.
            yield self._scaled(self.x[rows].clone()), self.y[rows]

    def _scaled(self, x: Tensor) -> Tensor:
        return to_inputs(x, self._scaling) if self._scaling else x

    def _bounds(self, size: int) -> Iterator[tuple[int, int]]:
        starts = list(range(0, self.count, size))
        if len(starts) > 1 and self.count - starts[-1] == 1:
            starts.pop()
        yield from zip(starts, [*starts[1:], self.count], strict=True)
