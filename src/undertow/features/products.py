"""Sums of products A^T A: half of the matrix, float64 sums, float32 or float64 products.

    upper = torch.zeros(d, d, dtype=torch.float64)
    for block in blocks:                              # (K, D) rows
        add_gram(upper, block, product_dtype(block))  # adds block^T block
    symmetric(upper)                                  # (D, D), both triangles

Only panels on and above the diagonal are computed: at D = 2048 this took less time
than the bare whole product (one and two CPU threads), with the addition into float64 included.

Error of float32 products: an entry of A^T A is off by at most about K * 6e-8 times the geometric mean
of its two diagonal entries (K is the length of a block, at most 1024, so 6e-5), and by less than 1e-6 in
practice (some 1e-6 where few different numbers repeat).
Blocks are scaled by a power of two first, so that squares neither overflow nor vanish.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

PANEL = 512
"""Rows of the matrix that one product fills; 256 to 512 were fastest for D = 512 to 4096."""

LONGEST = 1024
"""Products that are summed up in float32 before they are added in float64."""


FINE = 512
"""Rows that are made float64 at once: they stay in the processor's cache."""


def product_dtype(rows: Tensor, precise: bool = False) -> torch.dtype:
    """The dtype to multiply `rows` in: float32, or float64 where float32 would lose what was asked for."""
    # A user may let torch shorten float32 products to TF32 or bfloat16; statistics must not follow.
    shortened = torch.get_float32_matmul_precision() != "highest"
    return torch.float64 if precise or shortened or rows.dtype == torch.float64 else torch.float32


def resolution(dtype: torch.dtype) -> float:
    """The relative rounding error of one product in `dtype`."""
    return torch.finfo(dtype).eps / 2


def add_gram(upper: Tensor, rows: Tensor, dtype: torch.dtype) -> None:
    """Add A^T A to the upper triangle of `upper` (M, M) for A = `rows` (K, M)."""
    if rows.numel() == 0:
        return
    a, scale = _scaled(rows, dtype)
    with torch.autocast(rows.device.type, enabled=False):
        for part in a.split(LONGEST):
            for i in range(0, part.shape[1], PANEL):
                upper[i : i + PANEL, i:].add_(part[:, i : i + PANEL].T @ part[:, i:], alpha=scale**2)


def add_product(total: Tensor, left: Tensor, right: Tensor, dtype: torch.dtype) -> None:
    """Add `left` (A, K) times `right` (K, B) to the float64 matrix `total` (A, B)."""
    if left.numel() == 0 or right.numel() == 0:
        return
    (a, s), (b, t) = _scaled(left, dtype), _scaled(right, dtype)
    with torch.autocast(left.device.type, enabled=False):
        total.add_(a @ b, alpha=s * t)


def column_means(rows: Tensor) -> Tensor:
    """(D,) float64; a product with ones adds up columns several times faster than a sum over the first dimension."""
    ones = torch.ones(FINE, dtype=torch.float64, device=rows.device)
    total = torch.zeros(rows.shape[1], dtype=torch.float64, device=rows.device)
    for part in rows.split(FINE):
        total += ones[: len(part)] @ part.double()
    return total / len(rows)


def symmetric(upper: Tensor) -> Tensor:
    """A new matrix with the upper triangle of `upper` (M, M) mirrored below the diagonal."""
    # Panel by panel: triu() + triu(1).T took three times as long for M = 2048.
    full = upper.clone()
    for i in range(0, len(full), 128):
        j = min(i + 128, len(full))
        full[j:, i:j] = full[i:j, j:].T
        full[i:j, i:j] = full[i:j, i:j].triu() + full[i:j, i:j].triu(1).T
    return full


def _scaled(rows: Tensor, dtype: torch.dtype) -> tuple[Tensor, float]:
    """`rows` over a power of two near their largest magnitude (an exact division), and that power."""
    low, high = (float(end) for end in torch.aminmax(rows))
    scale = 2.0 ** min(math.frexp(max(-low, high))[1], 1000)
    # Divide in the wider dtype: float64 rows of 1e-60 would be zeros in float32, float16 ones lose digits.
    return (rows.to(torch.promote_types(rows.dtype, dtype)) / scale).to(dtype), scale
