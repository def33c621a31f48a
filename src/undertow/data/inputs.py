"""From stored samples to what a network sees: scaled float32, cropped and flipped in batches.

    x = crop_flip(data.train.x[rows], generator)    # uint8 pixels in, uint8 pixels out
    x = to_inputs(x, "cifar")                       # float32, (x / 255 - mean) / std per channel
    SCALINGS["half"]                                # mean .5, std .5: pixels in [-1, 1]

Scaling works element by element, so a whole set and its batches get the same bits. Crop and flip
go before scaling: the padding is a black pixel. Nothing here loops over samples or leaves the
device that the samples are on; tokens (int64) pass unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, isfinite
from types import MappingProxyType

import torch
from torch import Tensor
from torch.nn import functional

from undertow.data.entries import SampleInputs
from undertow.errors import BadData, BadValue, unknown


@dataclass(frozen=True)
class Scaling:
    """Subtract `mean` and divide by `std`, one value for all or one per channel, pixels being in [0, 1]."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


SCALINGS: Mapping[str, Scaling | None] = MappingProxyType(
    {
        "half": Scaling((0.5,), (0.5,)),
        "unit": Scaling((0.0,), (1.0,)),
        "cifar": Scaling((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
        "imagenet": Scaling((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        "none": None,
    }
)
"""By name. `unit` leaves pixels in [0, 1]; `none` only turns numbers into float32, bytes into 0 to 255."""


def to_inputs(x: Tensor, scaling: str) -> Tensor:
    """Samples (N, ...) as float32 network inputs; tokens come back as they are.

    Args:
        x: uint8 pixels, float images or vectors (taken as lying in [0, 1]), or int64 tokens.
        scaling: A name in `SCALINGS`, or means and deviations such as 0.286/0.353. The three-channel ones want images
            (N, 3, H, W).
    """
    chosen = find_scaling(scaling)
    if x.dtype == torch.int64:
        return x
    if not (x.is_floating_point() or x.dtype == torch.uint8):
        raise BadData(
            f"to_inputs: wanted uint8 pixels, floats or int64 tokens, got {x.dtype}. Convert them first."
        )
    inputs = x.to(torch.float32)
    if chosen is None:
        return inputs
    if x.dtype == torch.uint8:
        inputs = inputs / 255
    if scaling == "unit":
        return inputs
    mean, std = _per_channel(chosen, x, scaling)
    return (inputs - mean).div_(std)


def scaled(x: SampleInputs, scaling: str) -> SampleInputs:
    """Samples as inputs; entries by name are fed as they are."""
    return to_inputs(x, scaling) if isinstance(x, Tensor) else x


def find_scaling(name: str) -> Scaling | None:
    """The scaling called `name`, or MEANS/STDS as in 0.286/0.353; an unknown name is answered with near ones."""
    if name in SCALINGS:
        return SCALINGS[name]
    if "/" not in name:
        known = f"Known: {', '.join(SCALINGS)}, or means and deviations such as 0.286/0.353."
        raise unknown("scaling", name, SCALINGS, known)
    try:
        mean, std = (tuple(float(one) for one in part.split(",")) for part in name.split("/"))
    except ValueError:
        mean, std = (), ()
    if (
        not mean
        or len(mean) != len(std)
        or not all(map(isfinite, mean))
        or not all(0 < one < inf for one in std)
    ):
        raise BadValue(
            "scaling",
            "means and deviations of pixels from 0 to 1, one or one for each channel",
            name,
            "For example 0.286/0.353, or 0.5,0.5,0.5/0.25,0.25,0.25.",
        )
    return Scaling(mean, std)


def crop_flip(x: Tensor, generator: torch.Generator, pad: int = 4) -> Tensor:
    """Each image (N, C, H, W) cropped at random with `pad` black pixels around it, then mirrored or not.

    The draws come from `generator` alone, whatever device the images are on.
    """
    place = generator.device
    down, right = torch.randint(0, 2 * pad + 1, (2, len(x)), generator=generator, device=place).to(x.device)
    mirror = torch.randint(0, 2, (len(x),), generator=generator, device=place).to(x.device).bool()
    return crop_flip_at(x, down, right, mirror, pad)


def crop_flip_at(x: Tensor, down: Tensor, right: Tensor, mirror: Tensor, pad: int) -> Tensor:
    """Crop image i of the padded images at row `down[i]`, column `right[i]`; mirror it if `mirror[i]`."""
    if x.ndim != 4:
        raise BadData(
            f"crop and flip: wanted images (N, C, H, W), got shape {tuple(x.shape)}. Train without it."
        )
    height, width = x.shape[2:]
    padded = functional.pad(x, (pad, pad, pad, pad))
    # A view of all (2 pad + 1)^2 crops; indexing copies only those that are wanted.
    crops = padded.unfold(2, height, 1).unfold(3, width, 1)  # (N, C, 2 pad + 1, 2 pad + 1, H, W)
    crop = crops[torch.arange(len(x), device=x.device), :, down, right]  # (N, C, H, W)
    return torch.where(mirror[:, None, None, None], crop.flip(3), crop)


def _per_channel(scaling: Scaling, x: Tensor, name: str) -> tuple[Tensor, Tensor]:
    mean, std = (
        torch.tensor(part, dtype=torch.float32, device=x.device) for part in (scaling.mean, scaling.std)
    )
    channels = len(scaling.mean)
    if channels == 1:
        return mean, std
    if x.ndim != 4 or x.shape[1] != channels:
        raise BadValue(
            f"scaling {name!r}",
            f"images with {channels} channels",
            f"shape {tuple(x.shape)}",
            "Take 'half' or 'unit' for grey images and vectors.",
        )
    return mean[:, None, None], std[:, None, None]
