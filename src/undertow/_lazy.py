"""Names that are imported when they are first used.

    __getattr__, __dir__ = lazy(__name__, {"train": "undertow.train.loop", "Run": "undertow.train.run"})

`import undertow` and `undertow --help` stay quick because nothing that needs torch is imported before it is
asked for. Type checkers read the `TYPE_CHECKING` imports beside each table instead.

A room named after its main verb (train, audit, repair) can be called: `undertow.train(...)` is
`undertow.train.train(...)`, whichever of the two was imported first.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any


class CallableRoom(ModuleType):
    """A package that stands for the function of its own name."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Call that function."""
        return getattr(self, self.__name__.rpartition(".")[2])(*arguments, **options)


def make_callable(package: str) -> None:
    """Let the package called `package` be called."""
    sys.modules[package].__class__ = CallableRoom


def lazy(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """A module's `__getattr__` and `__dir__` for names that live in the modules `homes`."""

    def getattr_(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = import_module(homes[name])
        value = home if homes[name] == f"{package}.{name}" else getattr(home, name)
        setattr(sys.modules[package], name, value)
        return value

    def dir_() -> list[str]:
        return sorted({*getattr(sys.modules[package], "__all__", ()), *homes})

    return getattr_, dir_
