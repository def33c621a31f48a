"""What runs when: one pass of a model as a timeline of modules, weights and values.

    line = trace(model, x)          # a few samples; the model is left as it was
    line.problem("layer2")          # why it is no cut, or "": all information passes through its output
    line.shallow("layer2")          # names of the parameters and buffers that run up to it
    line.moment("layer2")           # how many operations had run when it ended

Every operation is seen below Python's modules, so a weight that a model uses outside any layer (a class token, a
bias written into `forward`) counts too. A value crosses a cut if it was made from the input before the cut and is
used after it. Values are told apart by their memory: a view is the value it looks at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from undertow.features.layers import named_layers, unwrap
from undertow.features.stopping import evaluating, hooked
from undertow.features.tap import Inputs, call, uncompiled


@dataclass(frozen=True)
class ModuleEnd:
    """The end of one call of a module."""

    moment: int
    values: frozenset[int]  # the memory of its output


@dataclass
class Timeline:
    """When each weight and each value was first and last used, and when modules ended."""

    weights: Mapping[str, int]  # parameter or buffer -> its memory
    moments: int = 0
    calls: dict[str, list[ModuleEnd]] = field(default_factory=dict[str, list[ModuleEnd]])
    first: dict[int, int] = field(default_factory=dict[int, int])
    last: dict[int, int] = field(default_factory=dict[int, int])
    born: dict[int, int] = field(default_factory=dict[int, int])  # values that depend on the input

    def moment(self, name: str) -> int:
        """When the module ended (its first call)."""
        return self.calls[name][0].moment

    def problem(self, name: str) -> str:
        """Why the module is no cut; "" if nothing speaks against it."""
        calls = self.calls.get(name, [])
        if not calls:
            return "it never runs in a forward pass"
        if len(calls) > 1:
            return f"it runs {len(calls)} times in one pass"
        if not calls[0].values:
            return "its output holds no tensor"
        both = self._on_both_sides(name)
        if both:
            return f"{_listed(both)} {'is' if len(both) == 1 else 'are'} used before and after it"
        around = self._around(calls[0])
        if around:
            what = "another value goes" if around == 1 else f"{around} other values go"
            return f"{what} round it (a skip connection, or an input that is used again)"
        shallow = self.shallow(name)
        if not shallow & self.used():
            return "nothing with weights runs before it"
        return "" if self.used() - shallow else "nothing with weights runs after it"

    def used(self) -> frozenset[str]:
        """The weights that the pass used."""
        return frozenset(name for name, place in self.weights.items() if place in self.first)

    def shallow(self, name: str) -> frozenset[str]:
        """Parameters and buffers that run up to the module; an unused one goes with its neighbours."""
        end = self.moment(name)
        before = {weight for weight in self.used() if self.last[self.weights[weight]] <= end}
        owners = {weight.rpartition(".")[0] for weight in before}
        owners -= {weight.rpartition(".")[0] for weight in self.used() - before}
        beside = {
            weight for weight in self.weights.keys() - self.used() if weight.rpartition(".")[0] in owners
        }
        return frozenset(before | beside)

    def _on_both_sides(self, name: str) -> list[str]:
        end = self.moment(name)
        places = {weight: self.weights[weight] for weight in self.weights if weight in self.used()}
        return [weight for weight, place in places.items() if self.first[place] <= end < self.last[place]]

    def _around(self, end: ModuleEnd) -> int:
        live = {value for value, made in self.born.items() if made <= end.moment < self.last.get(value, made)}
        return len(live - end.values)

    def note(self, operation: Any, read: Iterable[int], made: Iterable[int]) -> None:
        """One operation: what it read and what it made."""
        self.moments += 1
        depends = False
        for value in read:
            self.first.setdefault(value, self.moments)
            self.last[value] = self.moments
            depends = depends or value in self.born
        if depends and not _only_shape(operation):
            for value in made:
                self.born.setdefault(value, self.moments)


class _Watch(TorchDispatchMode):
    """Tells a timeline about every operation."""

    def __init__(self, line: Timeline) -> None:
        super().__init__()
        self.line = line
        self._alive: list[Any] = []  # freed memory would be handed out again and taken for an earlier value

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Torch would load its whole compiler (seconds) to keep it away from us; we run uncompiled anyway.
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        output = func(*args, **(kwargs or {}))
        self._alive.append((args, kwargs, output))
        self.line.note(func, memory((args, kwargs)), memory(output))
        return output


def trace(model: nn.Module, inputs: Inputs) -> Timeline:
    """The timeline of one pass over a few samples, in evaluation mode and without gradients."""
    inner = unwrap(model)
    weights = {
        name: place
        for named in (inner.named_parameters, inner.named_buffers)
        for name, tensor in named(remove_duplicate=False)
        for place in memory(tensor)
    }
    line = Timeline(weights)
    line.born.update(dict.fromkeys(memory(inputs), 0))

    def note_end(name: str, args: Any, output: Any) -> None:
        line.calls.setdefault(name, []).append(ModuleEnd(line.moments, memory(output)))

    with (
        evaluating(inner),
        hooked(named_layers(inner), note_end),
        uncompiled(),
        torch.no_grad(),
        _Watch(line),
    ):
        call(inner, inputs)
    return line


def memory(tree: Any) -> frozenset[int]:
    """The memory of all tensors in nested tuples, lists, dicts and model outputs; empty tensors have none."""
    places = (leaf.untyped_storage().data_ptr() for leaf in tree_leaves(tree) if isinstance(leaf, Tensor))
    return frozenset(place for place in places if place)


def _only_shape(operation: Any) -> bool:
    """Whether the result takes no more than shape, type and device from what was read."""
    name = str(operation).split(".")[1]
    return name.endswith("_like") or name.startswith("new_")


def _listed(names: list[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
