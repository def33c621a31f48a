"""Flags made from a config's fields: their names, types, defaults and help stand in its dataclass only.

def audit(run: Path, *, config: Annotated[AuditConfig, FLAGS] = AuditConfig()) -> int: ...

--layers layer1,layer2       # a field that holds several values takes them joined by commas
"""

from __future__ import annotations

from collections.abc import Sequence
from types import UnionType
from typing import Any, Union, get_args, get_origin

from cyclopts import Parameter, Token, convert

from undertow.errors import UndertowError


class BadUsage(UndertowError):
    """A command line that cannot be followed; the message says what to write instead."""

    exit_code = 2


def comma_list(text: str) -> tuple[str, ...]:
    """a, b and c of "a,b, c"."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _converted(hint: Any, tokens: Sequence[Token]) -> Any:
    """A flag's value; cyclopts alone would want a flag for each value of a list."""
    kinds: tuple[Any, ...] = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    several = next((kind for kind in kinds if get_origin(kind) in (tuple, list, Sequence)), None)
    if several is None:
        return convert(hint, tokens)
    parts = [part for token in tokens for part in comma_list(token.value)]
    kind = get_args(several)[0]
    kind = kind if isinstance(kind, type) else str  # names, where functions may be given in Python
    try:
        return tuple(kind(part) for part in parts)
    except ValueError:
        raise ValueError(f"give numbers joined by commas, such as 1,2,5, not {','.join(parts)!r}") from None


def _shown(default: Any) -> Any:
    """A default as one would type it; None is not shown."""
    return ",".join(map(str, default)) if isinstance(default, tuple) else default and str(default)  # pyright: ignore


FLAGS = Parameter(name="*", converter=_converted, show_default=_shown)
