"""`undertow runs` and `undertow show`: what runs there are, and how one went."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from undertow.cli.given_run import check_folder
from undertow.cli.screen import console, percent, print_json, table
from undertow.cli.summary import ending, heading, sizes
from undertow.errors import NotThere, RunProblem, UndertowError
from undertow.report.listing import list_shown
from undertow.training.checkpoint_files import is_kept_beside
from undertow.training.run_folder import RunFolder, below_words, open_folder, theirs_below

BLANK: dict[str, Any] = dict.fromkeys(["model", "data", "noise", "checkpoints", "last", "test", "best"])
"""What is said of a run, where it is known."""
MOST_COLUMNS = 12
"""Of a run's measures on the screen: a log may have thousands."""


def runs(folder: Path = Path("runs"), *, json: bool = False) -> None:
    """List the runs in a folder.

    Args:
        folder: Where to look, sub-folders included.
        json: Print one JSON object per run.
    """
    if not folder.is_dir():
        raise NotThere(
            f"There is no folder {folder}. `undertow train --out {folder}/NAME` makes the first run in it."
        )
    rows = _rows(folder)
    if json:
        for row in rows:
            print_json(row)
        return
    if not rows:
        below = theirs_below(folder)
        make = f"`undertow train --out {folder}/NAME` makes one."
        audit = f"{below_words(below)} `undertow audit {below[0]}` reads the first." if below else ""
        console().print(f"No runs in {folder}. {audit or make}", markup=False)
        return
    columns = ["run", *BLANK, "state"]
    screen = console()
    body = [[_shown(name, row[name]) for name in columns] for row in rows]
    screen.print(table("", columns, body, right=columns[4:8]))
    for row in rows:
        if "why" in row:
            screen.print(row["why"], markup=False)


def show(run: Path, *, json: bool = False) -> None:
    """Show what a run is and how it went.

    Args:
        run: The run's folder, or any folder of checkpoints.
        json: Print everything as one JSON object.
    """
    check_folder(run)
    opened = open_folder(run)
    recorded: list[dict[str, Any]] = opened.metrics.to_dict("records")  # pyright: ignore[reportAssignmentType]
    metrics = [row for row in recorded if row.get(opened.unit) == row.get(opened.unit)]
    if json:
        print_json({**asdict(opened.facts), "unit": opened.unit, "kept": opened.epochs, "metrics": metrics})
        return
    _tell(opened, metrics)


def _tell(opened: RunFolder, metrics: list[dict[str, Any]]) -> None:
    """What the run is, line by line."""
    screen, facts = console(), opened.facts
    if opened.config:
        screen.print(heading(opened.config))
    if facts.data:
        screen.print(
            f"{facts.data['name']}: {sizes(facts.data)}; fingerprint {facts.data['fingerprint'][:8]}",
            markup=False,
        )
    if facts.versions:
        screen.print(
            f"made {facts.made} with "
            + ", ".join(f"{name} {value}" for name, value in facts.versions.items()),
            markup=False,
        )
    kept = "" if opened.single else f"s at {opened.unit} " + ", ".join(map(str, opened.epochs))
    screen.print(f"checkpoint{kept or ' of a moment that nobody tells'}")
    for note in opened.folder_notes:
        screen.print(note, markup=False)
    if metrics:
        columns, chosen = _history(metrics, opened.unit)
        screen.print(_history_table(columns[:MOST_COLUMNS], chosen, opened.unit))
        if len(columns) > MOST_COLUMNS:
            screen.print(f"{len(columns) - MOST_COLUMNS:,} more measures are recorded; --json prints all.")
    if metrics and facts.finished:
        screen.print(ending(opened))
    elif facts.config and not facts.finished:
        screen.print("Not finished. Repeat its `undertow train` command with --resume to go on.")


def _history(metrics: list[dict[str, Any]], unit: str) -> tuple[list[str], list[dict[str, Any]]]:
    """The measures that are known, and at most 16 rows, spread over training; foreign metrics as they are named."""
    ours = ["train_loss", "train_accuracy", "train_fit", "test_accuracy", "train_wrong_fit"]
    columns = [name for name in ours if name in metrics[0] or name in metrics[-1]]
    if "test_accuracy" not in columns:  # the log of another trainer, by its own names
        columns = [name for name in {name: 0 for row in metrics for name in row} if name != unit]
    # Where some rows alone hold measures of held-out samples, those are the ones to show.
    told = [row for row in metrics if any(_is_share(name) and _known(row.get(name)) for name in columns)]
    metrics = told or metrics
    stride = -(-len(metrics) // 15)
    chosen = metrics[::stride] if metrics[::stride][-1] is metrics[-1] else [*metrics[::stride], metrics[-1]]
    return [name for name in columns if any(_known(row.get(name)) for row in chosen)], chosen


def _history_table(columns: list[str], chosen: list[dict[str, Any]], unit: str) -> Any:
    rows = [[int(row[unit]), *(_cell(name, row.get(name)) for name in columns)] for row in chosen]
    heads = [name.replace("_", " ") for name in columns]
    return table("", [unit, *heads], rows, right=heads)


def _cell(name: str, value: float | None) -> str:
    if value is None or value != value:
        return "–"
    return percent(value) if _is_share(name) and 0 <= value <= 1 else f"{value:.4g}"


def _is_share(name: str) -> bool:
    """Whether numbers called so are shares of samples."""
    return re.search(r"(^|[_/.\- ])(acc|accuracy|fit|top\d|f1|error)($|[_/.\- \d])", name) is not None


def _known(value: float | None) -> bool:
    return value is not None and value == value


def _shown(name: str, value: Any) -> str:
    if name in ("test", "best"):
        return percent(value)
    return "–" if value is None else str(value)


def _rows(folder: Path) -> list[dict[str, Any]]:
    """A line about each run, and about each folder in which there may be others that we may not read."""
    errors: list[OSError] = []
    found = list_shown(folder, errors.append)
    rows = {path: _row(path) for path in found}
    for error in errors:
        place = Path(error.filename)
        if isinstance(error, FileNotFoundError) or any(one in (place, *place.parents) for one in found):
            continue  # gone meanwhile, or told of with its run
        why = f"{place} cannot be read: {error.strerror}. Give yourself the right to read it."
        if place == folder:
            raise RunProblem(why) from error
        rows[place] = {"run": str(place), **BLANK, "state": "unreadable", "why": why}
    return [rows[path] for path in sorted(rows)]


def _row(path: Path) -> dict[str, Any]:
    """A line about one run; a damaged one is listed with its reason instead of hiding the others."""
    if is_kept_beside(path):  # the audit of one checkpoint, whose file lies beside
        return {"run": str(path), **BLANK, "checkpoints": 1, "state": "one checkpoint"}
    try:
        run = open_folder(path)
        config, metrics = run.config, run.metrics
    except NotThere:
        return {"run": str(path), **BLANK, "state": "no checkpoint yet"}
    except UndertowError as error:
        return {"run": str(path), **BLANK, "state": "damaged", "why": str(error)}
    row = {"run": str(path), **BLANK, "checkpoints": len(run.checkpoints), "last": run.epochs[-1]}
    row["state"] = "recorded" if config is None else "finished" if run.facts.finished else "unfinished"
    if config:
        row |= {"model": config.model, "data": config.data, "noise": config.noise}
    if "test_accuracy" in metrics:
        known: list[float] = metrics["test_accuracy"].dropna().tolist()
        row |= {"test": known[-1] if known else None, "best": max(known, default=None)}
    return row
