"""The subspace through the origin that holds most of a class, from whatever is known of the class.

    found = of_rows(rows, share=0.99)              # rows (n, D) in memory
    each = of_classes(rows, [ones, twos], share=0.99)    # given by the numbers of their rows
    found = of_moment(moment, share=0.99)          # X^T X (D, D)
    found = of_stored(store.rows("layer1", c), share=0.99)
    found.basis, found.share                       # (D, k) orthonormal, most important first; of the trace

PCA of the rows and their negatives has mean 0, so its directions are the eigenvectors of X^T X: neither
the negatives nor the covariance are ever built. With fewer rows than dimensions, X X^T (n, n) has the same
eigenvalues, and X^T takes its eigenvectors to those of X^T X.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from undertow.errors import BadData
from undertow.features.budget import DIRECTIONS
from undertow.features.products import product_dtype, resolution
from undertow.features.wide import Rows, gram, moment_of, project
from undertow.latent.arrays import scaled
from undertow.latent.spectrum import Eigen, eigenvectors, eigenvectors_of_each, eigenvectors_of_rows
from undertow.latent.threads import SHORT, in_groups, side_by_side

PANEL = 128
"""Columns of a product that are made at once; only what lies on or below the diagonal is computed."""

TERMS = 16384
"""Products that are summed in float32 before the sum goes on in float64."""


class Subspace(NamedTuple):
    """An orthonormal basis, and the share of the rows' squared length that it holds."""

    basis: Tensor  # (D, k), most important first
    share: float


def of_rows(rows: Tensor, *, share: float | None = None, count: int | None = None) -> Subspace:
    """Of the rows (n, D) of one class; the basis has their dtype."""
    rows = scaled(rows)
    if rows.shape[1] <= len(rows):
        found = eigenvectors(self_product(rows.T), share=share, count=count)
        return Subspace(found.vectors, _share(found))
    found = eigenvectors(self_product(rows), share=share, count=count)
    weights = found.vectors / found.values.sqrt()
    return Subspace(orthonormal((weights.T @ rows).T), _share(found))  # this way round for speed


def of_classes(
    rows: Tensor, classes: Sequence[Tensor], *, share: float | None = None, count: int | None = None
) -> list[Subspace]:
    """Of each class, given by the numbers of its rows; several at once where that is faster."""
    dim = rows.shape[1]
    together = dim in SHORT and all(dim <= len(at) for at in classes)

    def solve(group: Sequence[Tensor]) -> list[Subspace]:
        parts = (rows.index_select(0, at) for at in group)  # the rows of one at a time
        if not together:
            return [of_rows(part, share=share, count=count) for part in parts]
        moments = torch.stack([self_product(scaled(part).T) for part in parts])
        found = eigenvectors_of_each(moments, share=share, count=count)
        return [Subspace(one.vectors, _share(one)) for one in found]

    groups = in_groups(classes) if together else [[at] for at in classes]
    return [one for found in side_by_side(solve, groups, rows.device) for one in found]


def of_kernel(
    rows: Tensor, kernel: Tensor, at: Tensor, *, share: float | None = None, count: int | None = None
) -> tuple[Subspace, Tensor]:
    """Of the rows `at` (n,) of a matrix (N, D) with inner products `kernel` (N, N).

    Also the squared lengths (N,) of all rows within the subspace, which need no column of them.
    """
    near = kernel.index_select(0, at)
    found = eigenvectors(near.index_select(1, at), share=share, count=count)
    weights = (found.vectors / found.values.sqrt()).T
    basis = orthonormal((weights @ rows.index_select(0, at)).T)
    return Subspace(basis, _share(found)), (weights @ near).square_().sum(0)


def of_moment(
    moment: Tensor, *, share: float | None = None, count: int | None = None, rounding: float | None = None
) -> Subspace:
    """Of X^T X (D, D), whose products have the relative error `rounding`; a float64 basis.

    Products of float32 are decomposed in float32: they do not hold more.
    """
    total = float(moment.diagonal().sum())
    coarse = rounding is not None and rounding > torch.finfo(torch.float32).eps / 4
    scaled_moment = (moment / (total or 1.0)).to(torch.float32 if coarse else torch.float64)
    found = eigenvectors(scaled_moment, share=share, count=count, rounding=rounding)
    return Subspace(found.vectors.double(), _share(found))


def of_stored(
    rows: Rows, *, thin: bool = False, share: float | None = None, count: int | None = None
) -> Subspace:
    """Of rows that are read in blocks, by their Gram matrix (n, n); a float64 basis.

    `thin` for rows whose Gram matrix has no room: beyond `DIRECTIONS` rows only thin matrices are built.
    """
    if thin and min(rows.shape) > DIRECTIONS:
        found = eigenvectors_of_rows(rows, share=share, count=count)
        if found is None:
            raise BadData(
                f"A class of {rows.shape[0]} rows needs more than a space of {DIRECTIONS} directions, and there is no "
                "room for the matrix of their inner products. Give more --memory or fewer --samples."
            )
        return Subspace(orthonormal(found.vectors.double()), _share(found))
    if thin and rows.shape[1] < rows.shape[0]:
        return of_moment(moment_of(rows), share=share, count=count, rounding=resolution(torch.float32))
    inner = gram(rows)
    total = float(inner.diagonal().sum())
    if total == 0:
        return Subspace(inner.new_zeros(rows.shape[1], 0), 0.0)
    found = eigenvectors(
        (inner / total).float(), share=share, count=count, rounding=resolution(torch.float32)
    )
    weights = found.vectors.double() / (found.values.double() * total).sqrt()
    return Subspace(orthonormal(project(rows, weights)), _share(found))


def self_product(a: Tensor) -> Tensor:
    """A A^T (m, m) for A (m, K), in the dtype of A; half of it is computed and mirrored."""
    size = len(a)
    fine = a.to(product_dtype(a))
    total = torch.empty(size, size, dtype=a.dtype, device=a.device)
    for i in range(0, size, PANEL):
        j = min(i + PANEL, size)
        total[i:, i:j] = _long_product(fine[i:], fine[i:j].T)
        total[i:j, j:] = total[j:, i:j].T
    return total


def _long_product(left: Tensor, right: Tensor) -> Tensor:
    """`left` (A, K) times `right` (K, B); long sums go on in float64."""
    if left.shape[1] <= TERMS:
        return left @ right
    parts = zip(left.split(TERMS, 1), right.split(TERMS), strict=True)
    return torch.stack([(one @ other).double() for one, other in parts]).sum(0)


def orthonormal(basis: Tensor) -> Tensor:
    """`basis` (D, k), orthonormal up to rounding, made so; the first column keeps its direction."""
    overlap = (basis.T @ basis).double()
    factor, failed = torch.linalg.cholesky_ex(overlap)
    overlap.diagonal().sub_(1)
    if int(failed) or (overlap.numel() and float(overlap.abs().max()) > 0.1):
        return torch.linalg.qr(basis)[0]
    return torch.linalg.solve_triangular(factor.to(basis.dtype).T, basis, upper=True, left=False)


def _share(found: Eigen) -> float:
    return float(found.values.double().sum()) / found.total if found.total else 0.0
