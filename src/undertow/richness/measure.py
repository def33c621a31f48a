"""All measures of richness of a network, from one pass over the samples.

    found = measure_richness(model, x, y, prepare=scale)       # y is optional: for neural collapse
    found.d_lr, found.effective_dimension, found.squared_parameter_norm
    found.collapse.nc1
    measure_richness(model, x, y, groups=20).intervals["d_lr"] # where it lies for many samples: .low, .high
    measure_richness(model, x, layer="layer2").linear_view     # True: another layer than the last

Features are what enters the last linear layer, outputs what leaves it. For any other layer features are its
own output, flattened, set against the network's outputs: a linear view, because between that layer and the
outputs lies more than one linear map. A measure without a value is None, and `notes` says why.

Tokens: where (N, L, P) enters the last layer each token is a row. Padding is no row: with an attention_mask (N, L)
among dict inputs, tokens where it is 0 are left out, and labels are those of the tokens that stay, y[mask != 0].
A linear view of masked inputs takes the mean of a layer's tokens that stay.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from undertow.errors import BadData, BadValue
from undertow.features.head import Calls, as_rows, last_layer, layer_called, watch_layer
from undertow.features.layers import INPUT, resolve_layers
from undertow.features.stream import stream_features
from undertow.features.tap import Inputs
from undertow.richness.alignment import low_rank_from_moments
from undertow.richness.collapse import Collapse, neural_collapse_from_moments
from undertow.richness.dimension import effective_dimension_from_moments
from undertow.richness.gathering import Gathered, Gatherer, Groups
from undertow.richness.intervals import Interval, Scale, check_groups, interval_of
from undertow.richness.rows import Array, class_numbers
from undertow.richness.similarity import squared_parameter_norm

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
    squared_parameter_norm: float
    count: int
    dim: int
    notes: tuple[str, ...]
    intervals: Mapping[str, Interval] = field(default_factory=dict[str, Interval])
    """By measure: d_lr, effective_dimension, effective_dimension_rest, nc1; empty unless asked for."""


def measure_richness(
    model: nn.Module,
    x: Inputs,
    y: Array | None = None,
    *,
    layer: str | None = None,
    prepare: Callable[[Tensor], Tensor] | None = None,
    batch_size: int = 512,
    groups: int | None = None,
) -> Richness:
    """D_LR, effective dimension, parameter norm and (with labels) neural collapse, from one pass.

    The model runs in evaluation mode and is left as it was. Memory: one (P, P) matrix, with labels a second one
    and the class means, and a batch; with groups that for each of them.

    Args:
        model: any module (see `Tap`).
        x: samples (see `stream_features`).
        y: class numbers (N,), each class with samples; for tokens one for each that is no padding.
        layer: None for the last linear layer; any other is a linear view.
        prepare: see `stream_features`.
        batch_size: samples per forward pass.
        groups: for 95 % intervals, how many groups of samples to leave out in turn: 20 is usual (see
            `d_lr_interval`).
    """
    head = last_layer(model)
    name = head if layer is None else _single(model, layer)
    notes: list[str] = []
    labels = None if y is None else class_numbers(y, "measure_richness, labels")
    if labels is not None and not len(labels):
        raise BadData("measure_richness: wanted labels, got none.")
    stream = _entering_head if name == head else _leaving_layer
    gatherer = Gatherer(f"layer {name!r}", labels, groups or 1)
    with closing(stream(model, x, name, notes, prepare=prepare, batch_size=batch_size)) as pairs:
        for pair in pairs:
            gatherer.update(*pair)
    if groups is not None:
        check_groups(groups, gatherer.count)
    found = gatherer.compute()
    weights = layer_called(model, head).weight if name == head else None
    richness = _richness(model, found.whole, name, name != head, weights, notes)
    return richness if groups is None else _with_intervals(richness, found)


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


def _richness(
    model: nn.Module, of: Gathered, name: str, linear_view: bool, weights: Any, notes: list[str]
) -> Richness:
    low = _or_note(lambda: low_rank_from_moments(of.moments), notes)
    if low is not None and low.note:
        _note(notes, low.note)
    return Richness(
        layer=name,
        linear_view=linear_view,
        d_lr=None if low is None else low.value,
        rank=None if low is None else low.rank,
        effective_dimension=_or_note(lambda: _MEASURES["effective_dimension"][0](of), notes),
        effective_dimension_rest=_or_note(lambda: _MEASURES["effective_dimension_rest"][0](of), notes),
        collapse=None if of.pooled is None else _or_note(lambda: _collapse(of, weights), notes),
        squared_parameter_norm=squared_parameter_norm(model),
        count=of.moments.count,
        dim=of.moments.dim,
        notes=tuple(notes),
    )


def _collapse(of: Gathered, weights: Any = None) -> Collapse:
    if of.pooled is None:
        raise BadData("measure_richness: wanted labels for neural collapse, got none.")
    fits = weights is not None and weights.shape == of.pooled.means.shape
    return neural_collapse_from_moments(of.pooled, weights if fits else None)


_MEASURES: dict[str, tuple[Callable[[Gathered], float], Scale]] = {
    "d_lr": (lambda of: low_rank_from_moments(of.moments).value, "logit"),
    "effective_dimension": (lambda of: effective_dimension_from_moments(of.moments), "log"),
    "effective_dimension_rest": (lambda of: effective_dimension_from_moments(of.moments, True), "log"),
    "nc1": (lambda of: _collapse(of).nc1, "log"),
}
"""What intervals are made of, and on which scale."""


def _with_intervals(richness: Richness, groups: Groups) -> Richness:
    """The same with an interval for each measure that has a value, also without any of the groups."""
    notes = list(richness.notes)
    values = {
        "d_lr": richness.d_lr,
        "effective_dimension": richness.effective_dimension,
        "effective_dimension_rest": richness.effective_dimension_rest,
        "nc1": None if richness.collapse is None else richness.collapse.nc1,
    }
    wanted = {name: value for name, value in values.items() if value is not None}
    without: dict[str, list[float | None]] = {name: [] for name in wanted}
    for rest in groups.without():
        for name, found in without.items():
            found.append(_or_note(partial(_MEASURES[name][0], rest), notes))
    made = {name: _interval(name, value, without[name], notes) for name, value in wanted.items()}
    intervals = {name: interval for name, interval in made.items() if interval is not None}
    return replace(richness, intervals=intervals, notes=tuple(notes))


def _interval(name: str, value: float, without: list[float | None], notes: list[str]) -> Interval | None:
    known = [found for found in without if found is not None]
    if len(known) < len(without):
        return None  # the reason is noted already
    return _or_note(partial(interval_of, value, known, scale=_MEASURES[name][1], level=0.95), notes)


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
