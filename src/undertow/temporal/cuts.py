"""Where a network can be parted into a shallow and a deep part.

    valid_cuts(model, x)                # ("stem", "layer1.0", ..., "layer3"): one name per different composite
    explain_cuts(model, x)              # every module -> "" or why it is no cut
    cut = find_cut(model, "layer2", x)  # BadValue with the reason and the nearest valid cuts

A cut is valid where all information passes through the module's output: nothing made from the input goes round it,
no weight is used on both sides, and the module runs once. That is read off one pass, operation by operation, and
then tried on real samples: the deep part must give the whole network's answer although the network before the cut
sees another sample. So `x` should be real inputs, at least two that differ; four or more are better.

Modules between which no weight is used (a block, its last ReLU, the pool after it) make the same composites; the
outermost and then earliest of them stands for all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from undertow.errors import BadData, BadValue
from undertow.features.compatibility import explained
from undertow.features.layers import named_layers, resolve_layers, unwrap
from undertow.features.stopping import copied, evaluating
from undertow.features.stream import answers_of, count_samples, rows_of
from undertow.features.tap import Inputs, call, device_of, main_tensor, to_device
from undertow.temporal.compose_split import Cut, Deep, capture, chain_after
from undertow.temporal.cuts_trace import Timeline, trace

SAMPLES = 4
"""How many samples a cut is tried on, with as many others before it."""


def valid_cuts(model: nn.Module, x: Inputs) -> tuple[str, ...]:
    """The names of modules to cut at, in the order in which they run: one for each different composite.

    Args:
        model: any module; it is left as it was.
        x: two inputs or more, as the model takes them; a few are enough.
    """
    return tuple(name for name, reason in explain_cuts(model, x).items() if not reason)


def explain_cuts(model: nn.Module, x: Inputs) -> dict[str, str]:
    """Every module in the order in which it ends, with "" if it is a valid cut, else the reason why not."""
    tried = _CutTrials(model, x)
    reasons = tried.reasons()
    return {name: reasons[name] for name in tried.in_order()}


def find_cut(model: nn.Module, name: str, x: Inputs | None = None, *, who: str = "cut") -> Cut:
    """The cut called `name`, checked; refused with a reason and the nearest valid cuts.

    Without `x` only plain chains (nn.Sequential) are known well enough.
    """
    names = resolve_layers(model, name)
    if len(names) != 1 or names[0] not in named_layers(model):
        raise BadValue(who, "one module's name", name, f"It means {', '.join(names)}.")
    if x is not None:
        return _CutTrials(model, x).find(names[0], who)
    found = _chain_cut(unwrap(model), names[0])
    if found is None:
        raise BadValue(
            who, f"samples x to see what runs before {names[0]!r}", None,
            f"Only in plain chains is it known without; {type(unwrap(model)).__name__} is none.",
        )  # fmt: skip
    return found


def find_cuts(model: nn.Module, names: str | Iterable[str], x: Inputs, *, who: str = "cuts") -> list[Cut]:
    """Several cuts, checked, in the order in which they run; `auto` takes the model's own choice.

    That is `model.cuts` where the model has such a list, else those of its probed layers that are valid cuts.
    """
    tried = _CutTrials(model, x)
    if names == "auto":
        own = getattr(unwrap(model), "cuts", None) or resolve_layers(model, "auto")
        chosen = [name for name in own if not tried.problem(name)]
        chosen = chosen or [name for name, reason in tried.reasons().items() if not reason]
        if not chosen:
            raise BadValue(who, "a network that can be parted somewhere", type(unwrap(model)).__name__)
    else:
        chosen = list(resolve_layers(model, names))
    return sorted((tried.find(name, who) for name in chosen), key=lambda cut: tried.moment(cut.name))


def sort_cuts(model: nn.Module, names: Iterable[str], x: Inputs) -> tuple[list[str], dict[str, str]]:
    """Those of the modules that are cuts, in the order in which they run, and why the others are none."""
    tried = _CutTrials(model, x)
    reasons = {name: tried.problem(name) for name in names}
    valid = sorted((name for name, reason in reasons.items() if not reason), key=tried.moment)
    return valid, {name: reason for name, reason in reasons.items() if reason}


class _CutTrials:
    """One model on a few samples, and what was found about its modules so far."""

    def __init__(self, model: nn.Module, x: Inputs) -> None:
        self.model, count = unwrap(model), count_samples(x)
        if count < 2:
            raise BadData("cuts: wanted at least two samples to try a cut on, got 1.")
        few = min(SAMPLES, count // 2)
        device = device_of(self.model)
        self.inputs = to_device(rows_of(x, slice(0, few)), device)
        self.others = to_device(rows_of(x, slice(few, 2 * few)), device)
        with explained(self.model, self.inputs, "cuts"), evaluating(self.model), torch.no_grad():
            self.answer = answers_of(self.model, call(self.model, self.inputs), count_samples(self.inputs))
            alone = self._answer_alone()
        self.line: Timeline = trace(self.model, self.inputs)
        self.names = named_layers(self.model)
        self.whole = "" if same_answers(alone, self.answer[:1]) else (
            "the network's answer to a sample depends on the others in its batch"
        )  # fmt: skip
        self._cuts: dict[str, Cut | str] = {}

    def moment(self, name: str) -> int:
        return self.line.moment(name)

    def in_order(self) -> list[str]:
        """Modules as they end; those that never run come last."""
        return sorted(
            self.names,
            key=lambda name: self.moment(name) if name in self.line.calls else self.line.moments + 1,
        )

    def problem(self, name: str) -> str:
        """Why the module is no cut, or ""."""
        if name not in self.names:
            return "it is no module"
        found = self._try(name)
        return found if isinstance(found, str) else ""

    def find(self, name: str, who: str) -> Cut:
        found = self._try(name)
        if isinstance(found, Cut):
            return found
        raise BadValue(who, "a place where all information passes", name, f"Here {found}. {self._near(name)}")

    def reasons(self) -> dict[str, str]:
        """Every module with "", a reason, or the name that stands for the same composite."""
        reasons = {name: self.problem(name) for name in self.names}
        standing: dict[frozenset[str], str] = {}
        by_rank = sorted(self.in_order(), key=lambda name: name.count("."))
        for name in by_rank:
            if not reasons[name]:
                first = standing.setdefault(self.line.shallow(name), name)
                reasons[name] = "" if first == name else f"it makes the same composites as {first}"
        return reasons

    def _near(self, name: str) -> str:
        reasons = self.reasons()
        valid = [other for other in self.in_order() if not reasons[other]]
        if name not in self.line.calls:
            near = valid[:3]
        else:
            before = [other for other in valid if self.moment(other) <= self.moment(name)]
            near = [*before[-1:], *valid[len(before) : len(before) + 1]]
        if not near:
            return "The network has no valid cut."
        return f"The nearest valid cuts are {' and '.join(near)}." if len(near) == 2 else (
            f"Valid: {', '.join(near)}."
        )  # fmt: skip

    def _try(self, name: str) -> Cut | str:
        if name not in self._cuts:
            reason = self.line.problem(name) or self.whole
            self._cuts[name] = reason or self._on_samples(name)
        return self._cuts[name]

    def _on_samples(self, name: str) -> Cut | str:
        """The cut if its deep part answers like the network, though other samples run before it."""
        cut = Cut(name, self.line.shallow(name), chain_after(self.model, name) is not None)
        said = ""
        with evaluating(self.model):
            for way in (cut, replace(cut, whole_prefix=True)):
                output = capture(self.model, self.inputs, [name])[0][name]
                before = copied(output)
                try:
                    answer = main_tensor(Deep(self.model, way)(output, self.others))
                except (RuntimeError, IndexError, ValueError, TypeError) as error:
                    said = f" ({str(error).splitlines()[0]})"
                    continue
                if same_answers(answer, self.answer):
                    return replace(way, in_place=not _unchanged(before, output))
        return f"the rest of the network does not give the same answer from its output alone{said}"

    def _answer_alone(self) -> Tensor:
        try:
            return main_tensor(call(self.model, rows_of(self.inputs, slice(0, 1))))
        except (RuntimeError, ValueError):
            return self.answer.new_empty(0)  # equals nothing: it needs more than one sample


def _chain_cut(model: nn.Module, name: str) -> Cut | None:
    """The cut of a plain chain, from its structure alone; None if the model is no chain down to there."""
    after = chain_after(model, name)
    if after is None:
        return None
    late = {id(tensor) for tensor in (*after.parameters(), *after.buffers())}
    tensors = [
        *model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)
    ]  # fmt: skip
    # What follows the cut was taken off the chain by position, so a module that is used twice counts as late.
    early = {id(tensor) for part in _before(model, name) for tensor in (*part.parameters(), *part.buffers())}
    both = [full for full, tensor in tensors if id(tensor) in early & late]
    if both:
        raise BadValue(
            "cut",
            "a place where all information passes",
            name,
            f"Here {both[0]} is used before and after it.",
        )
    return Cut(name, frozenset(full for full, tensor in tensors if id(tensor) in early), True)


def _before(model: nn.Module, name: str) -> list[nn.Module]:
    """The modules of a plain chain up to and including the one called `name`."""
    level, before = model, list[nn.Module]()
    for part in name.split("."):
        names = list(level._modules)  # pyright: ignore[reportPrivateUsage]
        before += [getattr(level, child) for child in names[: names.index(part)]]
        level = getattr(level, part)
    return [*before, level]


def same_answers(a: Tensor, b: Tensor) -> bool:
    """Equal up to rounding, judged by the largest number; a pass in other batches rounds differently."""
    if a.shape != b.shape:
        return False
    rounding = min(1e3 * torch.finfo(b.dtype).eps, 0.05) if b.is_floating_point() else 0.0
    scale = float(b.abs().nan_to_num(0.0, 0.0, 0.0).max()) if b.numel() else 0.0
    return torch.allclose(a, b, rtol=0, atol=rounding * scale, equal_nan=True)


def _unchanged(before: Any, after: Any) -> bool:
    return torch.equal(main_tensor(before), main_tensor(after))
