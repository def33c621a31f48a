"""The probe grid's table: one row per number, kept in the run's folder, added to and never lost.

    table = GridTable.open(run.path / "probes.parquet", setup="3f2a...")
    table.has(checkpoint=20, layer="layer2", probe="masc", fit="given")
    table.add([accuracy_row(cell, "test", "true", right)]); table.save()
    table.frame()                                  # pandas, this set-up's rows only

A set-up is everything that would change a number: data, samples, seed, how features are taken. Rows of
other set-ups stay in the file.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from undertow.errors import RunProblem
from undertow.files import aside

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = [
    "setup", "lens", "checkpoint", "layer", "probe", "fit", "measure", "split", "labels",
    "value", "low", "high", "n", "note",
]  # fmt: skip


class Cell(NamedTuple):
    """One fitted probe: where, which, and with which labels."""

    checkpoint: int
    layer: str
    probe: str
    fit: str


def accuracy_row(cell: Cell, split: str, labels: str, right: Tensor, note: str = "") -> dict[str, Any]:
    """The share of right answers with its 95 % bootstrap interval.

    Resampling n answers of which k are right gives a binomial count, so the percentiles of the bootstrap
    are known without drawing a single resample.
    """
    from scipy.stats import binom

    count, hits = len(right), int(right.sum())
    share = hits / count
    low, high = (float(edge) / count for edge in binom.ppf([0.025, 0.975], count, share))
    if hits in (0, count):
        note = "; ".join(filter(None, [note, "all answers alike: the bootstrap has no width"]))
    return _row(cell, "accuracy", split, labels, share, low, high, count, note)


def dimension_row(cell: Cell, dimensions: Tensor) -> dict[str, Any]:
    """Mean, smallest and largest dimension of the classes' subspaces."""
    sizes = dimensions.double()
    edges = float(sizes.min()), float(sizes.max())
    return _row(
        cell, "dimension", "train", "", float(sizes.mean()), *edges, len(sizes), "low, high: over classes"
    )


def missing_row(cell: Cell, reason: str) -> dict[str, Any]:
    """A probe that was not fitted, with its reason."""
    return _row(cell, "accuracy", "test", "true", None, None, None, 0, reason)


def _row(
    cell: Cell, measure: str, split: str, labels: str, value: float | None, low: float | None,
    high: float | None, count: int, note: str,
) -> dict[str, Any]:  # fmt: skip
    return {
        "lens": "latent", **cell._asdict(), "measure": measure, "split": split, "labels": labels,
        "value": value, "low": low, "high": high, "n": count, "note": note,
    }  # fmt: skip


@dataclass
class GridTable:
    """Rows on disk and those added since."""

    path: Path
    setup: str
    rows: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    done: set[Cell] = field(default_factory=set[Cell])

    @classmethod
    def open(cls, path: Path, setup: str) -> GridTable:
        """The table at `path`, empty if there is none yet."""
        table = cls(path, setup)
        if path.exists():
            table._take(_read(path))
        return table

    def has(self, cell: Cell) -> bool:
        """Whether this set-up has the numbers of `cell` already."""
        return cell in self.done

    def add(self, rows: Iterable[dict[str, Any]]) -> None:
        """Add rows of this set-up."""
        self._take([{"setup": self.setup, **row} for row in rows])

    def save(self) -> None:
        """Write all rows, aside and renamed."""
        import pandas as pd

        with aside(self.path) as part:
            pd.DataFrame(self.rows, columns=COLUMNS).to_parquet(part, index=False)

    def frame(self) -> pd.DataFrame:
        """This set-up's rows, in the order of checkpoints."""
        import pandas as pd

        own = [row for row in self.rows if row["setup"] == self.setup]
        made = pd.DataFrame(own, columns=COLUMNS).drop(columns="setup")
        return made.sort_values("checkpoint", kind="stable", ignore_index=True)

    def _take(self, rows: Iterable[dict[str, Any]]) -> None:
        for row in rows:
            self.rows.append(row)
            if row["setup"] == self.setup:
                self.done.add(Cell(row["checkpoint"], row["layer"], row["probe"], row["fit"]))


def _read(path: Path) -> list[dict[str, Any]]:
    import pandas as pd

    try:
        stored: list[dict[str, Any]] = pd.read_parquet(path).to_dict("records")  # pyright: ignore[reportAssignmentType]
        return [{name: row[name] for name in COLUMNS} for row in stored]
    except (OSError, ValueError, KeyError) as error:
        raise RunProblem(
            f"{path}: wanted a table of probes, but it cannot be read ({error}). Move it away."
        ) from error
