"""What the commands print with: one console, one way to write tables and shares."""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TextIO

from rich.console import Console
from rich.errors import MarkupError
from rich.markup import escape
from rich.table import Table

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_TURNS = re.compile(r"[\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""What ends a line or turns the direction in which the rest of it is shown."""
_ANSWERS: ContextVar[TextIO | None] = ContextVar("answers", default=None)
"""Where JSON goes; standard output where nothing is said."""
WIDE = 200
"""Columns of a pipe or a file, where nothing needs to wrap."""


CERTAIN = 0.9995
"""From here on a probability would be rounded to 100 %."""


class Screen(Console):
    """A console that no name can crash or steer: control characters are spelt out, stray brackets are brackets."""

    def print(self, *objects: Any, **how: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Print; what is no markup is text."""
        shown = [visible(own) if isinstance(own, str) else own for own in objects]
        try:
            super().print(*shown, **how)
        except MarkupError:
            super().print(*shown, **{**how, "markup": False})  # pyright: ignore[reportArgumentType]

    def on_broken_pipe(self) -> None:
        """Rich would end the process with an error; `undertow runs | head` is none."""
        raise BrokenPipeError


def visible(text: str) -> str:
    """The text with control characters and half letters spelt out; lines and tabs stay."""
    plain = text.encode("utf-8", "backslashreplace").decode()
    plain = _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", plain)
    return _TURNS.sub(lambda found: f"\\u{ord(found[0]):04x}", plain)


def console() -> Console:
    """The screen; made anew each time so that tests and pipes see their own standard output."""
    made = Screen(highlight=False, soft_wrap=True)
    if not made.is_terminal:
        made.width = WIDE
    return made


def table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    right: Sequence[str] = (),
    whole: Sequence[str] = (),
) -> Table:
    """A quiet table: a rule under the head, no box; the columns in `whole` are never broken."""
    made = Table(
        title=title or None, box=None, header_style="bold", title_justify="left", padding=(0, 2, 0, 0)
    )
    for name in columns:
        side = "right" if name in right else "left"
        made.add_column(name, justify=side, overflow="fold", no_wrap=name in whole)
    for row in rows:
        made.add_row(*(escape(visible(str(cell))) for cell in row))
    return made


def percent(share: float | None, digits: int = 1) -> str:
    """A share as a percentage; a dash where there is none."""
    return "–" if share is None or share != share else f"{100 * share:.{digits}f} %"


def belief(share: float) -> str:
    """A probability as a percentage; what nearly holds is not said to be certain."""
    return "> 99.9 %" if share >= CERTAIN else percent(share)


def counted(number: int, what: str) -> str:
    """1 epoch, 2,000 epochs."""
    return f"{thousands(number)} {what}{'' if number == 1 else 's'}"


def thousands(number: int) -> str:
    """12,345."""
    return f"{number:,}"


def print_json(value: Any) -> None:
    """One line of JSON on standard output; not-a-number becomes null, as JSON has none."""
    print(json.dumps(_plain(value)), file=_ANSWERS.get(), flush=True)


@contextmanager
def answering(stream: TextIO) -> Generator[None]:
    """In the block JSON goes to this stream, wherever standard output leads."""
    before = _ANSWERS.set(stream)
    try:
        yield
    finally:
        _ANSWERS.reset(before)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}  # pyright: ignore
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]  # pyright: ignore
    return None if isinstance(value, float) and value != value else value
