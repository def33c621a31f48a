"""Noise on single pixels: gaussian_noise, shot_noise, impulse_noise.

    noisy = gaussian_noise(x, draws, 0.08)       # x (N, C, H, W) float64 in [0, 1]

Results may leave [0, 1]; `corrupt` cuts them.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from undertow.data.corruptions.draws import Draws


def gaussian_noise(x: Tensor, draws: Draws, deviation: float) -> Tensor:
    """Add normal noise of this standard deviation."""
    return x + deviation * draws.normal(*x.shape[1:])


def shot_noise(x: Tensor, draws: Draws, photons: int) -> Tensor:
    """Count photons: Poisson(x photons) / photons.

    Counts above `photons` would be cut to white anyway, so the table of the distribution ends there.
    """
    level = (x * 255).round()  # 256 grey levels, hence 256 distributions
    table = _poisson_table(photons).to(x.device)
    # Level v's distribution lies in [v, v + 1) of one long sorted table: a single search serves all pixels.
    found = torch.searchsorted(table, level + draws.uniform(*x.shape[1:]), right=True)
    return (found - level * photons).clamp(0, photons) / photons


def impulse_noise(x: Tensor, draws: Draws, share: float) -> Tensor:
    """Turn this share of the values black or white, half and half."""
    u = draws.uniform(*x.shape[1:])
    return torch.where(u < share / 2, 0.0, torch.where(u > 1 - share / 2, 1.0, x))


@cache
def _poisson_table(photons: int) -> Tensor:
    """For the levels v = 0..255 and k = 0..photons - 1, in one row: v + P(count <= k)."""
    from scipy.special import pdtr

    level = torch.arange(256, dtype=torch.float64)[:, None]
    counts = torch.arange(photons, dtype=torch.float64)
    below = torch.from_numpy(pdtr(counts.numpy(), (level * photons / 255).numpy()))
    return (level + below).flatten()
