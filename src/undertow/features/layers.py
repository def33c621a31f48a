"""Which layers: names, patterns, `auto` and `input` turned into the names of a model's modules.

    resolve_layers(model, "layer2")                 # ("layer2",)
    resolve_layers(model, ["input", "blocks.*.mlp"])  # ("input", "blocks.0.mlp", "blocks.1.mlp", ...)
    resolve_layers(model, "**.relu")                # at any depth
    resolve_layers(model, "auto")                   # model.probe_layers, else sensible defaults behind the input
    resolve_layers(model, "layr2")                  # UnknownName: ... Did you mean 'layer2'?

`*`, `?` and `[...]` match within one part of a dotted name, so `layer*` means the stages and not
every module below them; `**` stands for any number of parts. `input` is the network's own input.
Names are those of the module inside torch.compile, DataParallel and the like.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import cast

from torch import nn

from undertow.errors import BadValue, unknown
from undertow.models.layers import default_layers

INPUT = "input"
AUTO = "auto"
_COMPILED = "_orig_mod"


def unwrap(model: nn.Module) -> nn.Module:
    """The module inside torch.compile, DataParallel and DistributedDataParallel, however nested."""
    if not isinstance(model, nn.Module):  # pyright: ignore[reportUnnecessaryIsInstance]
        got = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
        raise BadValue("model", "a torch module (nn.Module)", got, "run.model(20) gives one of a run.")
    parallel = isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel)
    inner = getattr(model, "module" if parallel else _COMPILED, None)
    return unwrap(inner) if isinstance(inner, nn.Module) else model


def named_layers(model: nn.Module) -> dict[str, nn.Module]:
    """Every module below the (unwrapped) model by name; a module with two names appears twice."""
    pairs = unwrap(model).named_modules(remove_duplicate=False)
    # A compiled part comes before what it wraps, which thus takes over its name: hooks work only inside.
    return {name: module for long, module in pairs if (name := _plain(long))}


def resolve_layers(model: nn.Module, names: str | Iterable[str]) -> tuple[str, ...]:
    """The layers that `names` ask for, each once: in the order asked, patterns in the model's order."""
    asked = _asked(names)
    if not asked:
        raise BadValue("layers", "at least one layer name", asked, "'auto' chooses for you.")
    known = list(named_layers(model))
    return tuple(dict.fromkeys(layer for name in asked for layer in _matching(model, name, known)))


def _asked(names: object) -> list[str]:
    one = isinstance(names, str) or not isinstance(names, Iterable)
    asked = [names] if one else list(cast("Iterable[object]", names))
    for name in asked:
        if not isinstance(name, str):
            raise BadValue("layers", "names of layers", name, "'auto' chooses for you.")
    return cast("list[str]", asked)


def _matching(model: nn.Module, name: str, known: Sequence[str]) -> Sequence[str]:
    name = _plain(name)
    if name == INPUT:
        return (INPUT,)
    if name == AUTO:
        return resolve_layers(model, _defaults(model))
    if name in known:
        return (name,)
    if any(mark in name for mark in "*?["):
        found = [layer for layer in known if _matches(layer.split("."), name.split("."))]
        if found:
            return found
    if name.startswith("module."):  # as in the state dict of a DataParallel model
        return _matching(model, name.removeprefix("module."), known)
    raise unknown("layer", name, [*known, INPUT, AUTO])


def _plain(name: str) -> str:
    """The name without what torch.compile adds to it."""
    return ".".join(part for part in name.split(".") if part != _COMPILED)


def _matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_matches(parts[i:], pattern[1:]) for i in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], pattern[0]) and _matches(parts[1:], pattern[1:])


def _defaults(model: nn.Module) -> Sequence[str]:
    declared = getattr(unwrap(model), "probe_layers", None)
    if declared:
        return tuple(declared)
    found = default_layers(unwrap(model))
    before = _before_parameters(model)
    return tuple(name for name in found if name not in before) or (INPUT,)


def _before_parameters(model: nn.Module) -> set[str]:
    """Modules defined before the first one with parameters (a Flatten): what they give is the input still."""
    before: set[str] = set()
    for name, module in named_layers(model).items():
        if next(module.parameters(), None) is not None:
            return before
        before.add(name)
    return before
