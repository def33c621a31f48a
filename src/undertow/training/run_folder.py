"""A run's folder as its files tell it, without torch: `undertow runs` and `undertow show` rest on this.

    found = open_folder("runs/m40")                   # ours, or any folder of checkpoints
    found.epochs, found.unit, found.config            # (0, 1, 2, 4, ...), "epoch", how undertow trained it
    found.metrics, found.labels                       # pandas tables
    find_checkpoints(Path("lightning_logs/version_3/checkpoints"))      # sorted by epoch or step

`open_run` (run.py) opens the same folder with its weights and its model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undertow.errors import BadValue, NotThere, RunProblem, unknown
from undertow.training.config import TrainConfig
from undertow.training.facts import RunFacts
from undertow.training.schedule import Unit

if TYPE_CHECKING:
    import pandas as pd

ENDINGS = (".safetensors", ".pt", ".pth", ".ckpt", ".bin")
# In the order of trust; a bare e or s counts only where no word does, and never inside a number like 1e-4.
_PATTERNS: tuple[tuple[str, Unit], ...] = (
    (r"epochs?[=_\-. ]?(\d+)", "epoch"),
    (r"(?:^|[^a-z])ep[=_\-. ]?(\d+)", "epoch"),
    (r"(?:steps?|iterations?|iter)[=_\-. ]?(\d+)", "step"),
    (r"(?:^|[^a-z0-9])e[=_\-]?(\d+)", "epoch"),
    (r"(?:^|[^a-z0-9])(?:s|it)[=_\-]?(\d+)", "step"),
    (r"(\d+)(?!.*\d)", "epoch"),
)


@dataclass(frozen=True)
class Checkpoint:
    """A file of weights and the moment of training it belongs to."""

    at: int
    unit: Unit
    path: Path


def find_checkpoints(folder: Path, pattern: str | None = None) -> tuple[Checkpoint, ...]:
    """The checkpoints in `folder`, sorted; `pattern` is a regular expression whose group is the number.

    Without a pattern the name's epoch counts, then its step, then its last number; where two files would
    share an epoch, the step. Files without a number (last.ckpt) are passed over.
    """
    files = sorted(path for path in folder.iterdir() if path.suffix in ENDINGS and path.name[0] != ".")
    if pattern is not None:
        found = _numbered(files, _compiled(pattern), "epoch")
    else:
        tried = [_numbered(files, re.compile(text, re.IGNORECASE), unit) for text, unit in _PATTERNS]
        # The first that gives every file it reads a number of its own, else the first that reads any.
        found = next((one for one in tried if one and _all_differ(one)), next(filter(None, tried), []))
    if not found:
        kinds = ", ".join(ENDINGS)
        raise NotThere(
            f"{folder}: wanted checkpoint files ({kinds}) whose names carry an epoch or a step, got "
            f"{len(files)} such files without a number. Rename them or give a pattern such as 'ckpt_(\\d+)'."
        )
    _refuse_doubles(found)
    return tuple(sorted(found, key=lambda one: one.at))


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise BadValue("pattern", "a regular expression", pattern, f"It says: {error}.") from None
    if compiled.groups != 1:
        raise BadValue("pattern", "exactly one group for the number", pattern, "For example 'ckpt_(\\d+)'.")
    return compiled


def _numbered(files: Iterable[Path], pattern: re.Pattern[str], unit: Unit) -> list[Checkpoint]:
    found = [(path, pattern.search(path.stem)) for path in files]
    return [Checkpoint(int(match.group(1)), unit, path) for path, match in found if match]


def _all_differ(found: list[Checkpoint]) -> bool:
    return len({one.at for one in found}) == len(found)


def _refuse_doubles(found: list[Checkpoint]) -> None:
    seen: dict[int, Path] = {}
    for one in found:
        if one.at in seen:
            raise RunProblem(
                f"{one.path.parent}: wanted one file per {one.unit}, got {seen[one.at].name} and {one.path.name} "
                f"for {one.unit} {one.at}. Move one away or give a pattern that tells them apart."
            )
        seen[one.at] = one.path


@dataclass(frozen=True, eq=False)
class RunFolder:
    """Checkpoints in order, with what is known about how they were made."""

    path: Path
    checkpoints: tuple[Checkpoint, ...]
    facts: RunFacts

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
        if not isinstance(at, int):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise BadValue(f"{self.path}", f"a number of a checkpoint ({self.unit})", at)
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

        rows: dict[Any, dict[str, Any]] = {one.at: _header_metrics(one) for one in self.checkpoints}
        table = self.path / "metrics.parquet"
        if table.exists():
            rows |= {row[self.unit]: row for row in read_table(table) if self.unit in row}
        return pd.DataFrame([rows[at] for at in sorted(rows) if rows[at]])

    @cached_property
    def labels(self) -> pd.DataFrame | None:
        """Training labels: index, given and (where known) true; None if nobody stored them."""
        import pandas as pd

        table = self.path / "labels.parquet"
        return pd.read_parquet(table) if table.exists() else None


def open_folder(path: str | Path, pattern: str | None = None) -> RunFolder:
    """Open a run's folder, or any folder of checkpoints; `pattern` is that of `find_checkpoints`."""
    folder = Path(path)
    if not folder.is_dir():
        raise _no_run(folder)
    ours = (folder / "run.json").exists()
    facts = RunFacts.read(folder) if ours else RunFacts()
    inner = folder / "checkpoints"
    if not ours and not inner.is_dir() and (below := list_runs(folder)):
        raise NotThere(
            f"{folder} holds {len(below)} runs and is none itself. `undertow runs {folder}` lists them."
        )
    if ours and not inner.is_dir() and not any(path.suffix in ENDINGS for path in folder.iterdir()):
        raise NotThere(f"{folder} has no checkpoint yet. Train it on with --resume.")
    return RunFolder(folder, find_checkpoints(inner if inner.is_dir() else folder, pattern), facts)


def is_run(folder: Path) -> bool:
    """Whether undertow wrote a run into `folder`."""
    return (folder / "run.json").exists()


def list_runs(folder: str | Path) -> list[Path]:
    """Run folders in `folder`, itself and its sub-folders to any depth."""
    return sorted(found.parent for found in Path(folder).rglob("run.json"))


def _no_run(folder: Path) -> Exception:
    if folder.exists():
        return RunProblem(f"{folder}: wanted a run's folder, got a file.")
    if folder.parent.is_dir():
        beside = [str(found) for found in folder.parent.iterdir() if is_run(found)]
        return unknown("run", str(folder), beside, "`undertow runs` lists what is there.")
    return NotThere(f"There is no run {folder}. `undertow runs` lists what is there.")


def _header_metrics(one: Checkpoint) -> dict[str, Any]:
    if one.path.suffix != ".safetensors":
        return {}
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(one.path, framework="numpy") as file:
            header = file.metadata() or {}
    except (SafetensorError, OSError):
        return {}  # said by whoever wants its weights
    return json.loads(header.get("metrics", "{}"))


def read_table(path: Path) -> list[dict[str, Any]]:
    """The rows that `write_table` wrote; a cell that was left out is left out again."""
    from pyarrow import ArrowException, parquet

    try:
        rows: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
    except (ArrowException, OSError) as error:
        raise RunProblem(f"{path}: wanted a table, but it cannot be read ({error}). Move it away.") from error
    return [{name: value for name, value in row.items() if value is not None} for row in rows]
