"""Writing into the last linear layer of a classifier, and putting back what was there.

edit = write_head(model, head.name, vectors)   # (C, D); a bias becomes 0
edit.undo()                                    # the bits that were there
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from undertow.errors import BadData, BadValue
from undertow.features.head import GRAFT, layer_called
from undertow.features.layers import unwrap


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
