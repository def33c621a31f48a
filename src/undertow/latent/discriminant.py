"""Linear and quadratic discriminant analysis: Gaussian classes, as scikit-learn's defaults have them.

    LDA().fit(features, labels).predict(test_features)
    LDA().fit_moments(moments)                    # without features
    QDA(reg=0.1).fit(features, labels)

LDA gives all classes the covariance within classes, QDA gives each its own; both are divided by the number
of rows, and classes weigh as often as they occur. Scores are log-densities up to a constant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from undertow.errors import BadData, BadValue
from undertow.features.products import add_gram, product_dtype, resolution, symmetric
from undertow.latent.arrays import Array, as_tensor, is_positive, matching
from undertow.latent.probe import MomentsProbe, block_rows, by_class, class_means
from undertow.latent.spectrum import eigh

if TYPE_CHECKING:
    from undertow.features.moments import Moments


BLOCK = 2048
"""Rows that are centred and multiplied at once: of 1024 to 4096 the fastest at D = 2048."""


class LDA(MomentsProbe):
    """Linear discriminant analysis.

    Directions in which classes do not vary (a standard deviation of at most `tol`, each feature scaled to 1)
    are left out: where no direction is left, the most frequent class is predicted.
    After `fit`: `coef_` (C, D), `intercept_` (C,), float64.

    Args:
        tol: standard deviation up to which a direction counts as constant.
    """

    coef_: Array
    intercept_: Array

    def __init__(self, tol: float = 1e-4) -> None:
        self.tol = tol

    def fit_bytes(self, count: int, dim: int, classes: int, fits: int = 1) -> int:
        """What `fit` of (count, dim) rows takes beyond them at most: float64 matrices at once, as measured."""
        return 8 * (5 * count**2 + 4 * count * dim if dim > count else 7 * dim**2)

    def _learn(self, rows: Tensor, index: Tensor, counts: Tensor) -> dict[str, Tensor]:
        means = class_means(rows, index, counts)
        if rows.shape[1] > len(rows):
            return self._from_off(means[index].neg_().add_(rows), means, counts)
        dtype = product_dtype(rows)
        within = _within(rows, index, counts, means, dtype)
        if not torch.isfinite(within.diagonal()).all():  # rows further apart than the largest float32
            dtype = torch.float64
            within = _within(rows, index, counts, means, dtype)
        return self._from_within(within, means, counts, resolution(dtype))

    def _learn_moments(self, moments: Moments) -> dict[str, Tensor]:
        return self._from_within(moments.within(), moments.means, moments.counts, moments.resolution)

    def _from_within(
        self, within: Tensor, means: Tensor, counts: Tensor, rounding: float = 0
    ) -> dict[str, Tensor]:
        size = _deviations(within.diagonal(), means)
        off = (means - _centre(means, counts)) / size
        within.div_(size).div_(size[:, None])  # in place: it is the largest thing here, and ours
        # Products in float32 blur small variances: what lies below their rounding is noise.
        solved = _solve_where_varied(within, off, self.tol**2, 8 * rounding)
        return self._linear(solved / size, means, counts)

    def _from_off(self, off: Tensor, means: Tensor, counts: Tensor) -> dict[str, Tensor]:
        """With fewer rows than dimensions, by the (N, N) matrix of their products; `off` is overwritten."""
        size = _deviations(off.square().mean(0), means)
        off.div_(size)
        values, vectors = eigh((off @ off.T).div_(len(off)))
        kept = values > self.tol**2
        whiten = off.T @ (vectors[:, kept] / (values[kept] * len(off) ** 0.5))  # (D, k), of variance 1
        between = (means - _centre(means, counts)) / size
        return self._linear(between @ whiten @ whiten.T / size, means, counts)

    def _linear(self, coef: Tensor, means: Tensor, counts: Tensor) -> dict[str, Tensor]:
        """Weights `coef` (C, D) are (means - centre) covariance^-1; the offsets follow."""
        centre = _centre(means, counts)
        squares = (coef * (means - centre)).sum(1)
        return {"coef_": coef, "intercept_": log_prior(counts) - squares / 2 - coef @ centre}

    def _score(self, rows: Tensor) -> Tensor:
        coef, intercept = (as_tensor(part).to(rows.device) for part in (self.coef_, self.intercept_))
        return torch.cat([part.double() @ coef.T + intercept for part in rows.split(block_rows(rows))])

    def _check_settings(self) -> None:
        if not is_positive(self.tol):
            raise BadValue("LDA(tol=...)", "a number above 0", self.tol)


class QDA(MomentsProbe):
    """Quadratic discriminant analysis.

    A class that does not vary in some direction has no density: it is refused unless `reg` is above 0.
    After `fit`: `means_` (C, D), `whiten_` (C, D, D) and `offsets_` (C,), float64.

    Args:
        reg: from 0 to 1, each covariance becomes (1 - reg) * covariance + reg * identity.
        tol: variance up to which a direction counts as constant.
    """

    means_: Array
    whiten_: Array
    offsets_: Array

    def __init__(self, reg: float = 0.0, tol: float = 1e-4) -> None:
        self.reg = reg
        self.tol = tol

    def fit_bytes(self, count: int, dim: int, classes: int, fits: int = 1) -> int:
        """What so many fits take at most beyond (count, dim) rows: a float64 matrix for each class, and some."""
        return 8 * (fits * classes + 8) * dim**2

    def _learn(self, rows: Tensor, index: Tensor, counts: Tensor) -> dict[str, Tensor]:
        means, places = class_means(rows, index, counts), by_class(index, counts)

        def covariance(c: int) -> Tensor:
            off = rows.index_select(0, places[c]).double() - means[c]
            return off.T @ off / len(off)

        return self._gaussians(covariance, means, counts)

    def _learn_moments(self, moments: Moments) -> dict[str, Tensor]:
        def covariance(c: int) -> Tensor:
            return moments.scatter(c) / moments.counts[c].clamp(min=1)

        return self._gaussians(covariance, moments.means, moments.counts)

    def _gaussians(
        self, covariance: Callable[[int], Tensor], means: Tensor, counts: Tensor
    ) -> dict[str, Tensor]:
        offsets = log_prior(counts)
        whiten = means.new_empty(len(means), means.shape[1], means.shape[1])  # filled in place: it is large
        for c, count in enumerate(counts.tolist()):
            values, vectors = eigh(covariance(c))
            values = (1 - self.reg) * values + self.reg
            if count == 0:
                values = torch.ones_like(values)  # never scored
            elif float(values[0]) <= self.tol:
                self._refuse(c, int((values <= self.tol).sum()), count)
            torch.div(vectors, values.sqrt(), out=whiten[c])
            offsets[c] -= values.log().sum() / 2
        return {"means_": means, "whiten_": whiten, "offsets_": offsets}

    def _refuse(self, c: int, flat: int, count: int) -> None:
        raise BadData(
            f"QDA: wanted classes that vary in every direction, got class {self.classes_[c]}"
            f" with {count} sample{'s' * (count > 1)} and {flat} constant directions. "
            "Set reg above 0, or probe a narrower layer."
        )

    def _score(self, rows: Tensor) -> Tensor:
        rows = rows.double()
        means, whiten = matching(self.means_, rows), matching(self.whiten_, rows)
        far = [((rows - mean) @ white).square().sum(1) for mean, white in zip(means, whiten, strict=True)]
        return matching(self.offsets_, rows) - torch.stack(far, 1) / 2

    def _check_settings(self) -> None:
        if not 0 <= self.reg <= 1:
            raise BadValue("QDA(reg=...)", "a number from 0 to 1", self.reg)


def log_prior(counts: Tensor) -> Tensor:
    """(C,) logarithms of the classes' shares; very small for a class without rows, which is never scored."""
    return (counts.double() / counts.sum()).clamp(min=torch.finfo(torch.float64).tiny).log()


def _centre(means: Tensor, counts: Tensor) -> Tensor:
    """(D,) mean of all rows."""
    return (counts.double() / counts.sum()) @ means


def _within(rows: Tensor, index: Tensor, counts: Tensor, means: Tensor, dtype: torch.dtype) -> Tensor:
    """(D, D) covariance around the class means, float64, of products in `dtype`."""
    near = means.to(dtype)
    upper = means.new_zeros(rows.shape[1], rows.shape[1])
    for part, numbers in zip(rows.split(BLOCK), index.split(BLOCK), strict=True):
        add_gram(upper, part.to(dtype) - near[numbers], dtype)
    # Rows were centred by means in float32; what these are off is known, and so is what it added.
    missed = (means - near) * counts.double().sqrt()[:, None]
    return symmetric(upper).addmm_(missed.T, missed, alpha=-1).div_(len(rows))


def _solve_where_varied(within: Tensor, off: Tensor, least: float, noise: float) -> Tensor:
    """`off` (C, D) times the inverse of `within` (D, D), in directions of a variance that is no noise.

    That is a variance above `least`, and above `noise` times the largest.
    """
    moving = within.diagonal() > least
    inner = within.clone() if bool(moving.all()) else within[moving][:, moving]
    # The norm bounds the largest variance from above. If no variance is below this bound, none is left out,
    # and Cholesky's answer is that of the eigenvectors for a tenth of the time.
    bound = max(least, noise * float(torch.linalg.matrix_norm(inner)))
    inner.diagonal().sub_(bound)
    if int(torch.linalg.cholesky_ex(inner).info) == 0:
        inner.diagonal().add_(bound)
        solved = torch.zeros_like(off)
        solved[:, moving] = torch.cholesky_solve(off[:, moving].T, torch.linalg.cholesky(inner)).T
        return solved
    del inner  # for the memory
    values, vectors = eigh(within)
    kept = values > max(least, noise * float(values[-1]))
    return off @ (vectors[:, kept] / values[kept]) @ vectors[:, kept].T


def _deviations(variances: Tensor, means: Tensor) -> Tensor:
    """Standard deviations, 1 where a feature is constant up to the rounding of its mean."""
    size = variances.clamp(min=0).sqrt()
    return torch.where(size > 1e-12 * means.abs().amax(0), size, 1)
