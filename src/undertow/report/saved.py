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

import os
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from shlex import quote
from stat import S_ISREG
from typing import Any

import pandas as pd

from undertow.errors import NotThere
from undertow.stored.documents import AuditDocument, Document, RunDocument
from undertow.stored.door import read_document
from undertow.stored.exchanged import check_facts
from undertow.stored.tables import METRICS, ROWS, TableSchema, read_frame

Frame = Any
"""A pandas table. Its own types are unions of all that an index could give, which check nothing."""

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
    def owner(self) -> str:
        """The mark of the run; "" where it has none."""
        return str(self.facts.get("id", ""))

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
        if not path.is_dir():
            raise NotThere(f"{path}: this is not a run's folder: there is no such folder.")
        raise NotThere(
            f"{path}: this is not a run's folder: it has neither run.json nor audit.parquet. If it holds checkpoints, "
            f"`undertow audit {quote(str(path))}` makes it one."
        )
    facts = _document(path / "run.json", RunDocument)
    owner = str(facts.get("id", ""))
    check_facts(path, owner)
    audit = _document(path / "audit.json", AuditDocument, owner=owner)
    metrics = _table(path / "metrics.parquet", METRICS, need_seal=bool(owner), owner=owner)
    rows = _table(path / "audit.parquet", ROWS, seal=audit.get("table"), owner=owner)
    return Saved(path, path.resolve().name, facts, audit, metrics, _typed(rows))


def stamp(folder: Path) -> str:
    """Changes when any of the files does that a report is made from."""
    return "-".join(f"{found.st_mtime_ns:x}.{found.st_size:x}" for found in read_states(folder))


def read_states(folder: Path) -> list[os.stat_result]:
    """The states of the files that a report is made from; one that goes away meanwhile has none."""
    found: list[os.stat_result] = []
    for name in READ:
        with suppress(OSError):
            own = (folder / name).stat()
            found += [own] if S_ISREG(own.st_mode) else []
    return found


def _table(path: Path, schema: TableSchema, **how: Any) -> Frame:
    return read_frame(path, schema, **how) if path.exists() else pd.DataFrame()


def _document(path: Path, kind: type[Document], owner: str = "") -> dict[str, Any]:
    return read_document(path, kind, owner=owner) if path.exists() else {}


def _typed(rows: Frame) -> Frame:
    """All columns there; names as text or None, the rest as numbers."""
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
