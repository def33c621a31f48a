"""Layers wider than a class has samples: n_c x n_c or thin matrices, never D x D.

    rows = TensorRows(features)                    # or store.rows("layer2", c): read from disk in blocks
    g = gram(rows)                                 # (n, n) float64
    values, w = torch.linalg.eigh(g)               # then project(rows, w / values.sqrt()) is a basis of X^T X
    project(rows, w)                               # (D, k) float64: X^T w
    found = leading(rows, share=0.99, generator=g) # when n and D are both large
    found.vectors, found.share                     # (D, k) and the share of the trace that they hold, at least

`leading` grows a block Krylov space of X^T X from random directions (Musco and Musco 2015), one pass
over the rows per block, and takes Ritz vectors from it. Its error is stated afterwards, not assumed:
the trace of X^T X is known exactly and what the vectors hold of it is measured in float64, so `share`
is a certified lower bound of what the best subspace of that dimension holds.
Products are made in float32 unless `precise`: see products.py for the error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from undertow.errors import BadValue
from undertow.features.budget import READ_BYTES
from undertow.features.products import add_gram, add_product, product_dtype, resolution, symmetric

_COLUMNS = 1024  # of a block that are multiplied before the sum goes on in float64


class Rows(Protocol):
    """A matrix (n, D) that is read some rows at a time."""

    @property
    def shape(self) -> tuple[int, int]:
        """(n, D)."""
        ...

    @property
    def device(self) -> torch.device:
        """Where blocks are put."""
        ...

    def read(self, start: int, stop: int) -> Tensor:
        """Rows `start` to `stop` as float32 or float64."""
        ...


class TensorRows:
    """Rows that are in memory already."""

    def __init__(self, rows: Tensor) -> None:
        self._rows = rows.detach()
        self.shape = (rows.shape[0], rows.shape[1])
        self.device = rows.device

    def read(self, start: int, stop: int) -> Tensor:
        """Rows `start` to `stop`; half precision becomes float32."""
        part = self._rows[start:stop]
        return part.to(torch.promote_types(part.dtype, torch.float32))


@dataclass(frozen=True, eq=False)
class Leading:
    """Leading directions of X^T X, and what is certain about them."""

    vectors: Tensor  # (D, k) float64, orthonormal
    values: Tensor  # (k,) float64, what each direction holds of the trace, largest first
    trace: float  # of X^T X
    passes: int  # over the rows
    reached: bool  # whether the wanted share or number of directions was found within the limit

    @property
    def share(self) -> float:
        """What the directions hold of the trace: at most what the best as many would; 0 without any."""
        return float(self.values.sum()) / self.trace if self.trace else 0.0


def gram(rows: Rows, *, block: int | None = None, precise: bool = False) -> Tensor:
    """(n, n) float64 matrix X X^T, read `block` rows at a time and at most two blocks at once."""
    n = rows.shape[0]
    upper = torch.zeros(n, n, dtype=torch.float64, device=rows.device)
    for at, left in _blocks(rows, block):
        dtype = product_dtype(left, precise)
        for j in range(0, rows.shape[1], _COLUMNS):
            add_gram(upper[at, at], left[:, j : j + _COLUMNS].T, dtype)
        for then, right in _blocks(rows, block, start=at.stop):
            for j in range(0, rows.shape[1], _COLUMNS):
                columns = slice(j, j + _COLUMNS)
                add_product(upper[at, then], left[:, columns], right[:, columns].T, dtype)
    return symmetric(upper)


def project(rows: Rows, weights: Tensor, *, block: int | None = None, precise: bool = False) -> Tensor:
    """(D, k) float64 matrix X^T `weights` for weights (n, k), read `block` rows at a time."""
    if weights.ndim != 2 or len(weights) != rows.shape[0]:
        raise BadValue("project", f"weights ({rows.shape[0]}, k)", tuple(weights.shape))
    total = torch.zeros(rows.shape[1], weights.shape[1], dtype=torch.float64, device=rows.device)
    for at, part in _blocks(rows, block):
        add_product(total, part.T, weights[at].to(rows.device), product_dtype(part, precise))
    return total


def mean_of(rows: Rows, *, block: int | None = None) -> Tensor:
    """(D,) float64 mean of the rows; there must be some."""
    if not rows.shape[0]:
        raise BadValue("mean_of", "at least one row", 0)
    total = torch.zeros(rows.shape[1], dtype=torch.float64, device=rows.device)
    for _, part in _blocks(rows, block):
        total += part.sum(0, dtype=torch.float64)
    return total / rows.shape[0]


def trace_of(rows: Rows, *, block: int | None = None) -> float:
    """The trace of X^T X: the sum of all squares, in float64."""
    parts = _blocks(rows, block)
    return sum(float(torch.linalg.vector_norm(part, dtype=torch.float64)) ** 2 for _, part in parts)


def leading(
    rows: Rows,
    *,
    generator: torch.Generator,
    share: float | None = None,
    components: int | None = None,
    width: int = 64,
    limit: int = 1024,
    tolerance: float = 1e-4,
    block: int | None = None,
    precise: bool = False,
) -> Leading:
    """Leading directions of X^T X by random block Krylov iteration.

    Args:
        rows: X.
        generator: a CPU generator for the first directions.
        share: take the fewest directions found that hold more than this share of the trace; or
        components: take this many.
        width: new directions per pass over the rows.
        limit: directions kept at most, which bounds memory to about 3 * D * limit * 8 bytes.
        tolerance: go on until a pass no longer changes the number of directions, and their share by
            less than this.
        block: rows read at a time.
        precise: multiply in float64.
    """
    if (share is None) == (components is None):
        raise BadValue("leading", "either a share or a number of components", (share, components))
    if (share is not None and not 0 < share < 1) or (components is not None and components < 1):
        raise BadValue("leading", "a share between 0 and 1, or 1 component or more", share or components)
    n, dim = rows.shape
    wanted = _Wanted(share, components, trace_of(rows, block=block))
    if wanted.trace == 0:
        nothing = torch.zeros(dim, 0, dtype=torch.float64, device=rows.device)
        return Leading(nothing, nothing[0], 0.0, 1, reached=False)
    space = _Krylov(rows, min(width, n, dim), generator, block, precise)
    before: tuple[int, float] | None = None
    while True:
        space.grow()
        now = wanted.met_by(space.values)
        held = (
            now is not None and before is not None and now[0] == before[0] and now[1] - before[1] < tolerance
        )
        if held or space.exhausted or space.size + width > min(limit, max(n, dim)):
            break
        before = now
    return _certified(space, wanted, spare=8)


@dataclass(frozen=True)
class _Wanted:
    share: float | None
    components: int | None
    trace: float

    def met_by(self, values: Tensor) -> tuple[int, float] | None:
        """How many of the values (largest first) do, and the share that they hold; None if all do not."""
        held = values.cumsum(0) / self.trace
        k = self.components if self.share is None else int((held <= self.share).sum()) + 1
        return None if k is None or k > len(held) else (k, float(held[k - 1]))


class _Krylov:
    """An orthonormal basis Q that grows by directions of X^T X Q, with X^T X Q beside it."""

    def __init__(
        self, rows: Rows, width: int, generator: torch.Generator, block: int | None, precise: bool
    ) -> None:
        self._rows, self._width, self._generator = rows, width, generator
        self._block, self._precise = block, precise
        self._basis = self._image = torch.zeros(rows.shape[1], 0, dtype=torch.float64, device=rows.device)
        self.values = self._turn = self._basis[0]
        self.passes = 1  # the one for the trace
        self._next = self._random()

    @property
    def size(self) -> int:
        return self._basis.shape[1]

    @property
    def exhausted(self) -> bool:
        """Whether the rows have no direction outside the basis, but for rounding."""
        return self._next.shape[1] == 0

    def grow(self) -> None:
        """One pass over the rows: the image of the newest directions, new Ritz values, the next directions."""
        image = torch.zeros_like(self._next)
        for _, part in _blocks(self._rows, self._block):
            dtype = product_dtype(part, self._precise)
            scores = torch.zeros(len(part), image.shape[1], dtype=torch.float64, device=part.device)
            add_product(scores, part, self._next, dtype)
            add_product(image, part.T, scores, dtype)
        self.passes += 1
        self._basis = torch.cat([self._basis, self._next], 1)
        self._image = torch.cat([self._image, image], 1)
        inner = self._basis.T @ self._image
        values, turn = torch.linalg.eigh((inner + inner.T) / 2)
        self.values, self._turn = values.flip(0), turn.flip(1)
        self._next = self._outside(image, float(self.values[0]))
        if self.exhausted:
            # Images stay inside when an eigenvalue has more directions than a block: draw others.
            self._next = self._random()

    def _random(self) -> Tensor:
        """Random combinations of the rows: they lie in the row space, at half the price of an image."""
        draw = torch.randn(self._rows.shape[0], self._width, generator=self._generator, dtype=torch.float64)
        self.passes += 1
        mixed = project(self._rows, draw, block=self._block, precise=self._precise)
        return self._outside(mixed, float(torch.linalg.matrix_norm(mixed, 2)))

    def _outside(self, block: Tensor, scale: float) -> Tensor:
        """Orthonormal directions of `block` outside the basis; those within rounding of `scale` are dropped."""
        for _ in range(2):  # once leaves what rounding brought back in
            block = block - self._basis @ (self._basis.T @ block)
        q, r = torch.linalg.qr(block)
        u, sizes, _ = torch.linalg.svd(r)
        noise = 50 * resolution(torch.float64 if self._precise else torch.float32)
        new = (q @ u)[:, sizes > noise * scale]
        return torch.linalg.qr(new - self._basis @ (self._basis.T @ new))[0]

    def ritz(self, k: int) -> Tensor:
        """(D, k) orthonormal: the first k Ritz vectors."""
        return torch.linalg.qr(self._basis @ self._turn[:, :k])[0]

    def measured(self, vectors: Tensor) -> Tensor:
        """(k,) float64 squared lengths of X v, product by product in float64."""
        self.passes += 1
        squares = (((part.double() @ vectors) ** 2).sum(0) for _, part in _blocks(self._rows, self._block))
        return sum(squares, torch.zeros(vectors.shape[1], dtype=torch.float64, device=vectors.device))


def _certified(space: _Krylov, wanted: _Wanted, spare: int) -> Leading:
    """The answer with values measured in float64; a few vectors are spare, should float32 have misled."""
    met = wanted.met_by(space.values)
    vectors = space.ritz(space.size if met is None else met[0] + spare)
    values, order = space.measured(vectors).sort(descending=True)
    met = wanted.met_by(values)
    k = len(values) if met is None else met[0]
    return Leading(vectors[:, order[:k]], values[:k], wanted.trace, space.passes, met is not None)


def _blocks(rows: Rows, block: int | None, start: int = 0) -> Iterator[tuple[slice, Tensor]]:
    n, dim = rows.shape
    size = block or max(1, READ_BYTES // (4 * max(dim, 1)))
    for at in range(start, n, size):
        stop = min(at + size, n)
        yield slice(at, stop), rows.read(at, stop)
