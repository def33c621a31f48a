"""A network in two parts at a named module: what comes out there, and what the rest makes of it.

    outputs, whole = capture(model, x, ["layer1", "layer2"])    # one pass, stopped after the last of them
    deep = Deep(model, cut)
    deep(outputs["layer2"], x)                                  # the network's answer, given that output

The first part is stopped by a hook. The second runs the whole network on one sample of `x` (whatever it is) with a
hook that puts the given output in the cut's place; where the modules form a plain chain, only those after the cut
run. What a later operation would change in place is copied first.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from undertow.features.layers import named_layers, unwrap
from undertow.features.tap import Inputs, uncompiled


@dataclass(frozen=True)
class Cut:
    """A place where a network can be parted, and how."""

    name: str
    shallow: frozenset[str]  # parameters and buffers that run up to it
    chain: bool = False  # whether only the modules after it need to run for the deep part
    whole_prefix: bool = False  # whether the deep part needs as many samples before the cut as after it
    in_place: bool = False  # whether the deep part changes what it is given


class _Stop(BaseException):
    """Ends a pass; no Exception, so that a model's own `except` does not catch it."""


def capture(
    model: nn.Module, inputs: Inputs, cuts: Iterable[str], *, go_on: bool = False
) -> tuple[dict[str, Any], Any]:
    """Outputs of the cuts from one pass; and the network's own answer with `go_on`, else None.

    The model should be in evaluation mode already; gradients are not recorded.
    """
    inner = unwrap(model)
    modules, found, missing = named_layers(inner), dict[str, Any](), set(cuts)

    def keep(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            missing.discard(name)
            stop = not missing and not go_on
            found[name] = output if stop else copied(output)
            if stop:
                raise _Stop

        return hook

    with ExitStack() as stack:
        for name in tuple(missing):
            stack.callback(modules[name].register_forward_hook(keep(name)).remove)
        stack.enter_context(torch.no_grad())
        stack.enter_context(uncompiled())
        try:
            whole = call(inner, inputs)
        except _Stop:
            whole = None
    return found, whole


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
            hook = self._module.register_forward_hook(lambda *_: output)
            try:
                return call(self.model, few)
            finally:
                hook.remove()


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


def call(model: nn.Module, inputs: Inputs) -> Any:
    """The model's answer to one tensor, keyword arguments or positional arguments."""
    if isinstance(inputs, Tensor):
        return model(inputs)
    return model(**inputs) if isinstance(inputs, Mapping) else model(*inputs)


def rows_of(inputs: Inputs, rows: slice) -> Inputs:
    """Some samples of the inputs; what is no tensor stays as it is."""
    if isinstance(inputs, Tensor):
        return inputs[rows]
    if isinstance(inputs, Mapping):
        return {key: value[rows] if isinstance(value, Tensor) else value for key, value in inputs.items()}
    return tuple(value[rows] if isinstance(value, Tensor) else value for value in inputs)


def copied(tree: Any) -> Any:
    """The same with each tensor copied; strides stay, as they decide how the next layer computes."""
    return tree_map_only(Tensor, torch.clone, tree)


@contextmanager
def evaluating(model: nn.Module) -> Generator[None]:
    """Evaluation mode inside the block; every module's own mode after it."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        for module, _ in modes:
            module.training = False  # train() and eval() are overridden by some modules, with side effects
        yield
    finally:
        for module, mode in modes:
            module.training = mode
