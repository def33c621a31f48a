"""Small pictures of samples, for people who look at labels.

thumbnail(Path("cat.jpg"))                # (h, w, 3) bytes
thumbnails(x, [3, 7])                     # (2, h, w, channels) bytes of pixels (N, C, H, W)
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from undertow.errors import BadData

WIDEST = 96
"""Pixels of a thumbnail's side; larger pictures are thinned out to it."""


def are_pictures(x: Any) -> bool:
    """Whether samples are arrays or tensors (N, C, H, W) of one or three colours."""
    return getattr(x, "ndim", 0) == 4 and x.shape[1] in (1, 3)


def thumbnail(path: Path) -> NDArray[np.uint8]:
    """A picture from a file, at most 96 pixels wide and high."""
    from PIL import Image

    try:
        with Image.open(path) as opened:
            small = opened.convert("RGB")
    except Exception as error:  # Pillow's readers raise whatever their format's code runs into; bombs too
        raise BadData(
            f"--images: {path} cannot be read as a picture. Mend it or leave --images out."
        ) from error
    small.thumbnail((WIDEST, WIDEST))
    return np.asarray(small, np.uint8)


def thumbnails(x: Any, rows: Sequence[int] | NDArray[np.int64], widest: int = WIDEST) -> NDArray[np.uint8]:
    """(K, H, W, channels) in bytes; floats are stretched from the darkest to the brightest pixel of all samples."""
    pixels = torch.as_tensor(x)
    step = max(1, -(-max(pixels.shape[2:]) // widest))
    chosen = torch.tensor(np.asarray(rows), device=pixels.device)
    small = pixels[chosen, :, ::step, ::step].permute(0, 2, 3, 1).cpu()
    if small.dtype == torch.uint8:
        return small.numpy()
    low, high = float(pixels.min()), float(pixels.max())
    return ((small.float() - low) * (255 / ((high - low) or 1.0))).round().to(torch.uint8).numpy()
