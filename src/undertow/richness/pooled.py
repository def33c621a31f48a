"""Classes in one matrix: counts, means, and the spread within all classes together.

    seen = PooledAccumulator(dim=4096, classes=200, sizes=labels.bincount())
    for rows, own in batches:                    # (N, 4096), (N,) int64
        seen.update(rows, own)
    pooled = seen.compute()                      # a frozen value
    pooled = pooled.merge(from_another_process)
    pooled.within()                              # (P, P) Sigma_W: the sum of the classes' covariances

Neural collapse needs no more than this: at 200 classes and P = 4096 it is 141 MB, where a scatter for each
class takes 27 GB. What is lost is to weight the classes afterwards. Sigma_W divides each class's scatter by its
count, which a stream knows only at its end; so `sizes` says beforehand how many samples each class has, or in
which shares they come. Without sizes classes count as equally large, and a sample of a large class as much as
one of a small class.

State is float64 and centred by the class means, as in features/moments.py and for the same reasons.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, distributed

from undertow.errors import BadData, BadValue
from undertow.features.moments import check_labels, check_rows
from undertow.features.products import add_gram, product_dtype, symmetric

BLOCK = 512
"""Rows that are multiplied at once."""


@dataclass(frozen=True, eq=False)
class Pooled:
    """Per class count and mean, and one weighted scatter around the class means."""

    counts: Tensor  # (C,) int64
    means: Tensor  # (C, P) float64; zeros, which say nothing, where the count is 0
    upper: Tensor  # (P, P) float64, sum of scatter_c / size_c; entries below the diagonal are not kept
    sizes: Tensor  # (C,) float64, of the classes as told beforehand; ones if nothing was told

    @property
    def count(self) -> int:
        """How many rows were seen."""
        return int(self.counts.sum())

    @property
    def exact(self) -> bool:
        """Whether the classes came in the shares that `sizes` told, so that each counts the same."""
        shares = self.counts / self.sizes  # compared as float32 shares may be
        return bool((shares - shares[0]).abs().max() <= 1e-6 * shares[0])

    def within(self) -> Tensor:
        """(P, P) sum over the classes of the covariance around the class mean; approximate unless `exact`."""
        if not self.count:
            raise BadData("Pooled: wanted rows to take a spread of, got none. Update or merge first.")
        # Sizes may be shares, or those of more samples than came: only their proportions count.
        return symmetric(self.upper) * (float(self.sizes.sum()) / self.count)

    def merge(self, other: Pooled) -> Pooled:
        """Of both sets of rows; either may be empty."""
        _check_alike("Pooled.merge", [_told(self), _told(other)])
        counts, gap = self.counts + other.counts, other.means - self.means
        share = other.counts.double() / counts.clamp(min=1)
        rows = gap * (self.counts * share / self.sizes).sqrt()[:, None]
        upper = self.upper + other.upper
        add_gram(upper, rows, torch.float64)
        return Pooled(counts, self.means + gap * share[:, None], upper, self.sizes)

    def without(self, part: Pooled) -> Pooled:
        """The rest, of rows that `part` was gathered from some of."""
        counts, gap = self.counts - part.counts, part.means - self.means
        ratio = part.counts.double() / counts.clamp(min=1)  # whole numbers alone would divide in float32
        means = (self.means - gap * ratio[:, None]) * (counts > 0)[:, None]
        taken = part.upper.clone()
        add_gram(taken, gap * (ratio * self.counts / self.sizes).sqrt()[:, None], torch.float64)
        return Pooled(counts, means, self.upper - taken, self.sizes)


class PooledAccumulator:
    """Gathers `Pooled` in place; `compute()` may be called at any time, and more rows may follow."""

    def __init__(
        self,
        dim: int,
        classes: int,
        sizes: Tensor | None = None,
        *,
        precise: bool = True,
        device: torch.device | str = "cpu",
        where: str = "features",
    ) -> None:
        """Start without rows.

        Args:
            dim: width of the rows.
            classes: number of classes.
            sizes: (C,) samples of each class, or shares; None for classes of one size.
            precise: multiply in float64 whatever the rows' dtype.
            device: where the state lies; rows are moved there.
            where: what messages call these features.
        """
        self.precise, self.where, self.device = precise, where, torch.device(device)
        self._sizes = _checked_sizes(sizes, classes).to(self.device)
        self._counts = torch.zeros(classes, dtype=torch.int64, device=device)
        self._means = torch.zeros(classes, dim, dtype=torch.float64, device=device)
        self._upper = torch.zeros(dim, dim, dtype=torch.float64, device=device)
        self._waiting: list[tuple[Tensor, Tensor]] = []

    def update(self, features: Tensor, labels: Tensor) -> None:
        """Take in rows (N, P) of any float dtype and their class numbers (N,)."""
        check_rows(features, self.where)
        if features.shape[1] != len(self._upper):
            raise BadData(f"{self.where}: wanted rows of width {len(self._upper)}, got {features.shape[1]}.")
        check_labels(labels, len(features), len(self._counts), self.where)
        # Copies: what waits must not see its batch change.
        self._waiting.append(
            (features.detach().to(self.device, copy=True), labels.to(self.device, copy=True))
        )
        if sum(len(rows) for rows, _ in self._waiting) >= BLOCK:
            self._take_in()

    def compute(self) -> Pooled:
        """All rows so far, unchanged by later updates."""
        self._take_in()
        return Pooled(self._counts.clone(), self._means.clone(), self._upper.clone(), self._sizes)

    def _take_in(self) -> None:
        """Add the rows that wait, around their own class means, and the steps of the class means."""
        if not self._waiting:
            return
        stored, labels = (torch.cat(parts) for parts in zip(*self._waiting, strict=True))
        self._waiting = []
        rows, roots = stored.double(), self._sizes.sqrt()[:, None]
        counts = labels.bincount(minlength=len(self._counts))
        means = torch.zeros_like(self._means).index_add_(0, labels, rows) / counts.clamp(min=1)[:, None]
        total = self._counts + counts
        gap, share = means - self._means, counts.double() / total.clamp(min=1)
        steps = gap * (self._counts * share).sqrt()[:, None] / roots
        off = (rows - means[labels]) / roots[labels]
        dtype = product_dtype(stored, self.precise)
        add_gram(self._upper, torch.cat([off, steps[share > 0]]), dtype)
        self._counts, self._means = total, self._means + gap * share[:, None]


def pooled_over_processes(pooled: Pooled, group: Any = None) -> Pooled:
    """Of all processes in `group`, the same in each; the (P, P) matrices are sent once."""
    facts: list[Any] = [None] * distributed.get_world_size(group)
    distributed.all_gather_object(facts, (_told(pooled), pooled.counts.cpu(), pooled.means.cpu()), group)
    _check_alike("over_processes", [told for told, _, _ in facts])
    counts = torch.stack([counts for _, counts, _ in facts])  # (W, C)
    shares = counts.double() / counts.sum(0).clamp(min=1)
    means = (shares[..., None] * torch.stack([means for _, _, means in facts])).sum(0).to(pooled.means.device)
    upper = pooled.upper.clone()
    moved = (pooled.means - means) * (pooled.counts / pooled.sizes).sqrt()[:, None]
    add_gram(upper, moved, torch.float64)
    distributed.all_reduce(upper, group=group)
    return Pooled(counts.sum(0).to(means.device), means, upper, pooled.sizes)


def _told(pooled: Pooled) -> tuple[tuple[int, ...], list[float]]:
    """What must be the same of all that are put together."""
    return tuple(pooled.means.shape), pooled.sizes.tolist()


def _check_alike(who: str, told: list[tuple[tuple[int, ...], list[float]]]) -> None:
    for shape, sizes in told[1:]:
        if shape != told[0][0]:
            raise BadValue(who, f"the same (classes, dim) {told[0][0]}", shape)
        if sizes != told[0][1]:
            raise BadValue(who, "the same class sizes", "others", "Tell the sizes of all samples together.")


def _checked_sizes(sizes: Tensor | None, classes: int) -> Tensor:
    if sizes is None:
        return torch.ones(classes, dtype=torch.float64)
    if sizes.shape != (classes,):
        raise BadValue("sizes", f"one for each of {classes} classes", f"shape {tuple(sizes.shape)}")
    found = sizes.detach().double()
    if not bool((torch.isfinite(found) & (found > 0)).all()):
        raise BadValue("sizes", "numbers above 0: a class without samples has no spread", sizes.tolist()[:10])
    return found
