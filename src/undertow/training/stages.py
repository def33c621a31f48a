"""The stages of a training: one for ordinary runs, one per layer for greedy layer-wise training.

    for stage in plan_stages(config, model, outputs=10, example=x):
        stage.enter(model)              # freezes what this stage does not train
        stage.net(x)                    # the network whose loss this stage minimises
        stage.last_epoch

Greedy training gives each of the model's cuts but the last an auxiliary linear head, trains that layer
under it, freezes it and goes on; the last stage trains what is left under the model's own head. The epochs
are divided evenly over the stages. Until the last stage, the metrics of an epoch are those of the auxiliary
head: the model's own head has not learned yet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from undertow.errors import BadValue
from undertow.models.layers import head_of
from undertow.training.config import TrainConfig
from undertow.training.freeze import find_module, freeze_all_but, freeze_up_to
from undertow.training.seeds import number


@dataclass(frozen=True, eq=False)
class Stage:
    """A network to train up to an epoch, and how to enter the stage."""

    net: nn.Module
    last_epoch: int
    enter: Callable[[nn.Module], None]


def plan_stages(config: TrainConfig, model: nn.Module, outputs: int, example: Tensor) -> list[Stage]:
    """The stages that `config` asks for."""
    if config.greedy:
        return _greedy(config, model, outputs, example)
    if config.last_layer_only:
        head = head_of(model)
        return [Stage(model, config.epochs + 1, lambda model: freeze_all_but(model, head))]
    if config.freeze is not None:
        layer = config.freeze
        find_module(model, layer)
        return [Stage(model, config.epochs + 1, lambda model: freeze_up_to(model, layer))]
    return [Stage(model, config.epochs + 1, lambda _: None)]


def _greedy(config: TrainConfig, model: nn.Module, outputs: int, example: Tensor) -> list[Stage]:
    cuts = cast("tuple[str, ...]", getattr(model, "cuts", ()))
    if len(cuts) < 2 or config.epochs < len(cuts):
        raise BadValue(
            "greedy",
            f"a model with two cuts or more and an epoch for each of its {len(cuts)}",
            f"{config.epochs} epochs",
        )
    stages: list[Stage] = []
    for place, layer in enumerate(cuts):
        last = config.epochs * (place + 1) // len(cuts)
        if place == len(cuts) - 1:
            stages.append(Stage(model, last + 1, _freezing(cuts[place - 1])))
        else:
            net = Headed(model, layer, outputs, example, number(config.init_seed, "auxiliary head", place))
            stages.append(Stage(net, last, _freezing(cuts[place - 1]) if place else lambda _: None))
    return stages


def _freezing(layer: str) -> Callable[[nn.Module], None]:
    return lambda model: freeze_up_to(model, layer)


class Headed(nn.Module):
    """A model cut off after `layer`, with a linear head on the flattened features there."""

    def __init__(self, model: nn.Module, layer: str, outputs: int, example: Tensor, seed: int) -> None:
        super().__init__()
        self.model, self.layer = model, layer
        with torch.no_grad():
            width = run_up_to(model.cpu().eval(), layer, example.cpu()).flatten(1).shape[1]
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            self.head = nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Outputs of the auxiliary head."""
        return self.head(run_up_to(self.model, self.layer, x).flatten(1))


class _Reached(Exception):
    """Carries a layer's output out of a forward pass that need not go on."""

    def __init__(self, output: Tensor) -> None:
        self.output = output


def run_up_to(model: nn.Module, layer: str, x: Tensor) -> Tensor:
    """The output of `layer`, without running what comes after it; gradients flow."""

    def stop(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        raise _Reached(output)

    handle = find_module(model, layer).register_forward_hook(stop)
    try:
        model(x)
    except _Reached as reached:
        return reached.output
    finally:
        handle.remove()
    raise BadValue(f"layer {layer!r}", "a layer that runs in the forward pass", "one that does not")
