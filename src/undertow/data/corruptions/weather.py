"""Weather: snow, frost, fog.

    foggy = fog(x, draws, 1.0, 2.0)          # x (N, C, H, W) float64 in [0, 1]
    plasma(draws, 32, 1.75)                  # (N, 32, 32) in [0, 1], each image its own clouds
    frost_texture(draws, 32, 32)             # (N, 32, 32) in [0, 1], each image its own crystals

Results may leave [0, 1]; `corrupt` cuts them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from undertow.data.corruptions.draws import Draws
from undertow.data.corruptions.resample import mix_columns, mix_rows, trail, zoom_matrix

LUMA = (0.299, 0.587, 0.114)
"""How much red, green and blue give to grey."""

ICE = (0.86, 0.94, 1.0)
"""The colour of frost."""

GRAINS, NEEDLES, SPACING = 7, 32, 3.0
"""Frost: grains per picture, needles that differ in a grain, pixels from one needle to the next."""

FROST_DECAY = 1.4
"""How fast the patches of thick and thin frost lose weight as they get smaller (see `plasma`)."""


def snow(
    x: Tensor,
    draws: Draws,
    mean: float,
    deviation: float,
    zoom: float,
    threshold: float,
    radius: int,
    sigma: float,
    keep: float,
) -> Tensor:
    """Falling flakes, and the picture paler: only `keep` of it stays as it was."""
    height, width = x.shape[2:]
    flakes = mean + deviation * draws.normal(1, height, width)
    flakes = mix_rows(mix_columns(flakes, zoom_matrix(width, zoom)), zoom_matrix(height, zoom))
    flakes = torch.where(flakes < threshold, 0.0, flakes.clamp(max=1))
    flakes = trail(flakes, draws.between(-135, -45), radius, sigma)
    pale = torch.maximum(x, 1.5 * grey(x) + 0.5)
    return keep * x + (1 - keep) * pale + flakes + flakes.rot90(2, (2, 3))


def frost(x: Tensor, draws: Draws, keep: float, strength: float) -> Tensor:
    """Ice crystals over the picture. The published set mixes in photographs; ours grow for each image."""
    ice = frost_texture(draws, *x.shape[2:])[:, None]
    if x.shape[1] == 3:
        ice = ice * torch.tensor(ICE, dtype=x.dtype, device=x.device)[:, None, None]
    return keep * x + strength * ice


def fog(x: Tensor, draws: Draws, strength: float, decay: float) -> Tensor:
    """Add clouds, then darken so that the brightest value an image had is not exceeded."""
    height, width = x.shape[2:]
    size = 2 ** math.ceil(math.log2(max(height, width)))
    clouds = plasma(draws, size, decay)[:, None, :height, :width]
    brightest = x.amax((1, 2, 3), keepdim=True)
    return (x + strength * clouds) * brightest / (brightest + strength)


def grey(x: Tensor) -> Tensor:
    """The luminance (N, 1, H, W) of colour images; grey ones as they are."""
    if x.shape[1] == 1:
        return x
    return (x * torch.tensor(LUMA, dtype=x.dtype, device=x.device)[:, None, None]).sum(1, keepdim=True)


def plasma(draws: Draws, size: int, decay: float) -> Tensor:
    """A diamond-square fractal (N, size, size) on a torus, scaled to [0, 1]; `size` is a power of two.

    The random offsets shrink by decay squared when the grid is halved: the published generator applies its
    amplitude twice.
    """
    field = draws.zeros(size, size)
    step, amplitude = size, 1.0
    while step > 1:
        half, cells = step // 2, size // step
        corner = field[:, ::step, ::step]
        offset = amplitude * draws.between(-1, 1, 3, cells, cells)
        middle = _mean(corner, _back(corner, 1), _back(corner, 2), _back(_back(corner, 1), 2)) + offset[:, 0]
        field[:, half::step, half::step] = middle
        field[:, ::step, half::step] = _mean(middle, _on(middle, 1), corner, _back(corner, 2)) + offset[:, 1]
        field[:, half::step, ::step] = _mean(middle, _on(middle, 2), corner, _back(corner, 1)) + offset[:, 2]
        step, amplitude = half, amplitude / decay**2
    low, high = field.amin((1, 2), keepdim=True), field.amax((1, 2), keepdim=True)
    return (field - low) / (high - low)


def frost_texture(draws: Draws, height: int, width: int) -> Tensor:
    """Fern-like ice (N, H, W) in [0, 1], thicker in some places than in others.

    The picture falls into grains around random points. Each grain has an axis of its own, and needles of
    different length and brightness grow from the axis to both sides like the barbs of a feather.
    """
    grain, along, across = _grains(draws, height, width)
    size = 2 ** math.ceil(math.log2(max(height, width)))
    cover = plasma(draws, size, FROST_DECAY)[:, :height, :width]
    # Bent a little by the cover: ice does not grow with a ruler.
    phase = (0.5 * along - 0.87 * across) / SPACING + 0.5 * cover
    which = (grain * NEEDLES + phase.floor().long().remainder(NEEDLES)).flatten(1)
    bright, reach = (part.gather(1, which).reshape(phase.shape) for part in _needles(draws))
    ridge = 1 - (2 * (phase - phase.floor()) - 1) ** 2
    needle = bright * ridge * (-((across / reach) ** 2)).exp()
    thick = cover**2 * (3 - 2 * cover)  # patches with clearer edges
    return 1 - (1 - 0.8 * thick) * (1 - needle)


def _needles(draws: Draws) -> tuple[Tensor, Tensor]:
    """Brightness and length in pixels of every needle of every grain, (N, GRAINS * NEEDLES) each."""
    return draws.uniform(GRAINS * NEEDLES), draws.between(1, 14, GRAINS * NEEDLES)


def _grains(draws: Draws, height: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """For each pixel its grain, its place along the grain's axis and its distance from it, (N, H, W) each."""
    seed = draws.uniform(GRAINS, 2) * torch.tensor([height, width], device=draws.device)
    turn = draws.between(0, 2 * math.pi, GRAINS)[:, :, None, None]
    down = torch.arange(height, device=draws.device)[:, None] - seed[:, :, 0, None, None]  # (N, G, H, 1)
    right = torch.arange(width, device=draws.device) - seed[:, :, 1, None, None]  # (N, G, 1, W)
    nearest = (down**2 + right**2).argmin(1, keepdim=True)  # (N, 1, H, W)
    along = (down * turn.sin() + right * turn.cos()).gather(1, nearest)
    across = (right * turn.sin() - down * turn.cos()).gather(1, nearest)
    return nearest[:, 0], along[:, 0], across[:, 0].abs()


def _mean(*parts: Tensor) -> Tensor:
    return torch.stack(parts).mean(0)


def _back(grid: Tensor, axis: int) -> Tensor:
    return grid.roll(-1, axis)


def _on(grid: Tensor, axis: int) -> Tensor:
    return grid.roll(1, axis)
