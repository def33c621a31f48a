"""Linear maps of images that several corruptions share: rows and columns mixed, pixels shifted.

    smooth = gaussian_matrix(32, sigma=0.4, edge="nearest")       # (32, 32), rows sum to 1
    blurred = mix_rows(mix_columns(x, smooth), smooth)
    smeared = trail(x, angle, radius=8, sigma=3)                  # one angle per image

All in float64: what is left of rounding differs between batch sizes and devices, but is too small
to reach a pixel (see `pixels`).
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad


def mix_rows(x: Tensor, matrix: Tensor) -> Tensor:
    """Rows of the result (N, C, H', W) are sums of rows of x (N, C, H, W), weighted by `matrix` (H', H)."""
    return mix_columns(x.transpose(2, 3), matrix).transpose(2, 3)


def mix_columns(x: Tensor, matrix: Tensor) -> Tensor:
    """The same for columns: x (N, C, H, W) and `matrix` (W', W) give (N, C, H, W')."""
    return x @ matrix.to(x.device).T


def gaussian_matrix(size: int, sigma: float, edge: Literal["nearest", "reflect"], cut: float = 4.0) -> Tensor:
    """The matrix (size, size) that smooths a row of pixels by a Gaussian ending at `cut` sigma."""
    from scipy.ndimage import gaussian_filter1d

    if sigma == 0:
        return torch.eye(size, dtype=torch.float64)
    return torch.from_numpy(gaussian_filter1d(np.eye(size), sigma, axis=0, mode=edge, truncate=cut))


def zoom_matrix(size: int, factor: float) -> Tensor:
    """The matrix (size, size) that zooms a row of pixels into its centre, interpolating linearly."""
    centre = (size - 1) / 2
    place = centre + (torch.arange(size, dtype=torch.float64) - centre) / factor
    # The tent of height 1 around each sampling place: linear interpolation as weights.
    return (1 - (place[:, None] - torch.arange(size)).abs()).clamp(min=0)


def trail(x: Tensor, angle: Tensor, radius: int, sigma: float) -> Tensor:
    """Smear x (N, C, H, W) along its `angle` (N,) in degrees by half a Gaussian of 2 radius + 1 steps.

    One-sided, in whole pixels, the edge pixels going on outside: as in the published set.
    """
    weights = trail_weights(radius, sigma)
    reach, turn = len(weights) - 1, torch.deg2rad(angle)
    image = torch.arange(len(x), device=x.device)
    # A view of every shift by up to `reach`; indexing copies one of them per image.
    shifts = pad(x, (reach,) * 4, mode="replicate").unfold(2, x.shape[2], 1).unfold(3, x.shape[3], 1)
    smeared = torch.zeros_like(x)
    for step, weight in enumerate(weights.tolist()):
        down, right = ((step * part).round().long() for part in (turn.sin(), turn.cos()))
        smeared += weight * shifts[image, :, reach - down, reach - right]
    return smeared


def trail_weights(radius: int, sigma: float) -> Tensor:
    """The weights (S,) of `trail`, summing to 1; those too small to change a pixel are left out."""
    steps = torch.arange(2 * radius + 1, dtype=torch.float64)
    weights = (-0.5 * (steps / sigma) ** 2).exp()
    kept = weights[weights > 1e-4 * weights.sum()]
    return kept / kept.sum()
