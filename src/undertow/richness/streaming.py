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

State is one (P, P) matrix, for neural collapse also (C, P) class means; never the samples. Sums are float64, and
products too unless `precise` is False.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, Self

import torch
from torch import distributed

from undertow.errors import BadData, BadValue
from undertow.richness.alignment import LowRank, low_rank_of, read_head
from undertow.richness.collapse import ClassMeans, Collapse, Within, collapse_of, joined
from undertow.richness.kernel import Kernel
from undertow.richness.rows import Array, as_tensor, class_numbers, float_rows
from undertow.richness.scatter import ClassScatter, checked_sizes


class _Streaming:
    """A scatter that grows; what is taken in and computed is the subclass's affair."""

    def __init__(self, classes: int, sizes: Array | None, precise: bool) -> None:
        # Sizes that do not fit are refused here.
        self._classes, self._sizes = (
            classes,
            checked_sizes(None if sizes is None else as_tensor(sizes, "NeuralCollapse, sizes"), classes),
        )
        self._precise = precise
        self._seen: ClassScatter | None = None

    @property
    def count(self) -> int:
        """Samples seen."""
        return 0 if self._seen is None else self._seen.count

    def merge(self, other: Self) -> Self:
        """Take in all that `other` has seen, which stays as it is; an empty one changes nothing."""
        if type(other) is not type(self):
            raise BadValue(f"{type(self).__name__}.merge", "one of its own kind", type(other).__name__)
        if other._seen is not None and self._seen is None:
            self._seen = copy.deepcopy(other._seen)
        elif other._seen is not None and self._seen is not None:
            self._seen.merge(other._seen)
        return self

    def reset(self) -> None:
        """Forget everything."""
        self._seen = None

    def over_processes(self, group: Any = None) -> Self:
        """Take in what all processes of `group` have seen: afterwards each has the whole.

        Every process must call it, also one that has seen nothing.
        """
        if distributed.is_available() and distributed.is_initialized():
            shapes: list[Any] = [None] * distributed.get_world_size(group)
            distributed.all_gather_object(
                shapes, self._seen.shape if self._seen and self.count else None, group
            )
            known = [shape for shape in shapes if shape is not None]
            if known:
                dim, outputs = known[0]
                self._started(dim, outputs, "cpu").over_processes(group)
        return self

    def _started(self, dim: int, outputs: int, device: Any) -> ClassScatter:
        """What was seen; nothing, of this shape, at the first call."""
        if self._seen is None or not self.count:
            self._seen = ClassScatter.empty(dim, self._classes, self._sizes, outputs, device)
        return self._seen

    def _known(self) -> ClassScatter:
        if self._seen is None:
            raise BadData(
                f"{type(self).__name__}: wanted samples to compute from, got none. Update it first."
            )
        return self._seen


class DLR(_Streaming):
    """D_LR of everything seen; `compute()` gives a `LowRank`."""

    def __init__(self, projection: bool = True, *, precise: bool = True) -> None:
        """Start without samples.

        Args:
            projection: see `d_lr`.
            precise: multiply in float64; False multiplies float32 features in float32.
        """
        super().__init__(1, None, precise)
        self.projection = projection

    def update(self, features: Array, outputs: Array) -> None:
        """Take in features (N, P) and outputs (N, C) of the same samples."""
        rows, outs = read_head(features, outputs, "DLR")
        one_class = torch.zeros(len(rows), dtype=torch.int64, device=rows.device)
        seen = self._started(rows.shape[1], outs.shape[1], rows.device)
        seen.add(rows, one_class, outs, precise=self._precise, where="DLR")

    def compute(self) -> LowRank:
        """D_LR of all samples so far."""
        return low_rank_of(self.kernel(), self.projection)

    def kernel(self) -> Kernel:
        """Products of the features of all samples so far."""
        return self._known().kernel()


class NeuralCollapse(_Streaming):
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
        super().__init__(classes, sizes, precise)

    def update(self, features: Array, labels: Array) -> None:
        """Take in features (N, P) and their class numbers (N,)."""
        rows = float_rows(features, "NeuralCollapse, features")
        numbers = class_numbers(labels, "NeuralCollapse, labels")
        seen = self._started(rows.shape[1], 0, rows.device)
        seen.add(rows, numbers, precise=self._precise, where="NeuralCollapse")

    def compute(self, weights: Array | None = None) -> Collapse:
        """The measures over all samples so far; `weights` (C, P) of the last layer are for `nc3`."""
        seen = self._known()
        of, within = ClassMeans.of(seen.counts, seen.means), seen.within()
        along = ((of.directions @ within) * of.directions).sum(1)
        found = collapse_of(of, Within(float(within.trace()), along), weights)
        shares = "" if seen.exact else _OTHER_SHARES
        return replace(found, note=joined(found.note, shares, "nc4 needs the samples, not their moments"))


_OTHER_SHARES = (
    "classes came in other shares than told, by default equal ones: in nc1 and trace_within one that came oftener "
    "counts more (give `sizes`)"
)
