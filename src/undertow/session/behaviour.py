"""How a model behaves, as a hash: its modules, their code, and what each of them answers for a few samples.

    behaviour_of(session.reader(model), split.trial())     # other code for the same weights gives another

What is kept under a hash of weights alone would outlive a mended forward. A few samples do not show all that code does,
and the code of a class not all that it calls: both are looked at. Answers are compared to the last bit, on one thread,
so that the same code finds what it kept. What a model answers differently the second time (a forward that draws
numbers) says nothing of its code and is left out; where a model raises, the hash ends with that.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from undertow.features.layers import INPUT, named_layers, unwrap
from undertow.features.tap import Inputs, device_of
from undertow.session.reader import Reader
from undertow.training.seeds import global_stream


def behaviour_of(reader: Reader, few: Inputs) -> str:
    """A hash of a model's modules, of their code and of their answers for `few` samples."""
    device = device_of(reader.model) or torch.device("cpu")
    with global_stream(0, "behaviour", 0, device), _one_thread():
        first, second = _answers(reader, few), _answers(reader, few)
    modules = {"": unwrap(reader.model), **named_layers(reader.model)}
    parts = [f"{name} {type(module).__qualname__}" for name, module in modules.items()]
    code = [_class_words(kind) for kind in dict.fromkeys(map(type, modules.values()))]
    lasting = [one for one, again in zip(first, second, strict=False) if one == again]
    text = "\n".join([*parts, *code, *lasting])
    return hashlib.blake2b(text.encode(errors="backslashreplace"), digest_size=16).hexdigest()


def _class_words(kind: type) -> str:
    """What the functions of a class and of those that it is made from do; torch's own count by their names alone."""
    own = [one for one in kind.__mro__ if one is not object and one.__module__.partition(".")[0] != "torch"]
    functions = (_function(part) for one in own for part in vars(one).values())
    return " ".join(_code_words(one.__code__) for one in functions if one is not None)


def _function(part: Any) -> FunctionType | None:
    """The function of a method, a property or a decorated one; None for anything else in a class."""
    if isinstance(part, property | staticmethod | classmethod):
        part = part.fget if isinstance(part, property) else part.__func__
    found = inspect.unwrap(part) if inspect.isfunction(part) else None
    return found if inspect.isfunction(found) else None


def _code_words(code: CodeType) -> str:
    """What code does, wherever its file and its lines are."""
    said = [_code_words(one) if isinstance(one, CodeType) else _constant(one) for one in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {said}"


def _constant(value: Any) -> str:
    # The order of a set is another in each process.
    return repr(sorted(map(repr, value)) if isinstance(value, frozenset) else value)


def _answers(reader: Reader, few: Inputs) -> list[str]:
    """A hash of what each module gave, in the order of their calls, and of the model's own answers."""
    seen: list[str] = []
    with ExitStack() as stack:
        for name, module in named_layers(reader.model).items():
            stack.callback(module.register_forward_hook(_noting(name, seen)).remove)
        try:
            for batch in reader.stream(few, [INPUT]):
                seen.append(_hash("", batch.outputs))
        except Exception as error:  # whoever measures with this model says what is wrong
            seen.append(type(error).__name__)
    return seen


def _noting(name: str, seen: list[str]) -> Callable[[nn.Module, tuple[Any, ...], Any], None]:
    def note(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        seen.append(_hash(name, output))

    return note


def _hash(name: str, output: Any) -> str:
    seen = hashlib.blake2b(name.encode(), digest_size=16)
    for part in tree_leaves(output):
        if isinstance(part, Tensor) and part.layout is torch.strided:
            seen.update(f"{part.dtype}{tuple(part.shape)}".encode())
            seen.update(part.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return seen.hexdigest()


@contextmanager
def _one_thread() -> Generator[None]:
    """Sums are rounded alike however many threads a process has."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
