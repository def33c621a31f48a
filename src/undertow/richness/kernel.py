"""Products of feature rows on the smaller side, made once: what all measures of a kernel follow from.

    kernel = Kernel.of(features, outputs)        # (N, P), and (N, C) where D_LR is wanted
    kernel.norm(), kernel.trace()                # of the centred kernel
    kernel.eigenvalues()                         # (min(N, P),) of the kernel as it is, not centred
    kernel.without(features, outputs, groups)    # what D_LR needs without each group of samples, for intervals
    shared_size(kernel, features, other, others) # what CKA has above its line

Rows are centred and divided by a power of two in float64, then multiplied in float64, or in float32 for float32 rows
unless `precise`; for such products alone they are centred in float32, around a mean of two parts. With P <= N products
are between columns (P, P), else between rows (N, N): the two have the same norm, trace and eigenvalues but zeros.
Nothing larger than the smaller side squared is made.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from undertow.features.joint import Joint
from undertow.features.products import column_means, product_dtype, symmetric

BLOCK = 512
"""Rows that are made float64 at once, and products that are summed up in float32 at once."""

PANEL = 128
"""Rows of a (P, P) matrix that one product fills; with blocks of 512 rows 128 was fastest at P = 1024."""


class KernelSpread(NamedTuple):
    """What D_LR needs of some sets of samples (B of them), around a centre that all have in common."""

    counts: Tensor  # (B,) float64
    means: Tensor  # (B, P) of the features, off the common centre
    output_means: Tensor  # (B, C)
    cross: Tensor  # (B, P, C), sum of (x - mean)(f - mean)^T
    output_scatter: Tensor  # (B, C, C)
    norms: Tensor  # (B,) Frobenius norm of the centred kernel
    traces: Tensor  # (B,) its trace


@dataclass(frozen=True, eq=False)
class Kernel:
    """Mean and centred products of feature rows, and with outputs their joint moments; all over `scale`."""

    count: int
    mean: Tensor  # (P,) float64
    products: Tensor  # (M, M) float64, between columns, or between rows where there are fewer
    tilt: Tensor | None  # (N,) products of the centred rows with the mean; None between columns
    joint: Joint | None  # with outputs; of centred rows, so its feature mean is 0
    scale: float = 1.0

    @classmethod
    def of(cls, rows: Tensor, outputs: Tensor | None = None, *, precise: bool = True) -> Kernel:
        """Of rows (N, P) and, if given, the outputs (N, C) of the same samples."""
        (count, dim), dtype = rows.shape, product_dtype(rows, precise)
        scale = _power_of_two(rows)
        mean, tilt = column_means(rows) / scale, None
        upper = mean.new_zeros((min(count, dim),) * 2)
        joint = None if outputs is None else Joint.empty(dim, outputs.shape[1], rows.device)
        size = count if dim > count else BLOCK
        for i in range(0, count, size):
            if dim <= count and outputs is None:
                for j, panel in _panels(_centred_as(dtype, rows[i : i + size], mean, scale)):
                    upper[j : j + PANEL, j:] += panel
                continue
            off = centred(rows[i : i + size], mean, scale)
            if dim > count:
                tilt = off @ mean
            for part in off.T.to(dtype).split(BLOCK) if dim > count else [off.to(dtype)]:
                for j, panel in _panels(part):
                    upper[j : j + PANEL, j:] += panel
            if joint is not None and outputs is not None:
                joint = joint.merge(Joint.of(off, off.mean(0), outputs[i : i + size].double()))
        return cls(count, mean, symmetric(upper), tilt, joint, scale)

    def norm(self) -> float:
        """Frobenius norm of the centred kernel."""
        return float(torch.linalg.matrix_norm(self.products))

    def trace(self) -> float:
        """Sum of the squared lengths of the centred rows."""
        return float(self.products.trace())

    def eigenvalues(self) -> Tensor:
        """(M,) eigenvalues of the kernel as it is, not centred, over `scale` squared; rising."""
        from scipy.linalg import eigvalsh  # twice as fast as torch's at M = 1000

        if self.tilt is None:
            whole = self.products + self.count * torch.outer(self.mean, self.mean)
        else:
            tilt = self.tilt + self.mean.square().sum() / 2
            whole = self.products + tilt + tilt[:, None]
        return torch.from_numpy(eigvalsh(whole.cpu().numpy(), overwrite_a=True, check_finite=False))

    def spread(self) -> KernelSpread:
        """Of all samples."""
        joint = self._joint()
        count, norm, trace = joint.cross.new_tensor([[self.count], [self.norm()], [self.trace()]])
        means = joint.feature_mean[None], joint.output_mean[None]
        return KernelSpread(count, *means, joint.cross[None], joint.output_scatter[None], norm, trace)

    def without(self, rows: Tensor, outputs: Tensor, groups: Sequence[Tensor]) -> KernelSpread:
        """Of all samples but those of one group, for each group; `rows` and `outputs` are those that this is of."""
        whole, found = self._joint(), list[tuple[Tensor, ...]]()
        size, trace = self.norm() ** 2, self.trace()
        # Between rows nothing is multiplied any more: float64 costs nothing.
        products = self.products if self.tilt is not None else self.products.to(product_dtype(rows))
        for own in groups:
            off, f = centred(rows[own], self.mean, self.scale), outputs[own].double() - whole.output_mean
            left, (x, y) = whole.count - len(own), (off.sum(0), f.sum(0))
            cross = whole.cross - off.T @ f - torch.outer(x, y) / left
            scatter = whole.output_scatter - f.T @ f - torch.outer(y, y) / left
            # What is left has the scatter without the group's rows, and without a row for the step of the mean.
            step = 1 / math.sqrt(left)
            if self.tilt is None:
                square, gone = _square_without(products, _with_sum(off, step))
            else:
                taken = _with_sum(products[own], step)  # (K + 1, N)
                among = _with_sum(taken[:, own].T, step)  # (K + 1, K + 1)
                square = size - 2 * float(taken.square().sum()) + float(among.square().sum())
                gone = float(among.trace())
            sizes = cross.new_tensor([left, math.sqrt(max(square, 0.0)), trace - gone])
            found.append((sizes[0], -x / left, whole.output_mean - y / left, cross, scatter, *sizes[1:]))
        return KernelSpread(*(torch.stack(parts) for parts in zip(*found, strict=True)))

    def _joint(self) -> Joint:
        if self.joint is None:
            raise TypeError("Kernel: wanted one that was made with outputs")
        return self.joint


def shared_size(first: Kernel, rows: Tensor, second: Kernel, others: Tensor) -> float:
    """Sum of the products of two centred kernels' entries: of `rows`, and of `others` of the same samples."""
    if first.tilt is not None and second.tilt is not None:
        return float((first.products * second.products).sum())
    dtype = torch.promote_types(product_dtype(rows), product_dtype(others))
    cross = first.mean.new_zeros(len(first.mean), len(second.mean))
    for part, other in zip(rows.split(BLOCK), others.split(BLOCK), strict=True):
        left = _centred_as(dtype, part, first.mean, first.scale)
        cross += _product(left.T, _centred_as(dtype, other, second.mean, second.scale))
    return float(cross.square().sum())


def centred(rows: Tensor, mean: Tensor, scale: float) -> Tensor:
    """New float64 rows around `mean`, which is over `scale` already."""
    return torch.sub(rows if scale == 1 else rows.double() / scale, mean)


def _centred_as(dtype: torch.dtype, rows: Tensor, mean: Tensor, scale: float) -> Tensor:
    """New rows around `mean` in `dtype`; float32 ones are a fifth of the price, at two roundings instead of one."""
    if dtype != torch.float32 or rows.dtype != torch.float32 or scale != 1:
        return centred(rows, mean, scale).to(dtype)
    most = mean.float()
    return torch.sub(rows, most).sub_((mean - most).float())


def _panels(rows: Tensor) -> Iterator[tuple[int, Tensor]]:
    """The products of columns (K, M) on and above the diagonal: where a panel begins, and the panel."""
    for i in range(0, rows.shape[1], PANEL):
        yield i, _product(rows[:, i : i + PANEL].T, rows[:, i:])


def _product(left: Tensor, right: Tensor) -> Tensor:
    """In the dtype given, whatever a caller's autocast would make of it."""
    with torch.autocast(left.device.type, enabled=False):
        return left @ right


def _square_without(products: Tensor, rows: Tensor) -> tuple[float, float]:
    """Squared norm of products - rows^T rows, and the trace of what is taken off."""
    total = 0.0
    for i, panel in _panels(rows.to(products.dtype)):
        panel -= products[i : i + PANEL, i:]
        whole, diagonal = (
            torch.linalg.vector_norm(part, dtype=torch.float64) for part in (panel, panel[:, :PANEL])
        )
        total += float(2 * whole**2 - diagonal**2)  # but for the diagonal a panel has a mirror image
    return total, float(rows.square().sum())


def _with_sum(rows: Tensor, step: float) -> Tensor:
    return torch.cat([rows, step * rows.sum(0, keepdim=True)])


def _power_of_two(rows: Tensor) -> float:
    """Near the largest magnitude, where squares of squares would overflow or vanish in float32; else 1."""
    low, high = (float(end) for end in torch.aminmax(rows))
    exponent = math.frexp(max(-low, high))[1]
    return 1.0 if abs(exponent) < 24 else 2.0 ** max(-1000, min(exponent, 1000))
