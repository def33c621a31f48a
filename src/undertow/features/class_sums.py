"""Class sums and one scatter of all rows: what many classes and wide layers have room for.

    seen = ClassSums(dim=2048, classes=1000, sets=2)
    for rows, label_sets in batches:                    # (N, 2048), [(N,), (N,)]: several sets of labels
        seen.add(rows, label_sets)
    seen.merge(from_the_next_shard)
    found = seen.pooled(0)                              # of the first set of labels
    found.counts, found.means, found.within()           # what nearest mean, LDA and neural collapse need

At 1,000 classes and 2,048 features a second moment for each class takes 33 GB; this takes 50 MB. The scatter T of all
rows has no label in it, so that one serves all sets of labels: the scatter within classes is T less that of the class
means. Where classes have collapsed this is a difference of like numbers: `resolution` grows by the ratio of the two.

Rows are centred by the mean of the first block, multiplied in float32 (float64 for float64 rows) and summed in float64,
as products.py says; shards join by the update of Chan, Golub and LeVeque (1983).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from undertow.errors import BadData
from undertow.features.moments import check_labels, check_rows
from undertow.features.products import FINE, add_gram, product_dtype, resolution, symmetric

BLOCK = 2048
"""Rows that are multiplied at once."""


@dataclass(frozen=True, eq=False)
class Pooled:
    """Per class count and mean, and the covariance within classes; as much of `Moments` as it can be."""

    counts: Tensor  # (C,) int64
    means: Tensor  # (C, D) float64
    scatter: Tensor  # (D, D) float64, of all rows around their mean
    resolution: float  # rounding error of the covariance within classes, relative to its diagonal

    @property
    def dim(self) -> int:
        """D, the width of the rows."""
        return self.means.shape[1]

    @property
    def classes(self) -> int:
        """C, the number of classes, seen or not."""
        return len(self.counts)

    @property
    def count(self) -> int:
        """How many rows were seen."""
        return int(self.counts.sum())

    def within(self) -> Tensor:
        """(D, D) covariance around the class means, divided by the number of rows."""
        return _within(self.scatter, self.counts, self.means)


class ClassSums:
    """Gathers sums and the scatter in place; merging keeps the order in which it is done."""

    def __init__(self, dim: int, classes: int, sets: int = 1, where: str = "features") -> None:
        self.dim, self.classes, self.where = dim, classes, where
        self._count = 0
        self._shift: Tensor | None = None  # (D,) what all sums and the scatter are taken around
        self._total = torch.zeros(dim, dtype=torch.float64)
        self._upper = torch.zeros(dim, dim, dtype=torch.float64)
        self._counts = torch.zeros(sets, classes, dtype=torch.int64)
        self._sums = torch.zeros(sets, classes, dim, dtype=torch.float64)
        self._resolution = resolution(torch.float64)
        self._waiting: list[tuple[Tensor, Sequence[Tensor]]] = []

    def add(self, rows: Tensor, label_sets: Sequence[Tensor]) -> None:
        """Take in rows (N, D) and their class numbers (N,) by each set of labels."""
        check_rows(rows, self.where)
        if rows.shape[1] != self.dim:
            raise BadData(f"{self.where}: wanted rows of width {self.dim}, got {rows.shape[1]}.")
        for labels in label_sets:
            check_labels(labels, len(rows), self.classes, self.where)
        self._waiting.append((rows.detach().cpu(), [labels.cpu() for labels in label_sets]))
        if sum(len(part) for part, _ in self._waiting) >= BLOCK:
            self.settle()

    def settle(self) -> None:
        """Add the rows that wait."""
        if not self._waiting:
            return
        parts, self._waiting = self._waiting, []
        rows = torch.cat([part for part, _ in parts])
        if self._shift is None:
            self._shift = rows.double().mean(0).to(rows.dtype).double()
        off = rows - self._shift.to(rows.dtype)  # exactly the shift: both are of the rows' dtype
        dtype = product_dtype(rows)
        add_gram(self._upper, off, dtype)
        self._add_sums(off, [torch.cat([own[at] for _, own in parts]) for at in range(len(self._sums))])
        self._count += len(rows)
        self._resolution = max(self._resolution, resolution(dtype))

    def _add_sums(self, off: Tensor, label_sets: Sequence[Tensor]) -> None:
        """In pieces that stay in the processor's cache: whole blocks in float64 took a third of the time."""
        ones = torch.ones(FINE, dtype=torch.float64)
        for start in range(0, len(off), FINE):
            wide = off[start : start + FINE].double()
            self._total += ones[: len(wide)] @ wide
            for sums, labels in zip(self._sums, label_sets, strict=True):
                sums.index_add_(0, labels[start : start + FINE], wide)
        for counts, labels in zip(self._counts, label_sets, strict=True):
            counts += labels.bincount(minlength=self.classes)

    def merge(self, other: ClassSums) -> None:
        """Take in the rows of another, which stays as it is but settles; either may be empty."""
        self.settle()
        other.settle()
        if other._shift is None:
            return
        if self._shift is None:
            self._shift = other._shift.clone()
        move = other._shift - self._shift
        self._upper += other._upper
        # Around our shift: (y + m)(y + m)^T summed, y off their shift and m the way between the two.
        cross = torch.outer(move, other._total)
        self._upper += cross + cross.T + other._count * torch.outer(move, move)
        self._sums += other._sums + other._counts[..., None] * move
        self._total += other._total + other._count * move
        self._counts += other._counts
        self._count += other._count
        self._resolution = max(self._resolution, other._resolution)

    def pooled(self, at: int = 0) -> Pooled:
        """What is known by one set of labels."""
        self.settle()
        if self._shift is None:
            raise BadData(f"{self.where}: wanted rows, got none.")
        counts = self._counts[at].clone()
        means = self._shift + self._sums[at] / counts.clamp(min=1)[:, None]
        means = torch.where(counts[:, None] > 0, means, 0.0)
        off = self._total / self._count
        scatter = symmetric(self._upper) - self._count * torch.outer(off, off)
        within = _within(scatter, counts, means).diagonal()
        all_rows = scatter.diagonal() / self._count
        varied = within > 0
        worst = float((all_rows[varied] / within[varied]).max()) if bool(varied.any()) else 1.0
        return Pooled(counts, means, scatter, self._resolution * max(1.0, worst))


def _within(scatter: Tensor, counts: Tensor, means: Tensor) -> Tensor:
    count = counts.sum()
    off = (means - (counts.double() / count) @ means) * counts.double().sqrt()[:, None]
    return (scatter - off.T @ off) / count
