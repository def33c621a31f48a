"""Placeholder until the fast one is merged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from undertow.errors import BadData
from undertow.richness.alignment import d_lr
from undertow.richness.collapse import neural_collapse
from undertow.richness.dimension import effective_dimension
from undertow.richness.intervals import GROUPS, d_lr_interval
from undertow.richness.similarity import initial_kernel_alignment, squared_parameter_norm


@dataclass(frozen=True)
class Measured:
    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class HeadRichness:
    d_lr: Measured
    effective_dimension: Measured
    effective_dimension_rest: Measured
    squared_parameter_norm: Measured | None = None
    initial_kernel_alignment: Measured | None = None
    nc1: Measured | None = None
    nc1_stabilised: Measured | None = None
    trace_within: Measured | None = None
    nc2_etf: Measured | None = None
    nc3: Measured | None = None
    nc4: Measured | None = None


def _one(f: Any) -> Measured:
    try:
        return Measured(float(f()))
    except BadData as e:
        return Measured(None, reason=str(e))


def head_richness(
    features: Tensor,
    outputs: Tensor,
    *,
    labels=None,
    weight=None,
    classes=0,
    initial=None,
    model=None,
    memory: int,
    seed=0,
) -> HeadRichness:
    note = "no interval: its moments do not fit into the memory"
    dl = None
    if GROUPS * features.shape[1] ** 2 * 8 <= memory // 2:
        try:
            f = d_lr_interval(features, outputs, seed=seed)
            dl = Measured(f.value, f.low, f.high)
        except BadData as e:
            note = str(e)
    if dl is None:
        try:
            dl = Measured(d_lr(features, outputs), reason=note)
        except BadData as e:
            dl = Measured(None, reason=str(e))
    more = {}
    if labels is not None:
        try:
            c = neural_collapse(features, labels, weight, classes, outputs)
            for m in ("nc1", "nc1_stabilised", "trace_within", "nc2_etf", "nc3", "nc4"):
                v = getattr(c, m)
                more[m] = Measured(None if v is None else float(v), reason=c.note)
        except BadData as e:
            more["nc1"] = Measured(None, reason=str(e))
    return HeadRichness(
        dl,
        _one(lambda: effective_dimension(features)),
        _one(lambda: effective_dimension(features, True)),
        _one(lambda: squared_parameter_norm(model)) if model is not None else None,
        _one(lambda: initial_kernel_alignment(initial, features)) if initial is not None else None,
        **more,
    )
