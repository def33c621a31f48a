"""A block Krylov space that grows until the wanted eigenvectors hold still within it.

    wanted = Wanted(share=0.99, count=1, floor=1e-6)
    space = Krylov(Matrices(moments), wanted)    # moments (B, M, M) of trace 1, overwritten; B = 1 for a count
    space = Krylov(RowProducts(rows), wanted, block=32, most=1024)   # X^T X of rows on disk, which is never built
    space.solve()                                # for each: (values, vectors), or None where it is no gain

One step multiplies the matrix with a block of vectors; what lies outside of the space so far joins it. The
eigenvectors of the matrix within the space (Ritz vectors) come near the leading ones first. Several matrices of one
size go step by step together: a step of one is so short that starting it takes as long. Vectors are rows: so a block
lies in one piece, as LAPACK leaves it.

In float32 the first few are taken off the matrix as soon as they are found. One of them often has 80 % of
the trace, and rounding errors are relative to it: on MNIST with noisy labels they blurred the small
eigenvectors until 1 % of MASC's predictions changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from undertow.features.products import product_dtype
from undertow.features.wide import Rows, blocks, trace_of

BLOCK = 16
"""Vectors per step: fewer starve the matrix product, more need a larger space."""

FIRST = 4
"""Blocks of the space in which the first few eigenvectors are looked for."""

HEAD = 8
"""How many of them are taken off, at most."""

Found = tuple[Tensor, Tensor]
"""Eigenvalues (K,), falling, and eigenvectors (K, M)."""


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


class Products(Protocol):
    """Symmetric matrices M (B, M, M) of trace 1, known by what they make of vectors."""

    shape: tuple[int, int]  # (B, M)
    dtype: torch.dtype
    device: torch.device

    def times(self, block: Tensor) -> Tensor:
        """Vectors (B, K, M), or (K, M) for each, times the matrices."""
        ...

    def times_one(self, at: int, block: Tensor) -> Tensor:
        """Vectors (K, M) times the matrix at `at`."""
        ...

    def take_off(self, heads: Tensor) -> None:
        """Make (I - U^T U) M (I - U^T U) of each M, for orthonormal (or zero) rows U (B, K, M)."""
        ...


class Matrices:
    """Matrices in memory, which are overwritten."""

    def __init__(self, moments: Tensor) -> None:
        self._moments = moments
        self.shape = (len(moments), moments.shape[1])
        self.dtype, self.device = moments.dtype, moments.device

    def times(self, block: Tensor) -> Tensor:
        """Vectors (B, K, M), or (K, M) for each, times the matrices."""
        return block @ self._moments

    def times_one(self, at: int, block: Tensor) -> Tensor:
        """Vectors (K, M) times the matrix at `at`."""
        return block @ self._moments[at]

    def take_off(self, heads: Tensor) -> None:
        """Make (I - U^T U) M (I - U^T U) of each M."""
        image = heads @ self._moments
        rest = image - (image @ heads.mT) @ heads
        self._moments.baddbmm_(torch.cat([heads, rest], 1).mT, torch.cat([image, heads], 1), alpha=-1)


class RowProducts:
    """X^T X over its trace, for rows X (n, D) that are read in blocks: one pass over them for each product."""

    def __init__(self, rows: Rows) -> None:
        self.trace = trace_of(rows)
        self.shape, self.device = (1, rows.shape[1]), rows.device
        self.dtype = product_dtype(rows.read(0, 1))
        self._rows, self._off = rows, torch.zeros(0, rows.shape[1], dtype=self.dtype, device=rows.device)

    def times(self, block: Tensor) -> Tensor:
        """Vectors (1, K, D) times the matrix."""
        return self.times_one(0, block.flatten(0, -2))[None]

    def times_one(self, at: int, block: Tensor) -> Tensor:
        """Vectors (K, D) times the matrix; sums over blocks of rows are float64."""
        total = torch.zeros(block.shape, dtype=torch.float64, device=self.device)
        for _, part in blocks(self._rows):
            own = part.to(self.dtype) / self.trace**0.5
            own.addmm_(own @ self._off.T, self._off, alpha=-1)
            total += (block @ own.T) @ own
        return total.to(self.dtype)

    def take_off(self, heads: Tensor) -> None:
        """Take their part off each row as it is read."""
        self._off = heads[0]


class Krylov:
    """For each matrix M a growing orthonormal basis of span(Q, MQ, M^2 Q, ...), Q a random block; and M within it."""

    def __init__(
        self, products: Products, wanted: Wanted, *, block: int = BLOCK, most: int | None = None
    ) -> None:
        """Start with nothing.

        Args:
            products: the matrices.
            wanted: how many eigenvectors.
            block: vectors per step.
            most: size of the space at most, where no whole decomposition can step in; by default as is a gain.
        """
        self.products, self.wanted, self.block, self.alone = products, wanted, block, most is not None
        count, size = products.shape
        like = torch.zeros(0, dtype=products.dtype, device=products.device)
        self.off: list[Found] = [(like, like.new_zeros(0, size))] * count  # what was taken off each matrix
        self.kept = like.new_ones(count, 0, 1)  # 0 for the rows of the basis that hold it
        self.eps = torch.finfo(products.dtype).eps
        # How much of the share may be missed, how large a space that takes, when to give up: as measured.
        self.single = products.dtype == torch.float32
        measured = (1e-8, 1.7, 5, 0.9) if self.single else (1e-16, 2.2, 7, 0.6)
        self.slack, self.ratio, self.blocks, limit = measured
        self.room = min(int(limit * size), most or size) // block * block
        self.basis = like.new_empty(count, self.room, size)
        self.inner = like.new_empty(count, self.room, self.room)  # basis M basis^T
        self.size = 0
        self.linked = 0  # where the rows begin that M links the next block to
        # Squared: what M makes of the space outside of it and of the next block, by rounding.
        self.astray = like.new_zeros(count)
        # The trace within the basis and what was taken off; M's largest there.
        self.held, self.scale = [0.0] * count, [0.0] * count
        self.open = list(range(count))  # matrices whose eigenvectors are still looked for
        self.generator = torch.Generator().manual_seed(0)

    def solve(self) -> list[Found | None]:
        """Eigenvalues and eigenvectors as wanted; None where the whole decomposition is the better way.

        Raises:
            LinAlgError: LAPACK gave up on a matrix within its space.
        """
        found: list[Found | None] = [None] * len(self.off)
        goals: list[int | None] = [None] * len(self.off)
        block, _ = _orthonormal(self._random())
        spent = not self.alone
        while self.open and self.size + self.block <= self.room:
            block, link = self._grow(block)
            news = link.diagonal(dim1=1, dim2=2).tolist()
            for at in tuple(self.open):
                ended = min(map(abs, news[at])) < 8 * self.eps * self.scale[at]  # M leads nowhere new
                goal = goals[at] or self._goal(at)
                if ended or (goal and self.size >= goal):
                    found[at] = self._look(at, link[at])
                    goal = int(1.15 * self.size)
                # 1.6: where the goal would lie if it were known now
                if found[at] or (ended and spent) or (goal or 1.6 * self.size) > self.room:
                    self.open.remove(at)
                elif ended:  # the few directions left are in the next block, with others that rounding made
                    spent, block = True, _outside(block, self.basis[:, : self.size])
                goals[at] = goal
            if self.open and self.size == FIRST * self.block and self._blurred():
                block = self._take_off(link, block)
        return found

    def _grow(self, block: Tensor) -> tuple[Tensor, Tensor]:
        """Take in `block`; the next block, and how M links it to this one."""
        start, end = self.size, self.size + self.block
        self.basis[:, start:end] = block
        self.size = end
        image = self.products.times(block)
        # In exact arithmetic M links a block to itself and its neighbours only. Taking those off first
        # leaves a small rest, from which one pass over all rows removes what rounding put there.
        before, self.linked = self.linked, start
        near, seen = self.basis[:, before:end], self.basis[:, :end]
        near_part = image @ near.mT
        image.baddbmm_(near_part, near, alpha=-1)
        part = image @ seen.mT
        image.baddbmm_(part, seen, alpha=-1)
        part[:, :, before:] += near_part
        part[:, :, : self.kept.shape[1]] *= self.kept.mT  # M has nothing left along the others: rounding
        self.inner[:, start:end, :end] = part
        self.inner[:, :end, start:end] = part.mT
        traces = part[:, :, start:].diagonal(dim1=1, dim2=2).tolist()
        self.held = [held + sum(own) for held, own in zip(self.held, traces, strict=True)]
        self.scale = [max(scale, *own) for scale, own in zip(self.scale, traces, strict=True)]
        return _orthonormal(image)

    def _goal(self, at: int) -> int | None:
        """The size at which the wanted eigenvectors should hold still; None while nobody can tell."""
        share = self.wanted.share
        if share is None:
            return self._size_for(self.wanted.count)
        if self.held[at] <= share + 0.1 * (1 - share):
            return None
        if float(self.off[at][0].sum()) > share:
            return self.size
        values = torch.linalg.eigvalsh(self.inner[at, : self.size, : self.size])
        return self._size_for(self._cut(at, values.flip(0)))

    def _size_for(self, k: int) -> int:
        return int(self.ratio * k) + self.blocks * self.block

    def _cut(self, at: int, values: Tensor) -> int:
        """How many are wanted of those taken off and then `values`, which end with a zero for each of them."""
        off, _ = self.off[at]
        return self.wanted.cut(torch.cat([off, values[: len(values) - len(off)]]))

    def _look(self, at: int, link: Tensor) -> Found | None:
        """The wanted eigenvectors within a basis, if they stand every test."""
        values, inner = self._ritz(at)
        off_values, off_vectors = self.off[at]
        k = self._cut(at, values) - len(off_values)
        if k > self.size - len(off_values):
            return None
        if k <= 0:
            return off_values[: k + len(off_values)], off_vectors[: k + len(off_values)]
        # The sum of squared residuals over the smallest eigenvalue estimates the share that is missed.
        residual = float((inner[:k, -self.block :] @ link).square().sum() + self.astray[at])
        by_share, by_angle = self.slack * float(values[k - 1]), (self.eps**0.75 * float(values[0])) ** 2
        if residual > (by_angle if self.wanted.share is None else by_share):
            return None
        vectors = inner[:k] @ self.basis[at, : self.size]
        if not self._sound(at, vectors, float(values[k - 1])):
            return None
        return torch.cat([off_values, values[:k]]), torch.cat([off_vectors, vectors])

    def _blurred(self) -> bool:
        """Whether small eigenvectors are wanted from a float32 matrix that has its largest ones still."""
        small = self.wanted.share is not None or self.wanted.count > HEAD
        return self.single and small and not self.kept.shape[1]

    def _take_off(self, link: Tensor, block: Tensor) -> Tensor:
        """Take the leading eigenvectors that hold still off each matrix; the block to go on with."""
        values, inner = self._ritz(slice(None))
        residuals = (inner[:, :HEAD, -self.block :] @ link).square().sum(2)
        still = (residuals < (self.eps**0.75 * values[:, :1]) ** 2).long().cumprod(1)
        most = int(still.sum(1).max())
        if not most:
            return block
        taken = still[:, :most, None].to(values.dtype)  # (B, most, 1): matrices differ in how many hold still
        ritz = inner @ self.basis[:, : self.size]
        heads = ritz[:, :most] * taken
        self.off = [(values[at, :own], heads[at, :own]) for at, own in enumerate(still.sum(1).tolist())]
        self.kept = 1 - taken
        self.products.take_off(heads)  # U stays in the basis, so that rounding cannot bring it back
        self.basis[:, : self.size] = ritz
        self.linked = 0
        return self._start_again(heads) if self.wanted.share is None else self._go_on(ritz, block)

    def _start_again(self, heads: Tensor) -> Tensor:
        """Keep only what was taken off: single vectors may not even have the rounding of the largest ones in them."""
        self.size = heads.shape[1]
        self.inner[:, : self.size, : self.size] = 0
        self.held, self.scale = [float(values.sum()) for values, _ in self.off], [0.0] * len(self.scale)
        block = self._random()
        return _orthonormal(block - (block @ heads.mT) @ heads)[0]

    def _go_on(self, ritz: Tensor, block: Tensor) -> Tensor:
        """Keep the whole space; what M does in it is asked again of what is left of M, whose rounding is finer."""
        most = self.kept.shape[1]
        image = self.products.times(ritz)
        image[:, :most] *= self.kept
        part = image @ ritz.mT
        part[:, :, :most] *= self.kept.mT
        self.inner[:, : self.size, : self.size] = part
        traces = part.diagonal(dim1=1, dim2=2).tolist()
        self.held = [float(off.sum()) + sum(own) for (off, _), own in zip(self.off, traces, strict=True)]
        self.scale = [max(own) for own in traces]
        image.baddbmm_(part, ritz, alpha=-1)
        self.astray = (image - (image @ block.mT) @ block).square().sum((1, 2))
        return block

    def _sound(self, at: int, vectors: Tensor, smallest: float) -> bool:
        """Whether `vectors` are orthonormal and leave out no eigenvalue above `smallest`."""
        overlap = vectors @ vectors.T
        overlap.diagonal().sub_(1)
        if float(overlap.abs().max()) > self.eps**0.6:
            return False
        # A Krylov space sees at most a block of copies of a repeated eigenvalue. Power steps from fresh random
        # vectors, outside of what was found, meet the copies that it has missed.
        fresh = self._random()
        for _ in range(2):
            image = self.products.times_one(at, fresh - (fresh @ vectors.T) @ vectors)
            fresh, _ = _orthonormal(image)
        fresh = _outside(fresh, vectors)
        left_out = float(torch.linalg.eigvalsh(self.products.times_one(at, fresh) @ fresh.T)[-1])
        return left_out <= smallest * (1 + 10 * self.slack**0.5) + 8 * self.eps * self.scale[at]

    def _ritz(self, at: int | slice) -> Found:
        """Eigenvalues (falling) and eigenvectors (as rows) of M within its basis."""
        values, inner = torch.linalg.eigh(self.inner[at, : self.size, : self.size])
        return values.flip(-1), inner.mT.flip(-2)

    def _random(self) -> Tensor:
        """Vectors (K, M), the same for all matrices."""
        shape = self.block, self.products.shape[1]
        drawn = torch.randn(shape, generator=self.generator, dtype=self.products.dtype)
        return drawn.to(self.products.device)


def _outside(block: Tensor, seen: Tensor) -> Tensor:
    """Orthonormal rows that span those of `block` outside of the orthonormal rows `seen`."""
    for _ in range(2):  # once leaves what rounding brought back in
        block, _ = _orthonormal(block - (block @ seen.mT) @ seen)
    return block


def _orthonormal(block: Tensor) -> tuple[Tensor, Tensor]:
    """Orthonormal rows that span those of `block` (..., K, M), and the lower triangle that takes them back."""
    found, triangle = torch.linalg.qr(block.mT)
    return found.mT, triangle.mT
