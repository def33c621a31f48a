"""A model at one checkpoint, and the mini-batches whose steps start there.

    with SteppedModel.of(model, "layer2", torch.float64) as net:
        net.features(inputs, net.tensors)         # (N, D) at the cut; nothing behind it is computed
        net.moving(inputs)                        # the parameters that such features depend on

The module itself is neither copied nor changed: parameters and buffers are handed to it, in any precision.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call

from undertow.errors import BadValue
from undertow.features.layers import INPUT, named_layers, resolve_layers, unwrap
from undertow.features.stopping import evaluating, run_until
from undertow.features.tap import device_of, main_tensor, uncompiled

Loss = Callable[[Tensor, Tensor], Tensor]


class SteppedModel:
    """A model in evaluation mode with its tensors in another precision, run to its end or up to the cut."""

    def __init__(self, model: nn.Module, cut: str, dtype: torch.dtype | None) -> None:
        self.model = unwrap(model)
        names = resolve_layers(model, cut)
        if len(names) != 1 or names[0] == INPUT:
            raise BadValue("sgd_noise, cut", "one layer of the model", cut)
        self.cut, self.layers = names[0], named_layers(model)
        device = device_of(self.model)
        precise = torch.float32 if device is not None and device.type == "mps" else torch.float64
        self.device, self.dtype = device, dtype or precise
        held = {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}
        self.tensors = {name: self.cast(one.detach()) for name, one in held.items()}
        self.trainable = {name for name, one in self.model.named_parameters() if one.requires_grad}

    @classmethod
    @contextmanager
    def of(cls, model: nn.Module, cut: str, dtype: torch.dtype | None) -> Generator[SteppedModel]:
        """A checkpoint for the time of the block; after it every module has its own mode back."""
        net = cls(model, cut, dtype)
        with evaluating(net.model), uncompiled():
            yield net

    def cast(self, tensor: Tensor) -> Tensor:
        """`tensor` on the model's device; in the wanted precision, if it holds floats."""
        return tensor.to(self.device, self.dtype if tensor.is_floating_point() else tensor.dtype)

    def outputs(self, inputs: Tensor, tensors: Mapping[str, Tensor]) -> Tensor:
        """What the whole model answers with these parameters and buffers."""
        return main_tensor(functional_call(self.model, dict(tensors), (inputs,)))

    def features(self, inputs: Tensor, tensors: Mapping[str, Tensor]) -> Tensor:
        """The output of the cut (N, D); nothing behind it is computed."""
        found, _ = run_until(
            lambda: functional_call(self.model, dict(tensors), (inputs,)), {self.cut: self.layers[self.cut]}
        )
        return main_tensor(found[self.cut], self.cut).flatten(1)

    def moving(self, probes: Tensor) -> dict[str, Tensor]:
        """The trainable parameters on which the features at the cut depend, as leaves of a graph."""
        leaves = {name: self.tensors[name].clone().requires_grad_() for name in sorted(self.trainable)}
        found = self.features(probes, {**self.tensors, **leaves})
        if not leaves or not found.requires_grad:
            raise BadValue(
                "sgd_noise, cut",
                "a layer after trainable parameters",
                self.cut,
                "A step changes nothing here.",
            )
        slopes = torch.autograd.grad(found.sum(), list(leaves.values()), allow_unused=True)
        return {
            name: leaf
            for (name, leaf), slope in zip(
                leaves.items(), cast("tuple[Tensor | None, ...]", slopes), strict=True
            )
            if slope is not None
        }


class StepSource(NamedTuple):
    """Where steps come from."""

    net: SteppedModel
    x: Tensor
    y: Tensor
    loss: Loss
    lr: float
    prepare: Callable[[Tensor], Tensor] | None

    def inputs(self, samples: Tensor) -> Tensor:
        """Samples as the model takes them, where it lies."""
        samples = samples.to(self.net.device)
        return self.net.cast(samples if self.prepare is None else self.prepare(samples))

    def batch(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and labels at these rows, where the model lies."""
        samples, labels = (part.index_select(0, rows.to(part.device)) for part in (self.x, self.y))
        return self.inputs(samples), self.net.cast(labels)
