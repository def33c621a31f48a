"""Per class moments of feature rows, gathered in one pass and mergeable in any order.

    seen = MomentsAccumulator(dim=512, classes=10, outputs=10)
    for rows, labels, logits in batches:                 # (N, 512), (N,) int64, (N, 10)
        seen.update(rows, labels, logits)
    moments = seen.compute()                             # a frozen value
    moments = moments.merge(from_another_process)
    moments.means; moments.scatter(3); moments.second_moment(3); moments.total().covariance

State is float64 and centred: summing squares of float32 rows of mean 1e4 and deviation 1 gives a
deviation of 2.8. Blocks of one class are centred by their own mean, multiplied in float32 (float64
for float64 rows or `precise=True`; products.py states the error) and joined by the update of Chan,
Golub and LeVeque (1983). Only the upper triangle of a scatter is kept up to date.

Why an accumulator beside the value: at D = 2048 and ten classes the scatters take 335 MB. Making
them anew for each batch costs more than the products; the accumulator adds in place, and waits until
a class has a block of rows, because a product of few rows is bound by writing its D x D answer.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from undertow.errors import BadData, BadValue
from undertow.features.joint import Joint
from undertow.features.products import add_gram, product_dtype, resolution, symmetric

BLOCK = 512
"""Rows of one class that are multiplied at once."""


@dataclass(frozen=True, eq=False)
class Spread:
    """Count, mean and covariance (divided by the count) of all rows."""

    count: int
    mean: Tensor  # (D,)
    covariance: Tensor  # (D, D)


@dataclass(frozen=True, eq=False)
class Moments:
    """Per class count, mean and centred scatter; with outputs also their joint moments."""

    counts: Tensor  # (C,) int64
    means: Tensor  # (C, D) float64; zeros, which say nothing, where the count is 0
    upper: Tensor  # (C, D, D) float64; entries below the diagonal are not kept: use scatter()
    joint: Joint | None  # features and outputs over all samples, where outputs were given
    resolution: float  # rounding error of the products, relative to the diagonal: about 6e-8 or 1e-16

    @classmethod
    def empty(cls, dim: int, classes: int, outputs: int = 0) -> Moments:
        """No rows yet; merging it changes nothing."""
        return MomentsAccumulator(dim, classes, outputs).compute()

    @classmethod
    def of(
        cls,
        features: Tensor,
        labels: Tensor,
        classes: int,
        outputs: Tensor | None = None,
        *,
        precise: bool = False,
        where: str = "features",
    ) -> Moments:
        """Of rows (N, D) with class numbers (N,) and, if given, the network's outputs (N, K)."""
        check_rows(features, where)
        width = 0 if outputs is None else outputs.shape[1]
        seen = MomentsAccumulator(features.shape[1], classes, width, precise=precise, where=where)
        seen.update(features, labels, outputs)
        return seen.compute()

    @property
    def dim(self) -> int:
        """D, the width of the rows."""
        return self.means.shape[1]

    @property
    def classes(self) -> int:
        """C, the number of classes, seen or not."""
        return len(self.counts)

    @property
    def outputs(self) -> int:
        """K, the width of the outputs; 0 without outputs."""
        return 0 if self.joint is None else len(self.joint.output_mean)

    @property
    def count(self) -> int:
        """How many rows were seen."""
        return int(self.counts.sum())

    def merge(self, other: Moments) -> Moments:
        """The moments of both sets of rows; either may be empty."""
        sizes = [(part.dim, part.classes, part.outputs) for part in (self, other)]
        if sizes[0] != sizes[1]:
            raise BadValue("Moments.merge", f"the same (dim, classes, outputs) {sizes[0]}", sizes[1])
        counts = self.counts + other.counts
        share = other.counts.double() / counts.clamp(min=1)  # whole numbers alone would divide in float32
        gap = other.means - self.means
        upper = self.upper + other.upper
        for c in range(self.classes):
            upper[c].addr_(gap[c], gap[c], alpha=float(self.counts[c] * share[c]))
        joint = None if self.joint is None or other.joint is None else self.joint.merge(other.joint)
        means = self.means + gap * share[:, None]
        return Moments(counts, means, upper, joint, max(self.resolution, other.resolution))

    def scatter(self, c: int) -> Tensor:
        """(D, D) sum of (x - mean)(x - mean)^T over class `c`; zeros for a class without rows."""
        return symmetric(self.upper[c])

    def second_moment(self, c: int) -> Tensor:
        """(D, D) sum of x x^T over class `c`, not centred."""
        return self.scatter(c).addr_(self.means[c], self.means[c], alpha=int(self.counts[c]))

    def total(self) -> Spread:
        """Of all rows whatever their class; the covariance is `within() + between()`."""
        return Spread(self.count, self._centre(self._weights(False)), self.within() + self.between())

    def within(self, *, balanced: bool = False) -> Tensor:
        """(D, D) covariance around the class means.

        Args:
            balanced: each class that has rows counts the same, instead of each row.
        """
        weights = self._weights(balanced) / self.counts.clamp(min=1)
        return symmetric(torch.tensordot(weights, self.upper, 1))

    def between(self, *, balanced: bool = False) -> Tensor:
        """(D, D) covariance of the class means around their centre.

        Args:
            balanced: each class that has rows counts the same, instead of each row.
        """
        weights = self._weights(balanced)
        off = self.means - self._centre(weights)
        return (off * weights[:, None]).T @ off

    def _weights(self, balanced: bool) -> Tensor:
        """(C,) float64 weights of the classes, with sum 1."""
        if not self.count:
            raise BadData("Moments: wanted rows to take a covariance of, got none. Update or merge first.")
        weights = (self.counts > 0).double() if balanced else self.counts.double()
        return weights / weights.sum()

    def _centre(self, weights: Tensor) -> Tensor:
        return weights @ self.means


class MomentsAccumulator:
    """Gathers `Moments` in place; `compute()` may be called at any time, and more rows may follow."""

    def __init__(
        self,
        dim: int,
        classes: int,
        outputs: int = 0,
        *,
        precise: bool = False,
        device: torch.device | str = "cpu",
        where: str = "features",
    ) -> None:
        """Start without rows.

        Args:
            dim: width of the feature rows.
            classes: number of classes; some may never come.
            outputs: width of the network's outputs; 0 for none.
            precise: multiply in float64 whatever the rows' dtype.
            device: where the state lies and the products are made; rows are moved there.
            where: what messages call these features, for example the layer's name.
        """
        if min(dim, classes) < 1 or outputs < 0:
            raise BadValue(
                "Moments", "dim and classes of 1 or more, outputs of 0 or more", (dim, classes, outputs)
            )
        self.dim, self.classes, self.outputs = dim, classes, outputs
        self.precise, self.where, self.device = precise, where, torch.device(device)
        self._counts = torch.zeros(classes, dtype=torch.int64, device=device)
        self._means = torch.zeros(classes, dim, dtype=torch.float64, device=device)
        self._upper = torch.zeros(classes, dim, dim, dtype=torch.float64, device=device)
        self._joint = Joint.empty(dim, outputs, device) if outputs else None
        self._resolution = resolution(torch.float64)
        self._waiting: list[list[tuple[Tensor, Tensor | None]]] = [[] for _ in range(classes)]
        self._lent = False

    def update(self, features: Tensor, labels: Tensor, outputs: Tensor | None = None) -> None:
        """Take in rows (N, D) of any float dtype, their class numbers (N,) and outputs (N, K)."""
        self._check(features, labels, outputs)
        features, labels = features.detach().to(self.device), labels.to(self.device)
        outputs = None if outputs is None else outputs.detach().to(self.device)
        order = labels.argsort(stable=True)
        sizes = torch.bincount(labels, minlength=self.classes).tolist()
        for c, rows in enumerate(order.split(sizes)):
            if len(rows):
                # Indexing copies: what waits never keeps a whole batch alive, nor sees it change.
                self._waiting[c].append((features[rows], None if outputs is None else outputs[rows]))
                if sum(len(part) for part, _ in self._waiting[c]) >= BLOCK:
                    self._take_in(c)

    def compute(self) -> Moments:
        """The moments of all rows so far, unchanged by later updates."""
        for c in range(self.classes):
            self._take_in(c)
        self._lent = True
        return Moments(self._counts.clone(), self._means.clone(), self._upper, self._joint, self._resolution)

    def _take_in(self, c: int) -> None:
        """Add the rows of class `c` that wait."""
        if not self._waiting[c]:
            return
        if self._lent:  # a value handed out shares the scatters: from here on it keeps them for itself
            self._upper, self._lent = self._upper.clone(), False
        parts, self._waiting[c] = self._waiting[c], []
        stored = torch.cat([part for part, _ in parts])
        rows = stored.double()
        mean = rows.mean(0)
        rows -= mean
        if self._joint is not None:
            outputs = torch.cat([out for _, out in parts if out is not None]).double()
            self._joint = self._joint.merge(Joint.of(rows, mean, outputs))
        dtype = product_dtype(stored, self.precise)
        self._resolution = max(self._resolution, resolution(dtype))
        add_gram(self._upper[c], torch.cat([rows, self._step(c, mean, len(rows))[None]]), dtype)

    def _step(self, c: int, mean: Tensor, count: int) -> Tensor:
        """Move class `c` to its new count and mean; the row whose square the step adds to the scatter."""
        before = int(self._counts[c])
        gap = mean - self._means[c]
        self._counts[c] += count
        self._means[c] += gap * (count / (before + count))
        return gap * (before * count / (before + count)) ** 0.5

    def _check(self, features: Tensor, labels: Tensor, outputs: Tensor | None) -> None:
        check_rows(features, self.where)
        if features.shape[1] != self.dim:
            raise BadData(f"{self.where}: wanted rows of width {self.dim}, got {features.shape[1]}.")
        check_labels(labels, len(features), self.classes, self.where)
        if (0 if outputs is None else outputs.shape[-1]) != self.outputs:
            got = None if outputs is None else tuple(outputs.shape)
            raise BadData(
                f"{self.where}: wanted outputs of width {self.outputs} with each update, got {got}."
            )
        if outputs is not None:
            check_rows(outputs, f"{self.where}, outputs")
            if len(outputs) != len(features):
                raise BadData(
                    f"{self.where}: got {len(features)} rows and {len(outputs)} outputs. Give as many."
                )


def check_rows(rows: Tensor, where: str) -> None:
    """Refuse what is no matrix of finite floats, with the number of bad rows and the first of them."""
    if rows.ndim != 2 or not rows.is_floating_point():
        raise BadData(f"{where}: wanted float rows (N, D), got {rows.dtype} of shape {tuple(rows.shape)}.")
    # A norm meets any NaN or infinity at a tenth of a mask's cost; the mask is made only to count.
    if torch.isfinite(torch.linalg.vector_norm(rows, dtype=torch.promote_types(rows.dtype, torch.float32))):
        return
    bad = (~torch.isfinite(rows).all(1)).nonzero()
    if len(bad):
        raise BadData(
            f"{where}: wanted finite numbers, got NaN or infinity in {len(bad)} of {len(rows)} rows"
            f" (the first is row {int(bad[0])}). The network has diverged here, or its input has such values."
        )
    if not torch.isfinite(torch.linalg.vector_norm(rows, dtype=torch.float64)):
        raise BadData(f"{where}: got numbers too large to square in float64. Scale them down.")


def check_labels(labels: Tensor, count: int, classes: int, where: str) -> None:
    """Refuse labels that are not `count` class numbers from 0 to `classes` - 1."""
    if labels.ndim != 1 or labels.is_floating_point() or labels.dtype == torch.bool or len(labels) != count:
        raise BadData(
            f"{where}: wanted {count} whole-number labels, got {labels.dtype} of shape {tuple(labels.shape)}."
        )
    bad = ((labels < 0) | (labels >= classes)).nonzero()
    if len(bad):
        at = int(bad[0])
        raise BadData(
            f"{where}: wanted labels from 0 to {classes - 1}, got {int(labels[at])} at row {at}"
            f" ({len(bad)} such labels). Number the classes from 0."
        )
