"""The named layers of any network: what there is, and which to look at.

    for layer in layers_of(model, x):      # x: a batch for the model; without it no shapes
        print(layer.name, layer.kind, layer.parameters, layer.shape)
    default_layers(model)                  # ("encoder.layer.0", ..., "pooler"), shallow to deep
    head_of(model)                         # "classifier": the last linear layer

Our own networks say themselves what their papers probe. For others `default_layers` reads the tree
of modules, without running anything: the blocks that repeat (a transformer's layers, a ResNet's
residual blocks), else what enters each layer with weights; and always what enters the head.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from undertow.errors import BadValue

Example = Tensor | tuple[object, ...] | Mapping[str, object]
"""A batch: one tensor, the arguments of the model's call, or its named arguments."""


@dataclass(frozen=True)
class Layer:
    """A named module of a network."""

    name: str
    kind: str  # the class of the module
    parameters: int  # its own and its children's; a shared one counts once
    shape: tuple[int, ...] | None  # of its output for one sample; None if unknown or not a tensor


def layers_of(model: nn.Module, example: Example | None = None) -> tuple[Layer, ...]:
    """All named modules of `model`, a parent before its children, with output shapes if `example` is given.

    The model runs once on the example, in evaluation mode and without gradients, and is left as it
    was. For a module that is called more than once the shape is that of its last call.
    """
    shapes = {} if example is None else _output_shapes(model, example)
    return tuple(
        Layer(
            name,
            type(module).__name__,
            sum(parameter.numel() for parameter in module.parameters()),
            shapes.get(name),
        )
        for name, module in model.named_modules()
        if name
    )


def head_of(model: nn.Module) -> str:
    """The name of the last linear layer, in the order of definition; "" if the model is that layer."""
    linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise BadValue(
            type(model).__name__, "a network with a linear layer", "none", "Name the layers yourself."
        )
    return linear[-1]


def default_layers(model: nn.Module) -> tuple[str, ...]:
    """Names of layers worth a look, shallow to deep, for a network that names none itself."""
    own = getattr(model, "probe_layers", None)
    if isinstance(own, tuple):
        return cast(tuple[str, ...], own)
    head = head_of(model)
    blocks = _repeated_blocks(model) or _before_weights(_widest_level(model), head)
    last = _before_head(model, head, blocks)
    return (*(name for name in blocks if name != last), *([last] if last else []))


def _output_shapes(model: nn.Module, example: Example) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}

    def note(name: str, output: object) -> None:
        if isinstance(output, Tensor) and output.ndim:
            shapes[name] = tuple(output.shape[1:])

    handles = [
        module.register_forward_hook(lambda _m, _i, output, name=name: note(name, output))
        for name, module in model.named_modules()
    ]
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        with torch.no_grad():
            _call(model, example)
    finally:
        for handle in handles:
            handle.remove()
        for module, training in modes:
            module.training = training
    return shapes


def _call(model: nn.Module, example: Example) -> None:
    if isinstance(example, Tensor):
        model(example)
    elif isinstance(example, Mapping):
        model(**example)
    else:
        model(*example)


def _repeated_blocks(model: nn.Module) -> list[str]:
    """The blocks of the kind that repeats most in the model's lists of modules."""
    found = list(_list_members(model, ""))
    kinds = Counter(type(module) for _, module in found)
    if not kinds or max(kinds.values()) < 2:
        return []
    most = kinds.most_common(1)[0][0]
    return [name for name, module in found if type(module) is most]


def _list_members(module: nn.Module, name: str) -> Iterator[tuple[str, nn.Module]]:
    """Composite members of lists, outermost only: experts or sublayers inside a block are its own affair."""
    for child_name, child in module.named_children():
        full = f"{name}.{child_name}" if name else child_name
        composite = next(child.children(), None) is not None and _weighty(child)
        if _is_list(module) and composite and not _is_list(child):
            yield full, child
        else:
            yield from _list_members(child, full)


def _widest_level(model: nn.Module) -> tuple[str, nn.Module]:
    """The outermost module with three children that have weights, else the one with most."""
    counts = {
        name: sum(map(_weighty, module.children())) for name, module in model.named_modules()
    }  # parents first
    wide = [name for name, count in counts.items() if count >= 3]
    name = wide[0] if wide else max(counts, key=lambda each: counts[each])
    return name, model.get_submodule(name)


def _before_weights(level: tuple[str, nn.Module], head: str) -> list[str]:
    """What enters each child with weights, and the output of each child that is a block of its own."""
    name, module = level
    names: list[str] = []
    before = ""
    for child_name, child in module.named_children():
        full = f"{name}.{child_name}" if name else child_name
        if _weighty(child) and before:
            names.append(before)
        if _contains(full, head):
            break
        if _weighty(child) and next(child.children(), None) is not None:
            names.append(full)
        before = before if _passes_through(child) else full
    return list(dict.fromkeys(names))


def _before_head(model: nn.Module, head: str, blocks: list[str]) -> str:
    """The module defined just before the head, or "" if there is none."""
    while head:
        parent, _, own = head.rpartition(".")
        for name, child in _children_before(model.get_submodule(parent), own):
            full = f"{parent}.{name}" if parent else name
            if not _passes_through(child):
                return _last_inside(model, full, blocks)
        head = parent
    return ""


def _last_inside(model: nn.Module, name: str, blocks: list[str]) -> str:
    """`name`, or its last child as long as it holds blocks: the output of such a whole may be no tensor."""
    while any(name != block and _contains(name, block) for block in blocks):
        children = _children_before(model.get_submodule(name), None)
        name = f"{name}.{next(own for own, child in children if not _is_table(child))}"
    return name


def _is_table(module: nn.Module) -> bool:
    """Buffers alone, and no statistics of a norm: rotary positions, which Llama defines after its last norm."""
    buffers = {name.rpartition(".")[2] for name, _ in module.named_buffers()}
    return bool(buffers) and "running_mean" not in buffers and next(module.parameters(), None) is None


def _children_before(module: nn.Module, name: str | None) -> Iterator[tuple[str, nn.Module]]:
    """The children defined before `name`, the nearest first; all of them if None."""
    children = list(module.named_children())
    at = len(children) if name is None else [each for each, _ in children].index(name)
    yield from reversed(children[:at])


def _weighty(module: nn.Module) -> bool:
    # A norm has vectors only; layers that mix features have matrices.
    return any(parameter.ndim >= 2 for parameter in module.parameters())


def _passes_through(module: nn.Module) -> bool:
    return isinstance(module, nn.Identity | nn.Dropout | nn.Dropout1d | nn.Dropout2d | nn.AlphaDropout)


def _is_list(module: nn.Module) -> bool:
    return isinstance(module, nn.Sequential | nn.ModuleList)


def _contains(outer: str, inner: str) -> bool:
    return f"{inner}.".startswith(f"{outer}.")
