"""What a linear model on given features learns: how much of each eigenfunction, how fast, and what is missed.

    learned = learnability(eigenvalues, samples=50)
    learned.shares                      # (K,) L_k = rho_k / (rho_k + kappa): they add up to 50
    learned.kappa
    generalisation_loss(eigenvalues, coefficients, samples=50)
    gradient_flow(eigenvalues, coefficients, time=3.0)    # (K,) coefficients of the model at that time

The theory of ridgeless kernel regression (the paper's appendix C, eq. 15, 16 and 25): eigenvalues rho_k of the
features' second moment, coefficients <e_k|f*> of the target. With as many samples as features, or more, everything
that the features span is learned: kappa is 0, each share 1 and the loss 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from undertow.errors import BadData, BadValue
from undertow.richness.rows import Array, as_tensor


@dataclass(frozen=True, eq=False)
class Learnability:
    """How much of each eigenfunction regression on so many samples finds, on average over draws."""

    shares: Tensor  # (K,) in [0, 1], in the order of the eigenvalues
    kappa: float  # eigenvalues above it are learned, those below are not


def learnability(eigenvalues: Array, samples: float) -> Learnability:
    """Shares of eigenfunctions (K,) that regression on `samples` points learns (eq. 15).

    Args:
        eigenvalues: of the features' second moment, 0 or more, in any order.
        samples: how many points the model is fitted to.
    """
    if not samples > 0:
        raise BadValue("samples", "above 0", samples)
    values = _eigenvalues(eigenvalues)
    alive = values[values > 0]
    if samples >= len(alive):
        return Learnability((values > 0).double(), 0.0)
    kappa = _kappa(alive, samples)
    return Learnability(values / (values + kappa), kappa)


def generalisation_loss(eigenvalues: Array, coefficients: Array, samples: float) -> float:
    """Expected squared error of regression on `samples` points without noise (eq. 16).

    Args:
        eigenvalues: as for `learnability`.
        coefficients: of the target in the eigenfunctions, (K,) or (K, C); the losses of several targets add up.
        samples: how many points the model is fitted to.
    """
    shares = learnability(eigenvalues, samples).shares
    wanted = _coefficients(coefficients, len(shares))
    missed = float(((1 - shares)[:, None].square() * wanted.square()).sum())
    # 1 - sum L^2 / n > 0 whenever something is missed: the L_k add up to n, and some are below 1.
    return missed / (1 - float(shares.square().sum()) / samples) if missed else 0.0


def gradient_flow(eigenvalues: Array, coefficients: Array, time: float) -> Tensor:
    """Coefficients (K,) or (K, C) of a linear model that starts at 0, trained for `time` on all inputs (eq. 25)."""
    if not time >= 0:
        raise BadValue("time", "0 or more", time)
    values = _eigenvalues(eigenvalues)
    wanted = _coefficients(coefficients, len(values))
    learned = -torch.expm1(-values * time)  # 1 - e^(-rho t), exact for small rho t too
    found = wanted * learned[:, None]
    return found[:, 0] if as_tensor(coefficients).ndim == 1 else found


def _kappa(values: Tensor, samples: float) -> float:
    """Where the shares add up to `samples`; they fall as kappa grows, so the root is bracketed in logarithms."""
    from scipy.optimize import brentq

    most, count = float(values.max()), len(values)
    relative = values / most

    def excess(logarithm: float) -> float:
        return float((relative / (relative + math.exp(logarithm))).sum()) - samples

    # kappa = rho (K - n) / n gives an eigenvalue the share n / K: with the least of them all shares are that large,
    # with the largest that small.
    even = math.log((count - samples) / samples)
    low, high = float(relative.min().log()) + even - 1, even + 1
    return most * math.exp(cast(float, brentq(excess, low, high, xtol=1e-13)))


def _eigenvalues(given: Array) -> Tensor:
    values = as_tensor(given).double()
    if values.ndim != 1 or not len(values) or not bool(torch.isfinite(values).all()):
        raise BadData(
            f"learnability: wanted finite eigenvalues (K,), got shape {tuple(values.shape)} or NaN."
        )
    if float(values.min()) < 0 or not float(values.max()) > 0:
        raise BadData(
            f"learnability: wanted eigenvalues of 0 or more, one above 0, got {float(values.min()):.3g} "
            f"to {float(values.max()):.3g}."
        )
    return values


def _coefficients(given: Array, count: int) -> Tensor:
    """(K, C), finite."""
    found = as_tensor(given).double()
    if found.ndim not in (1, 2) or len(found) != count or not bool(torch.isfinite(found).all()):
        raise BadData(
            f"learnability: wanted finite coefficients of {count} eigenfunctions, got shape {tuple(found.shape)} "
            "or NaN."
        )
    return found if found.ndim == 2 else found[:, None]
