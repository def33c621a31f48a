"""The probe grid's table: one row per number, kept in the run's folder, added to and never lost.

    table = GridTable.open(run.path / "probes.parquet")
    table.has(setup, Cell(checkpoint=20, layer="layer2", probe="masc", fit="given"))
    table.add(setup, [accuracy_row(cell, "test", "true", right)]); table.save()
    table.frame([(setup, cell), ...])              # pandas, the wanted rows only

A set-up is a hash of everything that would change a number: the checkpoint's weights, data, samples, seed,
how features are taken. Rows of other set-ups stay in the file.
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
    rows: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    done: set[tuple[str, Cell]] = field(default_factory=set[tuple[str, Cell]])

    @classmethod
    def open(cls, path: Path) -> GridTable:
        """The table at `path`, empty if there is none yet."""
        table = cls(path)
        for row in _read(path) if path.exists() else []:
            table._take(row)
        return table

    def has(self, setup: str, cell: Cell) -> bool:
        """Whether the numbers of `cell` are there; a reason why there are none does not count."""
        return (setup, cell) in self.done

    def add(self, setup: str, rows: Iterable[dict[str, Any]]) -> None:
        """Add rows; they take the place of reasons why there were none."""
        new = [{"setup": setup, **row} for row in rows]
        cells = {_key(row) for row in new}
        self.rows = [row for row in self.rows if row["n"] or _key(row) not in cells]
        for row in new:
            self._take(row)

    def save(self) -> None:
        """Write all rows, aside and renamed."""
        import pandas as pd

        with aside(self.path) as part:
            pd.DataFrame(self.rows, columns=COLUMNS).to_parquet(part, index=False)

    def frame(self, wanted: Iterable[tuple[str, Cell]]) -> pd.DataFrame:
        """The rows of the wanted set-ups and cells, in their order."""
        import pandas as pd

        places = {key: place for place, key in enumerate(wanted)}
        own = [row for row in self.rows if _key(row) in places]
        own.sort(key=lambda row: places[_key(row)])
        return pd.DataFrame(own, columns=COLUMNS).drop(columns="setup")

    def _take(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        if row["n"]:
            self.done.add(_key(row))


def _key(row: dict[str, Any]) -> tuple[str, Cell]:
    return row["setup"], Cell(row["checkpoint"], row["layer"], row["probe"], row["fit"])


def _read(path: Path) -> list[dict[str, Any]]:
    import pandas as pd

    try:
        stored: list[dict[str, Any]] = pd.read_parquet(path).to_dict("records")  # pyright: ignore[reportAssignmentType]
        return [{name: row[name] for name in COLUMNS} for row in stored]
    except (OSError, ValueError, KeyError) as error:
        raise RunProblem(
            f"{path}: wanted a table of probes, but it cannot be read ({error}). Move it away."
        ) from error
