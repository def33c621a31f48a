"""Is a cloud of noise the same in all directions? Its spectrum, and a test against isotropic Gaussian noise.

    isotropy_test(rows).p                    # rows (N, D), for example noise.delta[:, 0]: N steps, one input
    found = covariance_spectrum(rows, top=5)
    found.shares                             # of the total variance, along the leading directions
    found.isotropic_shares                   # what isotropic noise of the same N, D and total variance shows

The mean is removed (`remove_mean=False` leaves it in): the mean step is the gradient, the rest is the noise.
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
    draws: int
    count: int  # N
    dim: int  # D, the columns that were compared
    dead: int  # columns without any variance, such as units that no input makes fire


@dataclass(frozen=True, eq=False)
class NoiseSpectrum:
    """Leading eigenvalues of the covariance, falling, beside those of isotropic noise."""

    eigenvalues: Floats  # (top,)
    shares: Floats  # (top,), of `total`
    total: float  # total variance: the trace of the covariance
    isotropic: Floats  # (top,), mean over draws of isotropic noise with the same N, D and total variance
    isotropic_shares: Floats  # (top,), the same of `total`
    isotropic_low: Floats  # (top,), 2.5 and 97.5 per cent points of the draws
    isotropic_high: Floats


def isotropy_statistic(rows: Array, *, remove_mean: bool = True, live_only: bool = False) -> float:
    """(1/D) |S' - I|^2 of rows (N, D), S' the covariance over its mean eigenvalue; 0 is isotropic."""
    return _statistic(_Cloud.of(rows, "isotropy_statistic", remove_mean, live_only))


def isotropy_test(
    rows: Array, *, draws: int = 999, seed: int = 0, remove_mean: bool = True, live_only: bool = False
) -> Isotropy:
    """Test rows (N, D), independent of each other, against Gaussian noise with covariance sigma^2 I.

    Args:
        rows: N >= 3 draws of the noise in D >= 2 dimensions.
        draws: of the statistic under the null.
        seed: of these draws.
        remove_mean: test the covariance, not the second moment.
        live_only: leave out columns without any variance. A dead unit alone makes a cloud anisotropic.
    """
    if draws < 1:
        raise BadValue("isotropy_test, draws", "at least one draw", draws)
    cloud = _Cloud.of(rows, "isotropy_test", remove_mean, live_only)
    found = _statistic(cloud)
    null = null_statistics(cloud.free, cloud.dim, draws, np.random.default_rng(seed))
    p = (1 + int((null >= found).sum())) / (draws + 1)
    return Isotropy(found, p, float(null.mean()), draws, cloud.count, cloud.dim, cloud.dead)


def covariance_spectrum(
    rows: Array, top: int = 5, *, draws: int = 100, seed: int = 0, remove_mean: bool = True
) -> NoiseSpectrum:
    """The `top` eigenvalues of the covariance of rows (N, D), fewer where its rank cannot reach that."""
    if top < 1 or draws < 1:
        raise BadValue("covariance_spectrum", "top and draws of at least one", (top, draws))
    cloud = _Cloud.of(rows, "covariance_spectrum", remove_mean, live_only=False)
    top = min(top, cloud.free, cloud.dim)
    squares = torch.linalg.svdvals(cloud.rows).square().cpu().numpy()
    shares, total = squares[:top] / squares.sum(), float(squares.sum()) * cloud.unit / cloud.free
    null = _null_shares(cloud.free, cloud.dim, top, draws, np.random.default_rng(seed))
    low, high = np.quantile(null, [0.025, 0.975], axis=0) * total
    mean = null.mean(0)
    return NoiseSpectrum(shares * total, shares, total, mean * total, mean, low, high)


def null_statistics(free: int, dim: int, draws: int, rng: np.random.Generator) -> Floats:  # (draws,)
    """The statistic of isotropic Gaussian clouds with `free` degrees of freedom (N, or N - 1 without the mean)."""
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
    """Checked rows around their mean (or 0), scaled so that squares neither overflow nor vanish."""

    rows: Tensor  # (N, D) float64
    unit: float  # by which squares of `rows` must be multiplied
    free: int  # degrees of freedom
    count: int
    dim: int
    dead: int

    @classmethod
    def of(cls, array: Array, who: str, remove_mean: bool, live_only: bool) -> _Cloud:
        rows = float_rows(array, who).double()
        low, high = rows.aminmax(dim=0)
        alive = low != high if remove_mean else (low != 0) | (high != 0)
        dead = int((~alive).sum())
        rows = rows[:, alive] if live_only else rows
        if len(rows) < 3 - (not remove_mean) or rows.shape[1] < 2:
            raise BadData(
                f"{who}: wanted at least 3 rows (2 with the mean left in) and 2 columns, got {tuple(rows.shape)}"
                f"{' without the dead columns' if live_only else ''}. Less cannot be anisotropic."
            )
        if not bool(alive.any()):
            raise BadData(f"{who}: wanted rows that differ, got no variance at all. Nothing moved.")
        peak = float(rows.abs().max())
        rows = rows / peak
        if remove_mean:
            # The mean of a constant column may be off by rounding: what is dead stays exactly 0.
            rows = (rows - rows.mean(0)) * (True if live_only else alive)
        if not float(rows.square().sum()):
            raise BadData(f"{who}: wanted rows that differ by more than rounding, got the same ones.")
        return cls(rows, peak**2, len(rows) - remove_mean, len(rows), rows.shape[1], dead)
