"""How far parameters and features move between checkpoints.

    found = parameter_drift(run.weights(300), run.weights(150))     # or two models
    found.value                        # |theta_300 - theta_150| / |theta_300|, parameters only
    found.layers["layer1.linear"]      # the same for each module with parameters of its own
    parameter_drift(late, early, layers=["layer1", "layer2", "head"]).layers       # by larger parts
    feature_drift(features)            # features (T, N, D) of the same samples at T checkpoints
    feature_trajectories(features).points      # (T, N, 2) on the principal directions of all checkpoints together

All of it is in float64. Buffers (running statistics) stand apart: they are no parameters. Where nothing could
have moved, because the norm to compare with is 0, the answer is None and the note says so.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from undertow.errors import BadData, BadValue
from undertow.latent.spectrum import eigenvectors
from undertow.richness.rows import Array, as_tensor

State = Mapping[str, Tensor] | nn.Module

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
"""Last names of batch norm's buffers: a state dict does not say what is a buffer."""


@dataclass(frozen=True)
class Drift:
    """|a - b| / |a|, for all parameters, by layer, and for each buffer."""

    value: float | None
    layers: dict[str, float | None]
    buffers: dict[str, float | None]  # by full name; those that count batches are left out
    note: str = ""


@dataclass(frozen=True)
class FeatureDrift:
    """Relative change of features (Frobenius norms over samples)."""

    to_reference: tuple[float | None, ...]  # T: |Z_t - Z_ref| / |Z_ref|
    steps: tuple[float | None, ...]  # T - 1: |Z_(t+1) - Z_t| / |Z_t|
    note: str = ""


@dataclass(frozen=True, eq=False)
class Trajectories:
    """Features of all checkpoints on one basis."""

    points: NDArray[np.float64]  # (T, N, K)
    explained: NDArray[np.float64]  # (K,) share of the variance of all T N rows
    mean: NDArray[np.float64]  # (D,) of all rows
    directions: NDArray[np.float64]  # (K, D) orthonormal; the largest entry of each is positive


def parameter_drift(
    a: State, b: State, *, layers: Sequence[str] | None = None, buffers: Collection[str] | None = None
) -> Drift:
    """The change from `a` to `b` relative to `a`.

    Args:
        a: state dict or model; its norm is the measure.
        b: the other.
        layers: modules by name to sum up; by default each module that has parameters of its own.
        buffers: names that are no parameters; by default the model's, or batch norm's statistics by name.
    """
    first, second = _state(a), _state(b)
    _check_same(first, second)
    apart = set(buffers) if buffers is not None else _buffers(a, b, first)
    changes = {
        name: _squares(name, first[name], second[name])
        for name in first
        if first[name].is_floating_point() or first[name].is_complex()
    }
    moved = {name: change for name, change in changes.items() if name not in apart}
    if not moved:
        raise BadData("parameter_drift: wanted parameters, got none (buffers stand apart).")
    groups = _groups(moved, layers)
    by_layer = {layer: _ratio(moved[name] for name in names) for layer, names in groups.items()}
    still = [layer for layer, value in by_layer.items() if value is None]
    left = sum(map(len, groups.values())) < len(moved)
    notes = [f"no size to compare with: {', '.join(still)}"] * bool(still)
    notes += ["some parameters lie in none of the layers and count in the whole only"] * left
    kept = {name: _ratio([change]) for name, change in changes.items() if name in apart}
    return Drift(_ratio(moved.values()), by_layer, kept, "; ".join(notes))


def feature_drift(features: Array | Sequence[Array], reference: int = -1) -> FeatureDrift:
    """Relative change of features of T checkpoints, (N, ...) each and of the same samples.

    Args:
        features: (T, N, ...) or T arrays.
        reference: which of the T is compared with, by its place; the last by default.
    """
    rows = _checkpoint_rows("feature_drift", features)
    if not -len(rows) <= reference < len(rows):
        raise BadValue("feature_drift", f"the place of one of {len(rows)} checkpoints", reference)
    fixed = rows[reference]
    to_reference = tuple(_ratio([_pair_squares(fixed, one)]) for one in rows)
    steps = tuple(_ratio([_pair_squares(one, other)]) for one, other in pairwise(rows))
    silent = None in (*to_reference, *steps)
    return FeatureDrift(to_reference, steps, "some features are all 0: nothing to compare with" * silent)


def feature_trajectories(features: Array | Sequence[Array], components: int = 2) -> Trajectories:
    """Principal components of the rows of all checkpoints together, so that places can be compared over time.

    Args:
        features: (T, N, ...) or T arrays (N, ...), of the same samples.
        components: how many directions; all must have variance.
    """
    rows = torch.stack(_checkpoint_rows("feature_trajectories", features)).double()  # (T, N, D)
    flat = rows.flatten(0, 1)
    mean = flat.mean(0)
    off = flat - mean
    if not 1 <= components <= min(off.shape):
        raise BadValue("feature_trajectories", f"from 1 to {min(off.shape)} components", components)
    variances, directions = principal_directions(off, components)
    if components > len(variances):
        raise BadData(
            f"feature_trajectories: wanted {components} directions with variance, got features with {len(variances)}."
        )
    largest = directions.gather(1, directions.abs().argmax(1, keepdim=True))
    directions = directions * largest.sign()
    points = (off @ directions.T).reshape(*rows.shape[:2], components)
    explained = variances / off.square().sum()
    found = (points, explained, mean, directions)
    return Trajectories(*(tensor.cpu().numpy() for tensor in found))


def principal_directions(off: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Falling sums of squares (K,) of centred rows (N, D) along their principal directions, and these (K, D).

    From the smaller side; fewer than `count` where the rows have no variance along so many.
    """
    wide = off.shape[1] > len(off)
    found = eigenvectors(off @ off.T if wide else off.T @ off, count=count)
    vectors = off.T @ found.vectors / found.values.sqrt() if wide else found.vectors
    return found.values, vectors.T


def _state(of: State) -> dict[str, Tensor]:
    return dict(of.state_dict() if isinstance(of, nn.Module) else of)


def _buffers(a: State, b: State, names: Iterable[str]) -> set[str]:
    for one in (a, b):
        if isinstance(one, nn.Module):
            return {name for name, _ in one.named_buffers()}
    return {name for name in names if name.rpartition(".")[2] in STATISTICS}


def _check_same(first: dict[str, Tensor], second: dict[str, Tensor]) -> None:
    odd = sorted(first.keys() ^ second.keys())
    odd += [name for name in first.keys() & second.keys() if first[name].shape != second[name].shape]
    if odd:
        raise BadData(
            f"parameter_drift: wanted two states of the same network, got {len(odd)} names that are not in "
            f"both with one shape (the first is {odd[0]!r})."
        )


def _squares(name: str, a: Tensor, b: Tensor) -> tuple[float, float]:
    """|a - b|^2 and |a|^2."""
    found = _pair_squares(a.detach().cpu(), b.detach().cpu())
    if not all(map(math.isfinite, found)):
        raise BadData(f"parameter_drift: wanted finite weights, got NaN or infinity in {name!r}.")
    return found


def _pair_squares(a: Tensor, b: Tensor) -> tuple[float, float]:
    wide = torch.complex128 if a.is_complex() else torch.float64
    first, second = a.to(wide), b.to(wide)
    moved, size = (float(torch.linalg.vector_norm(x)) for x in (first - second, first))
    return moved**2, size**2


def _ratio(squares: Iterable[tuple[float, float]]) -> float | None:
    moved, size = (math.fsum(parts) for parts in zip(*squares, strict=True))
    return math.sqrt(moved / size) if size else None


def _groups(names: Iterable[str], layers: Sequence[str] | None) -> dict[str, list[str]]:
    """Parameters by layer: those of the layers given, or of the module that owns them."""
    groups: dict[str, list[str]] = {}
    if layers is None:
        for name in names:
            groups.setdefault(name.rpartition(".")[0] or name, []).append(name)
        return groups
    for layer in layers:
        groups[layer] = [name for name in names if f"{name}.".startswith(f"{layer}.")]
        if not groups[layer]:
            raise BadValue("parameter_drift", "layers with parameters", layer)
    return groups


def _checkpoint_rows(who: str, features: Array | Sequence[Array]) -> list[Tensor]:
    """T finite tensors (N, D) of one shape."""
    rows = [as_tensor(one) for one in features]
    shapes = {tuple(one.shape) for one in rows}
    if len(shapes) != 1 or 0 in rows[0].shape or rows[0].ndim < 2:
        raise BadData(
            f"{who}: wanted features (N, ...) of the same samples at each checkpoint, got {shapes}."
        )
    bad = [place for place, one in enumerate(rows) if not bool(torch.isfinite(one).all())]
    if bad:
        raise BadData(f"{who}: wanted finite features, got NaN or infinity at checkpoint number {bad[0]}.")
    return [one.flatten(1) for one in rows]
