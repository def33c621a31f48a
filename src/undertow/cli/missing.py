"""What to say where an argument is missing: which one, and what it is.

missing_words(error)      # repair: --out FILE is missing. Give the repaired model's file (.safetensors); ...

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
    """A sentence about an argument that is not there, or that has no value."""
    argument = error.argument
    if argument is None:
        return str(error)
    meaning = (argument.parameter.help or meaning_of(error.target, argument.field_info.name)).rstrip(".")
    named = error.keyword or argument.field_info.name.upper()
    if not error.keyword and not argument.field_info.is_positional:
        named = f"{argument.name} {_kind(argument.hint, meaning)}"
    what = f"{named} needs a value" if error.keyword else f"{named} is missing"
    advice = f" Give {meaning[:1].lower()}{meaning[1:]}." if meaning else ""
    _, found, near = str(error).partition(SUGGESTION)
    return f"{' '.join(error.command_chain or ())}: {what}.{advice}{found}{near}"


def meaning_of(target: Callable[..., Any] | None, name: str) -> str:
    """What the docstring of a command says of one of its arguments; nothing where it says nothing."""
    text = (getattr(target, "__doc__", None) or "").partition("Args:")[2]
    found = re.search(rf"^( +){name}: (.*(?:\n\1 +.*)*)", text, flags=re.MULTILINE)
    return " ".join(found.group(2).split()) if found else ""


def _kind(hint: Any, meaning: str) -> str:
    if hint is not Path:
        return "VALUE"
    return "FOLDER" if "folder" in meaning else "FILE"
