"""What to say where an argument is missing: which one, and what it is.

missing_words(error)      # repair: --out FILE is missing; give the repaired model's file (.safetensors); ...

What an argument is stands in its command's docstring, where `--help` reads it too.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cyclopts import MissingArgumentError

SUGGESTION = " Did you mean "


def missing_words(error: MissingArgumentError) -> str:
    """One sentence about an argument that is not there, or that has no value."""
    argument = error.argument
    if argument is None:
        return str(error)
    command = " ".join(error.command_chain or ())
    meaning = meaning_of(error.target, argument.field_info.name)
    advice = f"; give {meaning.rstrip('.')}" if meaning else ""
    if error.keyword:
        said = f"{command}: {error.keyword} wants a value{advice}."
    else:
        named = argument.field_info.name.upper()
        if not argument.field_info.is_positional:
            named = f"{argument.name} {_kind(argument.hint, meaning)}"
        said = f"{command}: {named} is missing{advice}."
    _, found, near = str(error).partition(SUGGESTION)
    return f"{said}{found}{near}"


def meaning_of(target: Callable[..., Any] | None, name: str) -> str:
    """What the docstring of a command says of one of its arguments; nothing where it says nothing."""
    text = (getattr(target, "__doc__", None) or "").partition("Args:")[2]
    found = re.search(rf"^( +){name}: (.*(?:\n\1 +.*)*)", text, flags=re.MULTILINE)
    return " ".join(found.group(2).split()) if found else ""


def _kind(hint: Any, meaning: str) -> str:
    if hint is not Path:
        return "VALUE"
    return "FOLDER" if "folder" in meaning else "FILE"
