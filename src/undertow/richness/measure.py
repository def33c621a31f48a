"""All measures of richness of a network, from one pass over the samples.

    found = measure_richness(model, x, y, prepare=scale)       # y is optional: for neural collapse
    found.d_lr, found.effective_dimension, found.parameter_norm
    found.collapse.nc1
    measure_richness(model, x, layer="layer2").linear_view     # True: another layer than the last

Features are what enters the last linear layer, outputs what leaves it. For any other layer features are its
own output, flattened, set against the network's outputs: a linear view, because between that layer and the
outputs lies more than one linear map. A measure without a value is None, and `notes` says why.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from undertow.errors import BadData, BadValue
from undertow.features.layers import INPUT, resolve_layers
from undertow.features.moments import Moments, MomentsAccumulator
from undertow.features.stream import stream_features
from undertow.features.tap import Inputs
from undertow.richness.alignment import low_rank_from_moments
from undertow.richness.collapse import Collapse, neural_collapse_from_moments
from undertow.richness.dimension import effective_dimension_from_moments
from undertow.richness.head import Calls, as_rows, last_layer, layer_called, watch_layer
from undertow.richness.rows import Array, class_numbers
from undertow.richness.similarity import parameter_norm

T = TypeVar("T")
Pair = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Richness:
    """How rich a network's features are; None where a measure has no value, with the reason in `notes`."""

    layer: str
    linear_view: bool  # whether the layer is another than the last
    d_lr: float | None
    rank: int | None  # dimension of the learned functions' span
    effective_dimension: float | None
    effective_dimension_rest: float | None  # eq. 9: the first (constant) direction counts as one
    collapse: Collapse | None  # with labels only
    parameter_norm: float
    count: int
    dim: int
    notes: tuple[str, ...]


def measure_richness(
    model: nn.Module,
    x: Inputs,
    y: Array | None = None,
    *,
    layer: str | None = None,
    prepare: Callable[[Tensor], Tensor] | None = None,
    batch_size: int = 512,
) -> Richness:
    """D_LR, effective dimension, parameter norm and (with labels) neural collapse, from one pass.

    The model runs in evaluation mode and is left as it was. Memory: one (P, P) matrix, with labels one for
    each class, and a batch.

    Args:
        model: any module (see `Tap`).
        x: samples (see `stream_features`).
        y: class numbers (N,), each class with samples.
        layer: None for the last linear layer; any other is a linear view.
        prepare: see `stream_features`.
        batch_size: samples per forward pass.
    """
    head = last_layer(model)
    name = head if layer is None else _single(model, layer)
    notes: list[str] = []
    labels = None if y is None else class_numbers(y, "measure_richness, labels")
    if labels is not None and not len(labels):
        raise BadData("measure_richness: wanted labels, got none.")
    stream = _entering_head if name == head else _leaving_layer
    with closing(stream(model, x, name, notes, prepare=prepare, batch_size=batch_size)) as pairs:
        moments = _gather(pairs, labels, name)
    weights = layer_called(model, head).weight if name == head else None
    return _richness(model, moments, name, name != head, labels is not None, weights, notes)


def _gather(pairs: Generator[Pair], labels: Tensor | None, name: str) -> Moments:
    """Moments of all features and outputs; without labels all are of one class."""
    seen: MomentsAccumulator | None = None
    classes = 1 if labels is None else int(labels.max()) + 1
    rows = 0
    for features, outputs in pairs:
        if seen is None:
            seen = MomentsAccumulator(
                features.shape[1], classes, outputs.shape[1], precise=True, device=features.device,
                where=f"layer {name!r}",
            )  # fmt: skip
        own = (
            torch.zeros(len(features), dtype=torch.int64)
            if labels is None
            else labels[rows:][: len(features)]
        )
        rows += len(features)
        if len(own) == len(features):
            seen.update(features, own, outputs)
    if seen is None or (labels is not None and rows != len(labels)):
        got = 0 if labels is None else len(labels)
        raise BadData(
            f"measure_richness: wanted {rows} labels, one for each row that enters the layer, got {got}."
        )
    return seen.compute()


def _entering_head(
    model: nn.Module, x: Inputs, name: str, notes: list[str], **options: Any
) -> Generator[Pair]:
    """What enters and leaves the last layer, batch by batch."""
    with watch_layer(model, name) as calls:
        for batch in stream_features(model, x, INPUT, **options):
            yield _taken(calls, name, batch.outputs, notes)
            calls.clear()


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
    return on_float64_device(as_rows(features)), on_float64_device(as_rows(left))


def _leaving_layer(
    model: nn.Module, x: Inputs, name: str, notes: list[str], **options: Any
) -> Generator[Pair]:
    """What leaves another layer, flattened, and the network's outputs."""
    _note(notes, f"layer {name!r} is not the last linear layer: a linear view only")
    for _, outputs, features in stream_features(model, x, name, tokens="flatten", **options):
        yield on_float64_device(features[name]), on_float64_device(outputs.reshape(len(outputs), -1))


def on_float64_device(tensor: Tensor) -> Tensor:
    """The tensor where float64 sums can be made: mps has no float64."""
    return tensor.cpu() if tensor.device.type == "mps" else tensor


def _richness(
    model: nn.Module, moments: Moments, name: str, linear_view: bool, labelled: bool, weights: Any, notes: list[str]
) -> Richness:  # fmt: skip
    low = _or_note(lambda: low_rank_from_moments(moments), notes)
    if low is not None and low.note:
        _note(notes, low.note)
    fits = weights is not None and weights.shape == moments.means.shape
    collapse = (
        _or_note(lambda: neural_collapse_from_moments(moments, weights if fits else None), notes)
        if labelled
        else None
    )
    return Richness(
        layer=name,
        linear_view=linear_view,
        d_lr=None if low is None else low.value,
        rank=None if low is None else low.rank,
        effective_dimension=_or_note(lambda: effective_dimension_from_moments(moments), notes),
        effective_dimension_rest=_or_note(lambda: effective_dimension_from_moments(moments, True), notes),
        collapse=collapse,
        parameter_norm=parameter_norm(model),
        count=moments.count,
        dim=moments.dim,
        notes=tuple(notes),
    )


def _or_note(compute: Callable[[], T], notes: list[str]) -> T | None:
    """What `compute` gives; None where the data has no such measure, with the reason noted."""
    try:
        return compute()
    except BadData as reason:
        _note(notes, str(reason))
        return None


def _note(notes: list[str], text: str) -> None:
    if text not in notes:
        notes.append(text)


def _single(model: nn.Module, layer: str) -> str:
    names = resolve_layers(model, layer)
    if len(names) != 1:
        raise BadValue("measure_richness(layer=...)", "one layer", layer, f"It means {', '.join(names)}.")
    return names[0]
