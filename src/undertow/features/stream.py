"""Features batch by batch: never all of them in memory.

    for rows, outputs, features in stream_features(model, x, ["layer2", "layer3"], prepare=scale):
        ...                                  # rows: slice of x; features["layer2"]: (len, D)

Between two batches the model is as it was: its mode is changed only while a batch is computed, so a
stream that is left half read leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from undertow.data.plain import tensor_kind
from undertow.data.streamed import SampleStream
from undertow.errors import BadData, BadValue
from undertow.features.tap import (
    ConvRule,
    Inputs,
    Tap,
    TokenRule,
    check_inputs,
    device_of,
    main_tensor,
    share_memory,
    to_device,
)


class Batch(NamedTuple):
    """One step of a stream."""

    rows: slice  # of the samples
    outputs: Tensor  # (len, K), the network's own: logits, or the main tensor of what it answers
    features: dict[str, Tensor]  # layer name -> (len, D)


def stream_features(
    model: nn.Module,
    x: Inputs,
    layers: str | Iterable[str],
    *,
    batch_size: int = 512,
    device: torch.device | str | None = None,
    prepare: Callable[[Tensor], Tensor] | None = None,
    call: Literal["last"] | int = "last",
    conv: ConvRule = "flatten",
    tokens: TokenRule = "mean",
    within: slice | None = None,
) -> Generator[Batch]:
    """Outputs and features of `x` in order, one batch at a time.

    Args:
        model: any module (see `Tap`); it computes where its parameters lie.
        x: samples as one tensor, or a dict or tuple of tensors of one length (keyword or positional
            arguments of the model; what is no tensor is passed on as it is).
        layers: names, patterns, `auto` or `input` (see `resolve_layers`).
        batch_size: samples per forward pass.
        device: where outputs and features are put; None leaves them where they were computed.
        prepare: turns samples (already on the model's device) into inputs, for example uint8 pixels
            into floats; only where `x` is one tensor.
        call: see `Tap`.
        conv: see `Tap`.
        tokens: see `Tap`.
        within: only these samples, from one number to another.
    """
    if batch_size < 1:
        raise BadValue("batch_size", "1 or more", batch_size)
    if prepare is not None and not isinstance(x, Tensor | SampleStream):
        raise BadValue("prepare", "samples in one tensor", type(x).__name__, "Prepare the parts beforehand.")
    tap, count = Tap(model, layers, call=call, conv=conv, tokens=tokens), count_samples(x)
    for rows, part in _batches(x, within or slice(0, count), batch_size):
        batch = to_device(part, device_of(tap.model))
        if prepare is not None and isinstance(batch, Tensor):
            batch = prepare(batch)
        # Scaled pixels are new tensors already; a batch that is a view of the samples is copied.
        spare = isinstance(batch, Tensor) and isinstance(part, Tensor) and not share_memory(batch, part)
        with tap:
            output, features = tap(batch, spare=spare)
        outputs = answers_of(tap.model, output, len(main_tensor(batch)))
        if device is not None:
            outputs, features = outputs.to(device), {name: rows.to(device) for name, rows in features.items()}
        yield Batch(rows, outputs, features)


def answers_of(model: nn.Module, output: Any, count: int) -> Tensor:
    """The tensor that a model's output for `count` samples is about: dense floats, a row for each.

    Raises:
        BadData: it is none.
    """
    found, who = main_tensor(output).detach(), type(model).__name__
    kind = tensor_kind(found)
    if kind or not found.is_floating_point():
        raise BadData(
            f"{who}: wanted answers as a dense tensor of floats, got {f'a {kind} one' if kind else found.dtype}. "
            "Give a model that returns its scores."
        )
    if not found.ndim or len(found) != count or not found.numel():
        raise BadData(
            f"{who}: wanted answers for each sample, a tensor of shape ({count}, ...), got {tuple(found.shape)}."
        )
    return found


def _batches(x: Inputs, within: slice, size: int) -> Iterator[tuple[slice, Inputs]]:
    """The samples from one number to another, some at a time."""
    if isinstance(x, SampleStream):
        at = within.start
        for part in x.batches(size, within):
            stop = at + count_samples(part)
            yield slice(at, stop), part
            at = stop
        return
    for start in range(within.start, within.stop, size):
        rows = slice(start, min(start + size, within.stop))
        yield rows, rows_of(x, rows)


def count_samples(x: Inputs) -> int:
    """How many samples `x` holds; its tensors must agree."""
    check_inputs(x, "samples")
    if isinstance(x, Tensor | SampleStream):
        counts = {0 if isinstance(x, Tensor) and not x.ndim else len(x)}
    else:
        parts = x.values() if isinstance(x, Mapping) else x
        counts = {len(part) for part in parts if isinstance(part, Tensor) and part.ndim}
    if len(counts) != 1 or counts == {0}:
        lengths = (
            ", ".join(f"{key} {len(part)}" for key, part in x.items() if isinstance(part, Tensor))
            if isinstance(x, Mapping)
            else ""
        )
        raise BadData(
            f"samples: wanted tensors of one length, at least 1, got {lengths or sorted(counts) or 'no tensors'}."
        )
    return counts.pop()


def rows_of(x: Inputs, rows: slice) -> Inputs:
    """Some samples of the inputs; what is no tensor stays as it is."""
    if isinstance(x, SampleStream):
        return x.take(torch.arange(*rows.indices(len(x))))
    if isinstance(x, Tensor):
        return x[rows]
    if isinstance(x, Mapping):
        return {key: value[rows] if isinstance(value, Tensor) else value for key, value in x.items()}
    return tuple(value[rows] if isinstance(value, Tensor) else value for value in x)
