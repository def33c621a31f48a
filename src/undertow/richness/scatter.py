"""One scatter for all classes, gathered batch by batch and mergeable: what D_LR and neural collapse need.

    seen = ClassScatter.empty(dim=4096, classes=200, sizes=labels.bincount())
    for rows, own in batches:                    # (N, 4096), (N,) int64
        seen.add(rows, own)
    seen.merge(from_elsewhere)
    seen.within()                                # (P, P) Sigma_W: the sum of the classes' covariances
    seen.kernel()                                # of one class with outputs: what D_LR follows from

At 200 classes and P = 4096 this is 141 MB, where a scatter for each class takes 27 GB. What is lost is to weight the
classes afterwards. Sigma_W divides each class's scatter by its count, which a stream knows only at its end; so
`sizes` says beforehand how many samples each class has, or in which shares they come. Without sizes classes count as
equally large, and a sample of a large class as much as one of a small class.

State is float64 and centred by the class means, as in features/moments.py and for the same reasons.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import torch
from torch import Tensor, distributed

from undertow.errors import BadData, BadValue
from undertow.features.joint import Joint
from undertow.features.moments import check_labels
from undertow.features.products import add_gram, product_dtype, symmetric
from undertow.richness.kernel import Kernel


@dataclass(eq=False)
class ClassScatter:
    """Per class count and mean, one weighted scatter around the class means, and with outputs their joint moments."""

    counts: Tensor  # (C,) int64
    means: Tensor  # (C, P) float64; zeros, which say nothing, where the count is 0
    upper: Tensor  # (P, P) float64, sum of scatter_c / size_c; entries below the diagonal are not kept
    sizes: Tensor  # (C,) float64, of the classes as told beforehand; ones if nothing was told
    joint: Joint | None  # of features and outputs over all rows

    @classmethod
    def empty(
        cls, dim: int, classes: int = 1, sizes: Tensor | None = None, outputs: int = 0, device: Any = "cpu"
    ) -> ClassScatter:
        """No rows yet; merging it changes nothing."""
        zeros = torch.zeros(dim, dim, dtype=torch.float64, device=device)
        told = checked_sizes(sizes, classes).to(device)
        joint = Joint.empty(dim, outputs, device) if outputs else None
        return cls(torch.zeros_like(told).long(), zeros.new_zeros(classes, dim), zeros, told, joint)

    @property
    def count(self) -> int:
        """How many rows were seen."""
        return int(self.counts.sum())

    @property
    def shape(self) -> tuple[int, int]:
        """Width of the features, and of the outputs; 0 without outputs."""
        return len(self.upper), 0 if self.joint is None else len(self.joint.output_mean)

    @property
    def exact(self) -> bool:
        """Whether the classes came in the shares that `sizes` told, so that each counts the same."""
        shares = self.counts / self.sizes  # compared as float32 shares may be
        return bool((shares - shares[0]).abs().max() <= 1e-6 * shares[0])

    def add(
        self,
        rows: Tensor,
        labels: Tensor,
        outputs: Tensor | None = None,
        *,
        precise: bool = True,
        where: str = "features",
    ) -> None:
        """Take in checked rows (N, P), their class numbers (N,) and outputs (N, K)."""
        if rows.shape[1] != len(self.upper):
            raise BadData(f"{where}: wanted rows of width {len(self.upper)}, got {rows.shape[1]}.")
        check_labels(labels, len(rows), len(self.counts), where)
        labels, wide = labels.to(self.upper.device), rows.to(self.upper.device).double()
        counts = labels.bincount(minlength=len(self.counts))
        means = torch.zeros_like(self.means).index_add_(0, labels, wide) / counts.clamp(min=1)[:, None]
        off = wide - means[labels]
        if self.joint is not None and outputs is not None:
            self.joint = self.joint.merge(Joint.of(off, means[0], outputs.to(off)))
        add_gram(self.upper, off / self.sizes.sqrt()[labels, None], product_dtype(rows, precise))
        self._step(counts, means)

    def merge(self, other: ClassScatter) -> None:
        """Take in the rows of another, which stays as it is; either may be empty."""
        _check_alike("merge", [self._told(), other._told()])
        self.upper += other.upper
        self.joint = None if self.joint is None or other.joint is None else self.joint.merge(other.joint)
        self._step(other.counts, other.means)

    def over_processes(self, group: Any = None) -> None:
        """Take in the rows of all processes in `group`; the (P, P) matrices are sent once."""
        facts: list[Any] = [None] * distributed.get_world_size(group)
        joint = None if self.joint is None else self.joint.to("cpu")
        distributed.all_gather_object(
            facts, (self._told(), self.counts.cpu(), self.means.cpu(), joint), group
        )
        told, counts, means, joints = zip(*facts, strict=True)
        _check_alike("over_processes", list(told))
        each = torch.stack(counts)  # (W, C)
        shares = each.double() / each.sum(0).clamp(min=1)
        whole = (shares[..., None] * torch.stack(means)).sum(0).to(self.means.device)
        moved = (self.means - whole) * (self.counts / self.sizes).sqrt()[:, None]
        add_gram(self.upper, moved, torch.float64)
        distributed.all_reduce(self.upper, group=group)
        self.counts, self.means = each.sum(0).to(whole.device), whole
        self.joint = None if joint is None else reduce(Joint.merge, joints).to(whole.device)

    def within(self) -> Tensor:
        """(P, P) sum over the classes of the covariance around the class mean; approximate unless `exact`."""
        # Sizes may be shares, or those of more samples than came: only their proportions count.
        return symmetric(self.upper) * (float(self.sizes.sum()) / self.count)

    def kernel(self) -> Kernel:
        """Of rows of one class."""
        # The joint moments are of rows around their mean, as all of a kernel.
        joint = self.joint and replace(self.joint, feature_mean=torch.zeros_like(self.means[0]))
        return Kernel(self.count, self.means[0], symmetric(self.upper), None, joint)

    def _step(self, counts: Tensor, means: Tensor) -> None:
        """Move the classes to more rows, whose scatters are in; the steps of the means add to the scatter."""
        total, gap = self.counts + counts, means - self.means
        share = counts.double() / total.clamp(min=1)  # whole numbers alone would divide in float32
        add_gram(self.upper, gap * (self.counts * share / self.sizes).sqrt()[:, None], torch.float64)
        self.counts, self.means = total, self.means + gap * share[:, None]

    def _told(self) -> tuple[tuple[int, ...], list[float]]:
        """What must be the same of all that are put together."""
        return (len(self.counts), *self.shape), self.sizes.tolist()


def checked_sizes(sizes: Tensor | None, classes: int) -> Tensor:
    """(C,) float64 sizes or shares of the classes; ones without any."""
    if sizes is None:
        return torch.ones(classes, dtype=torch.float64)
    if sizes.shape != (classes,):
        raise BadValue("sizes", f"one for each of {classes} classes", f"shape {tuple(sizes.shape)}")
    found = sizes.detach().double()
    if not bool((torch.isfinite(found) & (found > 0)).all()):
        raise BadValue("sizes", "numbers above 0: a class without samples has no spread", sizes.tolist()[:10])
    return found


def _check_alike(who: str, told: list[tuple[tuple[int, ...], list[float]]]) -> None:
    for shape, sizes in told[1:]:
        if shape != told[0][0]:
            raise BadValue(who, f"the same (classes, dim, outputs) {told[0][0]}", shape)
        if sizes != told[0][1]:
            raise BadValue(who, "the same class sizes", "others", "Tell the sizes of all samples together.")
