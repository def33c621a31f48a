"""The leading eigenvectors of a second moment, as many as a share of its trace asks for.

    found = eigenvectors(moment, share=0.99)     # moment (M, M), symmetric, no negative eigenvalues
    found.values, found.vectors                  # (K,) falling, (M, K) orthonormal
    found = eigenvectors(moment, count=1)        # or a number of them

The count K is the smallest whose cumulative share exceeds `share`, and at most the rank: rounding
noise of zero eigenvalues never enters.

The trace is known without any eigenvalue, so a block Krylov space may stop growing as soon as the
share is reached and the eigenvectors hold still. At M = 1000 and K = 150 it stops near dimension 2K,
for a quarter of the cost of the whole decomposition. What it found is checked (orthonormal, small
residual, nothing larger left outside), and the whole decomposition steps in where it fails: small
matrices, shares that need most of the matrix, eigenvalues with many equal ones.

All is scaled to trace 1. In float32, LAPACK was seen to give up ("failed to converge") on the
rank-deficient moments of one class after a ReLU: float64 is the way out wherever that happens.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.linalg import LinAlgError  # pyright: ignore[reportAttributeAccessIssue]

from undertow.latent.krylov import Krylov, Wanted

WHOLE = 256
"""Up to this size the whole decomposition is as fast as the Krylov space."""


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
    total = float(moment.diagonal().sum(dtype=torch.float64))
    if total <= 0:
        return Eigen(moment.new_zeros(0), moment.new_zeros(len(moment), 0), 0.0)
    rounding = torch.finfo(moment.dtype).eps if rounding is None else rounding
    wanted = Wanted(share, count or 1, max(8 * rounding, len(moment) * torch.finfo(torch.float64).eps))
    space = Krylov(moment / total, wanted)
    found = _partial(space) if len(moment) > WHOLE else None
    values, vectors = found or _whole(space.moment, wanted, space.values, space.vectors)
    return Eigen(values * total, vectors, total)


def _partial(space: Krylov) -> tuple[Tensor, Tensor] | None:
    try:
        return space.solve()
    except LinAlgError:
        return None


def _whole(moment: Tensor, wanted: Wanted, known: Tensor, known_vectors: Tensor) -> tuple[Tensor, Tensor]:
    """By decomposing all of `moment` (M, M); eigenvectors that were taken off it before come first."""
    # Without them rounding errors of float32 are relative to the largest eigenvalue, and blur the small ones.
    precise = moment if len(known) else moment.double()
    try:
        values, vectors = torch.linalg.eigh(precise)
    except LinAlgError:
        values, vectors = eigh(moment.double())
    count = len(values) - len(known)  # each that was taken off has left a zero
    values = torch.cat([known, values.flip(0)[:count].to(moment.dtype)])
    k = min(wanted.cut(values), len(values))
    return values[:k], torch.cat([known_vectors, vectors.flip(1)[:, :count].to(moment.dtype)], 1)[:, :k]


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
