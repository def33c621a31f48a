"""The last linear layer, and what enters and leaves it.

    last_layer(model)                        # "head", "classifier", "fc", ...
    with watch_layer(model, "head") as calls:
        model(x)
    features, outputs = calls[-1]            # copies: (..., P), (..., C)

Only a hook is set, and taken off at the end of the block, also after an exception.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from undertow.errors import BadData
from undertow.features.layers import named_layers, resolve_layers, unwrap
from undertow.features.tap import main_tensor
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
