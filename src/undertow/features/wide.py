"""Layers wider than a class has samples: n_c x n_c or thin matrices, never D x D.

    rows = TensorRows(features, places)            # or store.rows(c): read from disk in blocks
    g = gram(rows)                                 # (n, n) float64
    values, w = torch.linalg.eigh(g)               # then project(rows, w / values.sqrt()) is a basis of X^T X
    project(rows, w)                               # (D, k) float64: X^T w
    mean_of(rows), trace_of(rows)                  # (D,) float64; of X^T X

Products are made in float32 unless the rows are float64: see products.py for the error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

from undertow.errors import BadValue
from undertow.features.budget import READ_BYTES
from undertow.features.products import add_gram, add_product, product_dtype, symmetric

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
    """Rows of a matrix in memory, given by their places (n,); no more than a block is copied."""

    def __init__(self, rows: Tensor, places: Tensor) -> None:
        self._rows, self._places = rows.detach(), places
        self.shape = (len(places), rows.shape[1])
        self.device = rows.device

    def read(self, start: int, stop: int) -> Tensor:
        """Rows `start` to `stop`; half precision becomes float32."""
        part = self._rows.index_select(0, self._places[start:stop])
        return part.to(torch.promote_types(part.dtype, torch.float32))


def gram(rows: Rows) -> Tensor:
    """(n, n) float64 matrix X X^T, of which at most two blocks of rows are in memory at once."""
    n = rows.shape[0]
    upper = torch.zeros(n, n, dtype=torch.float64, device=rows.device)
    for at, left in blocks(rows):
        dtype = product_dtype(left)
        for j in range(0, rows.shape[1], _COLUMNS):
            add_gram(upper[at, at], left[:, j : j + _COLUMNS].T, dtype)
        for then, right in blocks(rows, start=at.stop):
            for j in range(0, rows.shape[1], _COLUMNS):
                columns = slice(j, j + _COLUMNS)
                add_product(upper[at, then], left[:, columns], right[:, columns].T, dtype)
    return symmetric(upper)


def moment_of(rows: Rows) -> Tensor:
    """(D, D) float64 matrix X^T X."""
    upper = torch.zeros(rows.shape[1], rows.shape[1], dtype=torch.float64, device=rows.device)
    for _, part in blocks(rows):
        add_gram(upper, part, product_dtype(part))
    return symmetric(upper)


def project(rows: Rows, weights: Tensor) -> Tensor:
    """(D, k) float64 matrix X^T `weights` for weights (n, k)."""
    if weights.ndim != 2 or len(weights) != rows.shape[0]:
        raise BadValue("project", f"weights ({rows.shape[0]}, k)", tuple(weights.shape))
    total = torch.zeros(rows.shape[1], weights.shape[1], dtype=torch.float64, device=rows.device)
    for at, part in blocks(rows):
        add_product(total, part.T, weights[at].to(rows.device), product_dtype(part))
    return total


def mean_of(rows: Rows) -> Tensor:
    """(D,) float64 mean of the rows; zeros, which say nothing, where there are none."""
    total = torch.zeros(rows.shape[1], dtype=torch.float64, device=rows.device)
    for _, part in blocks(rows):
        total += part.sum(0, dtype=torch.float64)
    return total / max(rows.shape[0], 1)


def trace_of(rows: Rows) -> float:
    """The trace of X^T X: the sum of all squares, in float64."""
    return sum(float(torch.linalg.vector_norm(part, dtype=torch.float64)) ** 2 for _, part in blocks(rows))


def blocks(rows: Rows, start: int = 0) -> Iterator[tuple[slice, Tensor]]:
    """The rows from `start` on, as many at a time as `READ_BYTES` allow, with their places."""
    n, dim = rows.shape
    size = max(1, READ_BYTES // (4 * max(dim, 1)))
    for at in range(start, n, size):
        stop = min(at + size, n)
        yield slice(at, stop), rows.read(at, stop)
