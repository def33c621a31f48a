"""Digital changes: brightness, contrast, elastic, pixelate, jpeg.

    dull = contrast(x, draws, 0.4)           # x (N, C, H, W) float64 in [0, 1]

Only elastic draws random numbers.
"""

from __future__ import annotations

from io import BytesIO

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.nn.functional import grid_sample

from undertow.data.corruptions.draws import Draws
from undertow.data.corruptions.pixels import from_pixels, to_pixels
from undertow.data.corruptions.resample import gaussian_matrix, mix_columns, mix_rows


def brightness(x: Tensor, draws: Draws, more: float) -> Tensor:
    """Raise V of HSV, at most to 1; draws nothing.

    V is the largest channel, and hue and saturation stay when all channels grow by one factor. Black has
    neither and turns grey.
    """
    value = x.amax(1, keepdim=True)
    raised = (value + more).clamp(max=1)
    return torch.where(value > 0, x * (raised / value), raised)


def contrast(x: Tensor, draws: Draws, keep: float) -> Tensor:
    """Draw each channel towards its mean over the image; draws nothing."""
    mean = x.mean((2, 3), keepdim=True)
    return (x - mean) * keep + mean


def elastic(x: Tensor, draws: Draws, amplitude: float, sigma: float, affine: float) -> Tensor:
    """Stretch as a whole (three points move by up to `affine`), then locally by a smooth random field.

    Lengths are shares of the image size. Both maps are joined and the image is sampled once.
    """
    height, width = x.shape[2:]
    size = min(height, width)
    field = draws.between(-1, 1, 2, height, width)
    rows, columns = (gaussian_matrix(side, sigma * size, "reflect", cut=3) for side in (height, width))
    place = _pixel_grid(x) + amplitude * size * mix_rows(mix_columns(field, columns), rows)  # (N, 2, H, W)
    back = _affine_back(draws, height, width, affine * size)  # (N, 2, 3)
    place = torch.einsum("nij,njhw->nihw", back[:, :, :2], place) + back[:, :, 2, None, None]
    limits = torch.tensor([width - 1, height - 1], dtype=x.dtype, device=x.device)
    return grid_sample(
        x, place.permute(0, 2, 3, 1) / limits * 2 - 1, padding_mode="reflection", align_corners=True
    )


def _pixel_grid(x: Tensor) -> Tensor:
    """Column and row of each pixel, (2, H, W)."""
    rows, columns = (torch.arange(side, dtype=x.dtype, device=x.device) for side in x.shape[2:])
    return torch.stack(torch.meshgrid(columns, rows, indexing="xy"))


def _affine_back(draws: Draws, height: int, width: int, reach: float) -> Tensor:
    """Maps (N, 2, 3) from the stretched image back, after three points moved by up to `reach` pixels."""
    third, column, row = min(height, width) // 3, width // 2, height // 2
    jitter = draws.between(-reach, reach, 2, 3)
    fixed = torch.tensor(
        [
            [column + third, column + third, column - third],
            [row + third, row - third, row - third],
            [1, 1, 1],
        ],
        dtype=jitter.dtype,
        device=jitter.device,
    )
    moved = fixed.repeat(len(jitter), 1, 1)
    moved[:, :2] += jitter
    return (fixed @ torch.linalg.inv(moved))[:, :2]


def pixelate(x: Tensor, draws: Draws, keep: float) -> Tensor:
    """Shrink by averaging over boxes and enlarge again; draws nothing.

    Columns first, whole pixels in between: the same numbers as Pillow's box resizing gives.
    """
    (rows, to_rows), (columns, to_columns) = (_box(side, int(side * keep)) for side in x.shape[2:])
    narrow = from_pixels(to_pixels(mix_columns(x, columns)))
    small = from_pixels(to_pixels(mix_rows(narrow, rows)))
    return mix_rows(mix_columns(small, to_columns), to_rows)


def _box(size: int, small: int) -> tuple[Tensor, Tensor]:
    """Matrices (small, size) and (size, small) of Pillow's box filter, read off what it does to one pixel."""
    return _box_matrix(size, small), _box_matrix(small, size)


def _box_matrix(old: int, new: int) -> Tensor:
    answer = Image.fromarray(np.eye(old, dtype=np.float32)).resize((new, old), Image.Resampling.BOX)
    inside = torch.from_numpy(np.array(answer).T > 0).double()  # (new, old)
    return inside / inside.sum(1, keepdim=True)


def jpeg(x: Tensor, draws: Draws, quality: int) -> Tensor:
    """Pack and unpack with Pillow, one image at a time; draws nothing."""
    images = to_pixels(x).permute(0, 2, 3, 1).cpu().numpy()  # (N, H, W, C)
    unpacked = np.stack([_through_jpeg(image, quality) for image in images])
    return from_pixels(torch.from_numpy(unpacked).permute(0, 3, 1, 2)).to(x.device)


def _through_jpeg(image: NDArray[np.uint8], quality: int) -> NDArray[np.uint8]:
    """An image (H, W, C) after JPEG at this quality; one channel is packed as grey."""
    file = BytesIO()
    Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image).save(file, "JPEG", quality=quality)
    with Image.open(file) as packed:
        return np.array(packed).reshape(image.shape)
