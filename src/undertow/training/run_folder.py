"""A run's folder as its files tell it, without torch: `undertow runs` and `undertow show` rest on this.

    found = open_folder("runs/m40")                   # ours, or any folder of checkpoints
    found.epochs, found.unit, found.config            # (0, 1, 2, 4, ...), "epoch", how undertow trained it
    found.metrics, found.labels                       # pandas tables
    found.folder_notes                                   # what was passed over, and why

`open_run` (run.py) opens the same folder with its weights and its model.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from numbers import Integral
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from undertow.errors import BadFile, BadValue, NotThere, RunProblem, UndertowError, unknown
from undertow.files import is_unfinished
from undertow.kept import BESIDE
from undertow.outputs import as_path
from undertow.stored.exchanged import check_facts
from undertow.stored.tables import LABELS, METRICS, read_frame, read_rows
from undertow.training.checkpoint_files import (
    Checkpoint,
    Found,
    PassedOver,
    ending_of,
    find_checkpoints,
    holds_weights,
    is_kept_beside,
    kept_beside,
    number_in,
    stem,
)
from undertow.training.config import TrainConfig
from undertow.training.facts import RunFacts
from undertow.training.logs import STATE, Logs, read_hyperparameters, read_logs
from undertow.training.own_checkpoint import told_metrics
from undertow.training.schedule import Unit
from undertow.words import moment_words

if TYPE_CHECKING:
    import pandas as pd

DEEP = 4
"""Folders below one, within which others' checkpoints are looked for."""


@dataclass(frozen=True, eq=False, repr=False)
class RunFolder:
    """Checkpoints in order, with what is known about how they were made."""

    path: Path
    checkpoints: tuple[Checkpoint, ...]
    facts: RunFacts
    passed_over: tuple[PassedOver, ...] = ()
    """Files that could have been checkpoints, with the reason why they are none."""

    @property
    def name(self) -> str:
        """What people call it: its folder's name, or its one file's."""
        one = self.checkpoints[-1].path
        return stem(one) if self.path == kept_beside(one) else self.path.resolve().name

    @property
    def single(self) -> bool:
        """Whether this is one model of which nobody knows when in its training it was."""
        return self.unit == "model"

    def at_words(self, at: int) -> str:
        """Epoch 20; a model of which nobody knows when it was is this checkpoint."""
        return moment_words(self.unit, at)

    @property
    def folder_notes(self) -> tuple[str, ...]:
        """What a user should know of how it was opened."""
        return tuple(filter(None, [passed_words(self.passed_over)]))

    @property
    def unit(self) -> Unit:
        """What the checkpoints are numbered by."""
        return self.checkpoints[0].unit

    @property
    def epochs(self) -> tuple[int, ...]:
        """The numbers of the checkpoints (epochs, or steps where `unit` says so)."""
        return tuple(one.at for one in self.checkpoints)

    @property
    def config(self) -> TrainConfig | None:
        """How undertow trained it; None for a loop that is not ours."""
        return None if self.facts.config is None else TrainConfig.from_dict(self.facts.config)

    def checkpoint(self, at: int) -> Checkpoint:
        """The checkpoint numbered `at`; a negative number counts from the end."""
        by_number = {one.at: one for one in self.checkpoints}
        # numpy's whole numbers count; True is none that anybody means.
        if not isinstance(at, Integral) or isinstance(at, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise BadValue(f"{self.path}", f"a number of a checkpoint ({self.unit})", at)
        at = int(at)
        if at < 0 and -at <= len(self.checkpoints):
            return self.checkpoints[at]
        if at not in by_number:
            near = sorted(by_number, key=lambda other: abs(other - at))[:3]
            raise BadValue(
                f"{self.path}",
                f"the {self.unit} of a kept checkpoint",
                at,
                f"The nearest are {', '.join(map(str, sorted(near)))}.",
            )
        return by_number[at]

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """One row per recorded epoch or step; what the table lacks is read from the checkpoints' headers."""
        import pandas as pd

        rows: dict[Any, dict[str, Any]] = {}
        table = self.path / "metrics.parquet"
        if table.exists():
            recorded = read_rows(table, METRICS, need_seal=self._sealed, owner=self.facts.id)
            rows = {row[self.unit]: row for row in recorded if self.unit in row}
        lacking = [one for one in self.checkpoints if one.at not in rows]
        rows = {one.at: self._told_metrics(one) for one in lacking} | self.logs.rows | rows
        return pd.DataFrame([rows[at] for at in sorted(rows) if rows[at]])

    @property
    def _sealed(self) -> bool:
        """Whether undertow sealed each file of this run."""
        return bool(self.facts.id)

    def _told_metrics(self, one: Checkpoint) -> dict[str, Any]:
        if one.path.suffix != ".safetensors" or not one.path.is_file():
            return {}
        try:
            return told_metrics(one.path)
        except BadFile:
            if self._sealed:
                raise
            return {}  # said by whoever wants its weights

    @cached_property
    def logs(self) -> Logs:
        """What Lightning, transformers or timm logged beside the checkpoints."""
        return read_logs(self.places, self.unit)

    @property
    def places(self) -> list[Path]:
        """Folders where other trainers leave their logs: the run's own, that of its checkpoints, the last of these."""
        last = self.checkpoints[-1].path
        inner = last.parent
        above = [inner.parent] if inner.name == "checkpoints" else []
        return list(dict.fromkeys([*([last] if last.is_dir() else []), self.path, inner, *above]))

    def hyperparameters(self) -> dict[str, Any]:
        """What the model was trained with, as far as files beside the checkpoints tell."""
        if self.facts.config is not None:
            return dict(self.facts.config)
        return read_hyperparameters(self.places) or {}

    @cached_property
    def labels(self) -> pd.DataFrame | None:
        """Training labels: index, given and (where known) true; None if nobody stored them."""
        table = self.path / "labels.parquet"
        if not table.exists():
            return None
        return read_frame(table, LABELS, need_seal=self._sealed, owner=self.facts.id)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} · {self._words()}>"

    def _repr_html_(self) -> str:
        """What it is, for notebooks."""
        return f"<p><b>{escape(self.name)}</b> · {escape(self._words())}</p>"

    def _words(self) -> str:
        known, count = self.facts.config or {}, len(self.checkpoints)
        words = [f"{count} checkpoint{'s' * (count != 1)}"]
        if not self.single:
            first, last = self.epochs[0], self.epochs[-1]
            words.append(f"{self.unit} {first} to {last}" if count > 1 else f"{self.unit} {last}")
        words += [str(known[name]) for name in ("model", "data") if known.get(name)]
        return " · ".join(words)


def open_folder(path: str | Path, pattern: str | None = None) -> RunFolder:
    """Open a run's folder, any folder of checkpoints, or one checkpoint; `pattern` is that of `find_checkpoints`."""
    folder = as_path(path, "open_run")
    try:
        return _opened(folder, pattern)
    except UndertowError:
        raise
    except OSError as error:  # some folder on the way, or in it, may not be read
        raise _unreadable(folder, error) from error


def _opened(folder: Path, pattern: str | None) -> RunFolder:
    if folder.is_file() and ending_of(folder):
        return _one_file(folder)
    if not folder.is_dir():
        raise _no_run(folder)
    ours = is_run(folder)
    facts = RunFacts.read(folder) if ours else RunFacts()
    check_facts(folder, facts.id)
    inner = folder / "checkpoints"
    if not ours and not inner.is_dir() and (below := list_runs(folder)):
        raise NotThere(
            f"{folder} holds {len(below)} runs and is none itself. `undertow runs {quote(str(folder))}` lists them."
        )
    place = inner if inner.is_dir() else folder
    if ours and not inner.is_dir() and (inner.exists() or inner.is_symlink()):
        raise RunProblem(
            f"{inner}: wanted the folder of the run's checkpoints, got something else. Restore it."
        )
    if ours and not any(ending_of(path) or (place == inner and path.is_dir()) for path in _finished(place)):
        advice = "Record on." if facts.config is None else "Train it on with --resume."
        raise NotThere(f"{folder} has no checkpoint yet. {advice}")
    try:
        found = find_checkpoints(place, pattern)
    except NotThere:
        if pattern is None and holds_weights(folder):
            return RunFolder(folder, (_numbered(folder, folder),), facts)
        own = any(ending_of(path) for path in place.iterdir())  # unnumbered: their names are what is wrong
        other = None if own or pattern is not None or place != folder else _only_below(folder)
        if other is None:
            raise
        return open_folder(other)
    warn_of_others(place, found)
    return RunFolder(folder, found.checkpoints, facts, found.passed_over)


def _finished(place: Path) -> list[Path]:
    """What lies there but for what a writer, alive or killed, has not finished."""
    return [path for path in place.iterdir() if not is_unfinished(path)]


def _one_file(path: Path) -> RunFolder:
    """A run of one checkpoint; what is kept of it goes to a folder of its own beside the file."""
    return RunFolder(kept_beside(path), (_numbered(path, path),), RunFacts())


def _numbered(path: Path, weights: Path) -> Checkpoint:
    """One checkpoint with the number that its name or its trainer's state tells; else a model at an unknown moment."""
    found = None
    if (path / STATE).is_file():
        told = read_logs([path], "step").rows
        found = (max(told), "step") if told else None
    found = found or number_in(path)
    return Checkpoint(*(found or (1, "model")), weights)


def theirs_below(folder: Path) -> list[Path]:
    """Folders of checkpoints that other trainers left, up to four folders deep; what undertow keeps is none."""
    found = set[Path]()
    for place, below, _ in os.walk(folder):
        here = Path(place)
        below[:] = [
            name
            for name in below
            if name[0] != "." and name not in BESIDE and not is_kept_beside(here / name)
        ]
        if len(here.relative_to(folder).parts) >= DEEP or holds_weights(here) or is_run(here):
            below.clear()
        if here != folder and not is_run(here) and not holds_weights(here) and _is_theirs(here):
            found.add(here.parent if here.name == "checkpoints" and here.parent != folder else here)
    return sorted(found)


def _is_theirs(folder: Path) -> bool:
    try:
        return bool(find_checkpoints(folder).checkpoints)
    except UndertowError as error:
        return isinstance(error, RunProblem)  # there are some, which its own error speaks of
    except OSError:
        return False


def below_words(found: Sequence[Path]) -> str:
    """Where checkpoints are; nothing where there are none."""
    listed = ", ".join(map(str, found[:4])) + f" and {len(found) - 4} more" * (len(found) > 4)
    return f"There are checkpoints in {listed}." * bool(found)


def _only_below(folder: Path) -> Path | None:
    """The one folder of checkpoints below; where there are several, they are named."""
    found = theirs_below(folder)
    if len(found) > 1:
        listed = ", ".join(map(str, found[:4]))
        raise NotThere(f"{folder} holds {len(found)} runs: {listed}. Open one of them.")
    return found[0] if found else None


def passed_words(others: Sequence[PassedOver], most: int = 6) -> str:
    """Passed over: last.ckpt (its name carries no epoch as the others' do)."""
    by_reason: dict[str, list[str]] = {}
    for one in others:
        by_reason.setdefault(one.why, []).append(one.name)
    parts = [
        f"{', '.join(names[:most])}{f' and {len(names) - most} more' if len(names) > most else ''} ({why})"
        for why, names in by_reason.items()
    ]
    return f"Passed over: {'; '.join(parts)}." if parts else ""


def warn_of_others(folder: Path, found: Found) -> None:
    """Warn of files that nobody expects to be passed over; copies called last or best are told in the notes only."""
    strange = [one for one in found.passed_over if not one.expected]
    if strange:
        kept = len(found.checkpoints)
        warnings.warn(
            f"{folder}: {kept} checkpoint{'s' * (kept != 1)} read. {passed_words(strange)} pattern= says how to read "
            "their names.",
            stacklevel=4,
        )


def is_run(folder: Path) -> bool:
    """Whether undertow wrote a run into `folder`; a run.json that is a broken link is a damaged one."""
    return os.path.lexists(folder / "run.json")


def list_runs(folder: str | Path) -> list[Path]:
    """Run folders in `folder`, itself and its sub-folders to any depth."""
    return sorted(Path(place) for place, _, names in os.walk(folder) if "run.json" in names)


def _unreadable(folder: Path, error: OSError) -> RunProblem:
    """What no system call takes (a path that is too long, a circle of links), or what we may not read."""
    told, place = str(folder), str(error.filename or folder)
    short = told if len(told) < 200 else f"{told[:200]}…"
    where = f"{place}: " * (place != told)
    advice = (
        "Give yourself the right to read it." if isinstance(error, PermissionError) else "Check its path."
    )
    return RunProblem(f"The run {short} cannot be read: {where}{error.strerror or error}. {advice}")


def _no_run(folder: Path) -> Exception:
    if folder.exists():
        return RunProblem(f"{folder}: wanted a run's folder, got a file.")
    if folder.parent.is_dir():
        beside = [str(found) for found in folder.parent.iterdir() if is_run(found)]
        return unknown("run", str(folder), beside, "`undertow runs` lists what is there.")
    return NotThere(f"There is no run {folder}. `undertow runs` lists what is there.")
