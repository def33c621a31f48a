"""The last linear layer of any classifier: found by running it, written to, and put back.

    head = find_head(model, x)                     # x: a few inputs; fc, classifier, head.fc, score, ...
    edit = write_head(model, head.name, vectors)   # (C, D); a bias becomes 0
    edit.undo()                                    # the bits that were there

The head is the linear layer that runs last and whose outputs are the model's, or put in another scale by
what follows (a softmax). Where a transformer applies it to each token, the token whose outputs the model
takes for its answer counts. A model where this is not so is refused: writing into it would do something,
but not what is meant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from undertow.errors import BadData, BadValue
from undertow.features.layers import named_layers, unwrap
from undertow.features.stream import stream_features
from undertow.features.tap import Inputs
from undertow.richness.head import entering, layer_called

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


@dataclass(frozen=True, eq=False)
class HeadEdit:
    """What was written into a head, and what was there before."""

    model: nn.Module
    name: str
    weight: Tensor
    bias: Tensor | None

    def undo(self) -> None:
        """Put the old weights back, bit for bit."""
        _write(layer_called(self.model, self.name), self.weight, self.bias)


def write_head(model: nn.Module, name: str, weight: Tensor, bias: Tensor | None = None) -> HeadEdit:
    """Write `weight` (C, D) and `bias` (C,), or zeros for None, into the linear layer called `name`."""
    head = layer_called(model, name)
    if not isinstance(head, nn.Linear):
        raise BadValue(f"head {name!r}", "a linear layer", type(head).__name__, GRAFT)
    _check_writable(model, head, name)
    old = cast("Tensor | None", head.bias)
    if tuple(weight.shape) != tuple(head.weight.shape):
        wanted, got = (f"{tuple(part.shape)}" for part in (head.weight, weight))
        raise BadData(
            f"head {name!r}: wanted weights {wanted} (classes, features), got {got}. "
            "The labels and the head must have the same classes."
        )
    if bias is not None and old is None:
        raise BadValue(
            f"head {name!r}", "a bias to write to", "a head without", "VeLPIC needs none: probe='velpic'."
        )
    edit = HeadEdit(model, name, head.weight.detach().clone(), None if old is None else old.detach().clone())
    _write(head, weight, torch.zeros_like(old) if old is not None and bias is None else bias)
    return edit


@torch.no_grad()
def _write(head: nn.Module, weight: Tensor, bias: Tensor | None) -> None:
    head.get_parameter("weight").copy_(weight)
    if bias is not None:
        head.get_parameter("bias").copy_(bias)


def _check_writable(model: nn.Module, head: nn.Module, name: str) -> None:
    """Refuse weights that are computed from others, and those that another layer uses too."""
    own = dict(head.named_parameters(recurse=False))
    if "weight" not in own:
        raise BadValue(
            f"head {name!r}",
            "weights of its own",
            "weights computed from others",
            "Remove its parametrisation.",
        )
    owners = [
        module
        for module in unwrap(model).modules()
        if any(one is own["weight"] for one in module.parameters(recurse=False))
    ]
    if len(owners) > 1:
        other = next(type(one).__name__ for one in owners if one is not head)
        raise BadValue(
            f"head {name!r}", "weights of its own", f"weights shared with {other}", f"Untie them. {GRAFT}"
        )
