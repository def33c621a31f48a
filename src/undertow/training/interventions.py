"""What may be done to a model in the middle of its training.

    run = train(config, out, interventions=[
        FreezeAt(20, "layer2"),               # from epoch 21 on, layer2 and all before it stand still
        ReinitialiseAt(20, "layer3", fresh),  # layer3 and all behind it start anew, as in fresh()
        EditAt(40, write_probe_into_head),    # any function of the model
    ])

An intervention at epoch e acts after epoch e was trained and its checkpoint kept, so that checkpoint shows
the model untouched; at epoch 0 it acts on the initial weights. A resumed run repeats what is needed and
nothing else: edits are in the weights already, freezing is set again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import nn

from undertow.errors import BadValue
from undertow.training.freeze import find_module, freeze_up_to


class Intervention(Protocol):
    """A change of the model after a given epoch."""

    @property
    def epoch(self) -> int:
        """The epoch after which it acts."""
        ...

    @property
    def in_weights(self) -> bool:
        """Whether the change lives in the weights alone, so that a resumed run has it already."""
        ...

    def __call__(self, model: nn.Module) -> Iterable[str]:
        """Change `model` in place; returns the parameters that are new, for the optimiser to forget."""
        ...


@dataclass(frozen=True)
class FreezeAt:
    """Stop `layer` and everything before it from learning."""

    epoch: int
    layer: str
    in_weights: bool = False

    def __call__(self, model: nn.Module) -> Iterable[str]:
        """Freeze the prefix."""
        freeze_up_to(model, self.layer)
        return ()


@dataclass(frozen=True)
class ReinitialiseAt:
    """Give `layer` and everything behind it the weights that a fresh model has there."""

    epoch: int
    layer: str
    fresh: Callable[[], nn.Module]
    in_weights: bool = True

    def __call__(self, model: nn.Module) -> Iterable[str]:
        """Copy parameters and buffers from `layer` on, in registration order."""
        behind = names_from(model, self.layer)
        new = self.fresh().state_dict()
        current = model.state_dict()
        with torch.no_grad():
            for name in behind:
                current[name].copy_(new[name])
        return behind


@dataclass(frozen=True)
class EditAt:
    """Call `edit(model)`."""

    epoch: int
    edit: Callable[[nn.Module], None]
    in_weights: bool = True

    def __call__(self, model: nn.Module) -> Iterable[str]:
        """Edit the weights without recording gradients; the optimiser keeps its memory."""
        with torch.no_grad():
            self.edit(model)
        return ()


def names_from(model: nn.Module, layer: str) -> list[str]:
    """Names in the state dict that belong to `layer` or to anything registered after it."""
    find_module(model, layer)
    names = list(model.state_dict())
    inside = [place for place, name in enumerate(names) if name.startswith(f"{layer}.")]
    if not inside:
        raise BadValue(
            f"reinitialise {layer!r}", "a layer with weights", "none", "Choose the next layer that has some."
        )
    return names[inside[0] :]


def names_of(changes: Iterable[Intervention]) -> list[str]:
    """What run.json says of the interventions, one phrase each."""
    return [
        " ".join([type(one).__name__, str(one.epoch), getattr(one, "layer", "")]).strip() for one in changes
    ]


def checked(changes: Sequence[Intervention], model: nn.Module, epochs: int) -> Sequence[Intervention]:
    """The interventions, refused before training if one could never act or names no layer."""
    for change in changes:
        if not 0 <= change.epoch < epochs:
            raise BadValue(
                type(change).__name__, f"an epoch from 0 to {epochs - 1}, before the last one", change.epoch
            )
        if isinstance(change, FreezeAt | ReinitialiseAt):
            find_module(model, change.layer)
        if isinstance(change, ReinitialiseAt):
            names_from(model, change.layer)
    return changes
