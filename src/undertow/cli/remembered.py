"""What commands were told of somebody's checkpoints, kept in their folder: the next command needs no flags.

    told = recall(run)                            # Told(model="mynet:build", data="/data/mine.npz", ...)
    remember(run, Told(model=..., data=...))      # opened.json, after the model and the data were found

Flags that are given again count, and are remembered in their place. What is remembered names code that will run, so
that it counts for the user who said it only: the file carries a mark that needs a key of theirs (in the cache folder).
Of a folder that came from somebody else the flags must be given again.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, cast

from undertow.data.cache import cache_folder
from undertow.errors import RunProblem
from undertow.files import write_text

FILE, KEY, MARK = "opened.json", "opened.key", "mark"


@dataclass(frozen=True)
class Told:
    """Flags as they were given; paths are whole."""

    model: str | None = None
    data: str | None = None
    scaling: str | None = None
    weights: str | None = None
    revisions: str | None = None
    folder: str | None = None
    """Where the command was given: modules of --model are found from there."""


def recall(place: Path) -> Told:
    """What is remembered of the checkpoints in `place`; nothing where nothing was said, or the file is damaged."""
    try:
        stored = json.loads((place / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return Told()
    if not isinstance(stored, dict):
        return Told()
    entries = cast("dict[str, Any]", stored)
    told = {own.name: entries.get(own.name) for own in fields(Told)}
    if any(not isinstance(value, str | None) for value in told.values()):
        return Told()
    key, mark = _key(), entries.get(MARK)
    if (
        key is None
        or not isinstance(mark, str)
        or not hmac.compare_digest(mark.encode(), _mark(told, key).encode())
    ):
        return Told()
    return Told(**told)


def _mark(told: dict[str, Any], key: bytes) -> str:
    return hmac.new(key, json.dumps(told, sort_keys=True).encode(), hashlib.sha256).hexdigest()


def _key(*, make: bool = False) -> bytes | None:
    """The user's key; None where there is none, or no place for it."""
    path = cache_folder() / KEY
    try:
        if make and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(secrets.token_bytes(32))
        found = path.read_bytes()
    except OSError:
        return None
    return found if len(found) == 32 else None


def remember(place: Path, told: Told) -> None:
    """Keep what was said, unless it is known or the folder cannot be written to."""
    if told == recall(place):
        return
    key = _key(make=True)
    if key is None:
        return
    kept = asdict(told)
    try:
        place.mkdir(parents=True, exist_ok=True)
        write_text(place / FILE, json.dumps({**kept, MARK: _mark(kept, key)}, indent=2) + "\n")
    except (OSError, RunProblem):
        return  # a folder of others: the flags must be given again


def whole(source: str | None) -> str | None:
    """A path as it is found from anywhere; a name stays."""
    return str(Path(source).resolve()) if source and Path(source).exists() else source
