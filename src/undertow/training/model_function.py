"""The model as people hand it over: a function, a class, or a model itself.

    factory = factory_of(build_model)                  # a function that gives a fresh model each time
    ask_model(LitNet, lambda: {"width": 64, "lr": .1}) # LitNet(width=64): what its arguments are called like

A class gets all hyper-parameters that it has arguments for, a function those that it cannot do without.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any

import torch
from torch import nn

from undertow.errors import FOREIGN, BadValue, UndertowError

ModelFactory = Callable[..., nn.Module]


def factory_of(model: ModelFactory | nn.Module) -> ModelFactory:
    """A function that gives a fresh copy of the model each time, whatever the user gave."""
    if isinstance(model, nn.Module):
        return partial(deepcopy, model)
    if not callable(model):
        raise BadValue("open_run(model=...)", "a function that gives an untrained model, or a model", model)
    return model


def ask_model(factory: ModelFactory, settings: Callable[[], dict[str, Any]]) -> nn.Module:
    """The untrained model; `settings` are asked for where the factory has arguments for them."""
    wanted, needed = _arguments(factory)
    known = settings() if wanted else {}
    given = {name: known[name] for name in wanted if name in known}
    missing = [name for name in needed if name not in given]
    if missing:
        raise BadValue(
            "model function", "a function without arguments", factory,
            f"It needs {', '.join(missing)}, which the run's hyper-parameters do not tell.",
        )  # fmt: skip
    try:
        model = factory(**given)
    except TypeError as error:
        raise BadValue(
            "model function", "a function without arguments", factory, f"It says: {error}."
        ) from error
    except (UndertowError, MemoryError, torch.OutOfMemoryError):
        raise
    except FOREIGN as error:  # whatever a user's code raises
        raise _failed(factory, error) from error
    if not isinstance(model, nn.Module):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BadValue("model function", "an nn.Module as its answer", type(model).__name__)
    return model


def _failed(factory: ModelFactory, error: BaseException) -> BadValue:
    """The error for a function that raises one of its own."""
    name = getattr(factory, "__qualname__", None) or type(factory).__name__
    said = (str(error).strip().splitlines() or ["nothing more"])[0].rstrip(".")
    return BadValue(f"model function {name}", "an untrained model", type(error).__name__, f"It says: {said}.")


def _arguments(factory: ModelFactory) -> tuple[list[str], list[str]]:
    """The arguments that hyper-parameters may fill, and those that must be filled."""
    try:
        parts = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return [], []
    named = [one for one in parts if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    needed = [one.name for one in named if one.default is one.empty]
    return ([one.name for one in named] if isinstance(factory, type) else needed), needed
