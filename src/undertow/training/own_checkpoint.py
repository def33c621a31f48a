"""A checkpoint file that undertow wrote: is it the one that its name and its run say, and is it unchanged?

    weights = read_checkpoint(path)        # any safetensors file; ours are held to their header and their seal
    told_metrics(path)                     # the numbers of that moment, from the header alone
    checkpoint_words("epoch", 20, row, run=facts.id)      # what the header says

Two files that changed their names turn a verdict round, and so would one of another run: the header has the epoch
or step and the run's own mark, and both are compared.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undertow.errors import BadFile, ChangedFile
from undertow.stored.exchanged import FOLDER, RUN
from undertow.stored.seals import check_owner
from undertow.stored.tensors import Header, read_header, read_tensors
from undertow.training.facts import run_mark
from undertow.training.schedule import Unit

if TYPE_CHECKING:
    from torch import Tensor

METRICS = "metrics"


def checkpoint_words(unit: Unit, at: int, row: Mapping[str, Any], run: str) -> dict[str, str]:
    """What the header of a checkpoint says besides its tensors."""
    return {unit: str(at), METRICS: json.dumps(dict(row)), **({RUN: run} if run else {})}


def checkpoint_path(run: Path, unit: Unit, at: int) -> Path:
    """Where a run keeps the checkpoint."""
    return run / FOLDER / f"{unit}-{at:06d}.safetensors"


def read_checkpoint(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file; one that is ours must be the one that was written under its name."""
    if path.exists():
        checked_header(path)
    return read_tensors(path)


def checked_header(path: Path) -> Header:
    """The header, if the file belongs where it lies."""
    mark = run_mark(path.parent.parent) if path.parent.name == FOLDER else ""
    header = read_header(path, need_seal=bool(mark))
    if header.sealed:
        _check_name(path, header.words)
        check_owner(path, header.words.get(RUN, ""), mark)
    return header


def told_metrics(path: Path) -> dict[str, Any]:
    """The numbers that a checkpoint carries; none where nobody wrote them."""
    text = checked_header(path).words.get(METRICS, "{}")
    try:
        told = json.loads(text)  # Python's reader: a loss may be NaN
    except (ValueError, RecursionError) as error:
        raise BadFile(path, METRICS, f"wanted JSON, but it cannot be read ({error})") from None
    if not isinstance(told, dict) or not all(
        isinstance(value, int | float | None) for value in told.values()
    ):
        raise BadFile(path, METRICS, "wanted numbers by name, got something else")
    return told


def _check_name(path: Path, words: Mapping[str, str]) -> None:
    found = re.fullmatch(r"(epoch|step)-(\d{6,})", path.stem)
    if found is None:
        return
    unit, number = found[1], int(found[2])
    told = words.get(unit)
    if told != str(number):
        other = next(
            (f"{name} {words[name]}" for name in ("epoch", "step") if name in words), "another moment"
        )
        raise ChangedFile(path, f"wanted the weights of {unit} {number}, got those of {other}")
