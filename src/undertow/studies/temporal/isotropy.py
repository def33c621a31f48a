"""Is a cloud of noise the same in all directions? Its spectrum, and a test against isotropic Gaussian noise.

    isotropy_test(rows).p                    # rows (N, D), for example noise.delta[:, 0]: N steps, one input
    found = covariance_spectrum(rows, top=5)
    found.shares                             # of the total variance, along the leading directions
    found.isotropic_shares                   # what isotropic noise of the same N, D and total variance shows

The mean is removed: the mean step is the gradient, the rest is the noise.
With S the covariance and S' = S / (tr S / D), the statistic (1/D) |S' - I|^2 equals D |S|^2 / (tr S)^2 - 1,
so the smaller of the D x D and N x N products tells it; neither scale nor rotation changes it.

The null needs no N x D draws either. A Gaussian matrix becomes bidiagonal under rotations of its rows and
columns, with independent chi-distributed entries (Dumitriu and Edelman, 2002): min(N, D) numbers give the
statistic and the spectrum of an isotropic cloud, exactly in distribution. Removing the mean costs one row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import eigvalsh_tridiagonal
from torch import Tensor

from undertow.errors import BadData, BadValue
from undertow.richness.rows import Array, float_rows

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Isotropy:
    """The test's answer: a small p says that the cloud is not isotropic."""

    statistic: float
    p: float  # at least 1 / (draws + 1)
    expected: float  # mean of the statistic under isotropy: not 0, for N is finite


@dataclass(frozen=True, eq=False)
class NoiseSpectrum:
    """Leading eigenvalues of the covariance, falling, beside those of isotropic noise."""

    eigenvalues: Floats  # (top,)
    shares: Floats  # (top,), of `total`
    total: float  # total variance: the trace of the covariance
    isotropic_shares: (
        Floats  # (top,), mean over draws of isotropic noise with the same N, D and total variance
    )


def isotropy_test(rows: Array, *, draws: int = 999, seed: int = 0) -> Isotropy:
    """Test rows (N, D), independent of each other, against Gaussian noise with covariance sigma^2 I.

    Args:
        rows: N >= 3 draws of the noise in D >= 2 dimensions.
        draws: of the statistic under the null.
        seed: of these draws.
    """
    if draws < 1:
        raise BadValue("isotropy_test, draws", "at least one draw", draws)
    cloud = _Cloud.of(rows, "isotropy_test")
    found = _statistic(cloud)
    null = null_statistics(cloud.free, cloud.dim, draws, np.random.default_rng(seed))
    p = (1 + int((null >= found).sum())) / (draws + 1)
    return Isotropy(found, p, float(null.mean()))


def covariance_spectrum(rows: Array, top: int = 5, *, draws: int = 100, seed: int = 0) -> NoiseSpectrum:
    """The `top` eigenvalues of the covariance of rows (N, D), fewer where its rank cannot reach that."""
    if top < 1 or draws < 1:
        raise BadValue("covariance_spectrum", "top and draws of at least one", (top, draws))
    cloud = _Cloud.of(rows, "covariance_spectrum")
    top = min(top, cloud.free, cloud.dim)
    squares = torch.linalg.svdvals(cloud.rows).square().cpu().numpy()
    shares, total = squares[:top] / squares.sum(), float(squares.sum()) * cloud.unit / cloud.free
    null = _null_shares(cloud.free, cloud.dim, top, draws, np.random.default_rng(seed))
    return NoiseSpectrum(shares * total, shares, total, null.mean(0))


def null_statistics(free: int, dim: int, draws: int, rng: np.random.Generator) -> Floats:  # (draws,)
    """The statistic of isotropic Gaussian clouds with `free` degrees of freedom (N - 1 without the mean)."""
    diagonal, beside = _tridiagonal(free, dim, draws, rng)
    square = (diagonal**2).sum(1) + 2 * (beside**2).sum(1)
    return dim * square / diagonal.sum(1) ** 2 - 1


def _null_shares(free: int, dim: int, top: int, draws: int, rng: np.random.Generator) -> Floats:
    """(draws, top) leading eigenvalues of isotropic clouds over their sum."""
    diagonal, beside = _tridiagonal(free, dim, draws, rng)
    size = diagonal.shape[1]
    leading = [
        eigvalsh_tridiagonal(main, off, select="i", select_range=(size - top, size - 1))[::-1]
        for main, off in zip(diagonal, beside, strict=True)
    ]
    return np.stack(leading) / diagonal.sum(1, keepdims=True)


def _tridiagonal(free: int, dim: int, draws: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Diagonals (draws, K) and off-diagonals (draws, K - 1) with the eigenvalues of G G^T, G Gaussian (free, dim)."""
    small, large = sorted((free, dim))
    # Squares of the bidiagonal's entries: rotate a row onto its first entry, then the column below it, and so on.
    main = rng.chisquare(np.arange(large, large - small, -1), (draws, small))
    below = rng.chisquare(np.arange(small - 1, 0, -1), (draws, small - 1))
    diagonal = main.copy()
    diagonal[:, 1:] += below
    return diagonal, np.sqrt(main[:, :-1] * below)


def _statistic(cloud: _Cloud) -> float:
    rows = cloud.rows if len(cloud.rows) <= cloud.dim else cloud.rows.T
    square = float((rows @ rows.T).square().sum())
    return cloud.dim * square / float(rows.square().sum()) ** 2 - 1


@dataclass(frozen=True, eq=False)
class _Cloud:
    """Checked rows around their mean, scaled so that squares neither overflow nor vanish."""

    rows: Tensor  # (N, D) float64
    unit: float  # by which squares of `rows` must be multiplied

    @property
    def free(self) -> int:
        """Degrees of freedom: the mean costs one row."""
        return len(self.rows) - 1

    @property
    def dim(self) -> int:
        return self.rows.shape[1]

    @classmethod
    def of(cls, array: Array, who: str) -> _Cloud:
        rows = float_rows(array, who).double()
        if len(rows) < 3 or rows.shape[1] < 2:
            raise BadData(
                f"{who}: wanted at least 3 rows and 2 columns, got {tuple(rows.shape)}. Less cannot be anisotropic."
            )
        low, high = rows.aminmax(dim=0)
        peak = float(rows.abs().max())
        rows = rows / (peak or 1.0)
        # The mean of a constant column may be off by rounding: what stands still stays exactly 0.
        rows = (rows - rows.mean(0)) * (low != high)
        if not float(rows.square().sum()):
            raise BadData(f"{who}: wanted rows that differ by more than rounding, got no variance at all.")
        return cls(rows, peak**2)
