"""A network in two parts at a named module: what comes out there, and what the rest makes of it.

    outputs, whole = capture(model, x, ["layer1", "layer2"])    # one pass, stopped after the last of them
    deep = Deep(model, cut)
    deep(outputs["layer2"], x)                                  # the network's answer, given that output

The first part is stopped by a hook. The second runs the whole network on one sample of `x` (whatever it is) with a
hook that puts the given output in the cut's place; where the modules form a plain chain, only those after the cut
run. What a later operation would change in place is copied first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from undertow.features.layers import named_layers, unwrap
from undertow.features.stopping import copied, hooked, run_until
from undertow.features.stream import rows_of
from undertow.features.tap import Inputs, call, uncompiled


@dataclass(frozen=True)
class Cut:
    """A place where a network can be parted, and how."""

    name: str
    shallow: frozenset[str]  # parameters and buffers that run up to it
    chain: bool  # whether only the modules after it need to run for the deep part
    whole_prefix: bool = False  # whether the deep part needs as many samples before the cut as after it
    in_place: bool = False  # whether the deep part changes what it is given


def capture(
    model: nn.Module, inputs: Inputs, cuts: Iterable[str], *, go_on: bool = False
) -> tuple[dict[str, Any], Any]:
    """Outputs of the cuts from one pass; and the network's own answer with `go_on`, else None.

    The model should be in evaluation mode already; gradients are not recorded.
    """
    inner = unwrap(model)
    layers = named_layers(inner)
    with torch.no_grad(), uncompiled():
        return run_until(lambda: call(inner, inputs), {name: layers[name] for name in cuts}, go_on=go_on)


class Deep:
    """The part of a network after a cut."""

    def __init__(self, model: nn.Module, cut: Cut) -> None:
        self.model, self.cut = unwrap(model), cut
        self._module = named_layers(self.model)[cut.name]
        self._tail = chain_after(self.model, cut.name) if cut.chain else None

    def __call__(self, output: Any, inputs: Inputs) -> Any:
        """The network's answer if the cut had given `output`; `inputs` are any that the network takes."""
        output = copied(output) if self.cut.in_place else output
        with torch.no_grad(), uncompiled():
            if self._tail is not None:
                return self._tail(output)
            few = inputs if self.cut.whole_prefix else rows_of(inputs, slice(0, 1))
            with hooked({self.cut.name: self._module}, lambda *_: output):
                return call(self.model, few)


def chain_after(model: nn.Module, cut: str) -> nn.Sequential | None:
    """The modules after the cut where all around it are plain chains (nn.Sequential); None elsewhere."""
    level, after = unwrap(model), list[nn.Module]()
    for part in cut.split("."):
        plain = isinstance(level, nn.Sequential) and type(level).forward is nn.Sequential.forward
        if not plain or level._forward_hooks or level._forward_pre_hooks:  # pyright: ignore[reportPrivateUsage]
            return None
        # Not named_children, which leaves out the second appearance of a module.
        names = list(level._modules)  # pyright: ignore[reportPrivateUsage]
        after = [*(getattr(level, name) for name in names[names.index(part) + 1 :]), *after]
        level = getattr(level, part)
    return nn.Sequential(*after)
