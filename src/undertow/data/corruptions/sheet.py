"""A sheet of all corruptions to look at.

    contact_sheet(data.test.x[:3], Path("sheet.png"))      # rows: corruptions; columns: clean, 1 to 5

The same image keeps its place in every cell, so that a row can be read from left to right.
"""

from __future__ import annotations

from pathlib import Path

import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from undertow.data.corruptions.catalogue import CORRUPTIONS, SEVERITIES, check_images, corrupt
from undertow.files import aside

_GAP = 6  # pixels between cells
_LABEL = 130  # width of the names at the left
_HEAD = 26  # height of the line on top


def contact_sheet(images: Tensor, path: Path, seed: int = 0, scale: int = 2) -> None:
    """Write a PNG with a row per corruption: the images as they are, then at severities 1 to 5.

    Args:
        images: A few uint8 images (N, C, H, W); each cell shows all of them side by side.
        path: Where the PNG goes.
        seed: The seed of the corruptions.
        scale: How many pixels of the sheet a pixel's side takes.
    """
    check_images(images)
    height, width = images.shape[2] * scale, images.shape[3] * scale * len(images)
    columns = len(SEVERITIES) + 1
    sheet = Image.new(
        "RGB", (_LABEL + columns * (width + _GAP), _HEAD + len(CORRUPTIONS) * (height + _GAP)), "white"
    )
    _write_heads(sheet, width)
    for row, name in enumerate(CORRUPTIONS):
        top = _HEAD + row * (height + _GAP)
        ImageDraw.Draw(sheet).text(
            (6, top + height // 2), name, "black", ImageFont.load_default(14), anchor="lm"
        )
        versions = [images, *(corrupt(images, name, severity, seed) for severity in SEVERITIES)]
        for column, version in enumerate(versions):
            sheet.paste(
                _cell(version).resize((width, height), Image.Resampling.NEAREST), (_left(column, width), top)
            )
    with aside(path) as part:
        sheet.save(part, "PNG")


def _write_heads(sheet: Image.Image, width: int) -> None:
    draw = ImageDraw.Draw(sheet)
    for column, head in enumerate(("clean", *map(str, SEVERITIES))):
        centre = _left(column, width) + width // 2
        draw.text((centre, _HEAD // 2), head, "black", ImageFont.load_default(14), anchor="mm")


def _left(column: int, width: int) -> int:
    return _LABEL + column * (width + _GAP)


def _cell(images: Tensor) -> Image.Image:
    """The images (N, C, H, W) side by side, in colour."""
    colour = images.cpu().expand(-1, 3, -1, -1)
    return Image.fromarray(torch.cat(list(colour), 2).permute(1, 2, 0).contiguous().numpy())
