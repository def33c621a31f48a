"""Watch modules in a forward pass: stop at a layer, or put another value in the place of its output.

    found, whole = run_until(lambda: model(x), {"layer2": layer})     # {"layer2": its output}, None: stopped there
    with hooked({"layer2": layer}, lambda name, args, output: other):
        model(x)                                                      # as if the layer had given `other`
    with evaluating(model): ...                                       # evaluation mode, and back

This is the one place where a pass is stopped or changed: composites, one-step noise and grafts stand on it.
Gradients flow as they would; whoever wants none says so. Hooks are gone when the block or the call ends.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from undertow.errors import BadValue
from undertow.features.head import entering as entering_tensor

Hook = Callable[[str, tuple[Any, ...], Any], Any]
"""Is told a module's name, its arguments and its output; what it returns, unless None, replaces the output."""


class _Reached(BaseException):
    """Ends a pass; no Exception, so that a model's own `except` does not catch it."""


@contextmanager
def hooked(modules: Mapping[str, nn.Module], hook: Hook) -> Generator[None]:
    """Inside the block `hook` sees every call of the modules."""
    with ExitStack() as stack:
        for name, module in modules.items():
            stack.callback(module.register_forward_hook(_named(hook, name)).remove)
        yield


def run_until(
    run: Callable[[], Any], modules: Mapping[str, nn.Module], *, entering: bool = False, go_on: bool = False
) -> tuple[dict[str, Any], Any]:
    """What the modules give in their first call while `run` runs, and the answer of `run` with `go_on`, else None.

    Args:
        run: starts the forward pass.
        modules: by name; the pass ends when the last of them was called.
        entering: the tensors that enter the modules instead of what they give.
        go_on: let the pass come to its end. What was found is then copied, as it may be changed in place.
    """
    found: dict[str, Any] = {}

    def keep(name: str, args: tuple[Any, ...], output: Any) -> None:
        if name not in found:
            found[name] = copied(output) if go_on or len(found) + 1 < len(modules) else output
        if len(found) == len(modules) and not go_on:
            raise _Reached

    with ExitStack() as stack:
        if entering:
            for name, module in modules.items():
                hook = _before(keep, name)
                stack.callback(module.register_forward_pre_hook(hook, with_kwargs=True).remove)
        else:
            stack.enter_context(hooked(modules, keep))
        try:
            whole = run()
        except _Reached:
            return found, None
    silent = [name for name in modules if name not in found]
    if silent:
        raise BadValue("layer", "a layer that the forward pass calls", silent[0], "Choose another.")
    return found, whole


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


def _named(hook: Hook, name: str) -> Callable[[nn.Module, tuple[Any, ...], Any], Any]:
    return lambda _, args, output: hook(name, args, output)


def _before(keep: Hook, name: str) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]:
    return lambda _, args, kwargs: keep(name, args, entering_tensor(name, args, kwargs))
