"""D_LR and neural collapse batch by batch, merged across batches, processes and machines.

    metric = DLR()
    for x, _ in loader:
        metric.update(features, outputs)     # (N, P), (N, C) of the batch
    metric.compute().value                   # also in between: more batches may follow
    metric.merge(from_elsewhere)             # or metric.over_processes() under torch.distributed
    metric.reset()

    metric = NeuralCollapse(classes=10, sizes=labels.bincount())
    metric.update(features, labels)
    metric.compute(weights=head.weight).nc1

State is one (P, P) matrix, for neural collapse also (C, P) class means, plus at most a block of rows that
wait; never the samples. Sums are float64, and products too unless `precise` is False.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, Self, TypeVar

import torch
from torch import distributed

from undertow.errors import BadData, BadValue
from undertow.features.moments import Moments, MomentsAccumulator
from undertow.features.processes import reduce_over_processes
from undertow.richness.alignment import LowRank, low_rank_from_moments
from undertow.richness.collapse import Collapse, neural_collapse_from_moments
from undertow.richness.pooled import Pooled, PooledAccumulator, pooled_over_processes
from undertow.richness.rows import Array, as_tensor, class_numbers, float_rows

V = TypeVar("V", Moments, Pooled)


class _Streaming(ABC, Generic[V]):
    """Statistics that grow; what is gathered and computed is the subclass's affair."""

    def __init__(self) -> None:
        self._merged: V | None = None
        self.count = 0  # samples seen

    def moments(self) -> V:
        """All that was seen, as a value."""
        found = self._merged_all()
        if found is None:
            raise BadData(
                f"{type(self).__name__}: wanted samples to compute from, got none. Update it first."
            )
        return found

    def merge(self, other: Self) -> Self:
        """Take in all that `other` has seen, which stays as it is; an empty one changes nothing."""
        if type(other) is not type(self):
            raise BadValue(f"{type(self).__name__}.merge", "one of its own kind", type(other).__name__)
        if other.count:
            # Other sizes are refused here, before anything has changed.
            self._become(_together(self._merged_all(), other.moments()))
        return self

    def reset(self) -> None:
        """Forget everything."""
        self._become(None)

    def over_processes(self, group: Any = None) -> Self:
        """Take in what all processes of `group` have seen: afterwards each has the whole.

        Every process must call it, also one that has seen nothing.
        """
        if distributed.is_available() and distributed.is_initialized():
            own = self._merged_all()
            shapes: list[Any] = [None] * distributed.get_world_size(group)
            distributed.all_gather_object(shapes, None if own is None else _shape(own), group)
            known = [shape for shape in shapes if shape is not None]
            if known:
                self._become(self._reduced(own, known[0], group))
        return self

    @abstractmethod
    def _own(self) -> V | None:
        """What was gathered since the last merge."""

    @abstractmethod
    def _gather_anew(self) -> None:
        """Forget what was gathered since the last merge."""

    @abstractmethod
    def _reduced(self, own: V | None, shape: tuple[int, int], group: Any) -> V:
        """What all processes have seen; `shape` is (dim, outputs) of those that have seen anything."""

    def _merged_all(self) -> V | None:
        return _together(self._merged, self._own())

    def _become(self, value: V | None) -> None:
        self._merged, self.count = value, 0 if value is None else value.count
        self._gather_anew()


class DLR(_Streaming[Moments]):
    """D_LR of everything seen; `compute()` gives a `LowRank`."""

    def __init__(self, projection: bool = True, *, precise: bool = True) -> None:
        """Start without samples.

        Args:
            projection: see `d_lr`.
            precise: multiply in float64; False multiplies float32 features in float32.
        """
        super().__init__()
        self.projection, self._precise = projection, precise
        self._seen: MomentsAccumulator | None = None

    def update(self, features: Array, outputs: Array) -> None:
        """Take in features (N, P) and outputs (N, C) of the same samples."""
        rows, outs = float_rows(features, "DLR, features"), float_rows(outputs, "DLR, outputs")
        if self._seen is None:
            self._seen = MomentsAccumulator(
                rows.shape[1], 1, outs.shape[1], precise=self._precise, device=rows.device, where="DLR"
            )
        self._seen.update(rows, torch.zeros(len(rows), dtype=torch.int64, device=rows.device), outs)
        self.count += len(rows)

    def compute(self) -> LowRank:
        """D_LR of all samples so far."""
        return low_rank_from_moments(self.moments(), self.projection)

    def _own(self) -> Moments | None:
        return None if self._seen is None else self._seen.compute()

    def _gather_anew(self) -> None:
        self._seen = None

    def _reduced(self, own: Moments | None, shape: tuple[int, int], group: Any) -> Moments:
        return reduce_over_processes(own or Moments.empty(shape[0], 1, shape[1]), group)


class NeuralCollapse(_Streaming[Pooled]):
    """Neural collapse of everything seen; `compute()` gives a `Collapse`."""

    def __init__(self, classes: int, sizes: Array | None = None, *, precise: bool = True) -> None:
        """Start without samples.

        Args:
            classes: how many.
            sizes: samples of each class (C,), or shares, so that each class counts the same. Without, a sample
                of a large class counts as much as one of a small class, and the result's note says so.
            precise: multiply in float64; False multiplies float32 features in float32.
        """
        if classes < 2:
            raise BadValue("NeuralCollapse", "two classes or more", classes)
        super().__init__()
        self._classes, self._precise = classes, precise
        self._seen: PooledAccumulator | None = None
        self._sizes = None if sizes is None else as_tensor(sizes)
        self._start(1, "cpu")  # sizes that do not fit are refused here

    def update(self, features: Array, labels: Array) -> None:
        """Take in features (N, P) and their class numbers (N,)."""
        rows = float_rows(features, "NeuralCollapse, features")
        numbers = class_numbers(labels, "NeuralCollapse, labels")
        if self._seen is None:
            self._seen = self._start(rows.shape[1], rows.device)
        self._seen.update(rows, numbers)
        self.count += len(rows)

    def compute(self, weights: Array | None = None) -> Collapse:
        """The measures over all samples so far; `weights` (C, P) of the last layer are for `nc3`."""
        return neural_collapse_from_moments(self.moments(), weights)

    def _own(self) -> Pooled | None:
        return None if self._seen is None else self._seen.compute()

    def _gather_anew(self) -> None:
        self._seen = None

    def _start(self, dim: int, device: torch.device | str) -> PooledAccumulator:
        return PooledAccumulator(
            dim, self._classes, self._sizes, precise=self._precise, device=device, where="NeuralCollapse"
        )

    def _reduced(self, own: Pooled | None, shape: tuple[int, int], group: Any) -> Pooled:
        return pooled_over_processes(own or self._start(shape[0], "cpu").compute(), group)


def _shape(value: Moments | Pooled) -> tuple[int, int]:
    return value.means.shape[1], value.outputs if isinstance(value, Moments) else 0


def _together(first: V | None, second: V | None) -> V | None:
    if first is None or second is None:
        return first if second is None else second
    return first.merge(second)
