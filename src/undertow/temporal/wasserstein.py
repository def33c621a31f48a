"""Sliced Wasserstein distance: how far mass must move, averaged over lines.

    sliced_wasserstein(a, b)                     # rows (N, D) and (M, D), N and M need not be equal
    wasserstein_1d(values, others, power=1)      # on a line, exact

On a line the cheapest plan is monotone: sort both sides and move quantile to quantile. Between two neighbouring
steps of either distribution both quantiles are constant, so the integral is a finite sum, exact for any sizes.
The sliced distance of power p is the p-th root of the mean of W_p^p over directions drawn from the sphere.
In D dimensions it is about 1 / sqrt(D) of the distance between the means: compare it within one width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from undertow.errors import BadData, BadValue
from undertow.richness.rows import Array, as_tensor, float_rows


def wasserstein_1d(a: Array, b: Array, *, power: float = 1.0) -> float:
    """The Wasserstein distance of numbers (N,) and (M,) with cost |x - y|^power."""
    columns = [float_rows(as_tensor(part).reshape(-1, 1), f"wasserstein_1d, {name}").double()
               for part, name in ((a, "a"), (b, "b"))]  # fmt: skip
    return float(_costs(columns[0], columns[1].to(columns[0].device), _power(power))[0] ** (1 / power))


def sliced_wasserstein(
    a: Array, b: Array, *, directions: int = 200, power: float = 2.0, seed: int = 0
) -> float:
    """The sliced Wasserstein distance of rows (N, D) and (M, D); in float64.

    Args:
        a: rows of one sample.
        b: rows of the other.
        directions: drawn evenly from the sphere; more make it less dependent on the draw.
        power: of the cost, at least 1.
        seed: of the directions.
    """
    first, second = float_rows(a, "sliced_wasserstein, a"), float_rows(b, "sliced_wasserstein, b")
    if first.shape[1] != second.shape[1]:
        raise BadData(
            f"sliced_wasserstein: wanted rows of one width, got {first.shape[1]} and {second.shape[1]}."
        )
    if directions < 1:
        raise BadValue("sliced_wasserstein, directions", "at least one", directions)
    generator = torch.Generator().manual_seed(seed)
    lines = torch.randn(first.shape[1], directions, generator=generator, dtype=torch.float64)
    lines = (lines / lines.norm(dim=0)).to(first.device)  # (D, directions)
    places = [_in_one_order(part) @ lines for part in (first.double(), second.to(first.device).double())]
    return float(_costs(places[0], places[1], _power(power)).mean() ** (1 / power))


def _in_one_order(rows: Tensor) -> Tensor:
    """The rows by their sums: a product may round a row by its place, and the same set in another order is no other."""
    return rows[rows.contiguous().sum(1).argsort(stable=True)]


def _costs(a: Tensor, b: Tensor, power: float) -> Tensor:
    """(K,) W_p^p between the columns of (N, K) and (M, K)."""
    n, m = len(a), len(b)
    # Steps of the two quantile functions in units of 1 / (N M): whole numbers, so that equal steps are equal.
    steps = torch.cat(
        [torch.arange(0, n, device=a.device) * m, torch.arange(0, m, device=a.device) * n]
    ).unique()
    widths = torch.diff(steps, append=steps.new_tensor([n * m])).to(a.dtype) / (n * m)
    moved = a.sort(0).values[steps // m] - b.sort(0).values[steps // n]
    return widths @ moved.abs() ** power


def _power(power: float) -> float:
    if not power >= 1:
        raise BadValue("Wasserstein distance, power", "1 or more", power)
    return float(power)
