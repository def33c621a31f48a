"""The leading eigenvectors of a second moment, as many as a share of its trace asks for.

    found = eigenvectors(moment, share=0.99)     # moment (M, M), symmetric, no negative eigenvalues
    found.values, found.vectors                  # (K,) falling, (M, K) orthonormal
    found = eigenvectors(moment, count=1)        # or a number of them
    eigenvectors_of_each(moments, share=0.99)    # moments (B, M, M)
    eigenvectors_of_rows(rows, share=0.99)       # of X^T X, from rows X that are read in blocks

The count K is the smallest whose cumulative share exceeds `share`, and at most the rank: rounding
noise of zero eigenvalues never enters.

The trace is known without any eigenvalue, so a block Krylov space may stop growing as soon as the
share is reached and the eigenvectors hold still. At M = 1000 and K = 150 it stops near dimension 2K,
for a quarter of the cost of the whole decomposition. What it found is checked (orthonormal, small
residual, nothing larger left outside), and the whole decomposition steps in where it fails: small
matrices, shares that need most of the matrix, eigenvalues with many equal ones.

Whole decompositions are float64 and scaled to trace 1. In float32, LAPACK was seen to give up ("failed to
converge") on the rank-deficient moments of one class after a ReLU.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.linalg import LinAlgError  # pyright: ignore[reportAttributeAccessIssue]

from undertow.errors import BadData
from undertow.features.budget import DIRECTIONS
from undertow.features.products import resolution
from undertow.features.wide import Rows
from undertow.latent.krylov import Found, Krylov, Matrices, RowProducts, Wanted

WHOLE = 256
"""Up to this size the whole decomposition is as fast as the Krylov space."""

PASS = 32
"""Vectors that are multiplied in one pass over stored rows: more make fewer passes and a larger space."""


class Eigen(NamedTuple):
    """The largest eigenvalues, their eigenvectors, and the sum of all eigenvalues."""

    values: Tensor  # (K,) falling
    vectors: Tensor  # (M, K) orthonormal
    total: float


def eigenvectors(
    moment: Tensor, *, share: float | None = None, count: int | None = None, rounding: float | None = None
) -> Eigen:
    """The eigenvectors of `moment` (M, M) up to `share` of its trace, or `count` of them.

    Args:
        moment: symmetric and positive semidefinite; float32 or float64, which is the dtype of the answer.
        share: 0 < share <= 1; the smallest number whose cumulative share exceeds it.
        count: how many, where no share is given.
        rounding: relative rounding error of the products in `moment`; its dtype's by default.
    """
    return eigenvectors_of_each(moment[None], share=share, count=count, rounding=rounding)[0]


def eigenvectors_of_each(
    moments: Tensor, *, share: float | None = None, count: int | None = None, rounding: float | None = None
) -> list[Eigen]:
    """The same for several at once (B, M, M)."""
    size = moments.shape[1]
    totals = moments.diagonal(dim1=1, dim2=2).sum(1, dtype=torch.float64)
    if not torch.isfinite(totals).all():
        raise BadData("eigenvectors: wanted finite second moments, got NaN or infinity in them.")
    rounding = torch.finfo(moments.dtype).eps if rounding is None else rounding
    wanted = _wanted(share, count, size, rounding)
    filled = (totals > 0).nonzero()[:, 0]
    some = moments if len(filled) == len(moments) else moments[filled]
    traces = totals[filled].to(moments.dtype)
    partial = _partial(some, traces, wanted) if size > WHOLE and len(filled) else [None] * len(filled)
    nothing = Eigen(moments.new_zeros(0), moments.new_zeros(size, 0), 0.0)
    answers = [nothing] * len(moments)
    for at, moment, trace, found in zip(filled.tolist(), some, traces, partial, strict=True):
        values, vectors = found or _whole(moment / trace, wanted)
        total = float(totals[at])
        answers[at] = Eigen(values * total, vectors.T, total)
    return answers


def eigenvectors_of_rows(rows: Rows, *, share: float | None = None, count: int | None = None) -> Eigen | None:
    """Of X^T X (D, D), which is never built, for rows X (n, D) that are read in blocks.

    Memory is that of some `DIRECTIONS` vectors; None where the wanted eigenvectors need more than that.
    """
    products = RowProducts(rows)
    if not products.trace:
        return Eigen(torch.zeros(0), torch.zeros(rows.shape[1], 0), 0.0)
    wanted = _wanted(share, count, rows.shape[1], resolution(products.dtype))
    found = Krylov(products, wanted, block=PASS, most=DIRECTIONS).solve()[0]
    return found and Eigen(found[0] * products.trace, found[1].T, products.trace)


def _wanted(share: float | None, count: int | None, size: int, rounding: float) -> Wanted:
    return Wanted(share, count or 1, max(8 * rounding, size * torch.finfo(torch.float64).eps))


def _partial(moments: Tensor, traces: Tensor, wanted: Wanted) -> list[Found | None]:
    alone = len(moments) == 1
    if alone or wanted.share is not None:
        try:
            return Krylov(Matrices(moments / traces[:, None, None]), wanted).solve()
        except LinAlgError:
            if alone:
                return [None]
    # One at a time, too, after a failure: the others are not to blame.
    return [_partial(moments[at : at + 1], traces[at : at + 1], wanted)[0] for at in range(len(moments))]


def _whole(moment: Tensor, wanted: Wanted) -> Found:
    """By decomposing all of `moment` (M, M), in float64: float32 blurs the small eigenvectors."""
    values, vectors = eigh(moment.double())
    values, vectors = values.flip(0), vectors.T.flip(0)
    k = min(wanted.cut(values), len(values))
    return values[:k].to(moment.dtype), vectors[:k].to(moment.dtype)


def eigh(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues (rising) and eigenvectors of a symmetric matrix, also where LAPACK gives up at first."""
    try:
        return torch.linalg.eigh(matrix)
    except LinAlgError:
        # Exact repeats of an eigenvalue are what divide and conquer stumbles over. A ramp at the level
        # of rounding parts them, and changes no eigenvalue by more than rounding does.
        size = float(matrix.diagonal().abs().max())
        ramp = torch.linspace(0, 1, len(matrix), dtype=matrix.dtype, device=matrix.device)
        return torch.linalg.eigh(matrix + (ramp * size * 16 * torch.finfo(matrix.dtype).eps).diag())
