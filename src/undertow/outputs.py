"""What may be written where: asked before any long work, so that no output destroys what it was made from.

    check_outputs("labels", [("--out", out), ("--cleaned", cleaned)], used=[features, labels])
    check_output_folder("figure", "--out", folder)

Refused are: something else than a file, a file that the same call reads or writes by itself, the place of another
output of the same call, and what a run keeps of itself (its checkpoints, run.json, its tables).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from undertow.errors import BadValue
from undertow.files import place_of
from undertow.kept import kept_words

Named = tuple[str, Path | None]
"""A flag or an argument, and the file that it names."""


def as_path(value: object, who: str) -> Path:
    """A path as people give it; what names no place is refused."""
    if not isinstance(value, str | os.PathLike) or isinstance(named := os.fspath(value), bytes):
        raise BadValue(who, "a path", value)
    if not named or "\0" in named:
        raise BadValue(who, "a path", named, "It names no place.")
    return Path(named)


def check_outputs(who: str, outputs: Iterable[Named], used: Iterable[Path] = ()) -> None:
    """Refuse outputs that would destroy what they are made from, or one another.

    Args:
        who: the command or the function.
        outputs: files to write, with the names that people gave them by.
        used: files and folders that the same call reads, and files that it writes by itself.
    """
    busy = [Path(os.path.realpath(one)) for one in used]
    taken: dict[Path, str] = {}
    for name, path in outputs:
        if path is None:
            continue
        place = Path(os.path.realpath(place_of(path)))
        if why := _why_not(place, busy, taken):
            raise BadValue(f"{who} {name}", "a file of its own", str(path), f"{why} Name another.")
        taken[place] = name


def check_output_folder(who: str, name: str, folder: Path | None) -> None:
    """Refuse a folder for outputs that is a file, or lies among a run's checkpoints."""
    if folder is None:
        return
    if folder.exists() and not folder.is_dir():
        raise BadValue(f"{who} {name}", "a folder", str(folder), "There is a file. Name another.")
    if why := kept_words(Path(os.path.realpath(folder)) / "any"):
        raise BadValue(f"{who} {name}", "a folder of its own", str(folder), f"{why} Name another.")


def _why_not(place: Path, busy: list[Path], taken: dict[Path, str]) -> str:
    if place in busy:
        return "This command uses that file itself."
    if inside := next((one for one in busy if one in place.parents and one.is_dir()), None):
        return f"This command reads the folder {inside}."
    if place in taken:
        return f"{taken[place]} writes that file too."
    return kept_words(place)
