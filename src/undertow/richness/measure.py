"""All measures of richness of a network, from one pass over the samples.

    found = measure_richness(model, x, y, prepare=scale)       # y is optional: for neural collapse
    found.d_lr.value, found.d_lr.low, found.d_lr.high          # a `HeadRichness`: see head_richness.py
    found.nc1.value, found.effective_dimension.value
    measure_richness(model, x, layer="layer2").linear_view     # True: another layer than the last

Features are what enters the last linear layer, outputs what leaves it. For any other layer features are its
own output, flattened, set against the network's outputs: a linear view, because between that layer and the
outputs lies more than one linear map.

Features are kept while they fit into half of the memory. Where they do not, their moments are gathered on the way:
the same numbers, but no interval and no nc4, which need the samples.

Tokens: where (N, L, P) enters the last layer each token is a row. Padding is no row: with an attention_mask (N, L)
among dict inputs, tokens where it is 0 are left out, and labels are those of the tokens that stay, y[mask != 0].
A linear view of masked inputs takes the mean of a layer's tokens that stay.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from undertow.errors import BadData, BadValue
from undertow.features.head import Calls, as_rows, last_layer, watch_layer
from undertow.features.layers import INPUT, resolve_layers
from undertow.features.moments import check_rows
from undertow.features.stream import stream_features
from undertow.features.tap import Inputs
from undertow.richness.head_richness import (
    HeadRichness,
    collapse_measures,
    head_richness,
    head_weight,
    kernel_richness,
)
from undertow.richness.rows import Array, class_numbers
from undertow.richness.streaming import DLR, NeuralCollapse
from undertow.sizes import parse_size

Pair = tuple[Tensor, Tensor]


def measure_richness(
    model: nn.Module,
    x: Inputs,
    y: Array | None = None,
    *,
    layer: str | None = None,
    prepare: Callable[[Tensor], Tensor] | None = None,
    batch_size: int = 512,
    memory: str | int = "2GB",
) -> HeadRichness:
    """All measures of `head_richness` but the initial alignment, from one pass.

    The model runs in evaluation mode and is left as it was.

    Args:
        model: any module (see `Tap`).
        x: samples (see `stream_features`).
        y: class numbers (N,), each class with samples; for tokens one for each that is no padding.
        layer: None for the last linear layer; any other is a linear view.
        prepare: see `stream_features`.
        batch_size: samples per forward pass.
        memory: how much features and their products may take.
    """
    head = last_layer(model)
    name = head if layer is None else _single(model, layer)
    notes: list[str] = []
    labels = None if y is None else class_numbers(y, "measure_richness, labels")
    if labels is not None and not len(labels):
        raise BadData("measure_richness: wanted labels, got none.")
    stream = _entering_head if name == head else _leaving_layer
    gatherer = _Gatherer(f"layer {name!r}", labels, parse_size(memory))
    with closing(stream(model, x, name, notes, prepare=prepare, batch_size=batch_size)) as pairs:
        for pair in pairs:
            gatherer.update(*pair)
    weight = head_weight(model, head) if name == head else None
    found = gatherer.richness(model, weight)
    return replace(found, notes=(*notes, *found.notes), layer=name, linear_view=name != head)


class _Gatherer:
    """Keeps the features of a pass, or their moments once they do not fit into half of the memory."""

    def __init__(self, where: str, labels: Tensor | None, memory: int) -> None:
        self.where, self.labels, self.room = where, labels, memory // 2
        self.count = 0
        self._kept: list[Pair] = []
        self._low = DLR()
        # A class without samples is refused later, in words; until then any size will do.
        sizes = torch.ones(2) if labels is None else labels.bincount(minlength=2).clamp(min=1)
        self._collapse = NeuralCollapse(len(sizes), sizes)

    def update(self, features: Tensor, outputs: Tensor) -> None:
        """Take in the next rows (N, P) and outputs (N, C)."""
        check_rows(features, self.where)
        self.count += len(features)
        self._kept.append((features, outputs))
        if self._low.count or sum(part.nbytes for pair in self._kept for part in pair) > self.room:
            self._absorb()

    def richness(self, model: nn.Module, weight: Tensor | None) -> HeadRichness:
        """Of all that came; refuses labels that are not as many as the rows."""
        if not self.count or (self.labels is not None and self.count != len(self.labels)):
            got = 0 if self.labels is None else len(self.labels)
            raise BadData(
                f"measure_richness: wanted {self.count} labels, one for each row that enters the layer and is no "
                f"padding, got {got}."
            )
        if not self._low.count:
            features, outputs = (torch.cat(parts) for parts in zip(*self._kept, strict=True))
            return head_richness(
                features, outputs, labels=self.labels, weight=weight, model=model, memory=2 * self.room
            )
        kernel = self._low.kernel()
        found = kernel_richness(kernel, model)
        if self.labels is None:
            return found
        shape = int(self.labels.max()) + 1, len(kernel.mean)
        return replace(found, **collapse_measures(self._collapse.compute, weight, shape))

    def _absorb(self) -> None:
        """Add what is kept to the moments."""
        for features, outputs in self._kept:
            start = self._low.count
            self._low.update(features, outputs)
            if self.labels is not None and self._low.count <= len(self.labels):
                self._collapse.update(features, self.labels[start : self._low.count])
        self._kept = []


def _entering_head(
    model: nn.Module, x: Inputs, name: str, notes: list[str], **options: Any
) -> Generator[Pair]:
    """What enters and leaves the last layer, batch by batch, without padding."""
    mask = _mask_of(x)
    with watch_layer(model, name) as calls:
        for batch in stream_features(model, x, INPUT, **options):
            pair = _taken(calls, name, batch.outputs, notes)
            kept = None if mask is None else _kept(mask[batch.rows], pair[0], name, notes)
            features, outputs = (as_rows(part) if kept is None else part[kept] for part in pair)
            if len(features):
                yield on_float64_device(features), on_float64_device(outputs)
            calls.clear()


def _mask_of(x: Inputs) -> Tensor | None:
    mask = x.get("attention_mask") if isinstance(x, Mapping) else None
    return mask if isinstance(mask, Tensor) and mask.ndim == 2 else None


def _kept(mask: Tensor, features: Tensor, name: str, notes: list[str]) -> Tensor | None:
    """(N, L) which tokens are no padding; None where not tokens enter the layer, or not those of the mask."""
    if features.ndim != 3:
        return None
    if features.shape[:2] != mask.shape:
        got = f"{features.shape[1]} tokens enter layer {name!r}, the attention_mask has {mask.shape[1]}"
        _note(notes, f"{got}: all of them count")
        return None
    return mask.to(features.device) != 0


def _taken(calls: Calls, name: str, outputs: Tensor, notes: list[str]) -> Pair:
    if not calls:
        raise BadValue(
            "measure_richness", "a last linear layer that the forward pass calls", name, "Name another layer."
        )
    features, left = calls[-1]
    if len(calls) > 1:
        _note(notes, f"layer {name!r} runs {len(calls)} times in one pass: the last counts")
    if left.shape != outputs.shape or not torch.equal(left, outputs):
        _note(
            notes, f"the network goes on after layer {name!r}: what leaves that layer counts as its outputs"
        )
    return features, left


def _leaving_layer(
    model: nn.Module, x: Inputs, name: str, notes: list[str], **options: Any
) -> Generator[Pair]:
    """What leaves another layer, flattened (the mean token where inputs are masked), and the network's outputs."""
    _note(notes, f"layer {name!r} is not the last linear layer: a linear view only")
    tokens = "flatten" if _mask_of(x) is None else "mean"
    for _, outputs, features in stream_features(model, x, name, tokens=tokens, **options):
        if tokens == "mean" and outputs.ndim > 2:
            raise BadValue(
                "measure_richness(layer=...)", "one output for each masked sample", f"outputs {tuple(outputs.shape)}",
                "Measure the last layer, or samples of one length without a mask.",
            )  # fmt: skip
        yield on_float64_device(features[name]), on_float64_device(outputs.reshape(len(outputs), -1))


def on_float64_device(tensor: Tensor) -> Tensor:
    """The tensor where float64 sums can be made: mps has no float64."""
    return tensor.cpu() if tensor.device.type == "mps" else tensor


def _note(notes: list[str], text: str) -> None:
    if text not in notes:
        notes.append(text)


def _single(model: nn.Module, layer: str) -> str:
    names = resolve_layers(model, layer)
    if len(names) != 1:
        raise BadValue("measure_richness(layer=...)", "one layer", layer, f"It means {', '.join(names)}.")
    return names[0]
