"""Pixels as whole numbers and as shares of white.

    x = from_pixels(images)          # float64 in [0, 1]
    images = to_pixels(x)            # uint8, cut to [0, 1] and rounded

Corruptions compute in float64 between the two.
"""

from __future__ import annotations

import torch
from torch import Tensor

_NUDGE = 1e-6
"""Added before rounding down. Halves are common (the mean of two pixels), and rounding errors of 1e-13,
which differ between batch sizes and devices, would throw them either way."""


def from_pixels(images: Tensor) -> Tensor:
    """The uint8 images as float64 in [0, 1]."""
    return images.double() / 255


def to_pixels(x: Tensor) -> Tensor:
    """The nearest uint8 pixels, halves going up; what lies outside [0, 1] becomes black or white."""
    return (x.clamp(0, 1) * 255 + (0.5 + _NUDGE)).floor().to(torch.uint8)
