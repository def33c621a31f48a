"""What other trainers wrote beside their checkpoints: metrics, hyper-parameters, steps of an epoch. No torch needed.

    logs = read_logs([Path("lightning_logs/version_0")], "epoch")
    logs.rows                    # {3: {"epoch": 3, "val_acc": 0.91, ...}, ...} by epoch or step
    logs.steps_per_epoch         # 128.0; None where nobody tells
    read_hyperparameters([...])  # hparams.yaml (Lightning), args.yaml (timm)

Read are `metrics.csv` (Lightning's CSVLogger), `summary.csv` (timm) and `trainer_state.json` (transformers).
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from undertow.errors import RunProblem
from undertow.stored.door import MOST_JSON, read_bytes
from undertow.training.schedule import Unit

TABLES = ("metrics.csv", "summary.csv")
STATE = "trainer_state.json"
SETTINGS = ("hparams.yaml", "args.yaml")
Rows = dict[int, dict[str, Any]]
LARGEST = 2**53
"""No epoch and no step has a larger number."""


@dataclass(frozen=True)
class Logs:
    """Numbers by epoch or step."""

    rows: Rows
    steps_per_epoch: float | None


def read_logs(places: Iterable[Path], unit: Unit) -> Logs:
    """The logs of the first folder that has any."""
    for place in places:
        state = place / STATE
        if state.is_file():
            return _trainer_state(state, unit)
        table = next((place / name for name in TABLES if (place / name).is_file()), None)
        if table is not None:
            return _csv_table(table, unit)
    return Logs({}, None)


def _trainer_state(path: Path, unit: Unit) -> Logs:
    """What transformers' Trainer logged; its epochs are fractions, so that rows by epoch are those of whole ones."""
    stored = read_json(path)
    history: Any = stored.get("log_history") or []
    if not isinstance(history, list) or not all(isinstance(entry, dict) for entry in history):
        raise RunProblem(
            f"{path}: wanted what the Trainer logged in log_history, got something else. Move it away."
        )
    entries = cast("list[dict[str, Any]]", history)
    rows = _merged((entry for entry in entries if (_finite(entry.get(unit)) or 0.0).is_integer()), unit)
    epoch, step = _finite(stored.get("epoch")), _finite(stored.get("global_step"))
    return Logs(rows, step / epoch if epoch and step else None)


def _csv_table(path: Path, unit: Unit) -> Logs:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            entries = [_numbers(entry) for entry in csv.DictReader(file)]
    except (OSError, csv.Error, UnicodeDecodeError) as error:
        raise RunProblem(
            f"{path}: wanted a table of metrics, but it cannot be read ({error}). Move it away."
        ) from error
    if path.name == "metrics.csv":
        # Lightning writes the number of the batch that was just done, from 0 on; checkpoints count done steps.
        entries = [{**entry, "step": entry["step"] + 1} if "step" in entry else entry for entry in entries]
    pairs = [(_finite(entry.get("epoch")), _finite(entry.get("step"))) for entry in entries]
    known = [(epoch, step) for epoch, step in pairs if epoch is not None and epoch >= 0 and step is not None]
    each = known[-1][1] / (known[-1][0] + 1) if known else None
    return Logs(_merged(entries, unit), each)


def _finite(value: object) -> float | None:
    """A number that can be counted with; None for anything else that a file may hold in its place."""
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST:
        return float(value)
    return None


def _numbers(entry: Mapping[str, str | None]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, text in entry.items():
        try:
            found[name] = float(text) if text else None
        except (ValueError, TypeError):  # a word, or cells beyond the head
            continue
    return {name: value for name, value in found.items() if value is not None}


def _merged(entries: Iterable[Mapping[str, Any]], unit: Unit) -> Rows:
    """One row for each epoch or step: of several entries the later numbers count."""
    rows: Rows = {}
    for entry in entries:
        number = _finite(entry.get(unit))
        if number is not None:
            at = int(number)
            numbers = {name: value for name, value in entry.items() if isinstance(value, int | float)}
            rows[at] = {**rows.get(at, {}), **numbers, unit: at}
    return rows


def read_hyperparameters(places: Sequence[Path]) -> dict[str, Any] | None:
    """The settings in hparams.yaml or args.yaml; None where there is no such file, or nothing to read it with."""
    path = next((place / name for place in places for name in SETTINGS if (place / name).is_file()), None)
    if path is None:
        return None
    try:
        import yaml
    except ImportError:
        return None
    try:
        stored = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return None  # objects of the trainer's own: the checkpoint may tell the plain ones
    return cast("dict[str, Any]", stored) if isinstance(stored, dict) else None


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object that another program wrote."""
    try:
        stored = json.loads(read_bytes(path, MOST_JSON))
    except (ValueError, RecursionError) as error:
        raise RunProblem(f"{path}: wanted JSON, but it cannot be read ({error}). Move it away.") from error
    if not isinstance(stored, dict):
        raise RunProblem(f"{path}: wanted an object in JSON, got {type(stored).__name__}. Move it away.")
    return cast("dict[str, Any]", stored)
