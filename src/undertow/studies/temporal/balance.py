"""The balance of appendix C: does a late deep part stay still because features drift where it is flat?

    found = balance(deep, z, z_later, weights, weights_later)   # deep: the part after the cut at t; z (N, ...)
    found.feature, found.parameter        # (N,) sizes of df/dz dz and df/dtheta dtheta
    found.together, found.change          # (N,) of their sum, and of the true change of the output
    found.flatness                        # size of df/dz dz over that for random directions of the same length

The paper: f_t(g_t(x)) tends to a constant on the training set, so that df/dz dz/dt + df/dtheta dtheta/dt tends to 0;
df/dtheta gets small, and so df/dz dz/dt tends to 0 by itself: features drift in directions that are flat for the
classifier. Time runs in checkpoints here: dz and dtheta are the differences of two of them. With cross-entropy outputs
grow without end, what tends to a constant is their softmax; so that is f unless `outputs` says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp
from torch.nn.modules.batchnorm import _BatchNorm  # pyright: ignore[reportPrivateUsage]

from undertow.errors import BadData, BadValue, unknown
from undertow.features.stopping import evaluating

Outputs = Literal["probabilities", "logits"]


@dataclass(frozen=True, eq=False)
class Balance:
    """Sizes (Euclidean norms over the outputs) for N samples between two checkpoints."""

    feature: Tensor  # (N,) |df/dz dz|
    parameter: Tensor  # (N,) |df/dtheta dtheta|
    together: Tensor  # (N,) |their sum|
    change: Tensor  # (N,) |f_t+1(z_t+1) - f_t(z_t)|
    control: Tensor  # (N,) root mean square of |df/dz r| over random r as long as dz

    @property
    def flatness(self) -> float | None:
        """Below 1: features drift where the deep part is flatter than elsewhere; None where it is flat everywhere."""
        beside = _size(self.control)
        return _size(self.feature) / beside if beside > 0 else None

    @property
    def sizes(self) -> dict[str, float]:
        """Root mean squares over samples."""
        parts = {"feature": self.feature, "parameter": self.parameter, "together": self.together}
        return {name: _size(part) for name, part in {**parts, "change": self.change}.items()}


def balance(
    deep: nn.Module,
    z: Tensor,
    z_later: Tensor,
    weights: Mapping[str, Tensor],
    weights_later: Mapping[str, Tensor],
    *,
    outputs: Outputs = "probabilities",
    draws: int = 8,
    seed: int = 0,
) -> Balance:
    """The two parts of the change of a deep part's output, to first order, sample by sample.

    Args:
        deep: the part after the cut; its own weights do not matter.
        z: features (N, ...) at the earlier checkpoint.
        z_later: of the same samples at the later one.
        weights: parameters and buffers of `deep` at the earlier checkpoint.
        weights_later: at the later one.
        outputs: what f is: the softmax of the outputs, or the outputs themselves.
        draws: random directions for each sample.
        seed: of these directions.
    """
    if outputs not in ("probabilities", "logits"):
        raise unknown("outputs", str(outputs), ("probabilities", "logits"))
    if draws < 1:
        raise BadValue("balance, draws", "at least one direction", draws)
    if z.shape != z_later.shape or z.ndim < 2 or set(weights) != set(weights_later):
        raise BadData(
            "balance: wanted features (N, ...) of one shape and the same weights at both checkpoints, got "
            f"{tuple(z.shape)} and {tuple(z_later.shape)}, {len(weights)} and {len(weights_later)} tensors."
        )
    start, end = _floats(weights), _floats(weights_later)
    first, last, plain = z.double(), z_later.double(), with_plain_norms(deep)

    def answer(parameters: dict[str, Tensor], features: Tensor) -> Tensor:
        found = functional_call(plain, parameters, (features,))
        return found.softmax(-1) if outputs == "probabilities" else found

    def along(direction: Tensor) -> Tensor:
        return jvp(lambda features: answer(start, features), (first,), (direction,))[1]

    with evaluating(plain), torch.no_grad():
        moved = {name: end[name] - start[name] for name in start}
        by_features = along(last - first)
        by_weights = jvp(lambda parameters: answer(parameters, first), (start,), (moved,))[1]
        change = answer(end, last) - answer(start, first)
        control = torch.stack([along(one).square().sum(1) for one in _directions(last - first, draws, seed)])
    return Balance(
        by_features.norm(dim=1), by_weights.norm(dim=1), (by_features + by_weights).norm(dim=1),
        change.norm(dim=1), control.mean(0).sqrt(),
    )  # fmt: skip


class _PlainNorm(nn.Module):
    """Batch norm in evaluation mode by plain arithmetic, with the same names of its tensors.

    torch's own has no derivative by its running statistics, and these are part of what moves between checkpoints.
    """

    def __init__(self, norm: _BatchNorm) -> None:
        super().__init__()
        self.eps = norm.eps
        for name, one in {**norm._parameters, **norm._buffers}.items():  # pyright: ignore[reportPrivateUsage]
            self.register_buffer(name, None if one is None else one.detach())

    def forward(self, x: Tensor) -> Tensor:
        def shaped(name: str) -> Tensor:
            return getattr(self, name).reshape(1, -1, *[1] * (x.ndim - 2))

        normed = (x - shaped("running_mean")) / (shaped("running_var") + self.eps).sqrt()
        return normed if self._buffers["weight"] is None else normed * shaped("weight") + shaped("bias")


def with_plain_norms(module: nn.Module) -> nn.Module:
    """A copy in which every batch norm with running statistics is written out."""
    copied = deepcopy(module)
    for name, one in list(copied.named_modules()):
        if isinstance(one, _BatchNorm) and one.running_mean is not None:
            if not name:
                return _PlainNorm(one)
            place, _, last = name.rpartition(".")
            setattr(copied.get_submodule(place), last, _PlainNorm(one))
    return copied


def _directions(like: Tensor, draws: int, seed: int) -> list[Tensor]:
    """Random directions, each sample's as long as its own change."""
    generator = torch.Generator().manual_seed(seed)
    length = like.flatten(1).norm(dim=1)
    found: list[Tensor] = []
    for _ in range(draws):
        drawn = torch.randn(like.shape, generator=generator, dtype=torch.float64).to(like.device)
        scale = length / drawn.flatten(1).norm(dim=1)
        found.append(drawn * scale.reshape(-1, *[1] * (like.ndim - 1)))
    return found


def _floats(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: one.detach().double() for name, one in weights.items() if one.is_floating_point()}


def _size(norms: Tensor) -> float:
    return float(norms.square().mean().sqrt())
