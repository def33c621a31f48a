"""Names with options: `blobs:classes=4,n=500`.

    name, given = split_spec("blobs:classes=4,n=500")        # 'blobs', {'classes': '4', 'n': '500'}
    typed_options(name, given, {"n": 1000, "classes": 3})    # {'n': 500, 'classes': 4}

An option has the type of its default. Unknown options are answered with near ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from undertow.errors import BadValue, unknown

Value = TypeVar("Value", int, float, str, int | float)


def split_spec(text: str) -> tuple[str, dict[str, str]]:
    """The name and the options, not yet typed, of `name` or `name:option=value,option=value`."""
    name, colon, tail = text.partition(":")
    pairs = [part.partition("=") for part in tail.split(",")] if colon else []
    if not name or any(not key.strip() or not sign for key, sign, _ in pairs):
        raise BadValue("options", "name or name:option=value,option=value", text)
    given = {key.strip(): value.strip() for key, _, value in pairs}
    if len(given) < len(pairs):
        raise BadValue("options", "each option once", text)
    return name, given


def typed_options(name: str, given: Mapping[str, str], defaults: Mapping[str, Value]) -> dict[str, Value]:
    """`defaults` with the values that were given, each read as the type of its default."""
    values = dict(defaults)
    for key, text in given.items():
        if key not in defaults:
            raise unknown(f"option of {name}", key, defaults)
        kind = type(defaults[key])
        try:
            values[key] = kind(text)
        except ValueError as error:
            wanted = "a whole number" if kind is int else "a number"
            raise BadValue(f"{name} option {key}", wanted, text) from error
    return values
