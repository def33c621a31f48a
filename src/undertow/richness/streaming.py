"""D_LR and neural collapse batch by batch, merged across batches, processes and machines.

    metric = DLR()
    for x, _ in loader:
        metric.update(features, outputs)     # (N, P), (N, C) of the batch
    metric.compute().value                   # also in between: more batches may follow
    metric.merge(from_elsewhere)             # or metric.over_processes() under torch.distributed
    metric.reset()

    metric = NeuralCollapse(classes=10)
    metric.update(features, labels)
    metric.compute(weights=head.weight).nc1

State is one (P, P) matrix for D_LR and one per class for neural collapse, plus at most a block of rows that
wait; never the samples. Sums are float64, and products too unless `precise` is False.
"""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor, distributed

from undertow.errors import BadData, BadValue
from undertow.features.moments import Moments, MomentsAccumulator
from undertow.features.processes import reduce_over_processes
from undertow.richness.alignment import LowRank, low_rank_from_moments
from undertow.richness.collapse import Collapse, neural_collapse_from_moments
from undertow.richness.rows import Array, class_numbers, float_rows


class _Streaming:
    """Moments that grow; what is computed from them is the subclass's affair."""

    def __init__(self, classes: int, precise: bool) -> None:
        self._classes, self._precise = classes, precise
        self._seen: MomentsAccumulator | None = None
        self._merged: Moments | None = None
        self.count = 0  # samples seen

    def moments(self) -> Moments:
        """All that was seen, as a value."""
        own = None if self._seen is None else self._seen.compute()
        found = _together(self._merged, own)
        if found is None:
            raise BadData(
                f"{type(self).__name__}: wanted samples to compute from, got none. Update it first."
            )
        return found

    def merge(self, other: Self) -> Self:
        """Take in all that `other` has seen, which stays as it is; an empty one changes nothing."""
        if type(other) is not type(self):
            raise BadValue(f"{type(self).__name__}.merge", "one of its own kind", type(other).__name__)
        if other._seen is not None or other._merged is not None:
            # Through moments(), which refuses other sizes before anything here has changed.
            self._merged, self._seen = _together(self._merged_all(), other.moments()), None
            self.count += other.count
        return self

    def reset(self) -> None:
        """Forget everything."""
        self._seen, self._merged, self.count = None, None, 0

    def over_processes(self, group: Any = None) -> Self:
        """Take in what all processes of `group` have seen: afterwards each has the whole.

        Every process must call it, also one that has seen nothing.
        """
        if distributed.is_available() and distributed.is_initialized():
            own = self._merged_all()
            sizes: list[Any] = [None] * distributed.get_world_size(group)
            mine = None if own is None else (own.dim, own.classes, own.outputs)
            distributed.all_gather_object(sizes, mine, group)
            known = [size for size in sizes if size is not None]
            if known:
                self._merged = reduce_over_processes(own or Moments.empty(*known[0]), group)
                self._seen, self.count = None, self._merged.count
        return self

    def _merged_all(self) -> Moments | None:
        return None if self._seen is None and self._merged is None else self.moments()

    def _take(self, rows: Tensor, labels: Tensor, outputs: Tensor | None) -> None:
        if self._seen is None:
            width, name = 0 if outputs is None else outputs.shape[1], type(self).__name__
            self._seen = MomentsAccumulator(
                rows.shape[1], self._classes, width, precise=self._precise, device=rows.device, where=name
            )
        self._seen.update(rows, labels, outputs)
        self.count += len(rows)


class DLR(_Streaming):
    """D_LR of everything seen; `compute()` gives a `LowRank`."""

    def __init__(self, projection: bool = True, *, precise: bool = True) -> None:
        """Start without samples.

        Args:
            projection: see `d_lr`.
            precise: multiply in float64; False multiplies float32 features in float32.
        """
        super().__init__(1, precise)
        self.projection = projection

    def update(self, features: Array, outputs: Array) -> None:
        """Take in features (N, P) and outputs (N, C) of the same samples."""
        rows, outs = float_rows(features, "DLR, features"), float_rows(outputs, "DLR, outputs")
        self._take(rows, torch.zeros(len(rows), dtype=torch.int64, device=rows.device), outs)

    def compute(self) -> LowRank:
        """D_LR of all samples so far."""
        return low_rank_from_moments(self.moments(), self.projection)


class NeuralCollapse(_Streaming):
    """Neural collapse of everything seen; `compute()` gives a `Collapse`."""

    def __init__(self, classes: int, *, precise: bool = True) -> None:
        """Start without samples.

        Args:
            classes: how many.
            precise: multiply in float64; False multiplies float32 features in float32.
        """
        if classes < 2:
            raise BadValue("NeuralCollapse", "two classes or more", classes)
        super().__init__(classes, precise)

    def update(self, features: Array, labels: Array) -> None:
        """Take in features (N, P) and their class numbers (N,)."""
        rows = float_rows(features, "NeuralCollapse, features")
        self._take(rows, class_numbers(labels, "NeuralCollapse, labels"), None)

    def compute(self, weights: Array | None = None) -> Collapse:
        """The measures over all samples so far; `weights` (C, P) of the last layer are for `nc3`."""
        return neural_collapse_from_moments(self.moments(), weights)


def _together(first: Moments | None, second: Moments | None) -> Moments | None:
    if first is None or second is None:
        return first if second is None else second
    return first.merge(second)
