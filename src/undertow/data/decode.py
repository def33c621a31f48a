"""Image files, as bytes or paths, to one uint8 tensor.

    x = decode_images(blobs, say=lambda row: f"train.parquet, row {row}", mode="RGB")   # (N, 3, H, W)
    x = decode_images(paths, say=lambda row: str(paths[row]))       # grey if all are grey, else colour

All images have one size; photographs are turned upright as their EXIF note says.
An image that cannot be read, or not in 8 bits without loss, is refused by the name that `say` gives it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor

from undertow.data.catalogue import Mode
from undertow.errors import BadData
from undertow.room import check_room

DECODER = 1
"""Raise it when the same bytes decode to other tensors: it is part of each cache key."""

GREY = ("1", "L", "LA")
TOO_DEEP = ("I", "I;16", "I;16B", "I;16L", "F")
SMALLER = "Use smaller images, fewer of them, or shards (.tar), which are read in parts."
ORIENTATION = 0x0112  # EXIF; 1 is upright

Say = Callable[[int], str]
Pixels = NDArray[np.uint8]  # (H, W) or (H, W, 3)


def decode_images(sources: Sequence[bytes | Path], say: Say, mode: Mode | None = None) -> Tensor:
    """Decode to (N, C, H, W) uint8; `say` names the image at a row in errors.

    Raises:
        BadData: an image is unreadable, deeper than 8 bits, or of another size than the first.
    """
    if not sources:
        return torch.empty(0, 1 if mode == "L" else 3, 1, 1, dtype=torch.uint8)
    mode = mode or ("L" if all(_is_grey(source, row, say) for row, source in enumerate(sources)) else "RGB")
    out = np.empty((0,), np.uint8)
    for row, source in enumerate(sources):
        pixels = _decode(source, mode, row, say)
        if row == 0:
            check_room(len(sources) * pixels.nbytes, f"{len(sources):,} images like {say(0)}", SMALLER)
            out = np.empty((len(sources), *pixels.shape), np.uint8)
        if pixels.shape != out.shape[1:]:
            raise BadData(
                f"{say(row)}: wanted {_size(out[0])} pixels as {say(0)} has, got {_size(pixels)}. "
                "Resize all images to one size."
            )
        out[row] = pixels
    colours = out[..., None] if mode == "L" else out  # (N, H, W, C)
    return torch.from_numpy(np.ascontiguousarray(colours.transpose(0, 3, 1, 2)))


def _is_grey(source: bytes | Path, row: int, say: Say) -> bool:
    with _open(source, row, say) as image:
        return image.mode in GREY


def _decode(source: bytes | Path, mode: Mode, row: int, say: Say) -> Pixels:
    with _open(source, row, say) as image:
        if image.mode in TOO_DEEP:
            raise BadData(
                f"{say(row)}: wanted 8 bits a channel, got mode {image.mode}. Save it as 8-bit, or use .npz."
            )
        try:
            return np.asarray(_upright(image, mode))
        except Exception as error:  # Pillow's readers raise whatever their format's code runs into
            raise BadData(
                f"{say(row)}: wanted a whole image, got one that breaks off ({error}). Replace it."
            ) from error


def _open(source: bytes | Path, row: int, say: Say) -> Image.Image:
    try:
        return Image.open(io.BytesIO(source) if isinstance(source, bytes) else source)
    except Image.DecompressionBombError as error:
        most = 2 * (Image.MAX_IMAGE_PIXELS or 0)
        raise BadData(
            f"{say(row)}: wanted an image of at most {most:,} pixels, got a larger one. Make it smaller."
        ) from error
    except Exception as error:  # as above
        raise BadData(
            f"{say(row)}: wanted an image, got what none of Pillow's readers knows. Repair or remove it."
        ) from error


def _upright(image: Image.Image, mode: Mode) -> Image.Image:
    if image.getexif().get(ORIENTATION, 1) != 1:
        image = ImageOps.exif_transpose(image)
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")  # the way that Pillow wants: straight to RGB it warns
    return image if image.mode == mode else image.convert(mode)


def _size(pixels: Pixels) -> str:
    return f"{pixels.shape[1]}x{pixels.shape[0]}"
