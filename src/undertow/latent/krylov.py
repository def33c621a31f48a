"""A block Krylov space that grows until the wanted eigenvectors hold still within it.

    wanted = Wanted(share=0.99, count=1, floor=1e-6)
    space = Krylov(moment, wanted)               # moment (M, M) of trace 1
    space.solve()                                # (values, vectors), or None where it is no gain

One step multiplies the matrix with a block of columns; what lies outside of the space so far joins it. The
eigenvectors of the matrix within the space (Ritz vectors) come near the leading ones first.

In float32 the first few are taken off the matrix as soon as they are found. One of them often has 80 % of
the trace, and rounding errors are relative to it: on MNIST with noisy labels they blurred the small
eigenvectors until 1 % of MASC's predictions changed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK = 16
"""Columns per step: fewer starve the matrix product, more need a larger space."""

FIRST = 4 * BLOCK
"""Size of the space in which the first few eigenvectors are looked for."""

HEAD = 8
"""How many of them are taken off, at most."""


@dataclass(frozen=True)
class Wanted:
    """How many eigenvectors: `count`, or as many as exceed `share`; those below `floor` are noise."""

    share: float | None
    count: int
    floor: float  # relative to the largest eigenvalue

    def cut(self, values: Tensor) -> int:
        """How many of `values` (falling, of a matrix of trace 1) are wanted; more than given if too few."""
        wanted = self.count if self.share is None else int((values.cumsum(0) <= self.share).sum()) + 1
        noise = int((values <= self.floor * values[0]).sum())
        return min(wanted, len(values) - noise) if noise else wanted


class Krylov:
    """A growing orthonormal basis of span(Q, MQ, M^2 Q, ...) for a random block Q, and M within it."""

    def __init__(self, moment: Tensor, wanted: Wanted) -> None:
        self.moment, self.wanted = moment, wanted
        self.values, self.vectors = moment.new_zeros(0), moment.new_zeros(len(moment), 0)  # taken off
        self.eps = torch.finfo(moment.dtype).eps
        # How much of the share may be missed, how large a space that takes, when to give up: as measured.
        self.single = moment.dtype == torch.float32
        measured = (1e-8, 1.7, 5, 0.9) if self.single else (1e-16, 2.2, 7, 0.6)
        self.slack, self.ratio, self.blocks, limit = measured
        self.room = int(limit * len(moment)) // BLOCK * BLOCK
        self.basis = moment.new_empty(len(moment), self.room)
        self.inner = moment.new_empty(self.room, self.room)  # basis^T M basis
        self.size = 0
        self.linked = 0  # where the columns begin that M links the next block to
        self.astray = 0.0  # squared: what M makes of the space outside of it and the next block, by rounding
        self.held, self.scale = (
            0.0,
            0.0,
        )  # the trace within the basis and what was taken off; M's largest there
        self.generator = torch.Generator().manual_seed(0)

    def solve(self) -> tuple[Tensor, Tensor] | None:
        """Eigenvalues and eigenvectors as wanted; None where the whole decomposition is the better way.

        Raises:
            LinAlgError: LAPACK gave up on the matrix within the space.
        """
        block, goal = torch.linalg.qr(self._random(BLOCK))[0], None
        while self.size + BLOCK <= self.room:
            block, link = self._grow(block)
            ended = float(link.diagonal().abs().min()) < 8 * self.eps * self.scale  # M leads nowhere new
            goal = goal or self._goal()
            if ended or (goal and self.size >= goal):
                found = self._look(link)
                if found or ended:
                    return found
                goal = int(1.15 * self.size)
            if (goal or 1.6 * self.size) > self.room:  # 1.6: where the goal would lie if it were known now
                return None
            if self.size == FIRST and self._blurred():
                block = self._take_off(link, block)
        return None

    def _grow(self, block: Tensor) -> tuple[Tensor, Tensor]:
        """Take in `block`; the next block, and how M links it to this one."""
        start, end = self.size, self.size + BLOCK
        self.basis[:, start:end] = block
        self.size = end
        image = self.moment @ block
        # In exact arithmetic M links a block to itself and its neighbours only. Taking those off first
        # leaves a small rest, from which one pass over all columns removes what rounding put there.
        before, self.linked = self.linked, start
        near, seen = self.basis[:, before:end], self.basis[:, :end]
        near_part = near.T @ image
        image.addmm_(near, near_part, alpha=-1)
        part = seen.T @ image
        image.addmm_(seen, part, alpha=-1)
        part[before:] += near_part
        part[: len(self.values)] = 0  # M has nothing left along those: what is there is rounding
        self.inner[:end, start:end] = part
        self.inner[start:end, :end] = part.T
        traces = part[start:].diagonal().tolist()
        self.held, self.scale = self.held + sum(traces), max(self.scale, *traces)
        block, link = torch.linalg.qr(image)
        return block, link

    def _goal(self) -> int | None:
        """The size at which the wanted eigenvectors should hold still; None while nobody can tell."""
        share = self.wanted.share
        if share is None:
            return self._size_for(self.wanted.count)
        if self.held <= share + 0.1 * (1 - share):
            return None
        if len(self.values) and float(self.values.sum()) > share:
            return self.size
        values = torch.linalg.eigvalsh(self.inner[: self.size, : self.size])
        return self._size_for(self._cut(values.flip(0)))

    def _size_for(self, k: int) -> int:
        return int(self.ratio * k) + self.blocks * BLOCK

    def _cut(self, values: Tensor) -> int:
        """How many are wanted of those taken off and then `values`, which end with a zero for each of them."""
        return self.wanted.cut(torch.cat([self.values, values[: len(values) - len(self.values)]]))

    def _look(self, link: Tensor) -> tuple[Tensor, Tensor] | None:
        """The wanted eigenvectors within the basis, if they stand every test."""
        values, inner = self._ritz()
        k = self._cut(values) - len(self.values)
        if k > self.size - len(self.values):
            return None
        if k <= 0:
            return self.values[: k + len(self.values)], self.vectors[:, : k + len(self.values)]
        # The sum of squared residuals over the smallest eigenvalue estimates the share that is missed.
        residual = float((link @ inner[-BLOCK:, :k]).square().sum()) + self.astray
        by_share, by_angle = self.slack * float(values[k - 1]), (self.eps**0.75 * float(values[0])) ** 2
        if residual > (by_angle if self.wanted.share is None else by_share):
            return None
        vectors = self.basis[:, : self.size] @ inner[:, :k]
        if not self._sound(vectors, float(values[k - 1])):
            return None
        return torch.cat([self.values, values[:k]]), torch.cat([self.vectors, vectors], 1)

    def _blurred(self) -> bool:
        """Whether small eigenvectors are wanted from a float32 matrix that has its largest ones still."""
        small = self.wanted.share is not None or self.wanted.count > HEAD
        return self.single and small and not len(self.values)

    def _take_off(self, link: Tensor, block: Tensor) -> Tensor:
        """Take the leading eigenvectors that hold still off the matrix; the block to go on with."""
        values, inner = self._ritz()
        still = (link @ inner[-BLOCK:, :HEAD]).square().sum(0) < (self.eps**0.75 * values[0]) ** 2
        count = int(still.long().cumprod(0).sum())
        if not count:
            return block
        ritz = self.basis[:, : self.size] @ inner
        self.values, self.vectors = values[:count], ritz[:, :count].contiguous()
        image = (self.vectors.T @ self.moment).T  # few columns are slow to multiply with, few rows are not
        rest = image - self.vectors @ (self.vectors.T @ image)
        # (I - UU^T) M (I - UU^T): U stays in the basis, so that rounding cannot bring it back.
        self.moment = torch.addmm(
            self.moment, torch.cat([self.vectors, rest], 1), torch.cat([image, self.vectors], 1).T, alpha=-1
        )
        self.basis[:, : self.size] = ritz
        self.inner[: self.size, : self.size] = 0
        self.linked = 0
        return self._start_again() if self.wanted.share is None else self._go_on(ritz[:, count:], block)

    def _start_again(self) -> Tensor:
        """Keep only what was taken off: single vectors may not even have the rounding of the largest ones in them."""
        self.size, self.held, self.scale = len(self.values), float(self.values.sum()), 0.0
        block = self._random(BLOCK)
        return torch.linalg.qr(block - self.vectors @ (self.vectors.T @ block))[0]

    def _go_on(self, others: Tensor, block: Tensor) -> Tensor:
        """Keep the whole space; what M does in it is asked again of what is left of M, whose rounding is finer."""
        image, start = self.moment @ others, len(self.values)
        part = others.T @ image
        self.inner[start : self.size, start : self.size] = part
        traces = part.diagonal()
        self.held, self.scale = float(self.values.sum() + traces.sum()), float(traces.max())
        image -= others @ part
        self.astray = float((image - block @ (block.T @ image)).square().sum())
        return block

    def _sound(self, vectors: Tensor, smallest: float) -> bool:
        """Whether `vectors` are orthonormal and leave out no eigenvalue above `smallest`."""
        overlap = vectors.T @ vectors
        overlap.diagonal().sub_(1)
        if float(overlap.abs().max()) > self.eps**0.6:
            return False
        # A Krylov space sees at most BLOCK copies of a repeated eigenvalue. Power steps from fresh random
        # vectors, outside of what was found, meet the copies that it has missed.
        fresh = self._random(BLOCK)  # half as many would take twice the time
        for _ in range(2):
            fresh = torch.linalg.qr(self.moment @ (fresh - vectors @ (vectors.T @ fresh)))[0]
        fresh = torch.linalg.qr(fresh - vectors @ (vectors.T @ fresh))[0]
        left_out = float(torch.linalg.eigvalsh(fresh.T @ (self.moment @ fresh))[-1])
        return left_out <= smallest * (1 + 10 * self.slack**0.5) + 8 * self.eps * self.scale

    def _ritz(self) -> tuple[Tensor, Tensor]:
        """Eigenvalues (falling) and eigenvectors of M within the basis."""
        values, inner = torch.linalg.eigh(self.inner[: self.size, : self.size])
        return values.flip(0), inner.flip(1)

    def _random(self, columns: int) -> Tensor:
        drawn = torch.randn(len(self.moment), columns, generator=self.generator, dtype=self.moment.dtype)
        return drawn.to(self.moment.device)
