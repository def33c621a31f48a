"""D_LR while training, from the batches that the loop runs anyway.

    with RichnessTracker(model) as tracker:
        for epoch in range(epochs):
            train_one_epoch(model, loader)
            print(tracker.compute().value)       # over 25 of the last 100 batches

No pass is added: a hook on the last linear layer keeps what enters and leaves it. Only batches in training
mode count, so features are what training saw: with dropout, if the model has it, and from weights that have
moved within the window. Tokens count each, padding too: the last layer does not see the mask. For a number at fixed
weights and without padding use `measure_richness`.

Not every batch is kept, but by default one in four: keeping one costs two copies, 2 to 3 % of a step of a small
network (MLP 256-256-256, batch 64), one in four about 1 % (bench/richness.py). All else happens in `compute`.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from undertow.errors import BadData, BadValue
from undertow.features.head import as_rows, entering, last_layer, layer_called
from undertow.richness.alignment import LowRank, low_rank


class RichnessTracker:
    """A context manager around training; `compute()` gives D_LR over the last batches."""

    def __init__(
        self, model: nn.Module, *, head: str | None = None, window: int = 25, every: int = 4
    ) -> None:
        """Choose the layer; the model is not touched before the block is entered.

        Args:
            model: any module; compiled code does not see hooks, so track the module before compiling it.
            head: the last linear layer's name, where `last_layer` does not find the right one.
            window: how many of the kept batches count; together more samples than features are wanted.
            every: keep one batch in so many.
        """
        if min(window, every) < 1:
            raise BadValue("RichnessTracker", "window and every of 1 or more", (window, every))
        self.head = last_layer(model) if head is None else head
        self.window, self.every = window, every
        self.batches = 0  # that were seen in training mode, kept or not
        self._layer = layer_called(model, self.head)
        self._kept: list[tuple[Tensor, Tensor]] = []  # a ring: the oldest is written over
        self._next = 0
        self._handle: RemovableHandle | None = None

    def __enter__(self) -> Self:
        if self._handle is not None:
            raise BadValue(
                "RichnessTracker", "to be entered once at a time", "a tracker that is open already"
            )

        def keep(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            if module.training:
                self.batches += 1
                if self.batches % self.every == 0:
                    self._keep(entering(self.head, args, kwargs), output)

        self._handle = self._layer.register_forward_hook(keep, with_kwargs=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def compute(self) -> LowRank:
        """D_LR over the batches in the window; its note says how many samples that was, if too few."""
        if not self._kept:
            raise BadData(
                f"RichnessTracker: wanted batches in training mode through layer {self.head!r}, got none. "
                "Train inside the block; compiled code does not see hooks."
            )
        features, outputs = (
            torch.cat([as_rows(part) for part in parts]) for parts in zip(*self._kept, strict=True)
        )
        return low_rank(features, outputs)

    def reset(self) -> None:
        """Forget the batches of the window, for example when the data changes."""
        self._kept, self._next = [], 0

    def _keep(self, *pair: Tensor) -> None:
        # Copies, since a layer may change what entered it in place; into memory that is there already, since
        # new memory for each batch cost three times the copying.
        features, outputs = (part.detach() for part in pair)
        at = self._next
        self._next = (at + 1) % self.window
        if at == len(self._kept):
            self._kept.append((features.clone(), outputs.clone()))
        elif (kept := self._kept[at])[0].shape == features.shape and kept[0].dtype == features.dtype:
            kept[0].copy_(features)
            kept[1].copy_(outputs)
        else:
            self._kept[at] = features.clone(), outputs.clone()
