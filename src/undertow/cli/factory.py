"""Finding a user's own model: `--model package.module:function`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from undertow.errors import BadValue, unknown

if TYPE_CHECKING:
    from torch import nn


def import_factory(place: str) -> Callable[[], nn.Module]:
    """The function that `place` names; modules in the current folder are found too."""
    module, _, name = place.partition(":")
    if not module or not name:
        raise BadValue("--model", "package.module:function", place)
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        home = import_module(module)
    except ImportError as error:
        raise BadValue(
            "--model", "a module that can be imported", module, f"Python says: {error}."
        ) from error
    found = getattr(home, name, None)
    if not callable(found):
        raise unknown(
            f"function in {module}", name, [one for one in vars(home) if callable(getattr(home, one))]
        )
    return found  # pyright: ignore[reportReturnType]
