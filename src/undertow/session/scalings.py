"""How pixels were scaled in training, asked of the trained model: it repeats its labels only as it learned them.

    found = likeliest_scaling(run.model(), train.x, train.y, "unit")       # pictures in bytes or from 0 to 1
    found.name, found.words                      # "imagenet", "the model repeats 62 % of the labels with it, ..."

The ways with a name are tried, and the pictures' own means and deviations, as many trainers take them. A way other than
the plain one is taken only where the model repeats clearly more labels with it: the samples of which
just one of the two ways is right, compared by McNemar's test. Where the model repeats few labels in any way, the plain
one stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from undertow.data.inputs import SCALINGS, to_inputs
from undertow.errors import UndertowError
from undertow.features.compatibility import CANNOT
from undertow.features.layers import INPUT
from undertow.features.stream import stream_features

FEW = 512
"""Samples that are asked about."""
SURE = 3.0
"""Standard deviations by which another way must be better."""


@dataclass(frozen=True)
class LikelyScaling:
    """The scaling that a model seems to have been trained with."""

    name: str
    repeated: dict[str, float]
    """Scaling -> share of the labels that the model repeats with it; empty where it could not be asked."""
    plain: str

    @property
    def words(self) -> str:
        """Why it was taken; nothing where it is the plain one."""
        if self.name == self.plain:
            return ""
        return (
            f"the model repeats {100 * self.repeated[self.name]:.0f} % of the labels with it, "
            f"{100 * self.repeated[self.plain]:.0f} % with {self.plain}"
        )


def likeliest_scaling(model: nn.Module, x: Any, y: Tensor, plain: str) -> LikelyScaling:
    """The scaling of pictures with which `model` repeats most of the labels `y`; `plain` where none is clearly better.

    Args:
        model: as it was trained, in evaluation mode.
        x: training samples (N, C, H, W), bytes or floats; of floats beyond 0 to 1 nothing is asked.
        y: their given labels.
        plain: how they are fed unless there is reason to do otherwise.
    """
    if not _is_pixels(x):
        return LikelyScaling(plain, {}, plain)
    rows = torch.linspace(0, len(y) - 1, min(FEW, len(y))).long().unique()
    tried = dict.fromkeys([plain, *SCALINGS, own_scaling(x[rows])])
    hits = {name: _hits(model, x[rows], y[rows], name) for name in tried}
    right = {name: found for name, found in hits.items() if found is not None}
    shares = {name: float(found.double().mean()) for name, found in right.items()}
    if plain not in right:
        return LikelyScaling(plain, {}, plain)
    best = max(shares, key=lambda name: shares[name])
    gained, lost = (int((right[one] & ~right[other]).sum()) for one, other in ((best, plain), (plain, best)))
    sure = gained - lost > SURE * max(1, gained + lost) ** 0.5
    return LikelyScaling(best if sure else plain, shares, plain)


def own_scaling(x: Tensor) -> str:
    """The means and deviations of these pictures (N, C, H, W), as `find_scaling` reads them."""
    pixels = x.double() / 255 if x.dtype == torch.uint8 else x.double()
    std, mean = torch.std_mean(pixels, dim=(0, 2, 3))
    shown = [",".join(f"{float(one):.3f}" for one in part) for part in (mean, std)]
    return "/".join(shown)


def _is_pixels(x: object) -> bool:
    if not isinstance(x, Tensor) or x.ndim != 4 or not len(x):
        return False
    return x.dtype == torch.uint8 or (x.is_floating_point() and 0 <= float(x.min()) <= float(x.max()) <= 1)


def _hits(model: nn.Module, x: Tensor, y: Tensor, scaling: str) -> Tensor | None:
    """(N,) where the model's first choice is the label; None where it cannot be asked this way."""
    try:
        inputs = to_inputs(x, scaling)
        # A network of rows of steps takes pictures without their channel.
        for rows in (inputs, inputs[:, 0]) if x.shape[1] == 1 else (inputs,):
            said = _answers(model, rows)
            if said is not None and said.ndim == 2 and len(said) == len(y):
                return said.argmax(1).cpu() == y
    except UndertowError:
        return None
    return None


def _answers(model: nn.Module, rows: Tensor) -> Tensor | None:
    try:
        return torch.cat([batch.outputs for batch in stream_features(model, rows, INPUT)])
    except (*CANNOT, UndertowError):
        return None
