"""The fifteen corruptions with their five severities, and applying one.

    corrupt(images, "fog", severity=3)                           # uint8 in, uint8 out
    corrupt(images[rows], "fog", 3, index=rows)                  # the same pictures as above at these rows
    CORRUPTIONS                                                  # the names, in the paper's order
    EXTRA                                                        # others that are computed too

A severity's settings are those of CIFAR-10-C, made for pixels in [0, 1] and 32 x 32 images.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from undertow.data.corruptions import blur, digital, noise, weather
from undertow.data.corruptions.draws import Draws
from undertow.data.corruptions.pixels import from_pixels, to_pixels
from undertow.errors import BadData, BadValue, unknown

Corruption = Callable[..., Tensor]

SEVERITIES = (1, 2, 3, 4, 5)

CATALOGUE: Mapping[str, tuple[Corruption, tuple[tuple[Any, ...], ...]]] = MappingProxyType(
    {
        "gaussian_noise": (noise.gaussian_noise, ((0.04,), (0.06,), (0.08,), (0.09,), (0.10,))),
        "shot_noise": (noise.shot_noise, ((500,), (250,), (100,), (75,), (50,))),
        "impulse_noise": (noise.impulse_noise, ((0.01,), (0.02,), (0.03,), (0.05,), (0.07,))),
        "defocus_blur": (blur.defocus_blur, ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1.0, 0.2), (1.5, 0.1))),
        "glass_blur": (blur.glass_blur, ((0.05, 1), (0.25, 1), (0.4, 1), (0.25, 2), (0.4, 2))),
        "motion_blur": (blur.motion_blur, ((6, 1.0), (6, 1.5), (6, 2.0), (8, 2.0), (9, 2.5))),
        "zoom_blur": (blur.zoom_blur, ((1.05,), (1.10,), (1.15,), (1.20,), (1.25,))),
        "snow": (
            weather.snow,
            (
                (0.1, 0.2, 1.0, 0.6, 8, 3.0, 0.95),
                (0.1, 0.2, 1.0, 0.5, 10, 4.0, 0.9),
                (0.15, 0.3, 1.75, 0.55, 10, 4.0, 0.9),
                (0.25, 0.3, 2.25, 0.6, 12, 6.0, 0.85),
                (0.3, 0.3, 1.25, 0.65, 14, 12.0, 0.8),
            ),
        ),
        "frost": (weather.frost, ((1.0, 0.2), (1.0, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))),
        "fog": (weather.fog, ((0.2, 3.0), (0.5, 3.0), (0.75, 2.5), (1.0, 2.0), (1.5, 1.75))),
        "brightness": (digital.brightness, ((0.05,), (0.1,), (0.15,), (0.2,), (0.3,))),
        "contrast": (digital.contrast, ((0.75,), (0.5,), (0.4,), (0.3,), (0.15,))),
        "elastic": (
            digital.elastic,
            ((0.0, 0.0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
        ),
        "pixelate": (digital.pixelate, ((0.95,), (0.9,), (0.85,), (0.75,), (0.65,))),
        "jpeg": (digital.jpeg, ((80,), (65,), (58,), (50,), (40,))),
        "gaussian_blur": (blur.gaussian_blur, ((0.4,), (0.6,), (0.7,), (0.8,), (1.0,))),
    }
)
"""By name: the function and what it takes after the images and the draws, for severities 1 to 5."""

EXTRA = ("gaussian_blur",)
"""Of CIFAR-10-C's extra corruptions, which no mean counts."""

CORRUPTIONS = tuple(name for name in CATALOGUE if name not in EXTRA)
"""The names of the fifteen in the paper's order."""

SMALLEST = 8
"""The least height and width in pixels. The severities are made for 28 to 64."""

_CHUNK = 512  # images at a time: bounds the memory that float64 takes


def corrupt(
    images: Tensor, name: str, severity: int, seed: int = 0, *, index: Tensor | None = None
) -> Tensor:
    """The images (N, C, H, W) uint8, grey or colour, corrupted; on the device that they are on.

    The random numbers of an image follow from (seed, name, its index), so it looks the same in any batch.
    They do not depend on the severity: what grows from 1 to 5 is the corruption, not the luck.

    Args:
        images: uint8 pixels, one channel or three.
        name: One of `CORRUPTIONS` or `EXTRA`.
        severity: 1 to 5.
        seed: Another seed gives other noise, flakes, clouds and so on.
        index: The images' numbers (N,), 0 to N - 1 by default.
    """
    check_corruption(name, severity)
    check_images(images)
    index = torch.arange(len(images)) if index is None else index
    if index.shape != (len(images),):
        raise BadValue("corrupt", f"an index for each of {len(images)} images", f"shape {tuple(index.shape)}")
    function, settings = CATALOGUE[name]
    parts = zip(images.split(_CHUNK), index.to(images.device).split(_CHUNK), strict=True)
    done = [
        to_pixels(function(from_pixels(part), Draws(seed, name, numbers), *settings[severity - 1]))
        for part, numbers in parts
    ]
    return torch.cat(done)


def check_corruption(name: str, severity: int) -> None:
    """Refuse an unknown name (with near ones) or a severity that is not 1, 2, 3, 4 or 5."""
    if name not in CATALOGUE:
        raise unknown("corruption", name, CATALOGUE)
    if isinstance(severity, bool) or severity not in SEVERITIES:
        raise BadValue(f"corruption {name!r}", "a severity from 1 to 5", severity, "5 is the strongest.")


def check_images(images: Tensor) -> None:
    """Refuse what is not a batch of grey or colour images in uint8."""
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] not in (1, 3):
        raise BadData(
            "corrupt: wanted uint8 images (N, C, H, W) with one channel or three, "
            f"got {images.dtype} of shape {tuple(images.shape)}. Corrupt pixels before they are scaled."
        )
    if len(images) == 0:
        raise BadData("corrupt: wanted at least one image, got none.")
    if min(images.shape[2:]) < SMALLEST:
        raise BadData(
            f"corrupt: wanted images of {SMALLEST} x {SMALLEST} or more, got {tuple(images.shape[2:])}."
        )
