"""What a run's folder holds for the report, read without torch.

    saved = read_saved("runs/m40")
    saved.rows                       # audit.parquet; empty with all its columns where there is none
    saved.of("latent", "accuracy")   # the rows of one measure
    saved.audit["headline"]          # audit.json; {} where there is none
    saved.metrics, saved.facts       # metrics.parquet and run.json

A file that is not there is an empty table. A file that is there and cannot be read is an error: a report that
leaves things out silently would be read as a finding.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from undertow.errors import NotThere, RunProblem

Frame = Any
"""A pandas table. Its own types are unions of all that an index could give, which check nothing."""

Stored = TypeVar("Stored", dict[str, Any], list[Any])
KINDS = {dict: "object", list: "array"}

FORMAT = 1
"""The newest audit.json and study.json that this undertow reads."""

COLUMNS = (
    "lens", "measure", "checkpoint", "layer", "split", "value", "low", "high", "n", "note",
    "probe", "fit", "labels", "shallow", "position", "sample", "y", "label",
)  # fmt: skip
TEXT = ("lens", "measure", "layer", "split", "note", "probe", "fit", "labels")

INPUT = "input"
"""In place of a layer: the samples as they are, the control that says what layers add."""
PROBED = ("latent", "temporal")
"""The lenses whose rows name all layers."""

READ = ("run.json", "metrics.parquet", "audit.json", "audit.parquet", "suspects.parquet", "suspects.npz")
"""The files that a report is made from."""


@dataclass(frozen=True, eq=False)
class Saved:
    """A run as its files tell it."""

    path: Path
    name: str
    facts: dict[str, Any]  # run.json
    audit: dict[str, Any]  # audit.json
    metrics: Frame
    rows: Frame  # audit.parquet

    @property
    def findings(self) -> list[dict[str, Any]]:
        """The sentences of the verdict; none where there is no audit."""
        found: Any = self.audit.get("verdict") or []
        return [own for own in found if isinstance(own, dict)]

    def of(self, lens: str, *measures: str) -> Frame:
        """The rows of a lens's measures that have a value; all of the lens's when none is named."""
        wanted = [(lens, name) for name in measures] or [key for key in self._parts if key[0] == lens]
        found = [self._parts[key] for key in wanted if key in self._parts]
        return pd.concat(found) if found else self.rows.iloc[:0]

    @cached_property
    def _parts(self) -> dict[tuple[str, str], Frame]:
        """The table by lens and measure: most views want a small part of it, and trajectories are long."""
        valued = self.rows[self.rows["value"].notna()]
        return dict(iter(valued.groupby(["lens", "measure"], sort=False)))

    @cached_property
    def layers(self) -> list[str]:
        """The layers, shallow to deep: in the audit's own order, else as the rows name them."""
        settings = self.audit.get("settings")
        known: Any = settings.get("layers") if isinstance(settings, dict) else None
        names: list[str] = [str(name) for name in known] if isinstance(known, list) else []
        found = [own["layer"].dropna().unique() for (lens, _), own in self._parts.items() if lens in PROBED]
        seen = dict.fromkeys(str(name) for layers in found for name in layers if name != "all")
        order = [INPUT, *(name for name in names if name != INPUT)]
        return [name for name in order if name in seen] + [name for name in seen if name not in order]

    @property
    def unit(self) -> str:
        """What checkpoints are counted in: epoch or step."""
        recorded = "step" if "step" in self.metrics and "epoch" not in self.metrics else "epoch"
        return str(self.audit.get("unit") or recorded)

    @property
    def classes(self) -> list[str]:
        """Names of the classes; empty where nobody wrote them down."""
        for source in (self.audit.get("data"), self.facts.get("data")):
            if isinstance(source, dict) and isinstance(source.get("classes"), list):
                return [str(name) for name in source["classes"]]
        return []


def read_saved(folder: str | Path) -> Saved:
    """Read what the report needs from a run's folder."""
    path = Path(folder)
    if not any((path / name).is_file() for name in READ[:4]):
        what = "it has neither run.json nor audit.parquet" if path.is_dir() else "there is no such folder"
        raise NotThere(
            f"{path}: this is not a run's folder: {what}. `undertow train --out {path}` makes one."
        )
    audit = _facts(path / "audit.json")
    check_format(path / "audit.json", audit)
    name = path.resolve().name
    return Saved(
        path, name, _facts(path / "run.json"), audit, _table(path / "metrics.parquet"),
        _typed(_table(path / "audit.parquet"), path / "audit.parquet"),
    )  # fmt: skip


def stamp(folder: Path) -> str:
    """Changes when any of the files does that a report is made from."""
    seen = [path.stat() for name in READ if (path := folder / name).is_file()]
    return "-".join(f"{found.st_mtime_ns:x}.{found.st_size:x}" for found in seen)


def read_table(path: Path) -> Frame:
    """A parquet file as a table; an error says which file cannot be read."""
    try:
        return pd.read_parquet(path)
    except (OSError, ValueError) as error:  # pyarrow's errors are ValueErrors and OSErrors
        raise unreadable(path, "a parquet table", error) from error


def unreadable(path: Path, what: str, error: Exception) -> RunProblem:
    """The error for a file that is there and is not what it should be."""
    return RunProblem(f"{path} cannot be read as {what} ({error}).")


def check_format(path: Path, stored: dict[str, Any]) -> None:
    """Refuse a file that a newer undertow wrote."""
    if int(stored.get("format", FORMAT)) > FORMAT:
        raise RunProblem(
            f"{path} has format {stored['format']}; this undertow reads up to {FORMAT}. Update undertow."
        )


def _table(path: Path) -> Frame:
    return read_table(path) if path.is_file() else pd.DataFrame()


def read_json(path: Path, kind: type[Stored]) -> Stored:
    """What stands in a JSON file, which must be an object (dict) or an array (list)."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise unreadable(path, "JSON", error) from error
    if not isinstance(stored, kind):
        raise RunProblem(f"{path} must hold a JSON {KINDS[kind]}, not a {type(stored).__name__}.")
    return stored


def _facts(path: Path) -> dict[str, Any]:
    return read_json(path, dict) if path.is_file() else {}


def _typed(rows: Frame, path: Path) -> Frame:
    """All columns there; names as text or None, the rest as numbers."""
    needed = {"lens", "measure", "value"} - set(rows.columns)
    if len(rows.columns) and needed:
        raise RunProblem(f"{path} lacks the columns {', '.join(sorted(needed))}. Run `undertow audit` again.")
    rows = rows.reindex(columns=list(COLUMNS))
    typed = {
        name: rows[name].astype(object).where(rows[name].notna(), None)
        if name in TEXT
        else _numbers(rows[name])
        for name in COLUMNS
    }
    return pd.DataFrame(typed)


def _numbers(column: Frame) -> Frame:
    found: Any = pd.to_numeric(column, errors="coerce")
    return found.astype("float64")
