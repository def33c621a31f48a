"""What commands were told of somebody's checkpoints, kept in their folder: the next command needs no flags.

    told = recall(run)                            # Told(model="mynet:build", data="/data/mine.npz", ...)
    remember(run, Told(model=..., data=...))      # opened.json, after the model and the data were found

Flags that are given again count, and are remembered in their place.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from undertow.errors import RunProblem
from undertow.files import write_text

FILE = "opened.json"


@dataclass(frozen=True)
class Told:
    """Flags as they were given; paths are whole."""

    model: str | None = None
    data: str | None = None
    scaling: str | None = None
    weights: str | None = None
    folder: str | None = None
    """Where the command was given: modules of --model are found from there."""


def recall(place: Path) -> Told:
    """What is remembered of the checkpoints in `place`; nothing where nothing was said, or the file is damaged."""
    try:
        stored = json.loads((place / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return Told()
    known = {own.name for own in fields(Told)}
    if not isinstance(stored, dict):
        return Told()
    return Told(**{name: value for name, value in stored.items() if name in known})  # pyright: ignore


def remember(place: Path, told: Told) -> None:
    """Keep what was said, unless it is known or the folder cannot be written to."""
    if told == recall(place):
        return
    try:
        place.mkdir(parents=True, exist_ok=True)
        write_text(place / FILE, json.dumps(asdict(told), indent=2) + "\n")
    except (OSError, RunProblem):
        return  # a folder of others: the flags must be given again


def whole(source: str | None) -> str | None:
    """A path as it is found from anywhere; a name stays."""
    return str(Path(source).resolve()) if source and Path(source).exists() else source
