"""One thing changed in the content of a file: bytes, or in JSON a value, a name, a field more or less."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Iterator
from typing import Any

ODD: tuple[Any, ...] = (
    None, True, -1, 0, 2**70, 1e308, "", "\x1b[31m", "[/x]", "<script>", [], {}, [[]], {"a": {"b": 1}}, "9" * 5000,
    [None] * 50,
)  # fmt: skip


def changed(content: bytes, name: str, rng: random.Random) -> bytes:
    """The content with one thing changed."""
    if name.endswith(".json") and rng.random() < 0.6:
        return _changed_json(content, rng)
    place, size = rng.randrange(len(content)), 1 + int(rng.expovariate(0.1))
    match rng.randrange(6):
        case 0:
            return content[:place] + bytes([content[place] ^ (1 << rng.randrange(8))]) + content[place + 1 :]
        case 1:
            return content[:place]
        case 2:
            return content[:place] + content[place + size :]
        case 3:
            return content[:place] + rng.randbytes(size) + content[place:]
        case 4:
            return content[:place] + rng.randbytes(size) + content[place + size :]
        case _:
            return content[:place] + content[max(0, place - size) :]


def _changed_json(content: bytes, rng: random.Random) -> bytes:
    values = json.loads(content)
    if rng.random() < 0.5 and isinstance(values, dict):
        values.pop("seal", None)  # as if an undertow of before the seals had written it
    spots = list(_spots(values))
    holder, key = rng.choice(spots)
    match rng.randrange(4):
        case 0:
            del holder[key]
        case 1:
            holder[key] = rng.choice(ODD)
        case 2 if isinstance(holder, dict):
            holder[rng.choice(["format", "extra", str(key) * 2, "\u2028"])] = rng.choice(ODD)
        case _:
            other, name = rng.choice(spots)
            holder[key] = other[name] if name in other or isinstance(other, list) else None
    with contextlib.suppress(ValueError, RecursionError):  # a thing inside itself
        return json.dumps(values).encode()
    return content[: len(content) // 2]


def _spots(values: Any) -> Iterator[tuple[Any, Any]]:
    pairs = values.items() if isinstance(values, dict) else enumerate(values)
    for key, inner in list(pairs):
        yield values, key
        if isinstance(inner, dict | list):
            yield from _spots(inner)
