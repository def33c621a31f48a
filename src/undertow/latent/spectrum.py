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

Whole decompositions are float64 and scaled to trace 1: in float32, LAPACK was seen to give up
("failed to converge") on the rank-deficient moments of one class after a ReLU.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

WHOLE = 256
"""Up to this size the whole decomposition is as fast as the Krylov space."""

BLOCK = 16
"""Columns per Krylov step: fewer starve the matrix product, more need a larger space."""


class Eigen(NamedTuple):
    """The largest eigenvalues, their eigenvectors, and the sum of all eigenvalues."""

    values: Tensor  # (K,) falling
    vectors: Tensor  # (M, K) orthonormal
    total: float


class Wanted(NamedTuple):
    """How many eigenvectors: `count`, or as many as exceed `share`; those below `floor` are noise."""

    share: float | None
    count: int | None
    floor: float  # relative to the largest eigenvalue

    def cut(self, values: Tensor) -> int:
        """How many of `values` (falling, of a matrix of trace 1) are wanted; more than given if too few."""
        if self.share is None:
            wanted = self.count or 1
        else:
            wanted = int((values.cumsum(0) <= self.share).sum()) + 1
        below = int((values <= self.floor * values[0]).sum())
        return min(wanted, len(values) - below) if below else wanted


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
    wanted = Wanted(share, count, max(8 * rounding, len(moment) * torch.finfo(torch.float64).eps))
    found = _Krylov(moment / total, wanted).solve() if len(moment) > WHOLE else None
    values, vectors = found or _whole(moment, total, wanted)
    return Eigen(values * total, vectors, total)


def _whole(moment: Tensor, total: float, wanted: Wanted) -> tuple[Tensor, Tensor]:
    values, vectors = eigh(moment.double() / total)
    values, vectors = values.flip(0), vectors.flip(1)
    k = min(wanted.cut(values), len(values))
    return values[:k].to(moment.dtype), vectors[:, :k].to(moment.dtype)


def eigh(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues (rising) and eigenvectors of a symmetric matrix, also where LAPACK gives up at first."""
    try:
        return torch.linalg.eigh(matrix)
    except torch.linalg.LinAlgError:
        # Exact repeats of an eigenvalue are what divide and conquer stumbles over. A ramp at the level
        # of rounding parts them, and changes no eigenvalue by more than rounding does.
        size = float(matrix.diagonal().abs().max())
        ramp = torch.linspace(0, 1, len(matrix), dtype=matrix.dtype, device=matrix.device)
        return torch.linalg.eigh(matrix + (ramp * size * 16 * torch.finfo(matrix.dtype).eps).diag())


class _Krylov:
    """A growing orthonormal basis of span(Q, MQ, M^2 Q, ...) for a random block Q, and M within it."""

    def __init__(self, moment: Tensor, wanted: Wanted) -> None:
        self.moment, self.wanted = moment, wanted  # of trace 1
        self.eps = torch.finfo(moment.dtype).eps
        # A float32 moment does not know its share to more than six digits; float64 gets all it has.
        self.slack, self.ratio, limit = (1e-6, 2.0, 0.8) if self.eps > 1e-10 else (1e-16, 2.6, 0.55)
        self.room = int(limit * len(moment)) // BLOCK * BLOCK  # beyond it the whole decomposition is cheaper
        self.basis = moment.new_empty(len(moment), self.room)
        self.inner = moment.new_zeros(self.room, self.room)  # basis^T M basis
        self.size = 0
        self.generator = torch.Generator().manual_seed(0)

    def solve(self) -> tuple[Tensor, Tensor] | None:
        """Eigenvalues and eigenvectors as wanted; None where the whole decomposition is the better way."""
        block, goal = torch.linalg.qr(self._random(BLOCK))[0], None
        while self.size < self.room:
            block, link = self._grow(block)
            ended = float(link.diagonal().abs().min()) < 8 * self.eps  # M leads nowhere new
            goal = goal or self._goal()
            if ended or (goal and self.size >= goal):
                found = self._look(link)
                if found or ended:
                    return found
                goal = int(1.15 * self.size)
            if (goal or 1.6 * self.size) > self.room:  # 1.6: where the goal would lie if it were known now
                return None
        return None

    def _grow(self, block: Tensor) -> tuple[Tensor, Tensor]:
        """Take in `block`; the next block, and how M links it to this one."""
        before, start, end = max(0, self.size - BLOCK), self.size, self.size + BLOCK
        self.basis[:, start:end] = block
        self.size = end
        image = self.moment @ block
        # In exact arithmetic M links a block to itself and its neighbours only. Taking those off first
        # leaves a small rest, from which one pass over all columns removes what rounding put there.
        near, seen = self.basis[:, before:end], self.basis[:, :end]
        near_part = near.T @ image
        image.addmm_(near, near_part, alpha=-1)
        part = seen.T @ image
        image.addmm_(seen, part, alpha=-1)
        part[before:] += near_part
        self.inner[:end, start:end] = part
        self.inner[start:end, :end] = part.T
        block, link = torch.linalg.qr(image)
        return block, link

    def _goal(self) -> int | None:
        """The size at which the wanted eigenvectors should hold still; None while nobody can tell."""
        inner, share = self.inner[: self.size, : self.size], self.wanted.share
        if share is None:
            return int(self.ratio * (self.wanted.count or 1)) + 2 * BLOCK
        if float(inner.diagonal().sum()) <= share + 0.1 * (1 - share):
            return None
        return int(self.ratio * self.wanted.cut(torch.linalg.eigvalsh(inner).flip(0)))

    def _look(self, link: Tensor) -> tuple[Tensor, Tensor] | None:
        """The wanted eigenvectors within the basis, if they stand every test."""
        try:
            values, inner = torch.linalg.eigh(self.inner[: self.size, : self.size])
        except torch.linalg.LinAlgError:
            return None
        values, inner = values.flip(0), inner.flip(1)
        k = self.wanted.cut(values)
        if k > self.size:
            return None
        # The sum of squared residuals over the smallest eigenvalue estimates the share that is missed.
        residual = float((link @ inner[-BLOCK:, :k]).square().sum())
        by_share, by_angle = self.slack * float(values[k - 1]), (self.eps**0.75 * float(values[0])) ** 2
        if residual > (by_angle if self.wanted.share is None else by_share):
            return None
        vectors = self.basis[:, : self.size] @ inner[:, :k]
        return (values[:k], vectors) if self._sound(vectors, float(values[k - 1])) else None

    def _sound(self, vectors: Tensor, smallest: float) -> bool:
        """Whether `vectors` are orthonormal and leave out no eigenvalue above `smallest`."""
        overlap = vectors.T @ vectors
        overlap.diagonal().sub_(1)
        if float(overlap.abs().max()) > self.eps**0.6:
            return False
        # A Krylov space sees at most BLOCK copies of a repeated eigenvalue. Power steps from fresh random
        # vectors, outside of what was found, meet the copies that it has missed.
        fresh = self._random(BLOCK // 2)
        for _ in range(3):
            fresh = torch.linalg.qr(self.moment @ (fresh - vectors @ (vectors.T @ fresh)))[0]
        fresh = torch.linalg.qr(fresh - vectors @ (vectors.T @ fresh))[0]
        left_out = float(torch.linalg.eigvalsh(fresh.T @ (self.moment @ fresh))[-1])
        return left_out <= smallest * (1 + 10 * self.slack**0.5) + 8 * self.eps

    def _random(self, columns: int) -> Tensor:
        drawn = torch.randn(len(self.moment), columns, generator=self.generator, dtype=self.moment.dtype)
        return drawn.to(self.moment.device)
