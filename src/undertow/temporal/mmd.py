"""Maximum mean discrepancy: how far apart two samples lie, seen by a Gaussian kernel.

    mmd_squared(a, b)                # unbiased estimate for rows (N, D) and (M, D); may be below 0
    found = mmd_test(a, b)
    found.value, found.p             # with a permutation p-value

Kernel exp(-|x - y|^2 / (2 h^2)); h is the median distance between distinct rows of both samples together
(median heuristic) unless `bandwidth` is given. Without the kernel's diagonal the estimate is unbiased, so it is
about 0, of either sign, where the samples come from one distribution.

The p-value wants rows that are exchangeable if the distributions are equal: independent samples. Several
checkpoints of one sample are not; see `omega_rows` in `undertow.temporal.bound`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from undertow.errors import BadData, BadValue
from undertow.richness.rows import Array, float_rows

_BLOCK = 2**24  # entries of the permutations' products held at once


@dataclass(frozen=True)
class MmdTest:
    """An estimate of MMD^2 with its permutation p-value."""

    value: float
    p: float  # at least 1 / (permutations + 1)
    bandwidth: float
    permutations: int


def mmd_squared(a: Array, b: Array, *, bandwidth: float | None = None) -> float:
    """Unbiased MMD^2 of rows (N, D) and (M, D), N and M at least 2; in float64."""
    kernel, count, _ = _kernel(a, b, bandwidth, "mmd_squared")
    return float(_estimates(kernel, count, _members(count, len(kernel), kernel))[0])


def mmd_test(
    a: Array, b: Array, *, permutations: int = 999, bandwidth: float | None = None, seed: int = 0
) -> MmdTest:
    """MMD^2 and the share of random divisions of the rows, this one included, that give as much or more."""
    if permutations < 1:
        raise BadValue("mmd_test, permutations", "at least one", permutations)
    kernel, count, width = _kernel(a, b, bandwidth, "mmd_test")
    value = float(_estimates(kernel, count, _members(count, len(kernel), kernel))[0])
    rng, size = np.random.default_rng(seed), len(kernel)
    # Divisions that differ only in the order of summing must count as ties.
    least, reached = value - 1e-12, 0
    for first in range(0, permutations, step := max(1, _BLOCK // size)):
        drawn = rng.permuted(np.tile(np.arange(size), (min(step, permutations - first), 1)), axis=1)
        members = torch.from_numpy(drawn < count).to(kernel.device, kernel.dtype)
        reached += int((_estimates(kernel, count, members) >= least).sum())
    return MmdTest(value, (1 + reached) / (permutations + 1), width, permutations)


def median_distance(rows: Array) -> float:
    """The median distance between distinct rows (N, D); of the distances above 0, where most rows coincide."""
    return _median(_squared_distances(float_rows(rows, "median_distance").double()), "median_distance")


def _kernel(a: Array, b: Array, bandwidth: float | None, who: str) -> tuple[Tensor, int, float]:
    """The kernel (N + M, N + M) with a diagonal of zeros, N, and the bandwidth."""
    first, second = float_rows(a, f"{who}, a").double(), float_rows(b, f"{who}, b").double()
    if first.shape[1] != second.shape[1] or min(len(first), len(second)) < 2:
        raise BadData(
            f"{who}: wanted at least two rows each of one width, got {tuple(first.shape)} "
            f"and {tuple(second.shape)}."
        )
    if bandwidth is not None and not bandwidth > 0:
        raise BadValue(f"{who}, bandwidth", "a number above 0", bandwidth)
    squared = _squared_distances(torch.cat([first, second.to(first.device)]))
    width = _median(squared, who) if bandwidth is None else float(bandwidth)
    return torch.exp(squared / (-2 * width**2)).fill_diagonal_(0), len(first), width


def _squared_distances(rows: Tensor) -> Tensor:
    """(N, N), exactly 0 on the diagonal."""
    # Around the mean, so that a large offset does not cancel; what is left below 0 is rounding.
    rows = rows - rows.mean(0)
    squares = rows.square().sum(1)
    return (squares[:, None] + squares - 2 * rows @ rows.T).clamp_(min=0).fill_diagonal_(0)


def _median(squared: Tensor, who: str) -> float:
    size = len(squared)
    pairs = squared[torch.triu_indices(size, size, 1, device=squared.device).unbind()].cpu().numpy()
    # Rounding of the products above makes equal rows differ by about eps of their length.
    apart = pairs > 64 * np.finfo(np.float64).eps * pairs.max(initial=0.0)
    if not apart.any():
        raise BadData(f"{who}: wanted rows that differ, got {size} equal ones. No bandwidth fits them.")
    middle = float(np.median(np.sqrt(pairs * apart)))
    return middle or float(np.median(np.sqrt(pairs[apart])))


def _members(count: int, size: int, like: Tensor) -> Tensor:
    """(1, size) with 1 for the first `count` rows."""
    return (torch.arange(size, device=like.device) < count).to(like.dtype)[None]


def _estimates(kernel: Tensor, count: int, members: Tensor) -> Tensor:
    """(P,) MMD^2 of P divisions: `members` (P, N + M) is 1 for the rows of the first sample."""
    other = len(kernel) - count
    sums = members @ kernel  # (P, N + M), of each row with the first sample
    inside = (sums * members).sum(1)
    across = sums.sum(1) - inside
    outside = kernel.sum() - inside - 2 * across
    return inside / (count * (count - 1)) + outside / (other * (other - 1)) - 2 * across / (count * other)
