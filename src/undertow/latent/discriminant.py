"""Linear and quadratic discriminant analysis: Gaussian classes, as scikit-learn's defaults have them.

    LDA().fit(features, labels).predict(test_features)
    LDA().fit_moments(moments)                    # without features
    QDA(reg=0.1).fit(features, labels)

LDA gives all classes the covariance within classes, QDA gives each its own; both are divided by the number
of rows, and classes weigh as often as they occur. Scores are log-densities up to a constant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from undertow.errors import BadData, BadValue
from undertow.features.products import add_gram, product_dtype, resolution, symmetric
from undertow.latent.arrays import Array, is_positive, matching
from undertow.latent.probe import ROWS, MomentsProbe, by_class, class_means
from undertow.latent.spectrum import eigh

if TYPE_CHECKING:
    from undertow.features.moments import Moments


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

    def _learn(self, rows: Tensor, index: Tensor, counts: Tensor) -> dict[str, Tensor]:
        means = class_means(rows, index, counts)
        if rows.shape[1] > len(rows):
            return self._from_off(rows.double() - means[index], means, counts)
        dtype = product_dtype(rows)
        upper = means.new_zeros(rows.shape[1], rows.shape[1])
        for part, numbers in zip(rows.split(ROWS), index.split(ROWS), strict=True):
            add_gram(upper, (part.double() - means[numbers]).to(dtype), dtype)
        return self._from_within(symmetric(upper) / len(rows), means, counts, resolution(dtype))

    def _learn_moments(self, moments: Moments) -> dict[str, Tensor]:
        return self._from_within(moments.within(), moments.means, moments.counts, moments.resolution)

    def _from_within(
        self, within: Tensor, means: Tensor, counts: Tensor, rounding: float = 0
    ) -> dict[str, Tensor]:
        size = _deviations(within.diagonal(), means)
        values, vectors = eigh(within / size / size[:, None])
        # Products in float32 blur small variances: what lies below their rounding is noise.
        kept = values > max(self.tol**2, 8 * rounding * float(values[-1]))
        return self._linear(vectors[:, kept] / size[:, None] / values[kept].sqrt(), means, counts)

    def _from_off(self, off: Tensor, means: Tensor, counts: Tensor) -> dict[str, Tensor]:
        """With fewer rows than dimensions, by the (N, N) matrix of their products."""
        size = _deviations(off.square().mean(0), means)
        off = off / size
        values, vectors = eigh(off @ off.T / len(off))
        kept = values > self.tol**2
        directions = off.T @ (vectors[:, kept] / (values[kept] * len(off)).sqrt())
        return self._linear(directions / size[:, None] / values[kept].sqrt(), means, counts)

    def _linear(self, whiten: Tensor, means: Tensor, counts: Tensor) -> dict[str, Tensor]:
        """Weights from directions (D, k) along which the classes have variance 1."""
        prior = counts.double() / counts.sum()
        centre = prior @ means
        inner = (means - centre) @ whiten  # (C, k)
        coef = inner @ whiten.T
        return {"coef_": coef, "intercept_": log_prior(counts) - inner.square().sum(1) / 2 - coef @ centre}

    def _score(self, rows: Tensor) -> Tensor:
        rows = rows.double()
        return rows @ matching(self.coef_, rows).T + matching(self.intercept_, rows)

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

    def _learn(self, rows: Tensor, index: Tensor, counts: Tensor) -> dict[str, Tensor]:
        means = class_means(rows, index, counts)
        covariances: list[Tensor] = []
        for at, mean in zip(by_class(index, counts), means, strict=True):
            off = rows.index_select(0, at).double() - mean
            covariances.append(off.T @ off / len(off))
        return self._gaussians(covariances, means, counts)

    def _learn_moments(self, moments: Moments) -> dict[str, Tensor]:
        covariances = [moments.scatter(c) / moments.counts[c].clamp(min=1) for c in range(moments.classes)]
        return self._gaussians(covariances, moments.means, moments.counts)

    def _gaussians(self, covariances: list[Tensor], means: Tensor, counts: Tensor) -> dict[str, Tensor]:
        whiten: list[Tensor] = []
        offsets: list[Tensor] = []
        for c, covariance in enumerate(covariances):
            values, vectors = eigh(covariance)
            values = (1 - self.reg) * values + self.reg
            if int(counts[c]) == 0:
                values = torch.ones_like(values)  # never scored
            elif float(values[0]) <= self.tol:
                self._refuse(c, int((values <= self.tol).sum()), int(counts[c]))
            whiten.append(vectors / values.sqrt())
            offsets.append(-values.log().sum() / 2)
        return {
            "means_": means,
            "whiten_": torch.stack(whiten),
            "offsets_": torch.stack(offsets) + log_prior(counts),
        }

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


def _deviations(variances: Tensor, means: Tensor) -> Tensor:
    """Standard deviations, 1 where a feature is constant up to the rounding of its mean."""
    size = variances.clamp(min=0).sqrt()
    return torch.where(size > 1e-12 * means.abs().amax(0), size, 1)
