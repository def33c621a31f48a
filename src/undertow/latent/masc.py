"""MASC: the class whose subspace makes the smallest angle with a row.

    probe = MASC(variance=0.99).fit(features, labels)
    probe.predict(test_features)
    probe.bases_[3], probe.dimensions_            # (D, k_3) orthonormal; k of each class
    probe.scores(test_features)                   # (N, C) squared cosines, from 0 to 1

    MASC(components=10)                           # a fixed number of directions instead of a share
    MASC().fit_moments(moments)                   # without features
    MASC().fit_rows([store.rows("layer1", c) for c in range(10)])   # features on disk

Each class gives the leading principal directions of its rows and their negatives: the fewest whose share
of the squared length exceeds `variance`. The angle between x and its projection has the cosine
||U^T x|| / ||x||, so the smallest angle is the largest ||U^T x||^2: one product of x with all bases side
by side. A row that is zero, or at a right angle to every subspace, scores 0 everywhere: see probe.py on
equal scores. A class whose rows are all zero has a subspace of dimension 0 and scores 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import torch
from sklearn.utils import Tags
from torch import Tensor

from undertow.errors import BadData, BadValue
from undertow.features.products import resolution
from undertow.features.sketch import ClassSketches
from undertow.features.wide import Rows
from undertow.latent.arrays import (
    Array,
    as_written,
    feature_rows,
    is_positive,
    is_whole,
    matching,
    scaled,
)
from undertow.latent.probe import MomentsProbe, by_class
from undertow.latent.subspace import Subspace, of_classes, of_kernel, of_moment, of_stored, self_product
from undertow.latent.threads import side_by_side
from undertow.sizes import show_size

if TYPE_CHECKING:
    from undertow.features.moments import Moments


CELLS, LEAST_ROWS = 2_000_000, 256
"""Numbers of the product of directions and rows that are there at once: 8 MB; fewer rows would slow it down."""


class MASC(MomentsProbe):
    """Minimum angle subspace classifier.

    After `fit`: `bases_` (a list of (D, k_c)), `dimensions_` (C,), `shares_` (C,) of the squared length
    that each subspace holds, `basis_` (D, sum of k_c), all bases side by side.

    Args:
        variance: share of each class's squared length that its subspace must exceed; 1 for all of it.
            Shares above 0.9999 ask more than float32 features can tell: give float64 ones.
        components: a number of directions for each class instead, or as many as it has.
    """

    basis_: Array
    dimensions_: Array
    shares_: Array

    def __init__(self, variance: float = 0.99, components: int | None = None) -> None:
        self.variance = variance
        self.components = components

    @property
    def bases_(self) -> list[Array]:
        """The basis of each class, (D, k_c) with orthonormal columns, most important first."""
        ends = [0, *torch.as_tensor(self.dimensions_).cumsum(0).tolist()]
        return [self.basis_[:, a:b] for a, b in pairwise(ends)]

    def fit_rows(
        self,
        rows: Sequence[Rows],
        classes: Sequence[Any] | Array | None = None,
        *,
        thin: bool = False,
        room: int | None = None,
    ) -> Self:
        """Learn from rows that are read in blocks, one item per class; for layers wider than a class has rows.

        Args:
            rows: the rows of each class, in the order of the class numbers.
            classes: names of the classes; the numbers by default.
            thin: build no matrix (n_c, n_c) beyond 1024 rows, but read them more often.
            room: bytes that the directions of all classes may take.

        Raises:
            BadData: they take more.
        """
        self._check_settings()
        self._start(rows[0].shape[1], torch.tensor([part.shape[0] for part in rows]), classes)
        with as_written(rows[0].device):
            dtype = rows[0].read(0, 0).dtype
            each = (of_stored(part, thin=thin, **self._wanted()) for part in rows)
            found = _within((Subspace(one.basis.to(dtype), one.share) for one in each), room)
            like = found[0].basis[:0]
            self._keep(self._joined(found), like=like)
        return self

    def fit_sketches(self, seen: ClassSketches, counts: Tensor) -> Self:
        """Learn from sketches of the classes: as many directions as they show for certain, at most their size."""
        self._check_settings()
        self._start(seen.dim, counts, None)
        self._keep(self._joined([self._of_sketch(seen, c) for c in range(seen.classes)]), like=counts)
        return self

    def _of_sketch(self, seen: ClassSketches, c: int) -> Subspace:
        values, basis = seen.directions(c)
        whole = max(float(seen.squares[c]), 1e-300)
        shares = values.cumsum(0) / whole
        enough = int((shares <= self.variance).sum()) + 1 if self.components is None else self.components
        kept = min(enough, len(values))
        return Subspace(basis[:, :kept].float(), float(shares[kept - 1]) if kept else 0.0)

    def fit_and_answer(self, X: Tensor, label_sets: Sequence[Tensor]) -> list[tuple[Self, Tensor]]:
        """`fit_each`, and what each probe predicts for `X` itself, from one matrix (N, N) of inner products.

        Each class's own matrix is a part of it. It pays where columns are many times as many as a class has rows.
        """
        self._check_settings()
        rows = scaled(feature_rows(copy(self), X, reset=True))
        found: list[tuple[Self, Tensor]] = []
        with as_written(rows.device):
            kernel = self_product(rows)
            solve = partial(of_kernel, rows, kernel, **self._wanted())
            for labels in label_sets:
                names, index, counts = labels.unique(return_inverse=True, return_counts=True)
                each = side_by_side(solve, by_class(index, counts), rows.device)
                probe = copy(self)
                probe._start(rows.shape[1], counts, names)
                probe._keep(self._joined([own for own, _ in each]), like=rows)
                held = torch.stack([lengths for _, lengths in each], 1)
                found.append((probe, names[held.argmax(1)]))
        return found

    def _learn(self, rows: Tensor, index: Tensor, counts: Tensor) -> dict[str, Tensor]:
        return self._joined(of_classes(rows, by_class(index, counts), **self._wanted()))

    def _learn_moments(self, moments: Moments) -> dict[str, Tensor]:
        # Directions of float32 features in float64 would take twice the memory, and score the same.
        coarse = moments.resolution > resolution(torch.float64)
        dtype = torch.float32 if coarse else torch.float64
        each = (
            of_moment(moments.second_moment(c), rounding=moments.resolution, **self._wanted())
            for c in range(moments.classes)
        )
        return self._joined([Subspace(one.basis.to(dtype), one.share) for one in each])

    def _joined(self, found: list[Subspace]) -> dict[str, Tensor]:
        """All bases side by side; `found` is emptied, since both together would take twice the memory."""
        sizes = [part.basis.shape[1] for part in found]
        shares = torch.tensor([part.share for part in found], dtype=torch.float64)
        basis = found[0].basis.new_empty(len(found[0].basis), sum(sizes))
        for place in basis.split(sizes, 1):
            place.copy_(found.pop(0).basis)
        return {"basis_": basis, "dimensions_": torch.tensor(sizes), "shares_": shares}

    def _prepare(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The rows, and their squared lengths (N, 1)."""
        rows = scaled(rows)
        whole = torch.linalg.vector_norm(rows, dim=1, keepdim=True).square()
        return rows, torch.where(whole > 0, whole, 1)

    def _score(self, rows: tuple[Tensor, Tensor]) -> Tensor:
        own, whole = rows
        basis, sizes = matching(self.basis_, own).T, torch.as_tensor(self.dimensions_).tolist()
        step = max(LEAST_ROWS, CELLS // max(1, len(basis)))
        return torch.cat([_lengths(basis, part, sizes) for part in own.split(step)]) / whole

    def _wanted(self) -> dict[str, Any]:
        return {"share": self.variance} if self.components is None else {"count": self.components}

    def _check_settings(self) -> None:
        if self.components is not None and not is_whole(self.components, 1):
            raise BadValue("MASC(components=...)", "a whole number from 1 up, or None", self.components)
        if not (is_positive(self.variance) and self.variance <= 1):
            raise BadValue(
                "MASC(variance=...)", "a share above 0 and at most 1", self.variance, "For 99 % write 0.99."
            )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # on rows of two numbers every subspace is the plane
        return tags


def _within(found: Iterable[Subspace], room: int | None) -> list[Subspace]:
    """All of them, unless they take more than so many bytes: twice their size, while they are joined."""
    kept: list[Subspace] = []
    for one in found:
        kept.append(one)
        if room is not None and 2 * sum(part.basis.nbytes for part in kept) > room:
            raise BadData(
                f"masc's directions take more than the {show_size(room)} that --memory leaves for them; give more, or "
                "leave masc out"
            )
    return kept


def _lengths(basis: Tensor, rows: Tensor, sizes: list[int]) -> Tensor:
    """(N, C) squared lengths of rows (N, D) within each class's part of the directions (K, D)."""
    # Directions by rows, not rows by directions: that way round the product takes a fifth less.
    inside = torch.mm(basis, rows.T).square_()
    return torch.stack([part.sum(0) for part in inside.split(sizes)], 1)
