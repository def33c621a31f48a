"""Do the deep part's regions follow the paths of the features? On a plane, and along principal directions.

    regions = class_regions(deep, features)                  # features (N, 2): the plane, class by class
    plt.pcolormesh(regions.x, regions.y, regions.classes)
    found = region_share(deep, trajectories)                 # (T, N, 2) features of N samples at T checkpoints
    found.share, found.control, found.p                      # in the region of the sample's final class
    held = directional_noise(deep, late_features)            # (N, ...), of many dimensions
    held.kept, held.control                                  # class kept: principal against random directions

`deep` is any callable from features (M, ...) to outputs (M, C): the last network's part after the cut. Nothing
here knows models; put them into evaluation mode before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from undertow.errors import BadData, BadValue
from undertow.richness.rows import Array, as_tensor, float_rows
from undertow.temporal.drift import principal_directions
from undertow.temporal.intervals import edges

DeepFunction = Callable[[Tensor], Tensor]

BATCH = 4096
"""Features that the deep part sees at once."""


@dataclass(frozen=True, eq=False)
class Regions:
    """The class that the deep part gives to each point of a grid."""

    x: NDArray[np.float64]  # (R,) first coordinate, the columns of `classes`
    y: NDArray[np.float64]  # (R,) second coordinate, the rows of `classes`
    classes: NDArray[np.int64]  # (R, R)


@dataclass(frozen=True, eq=False)
class RegionShare:
    """How many points of the trajectories lie in the region of their sample's class."""

    share: float
    control: float  # mean share when samples exchange their classes
    control_low: float  # 2.5 and 97.5 per cent points of these shares
    control_high: float
    p: float  # share of the exchanges, this one included, with as large a share


@dataclass(frozen=True, eq=False)
class DirectionalNoise:
    """How often noise along principal directions leaves the class as it was, beside random directions."""

    kept: float
    control: float  # the same noise along random directions, mean
    control_low: float  # 2.5 and 97.5 per cent points over the pairs of random directions
    control_high: float
    directions: Tensor  # (K, D), orthonormal


def class_regions(
    deep: DeepFunction, features: Array, *, resolution: int = 200, margin: float = 0.1
) -> Regions:
    """The deep part's classes on a grid over the plane of features (..., 2), a `margin` of their range wider."""
    if resolution < 2 or margin < 0:
        raise BadValue(
            "class_regions", "a resolution of 2 or more and a margin of 0 or more", (resolution, margin)
        )
    points = _finite(features, "class_regions, features")
    if points.shape[-1] != 2:
        raise BadData(f"class_regions: wanted features of two dimensions, got shape {tuple(points.shape)}.")
    points = points.reshape(-1, 2).double()
    low, high = points.aminmax(dim=0)
    pad = margin * (high - low).clamp(min=1e-12 + 1e-6 * float(points.abs().max()))
    steps = torch.linspace(0, 1, resolution, dtype=torch.float64, device=points.device)[:, None]
    x, y = (low - pad + steps * (high - low + 2 * pad)).unbind(1)
    grid = torch.stack(torch.meshgrid(x, y, indexing="xy"), -1)  # (R of y, R of x, 2)
    classes = _classes(deep, grid.reshape(-1, 2).to(as_tensor(features).dtype))
    return Regions(x.cpu().numpy(), y.cpu().numpy(), classes.reshape(resolution, resolution).cpu().numpy())


def region_share(
    deep: DeepFunction, trajectories: Array, *, shuffles: int = 999, seed: int = 0
) -> RegionShare:
    """The share of points (T, N, ...) that the deep part puts into the class of their sample's last point.

    The last checkpoint itself is left out: it would agree with itself. Each point is classified itself; no grid
    stands in between, so features may have any shape.

    Args:
        deep: the last network's deep part.
        trajectories: features of N samples at T checkpoints, in time's order.
        shuffles: exchanges of classes between samples, the control.
        seed: of the exchanges.
    """
    points = _finite(trajectories, "region_share, trajectories")
    if points.ndim < 3 or shuffles < 1 or len(points) < 2:
        raise BadData(
            "region_share: wanted features (T, N, ...) of two checkpoints or more and at least one shuffle, got "
            f"shape {tuple(points.shape)} and {shuffles} shuffles."
        )
    *earlier, goal = _classes(deep, points.flatten(0, 1)).reshape(points.shape[:2]).cpu().numpy()  # (T, N)
    found, rng = np.stack(earlier), np.random.default_rng(seed)
    share = float((found == goal).mean())
    controls = np.array([(found == rng.permutation(goal)).mean() for _ in range(shuffles)])
    low, high = edges(controls)
    p = (1 + int((controls >= share - 1e-12).sum())) / (shuffles + 1)
    return RegionShare(share, float(controls.mean()), float(low), float(high), p)


def directional_noise(
    deep: DeepFunction,
    features: Array,
    *,
    size: float = 1.0,
    count: int = 2,
    draws: int = 20,
    controls: int = 20,
    seed: int = 0,
) -> DirectionalNoise:
    """Add noise, uniform in [-size, size], along the features' principal directions and classify again.

    The control adds the very same numbers along random orthonormal directions, so both noises have one size.

    Args:
        deep: the last network's deep part; it gets features in the shape in which they are given.
        features: (N, ...), for example of all late checkpoints below each other.
        size: of the noise along each direction, in the features' own units.
        count: how many directions.
        draws: of noise per feature.
        controls: sets of random directions.
        seed: of noise and random directions.
    """
    held = _finite(features, "directional_noise, features")
    if not size > 0 or min(count, draws, controls) < 1:
        raise BadValue(
            "directional_noise", "a size above 0, and count, draws and controls of 1 or more",
            (size, count, draws, controls),
        )  # fmt: skip
    rows = held.flatten(1).double()
    variances, directions = principal_directions(rows - rows.mean(0), count)
    if len(variances) < count:
        raise BadData(
            f"directional_noise: wanted features that vary along {count} directions, got rank {len(variances)}."
        )
    generator = torch.Generator().manual_seed(seed)
    noise = torch.rand(draws, len(rows), count, generator=generator, dtype=torch.float64) * 2 - 1
    noise = (noise * size).to(rows.device)
    before = _classes(deep, held)
    predictions = torch.stack([_moved_classes(deep, held, part @ directions) for part in noise])
    shares: list[float] = []
    for number in range(controls):
        drawn = torch.randn(rows.shape[1], count, generator=generator, dtype=torch.float64)
        moved = _moved_classes(deep, held, noise[number % draws] @ torch.linalg.qr(drawn).Q.T.to(rows.device))
        shares.append(float((moved == before).double().mean()))
    low, high = edges(np.array(shares))
    kept = float((predictions == before).double().mean())
    return DirectionalNoise(kept, float(np.mean(shares)), float(low), float(high), directions)


def _moved_classes(deep: DeepFunction, features: Tensor, change: Tensor) -> Tensor:
    moved = features.double() + change.reshape(features.shape)
    return _classes(deep, moved.to(features.dtype))


@torch.no_grad()
def _classes(deep: DeepFunction, features: Tensor) -> Tensor:
    """(M,) the class numbers of features (M, ...)."""
    outputs = [deep(part) for part in features.split(BATCH)]
    if outputs[0].ndim != 2 or len(outputs[0]) != min(BATCH, len(features)):
        raise BadData(
            f"deep: wanted outputs (M, C) of features (M, ...), got shape {tuple(outputs[0].shape)}."
        )
    return torch.cat([part.argmax(1) for part in outputs])


def _finite(features: Array, where: str) -> Tensor:
    """The features as a float tensor of their own shape; NaN and nothing are refused."""
    held = as_tensor(features)
    if held.ndim < 2:
        raise BadData(f"{where}: wanted (N, ...), got shape {tuple(held.shape)}.")
    return float_rows(held.flatten(1), where).reshape(held.shape)
