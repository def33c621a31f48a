"""Settings in the types that their fields declare: what means the same is put right, all else is refused at once.

    settle(config)                       # in __post_init__: seed=np.int64(3) becomes 3, samples=1e4 becomes 10000
    AuditConfig(seed=1.5)                # BadValue: seed: wanted a whole number, got 1.5.
    folder(out, Path("runs/mine"))       # a path, or the default where none was given

Nothing is guessed from text: full="no" is no truth value, and seed="3" no number.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from undertow.errors import BadValue

WORDS: dict[Any, str] = {
    int: "a whole number", float: "a number", bool: "True or False", str: "text", NoneType: "None",
}  # fmt: skip


class _Misfit(Exception):
    """A value that is not of the type."""


def settle(config: Any) -> None:
    """Put every field of a frozen dataclass into its declared type.

    Raises:
        BadValue: a field's value means nothing of that type.
    """
    for name, kind in _kinds(type(config)).items():
        value = getattr(config, name)
        try:
            fitting = _fitted(value, kind)
        except _Misfit:
            hints: dict[str, str] = getattr(config, "examples", {})
            raise BadValue(name, _wanted(kind), value, hints.get(name, "")) from None
        if fitting is not value:
            object.__setattr__(config, name, fitting)


def folder(given: object, default: Path) -> Path:
    """The folder that was named, or the default."""
    if given is None or given == "":
        return default
    if not isinstance(given, str | os.PathLike):
        raise BadValue("out", "the path of a folder", given)
    return Path(cast("str", given))


@cache
def _kinds(settings: type) -> dict[str, Any]:
    hints = get_type_hints(settings)
    return {own.name: hints[own.name] for own in fields(settings)}


def _fitted(value: Any, kind: Any) -> Any:
    """The value as one of the type."""
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return _any_of(value, get_args(kind))
    if origin is tuple:
        return _tuple(value, get_args(kind)[0])
    if origin is Literal:
        return value if isinstance(value, str) and value in get_args(kind) else _refuse()
    if kind is Any:
        return value
    if kind is NoneType:
        return value if value is None else _refuse()
    if origin is not None:  # a function
        return value if callable(value) else _refuse()
    return _plain(value, kind)


def _plain(value: Any, kind: type) -> Any:
    value = _without_numpy(value)
    if kind is str and _means_text(value):
        return str(value)
    if isinstance(value, bool) and kind is not bool:
        return _refuse()
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int | float if kind is float else kind) else _refuse()


def _without_numpy(value: Any) -> Any:
    """A single number of numpy or torch as a plain one."""
    if getattr(value, "ndim", None) != 0 or not callable(getattr(value, "item", None)):
        return value
    try:
        return value.item()
    except (RuntimeError, ValueError, TypeError):  # a tensor without numbers
        return _refuse()


def _means_text(value: Any) -> bool:
    """Paths and torch's devices; a whole number of bytes, too."""
    kind = type(value)
    device = kind.__module__ == "torch" and kind.__name__ == "device"
    return (
        device or isinstance(value, os.PathLike) or (isinstance(value, int) and not isinstance(value, bool))
    )


def _any_of(value: Any, kinds: tuple[Any, ...]) -> Any:
    for kind in kinds:
        try:
            return _fitted(value, kind)
        except _Misfit:
            continue
    return _refuse()


def _tuple(value: Any, kind: Any) -> tuple[Any, ...]:
    listed = cast("list[Any]", value) if isinstance(value, tuple | list) else [value]
    found = tuple(_fitted(one, kind) for one in listed)
    return cast("tuple[Any, ...]", value) if value == found else found


def _refuse() -> Any:
    raise _Misfit


def _wanted(kind: Any) -> str:
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return " or ".join(_wanted(one) for one in get_args(kind))
    if origin is Literal:
        *first, last = (str(one) for one in get_args(kind))
        return f"{', '.join(first)} or {last}"
    if origin is tuple:
        return f"a list of {_wanted(get_args(kind)[0]).replace('text', 'names')}"
    return WORDS.get(kind, "a function" if kind is Callable or origin is not None else "another value")
