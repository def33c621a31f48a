"""The last linear layer of a network: its name, what enters and leaves it, and whether its outputs are the answers.

    last_layer(model)                        # "head", "classifier", "fc", ... in the order of definition
    with watch_layer(model, "head") as calls:
        model(x)
    features, outputs = calls[-1]            # copies: (..., P), (..., C)
    head = find_head(model, x)               # by running the model: the layer whose outputs are the model's answers

The head is the linear layer that runs last and whose outputs are the model's, or put in another scale by
what follows (a softmax). Where a transformer applies it to each token, the token whose outputs the model
takes for its answer counts. A model where this is not so is refused: writing into it would do something,
but not what is meant. Hooks are taken off at the end, also after an exception.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from undertow.errors import BadData, BadValue
from undertow.features.layers import named_layers, resolve_layers, unwrap
from undertow.features.stream import stream_features
from undertow.features.tap import Inputs, main_tensor
from undertow.models.layers import head_of

Calls = list[tuple[Tensor, Tensor]]
"""What entered and what left a layer, one pair for each call."""


def last_layer(model: nn.Module) -> str:
    """The name of the last linear layer in the order of definition; "" if the model is that layer itself."""
    name = head_of(unwrap(model))
    return resolve_layers(model, name)[0] if name else ""


def layer_called(model: nn.Module, name: str) -> nn.Module:
    """The module of that name, inside torch.compile and DataParallel; "" is the model itself."""
    return named_layers(model)[resolve_layers(model, name)[0]] if name else unwrap(model)


@contextmanager
def watch_layer(model: nn.Module, name: str) -> Generator[Calls]:
    """Note what enters and leaves the layer called `name` at each of its calls."""
    calls: Calls = []

    def note(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        # Copies: what follows may change both in place.
        entered, left = entering(name, args, kwargs), main_tensor(output, name)
        calls.append((entered.detach().clone(), left.detach().clone()))

    handle = layer_called(model, name).register_forward_hook(note, with_kwargs=True)
    try:
        yield calls
    finally:
        handle.remove()


def entering(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """The tensor that a layer was called with."""
    found = next((value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)), None)
    if found is None:
        raise BadData(f"Layer {name!r}: wanted a tensor to enter it, got none.")
    return found


def as_rows(tensor: Tensor) -> Tensor:
    """(..., D) as rows (N, D): each token of a sequence is a sample."""
    return tensor.reshape(-1, tensor.shape[-1])


GRAFT = "Name a layer to graft a head on: repair(..., layer='...')."


class Head(NamedTuple):
    """The last linear layer."""

    name: str  # "" if the model is that layer itself
    classes: int
    dim: int
    per_token: bool  # whether it is applied to each token of a sample


class Call(NamedTuple):
    """One call of a linear layer."""

    name: str
    entered: Tensor  # (N, D), or (N, L, D)
    left: Tensor  # (N, C), or (N, L, C)


def find_head(model: nn.Module, x: Inputs) -> Head:
    """The linear layer that gives the model's answers, found by running the model on `x`.

    Raises:
        BadValue: there is none, it has one output (a regression), or the model goes on behind it.
    """
    who = type(unwrap(model)).__name__
    calls: list[Call] = []
    handles = [module.register_forward_hook(_note(name, calls)) for name, module in _linear(model).items()]
    try:
        outputs = torch.cat([batch.outputs for batch in stream_features(model, x, "input")])
    finally:
        for handle in handles:
            handle.remove()
    if not bool(torch.isfinite(outputs).all()):
        raise BadData(
            f"repair of {who}: wanted finite outputs, got NaN or infinity. The network has diverged."
        )
    if not calls:
        raise BadValue(f"repair of {who}", "a model that ends in a linear layer", "none", GRAFT)
    last = calls[-1]
    if last.left.shape[-1] == 1:
        raise BadValue(
            f"repair of {who}",
            "one output per class",
            "one output (a regression)",
            "Probes tell classes apart.",
        )
    if len(outputs) != len(last.left) or rows_of_answer(last, outputs) is None:
        raise BadValue(
            f"repair of {who}",
            "a model whose answers are those of its last linear layer",
            f"one that goes on behind {last.name!r}",
            GRAFT,
        )
    return Head(last.name, last.left.shape[-1], last.entered.shape[-1], last.left.ndim == 3)


def rows_of_answer(call: Call, outputs: Tensor) -> tuple[Tensor, Tensor] | None:
    """What entered and left the head for the model's answers (N, D), (N, C); None if they are not the head's."""
    entered, left = call.entered, call.left
    if left.ndim == 3 and outputs.ndim == 2 and left.shape[-1] == outputs.shape[-1]:
        same = (left == outputs[:, None]).all(-1)  # (N, L)
        if not bool(same.any(1).all()):
            return None
        rows = torch.arange(len(left), device=left.device), same.int().argmax(1)
        return entered[rows], left[rows]
    if left.ndim != 2 or left.shape != outputs.shape:
        return None
    # Outputs in the order of what left the head never fall, whatever rising function follows, but for rounding.
    falls = -outputs.gather(1, left.argsort(1)).diff(dim=1)
    allowed = 4 * torch.finfo(outputs.dtype).eps * outputs.abs().amax(1, keepdim=True)
    return (entered, left) if bool((falls <= allowed).all()) else None


def _linear(model: nn.Module) -> dict[str, nn.Module]:
    """Linear layers by name; a layer with two names once."""
    root = unwrap(model)
    found: dict[int, tuple[str, nn.Module]] = {}
    for name, module in {"": root, **named_layers(model)}.items():
        if isinstance(module, nn.Linear):
            found.setdefault(id(module), (name, module))
    return dict(found.values())


def _note(name: str, calls: list[Call]) -> Any:
    def note(_module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        calls.append(Call(name, entering(name, args, {}).detach().clone(), output.detach().clone()))

    return note
