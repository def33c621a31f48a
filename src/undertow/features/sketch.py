"""A few rows for each class that stand for all: frequent directions (Liberty 2013; Ghashami et al. 2016).

    seen = ClassSketches(dim=2048, classes=1000, size=32)
    for rows, labels in batches: seen.add(rows, labels)
    seen.merge(from_the_next_shard)
    values, basis = seen.directions(3)          # (k,), (D, k): the leading directions of class 3, k <= 32
    seen.shed[3], seen.squares[3]               # the error's bound; the squared length of all rows of the class

For the rows A of a class and its sketch B: 0 <= x' (A'A - B'B) x <= shed for every unit x, where shed is at most the
squared length outside the leading k directions over size - k. So k directions that hold s of the sketch hold between
s / squares and (s + k shed) / squares of the class. The bound is counted as it arises, not estimated; products are
float32 (see products.py).

When 2 x size rows of a class have come, the middle squared singular value is taken off all of them and half of the rows
become zero. Sketches merge by taking in each other's rows. Classes that are full are shrunk together.
"""

from __future__ import annotations

import torch
from torch import Tensor

from undertow.features.moments import check_labels, check_rows

AT_ONCE = 64
"""Classes that are shrunk together: their rows are copied."""


class ClassSketches:
    """Gathers sketches of all classes in place."""

    def __init__(self, dim: int, classes: int, size: int, where: str = "features") -> None:
        self.dim, self.classes, self.size, self.where = dim, classes, size, where
        self._rows = torch.zeros(classes, 2 * size, dim)
        self._filled = torch.zeros(classes, dtype=torch.int64)
        self.shed = torch.zeros(classes, dtype=torch.float64)
        self.squares = torch.zeros(classes, dtype=torch.float64)

    @staticmethod
    def size_for(dim: int, classes: int, room: int) -> int:
        """How many rows a class may keep within `room` bytes."""
        return room // (2 * classes * dim * 4)

    def add(self, rows: Tensor, labels: Tensor) -> None:
        """Take in rows (N, D) and their class numbers (N,)."""
        check_rows(rows, self.where)
        check_labels(labels, len(rows), self.classes, self.where)
        rows, labels = rows.detach().to("cpu", torch.float32), labels.cpu()
        lengths = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64).square()
        self.squares.index_add_(0, labels, lengths)
        self._put(rows, labels)

    def merge(self, other: ClassSketches) -> None:
        """Take in another's rows; its error adds to ours."""
        self.shed += other.shed
        self.squares += other.squares
        there = torch.arange(2 * other.size) < other._filled[:, None]
        labels, places = there.nonzero(as_tuple=True)
        for own, at in zip(labels.split(4096), places.split(4096), strict=True):
            self._put(other._rows[own, at], own)

    def directions(self, c: int) -> tuple[Tensor, Tensor]:
        """Squared lengths (k,) of the sketch along its directions, the largest first, and those (D, k), orthonormal."""
        rows = self._rows[c, : int(self._filled[c])].double()
        _, values, vectors = torch.linalg.svd(rows, full_matrices=False)
        kept = values > 1e-6 * values[:1]
        kept[self.size :] = False
        return values[kept].square(), vectors[kept].T

    def _put(self, rows: Tensor, labels: Tensor) -> None:
        while len(rows):
            rank = _rank(labels, self.classes)
            places = self._filled[labels] + rank
            fits = places < 2 * self.size
            self._rows[labels[fits], places[fits]] = rows[fits]
            self._filled += labels[fits].bincount(minlength=self.classes)
            rows, labels = rows[~fits], labels[~fits]
            if len(rows):
                for some in (self._filled == 2 * self.size).nonzero()[:, 0].split(AT_ONCE):
                    self._shrink(some)

    def _shrink(self, classes: Tensor) -> None:
        """Take the middle squared singular value off all of a class, which leaves `size` rows at most."""
        full = self._rows[classes]  # (K, 2 size, D)
        values, vectors = torch.linalg.eigh(torch.bmm(full, full.transpose(1, 2)).double())
        less = values[:, self.size - 1].clamp(min=0)  # rising: this one and all before it vanish
        kept, turn = values[:, self.size :], vectors[:, :, self.size :]
        scale = ((kept - less[:, None]).clamp(min=0) / kept.clamp(min=1e-300)).sqrt()
        small = torch.bmm((turn * scale[:, None]).transpose(1, 2).float(), full)
        self._rows[classes] = torch.cat([small, torch.zeros_like(small)], 1)
        self._filled[classes] = self.size
        self.shed[classes] += less


def _rank(labels: Tensor, classes: int) -> Tensor:
    """(N,) how many rows of the same class came before."""
    order = labels.argsort(stable=True)
    sizes = labels.bincount(minlength=classes)
    starts = sizes.cumsum(0) - sizes
    rank = torch.empty_like(labels)
    rank[order] = torch.arange(len(labels)) - starts[labels[order]]
    return rank
