"""All measures of richness of a head, from arrays that are at hand: one kernel serves them all.

    found = head_richness(features, outputs, labels=labels, weight=head.weight, memory=2 * 10**9)
    found.d_lr.value, found.d_lr.low, found.d_lr.high
    found.nc1.value, found.nc1.reason            # a measure without a value says why
    for name in MEASURES: getattr(found, name)   # all of them

The numbers are those of `d_lr_interval`, `effective_dimension`, `initial_kernel_alignment`, `squared_parameter_norm`
and `neural_collapse`, at a fraction of the time: the products of the features are made once, on their smaller side.
Results hold plain numbers and words only, so they can be stored and sent as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor, nn

from undertow.errors import BadData
from undertow.features.head import layer_called
from undertow.features.stopping import evaluating
from undertow.richness.alignment import low_rank_of, read_head
from undertow.richness.collapse import Collapse, neural_collapse
from undertow.richness.dimension import dimension_of
from undertow.richness.intervals import GROUPS, drawn_groups, jackknifed, values_without
from undertow.richness.kernel import Kernel
from undertow.richness.rows import Array, class_numbers, same_count
from undertow.richness.similarity import KnownKernel, cka_of, squared_parameter_norm


@dataclass(frozen=True)
class Measured:
    """A measure and, for D_LR, its 95 % interval; what is None is explained by the reason."""

    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str = ""  # why there is no value or no interval, or what to know of the value


_NO_LABELS = Measured(None, reason="no labels were given")


@dataclass(frozen=True)
class HeadRichness:
    """How rich the features are that enter a head; `MEASURES` names the fields that are measures."""

    count: int  # samples
    dim: int  # features
    rank: int | None  # dimension of the learned functions' span
    d_lr: Measured
    effective_dimension: Measured
    effective_dimension_rest: Measured  # the first (constant) direction counts as one
    squared_parameter_norm: Measured
    initial_kernel_alignment: Measured = Measured(None, reason="no features from before training were given")
    nc1: Measured = _NO_LABELS
    nc1_stabilised: Measured = _NO_LABELS
    trace_within: Measured = _NO_LABELS
    nc2_etf: Measured = _NO_LABELS
    nc3: Measured = _NO_LABELS
    nc4: Measured = _NO_LABELS
    notes: tuple[str, ...] = ()  # what a reader should know of all of it
    layer: str = ""  # where a network was measured; empty for arrays
    linear_view: bool = False  # whether that layer is another than the last


COLLAPSE = ("nc1", "nc1_stabilised", "trace_within", "nc2_etf", "nc3", "nc4")
MEASURES = (
    "d_lr", "effective_dimension", "effective_dimension_rest", "squared_parameter_norm", "initial_kernel_alignment",
    *COLLAPSE,
)  # fmt: skip


def head_richness(
    features: Array,
    outputs: Array,
    *,
    labels: Array | None = None,
    weight: Array | None = None,
    classes: int = 0,
    initial: Array | KnownKernel | None = None,
    model: nn.Module | float | None = None,
    memory: int = 2 * 10**9,
    seed: int = 0,
) -> HeadRichness:
    """Every measure of the features (N, P) that enter a linear head and the outputs (N, C) that leave it.

    Args:
        features: of the same samples as the outputs; more samples than features are wanted.
        outputs: before any softmax.
        labels: class numbers (N,), for neural collapse.
        weight: of the head (C, P), for `nc3`.
        classes: how many; 0 for one more than the largest label.
        initial: features of the same samples before training, for `initial_kernel_alignment`; for many calls
            `KnownKernel.of(features)`, made once.
        model: the network, or its squared parameter norm where that is known.
        memory: bytes; D_LR has no interval where that would take more than half of them.
        seed: of the draw of the interval's groups.

    Raises:
        BadData: features or outputs that are not finite, or not of the same samples.
    """
    rows, outs = read_head(features, outputs, "head_richness")
    kernel = Kernel.of(rows, outs)
    found = kernel_richness(kernel, model)
    if found.d_lr.value is not None:
        found = replace(found, d_lr=_with_interval(found.d_lr.value, kernel, rows, outs, memory, seed))
    if initial is not None:
        before = (
            initial if isinstance(initial, KnownKernel) else KnownKernel.of(initial, "head_richness, initial")
        )
        same_count("head_richness", rows, before.rows)
        alignment = _measured(lambda: cka_of(KnownKernel(rows, kernel), before))
        found = replace(found, initial_kernel_alignment=alignment)
    if labels is None:
        return found
    numbers = class_numbers(labels, "head_richness, labels")
    classes = classes or int(numbers.max()) + 1
    compute = lambda own: neural_collapse(rows, numbers, own, classes, outs)  # noqa: E731
    return replace(found, **collapse_measures(compute, weight, (classes, rows.shape[1])))


def kernel_richness(kernel: Kernel, model: nn.Module | float | None) -> HeadRichness:
    """What follows from the products of features with outputs, and the parameters."""
    low = None
    try:
        low = low_rank_of(kernel)
        d_lr = Measured(low.value, reason="no interval: it needs the samples")
    except BadData as reason:
        d_lr = Measured(None, reason=str(reason))
    eigenvalues = kernel.eigenvalues()
    return HeadRichness(
        count=kernel.count,
        dim=len(kernel.mean),
        rank=low and low.rank,
        d_lr=d_lr,
        effective_dimension=_measured(lambda: dimension_of(eigenvalues, False)),
        effective_dimension_rest=_measured(lambda: dimension_of(eigenvalues, True)),
        squared_parameter_norm=_squared_norm(model),
        notes=(low.note,) if low and low.note else (),
    )


def collapse_measures(
    compute: Callable[[Array | None], Collapse], weight: Array | None, shape: tuple[int, int]
) -> dict[str, Measured]:
    """By name, of what `compute` gives for the weights; for None if they are not of `shape`, a row for each class."""
    own = weight if weight is not None and tuple(weight.shape) == shape else None
    try:
        told = compute(own)
    except BadData as reason:
        return dict.fromkeys(COLLAPSE, Measured(None, reason=str(reason)))
    found = {name: Measured(getattr(told, name), reason=told.note) for name in COLLAPSE}
    if own is None:
        found["nc3"] = Measured(None, reason=f"no nc3: it needs weights {shape}, a row for each class")
    return found


def interval_bytes(count: int, dim: int, outputs: int) -> int:
    """What the interval of D_LR takes: the products, a group of rows with its own, and all groups' with outputs."""
    side, group = min(count, dim), count // GROUPS + 2
    return 8 * (side**2 + group * (dim + side) + 3 * GROUPS * dim * outputs)


def _with_interval(
    value: float, kernel: Kernel, rows: Tensor, outputs: Tensor, memory: int, seed: int
) -> Measured:
    if interval_bytes(len(rows), rows.shape[1], outputs.shape[1]) > memory // 2:
        return Measured(value, reason="no interval: its moments do not fit into the memory")
    try:
        groups = drawn_groups(len(rows), GROUPS, seed)
        found = jackknifed(value, values_without(kernel, rows, outputs, groups))
    except BadData as reason:
        return Measured(value, reason=str(reason))
    return Measured(value, found.low, found.high)


def _squared_norm(model: nn.Module | float | None) -> Measured:
    if model is None:
        return Measured(None, reason="no model was given")
    if isinstance(model, nn.Module):
        return _measured(lambda: squared_parameter_norm(model))
    diverged = Measured(None, reason=f"the squared parameter norm is {model}: the network has diverged")
    return Measured(float(model)) if math.isfinite(model) else diverged


def _measured(compute: Callable[[], float]) -> Measured:
    try:
        return Measured(compute())
    except BadData as reason:
        return Measured(None, reason=str(reason))


@torch.no_grad()
def head_weight(model: nn.Module, name: str) -> Tensor:
    """The weight of the linear layer called `name`; where it is computed from others (weight norm), as it acts."""
    head = layer_called(model, name)
    with evaluating(head):  # in training, to read a spectral norm's weight moves its estimate
        return cast("Tensor", head.weight).detach()
