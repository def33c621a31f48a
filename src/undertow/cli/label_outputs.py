"""What `undertow labels` writes, and where it keeps what it has measured.

Annotations here are types, not text: the command reads them.
"""

import os
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from undertow.cli.flags import BadUsage
from undertow.errors import BadValue
from undertow.labels.exports import Exports
from undertow.labels.given_files import Shown
from undertow.labels.settings import CleanWay
from undertow.outputs import Named, check_output_folder, check_outputs

if TYPE_CHECKING:
    from undertow.labels.findings import LabelErrors
    from undertow.training.run import Run


FILES = ("suspects.parquet", "suspects.npz", "audit.json")
"""What a search keeps beside its report."""


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """What to write and to list."""

    top: int = 20
    """How many suspects to list."""
    out: Path | None = None
    """Write one row per sample to this .parquet or .csv file."""
    report: Path | None = None
    """The folder for report.html and the suspects in it, instead of the run's own."""
    keep: bool = True
    """Keep votes and suspects in the run's folder, for later commands and its report; --no-keep leaves it as it is."""
    clean: CleanWay | None = None
    """relabel gives suspects the proposed label, drop leaves them out; needs --cleaned."""
    cleaned: Path | None = None
    """The .parquet or .csv file for `undertow train --labels`; only a parquet file says which samples it is for."""
    above: float | None = None
    """With --clean, suspect labels with a higher score than this, instead of the flagged ones."""
    pred_probs: Path | None = None
    """Write class probabilities (samples, classes) to this .npy file, as cleanlab reads them."""

    @property
    def named(self) -> list[Named]:
        """The files that will be written, by the flags that ask for them."""
        return [("--out", self.out), ("--cleaned", self.cleaned), ("--pred-probs", self.pred_probs)]

    def check(self, exports: Exports, used: Sequence[Path] = ()) -> None:
        """What is wrong is said before anything is computed; `used` are the files that are read."""
        self._check_flags()
        check_output_folder("labels", "--report", self.report)
        own = () if self.report is None else (*FILES, "report.html")
        beside = [(self.report or Path()) / name for name in own]
        check_outputs("labels", [*self.named, *exports.named], used=[*used, *beside])

    def _check_flags(self) -> None:
        if self.top < 0:
            raise BadValue("labels --top", "0 or more", self.top)
        if self.clean is not None and self.cleaned is None:
            raise BadUsage("labels: --clean needs a file to write to. Add --cleaned cleaned.parquet.")
        kinds = (("out", (".parquet", ".csv")), ("cleaned", (".parquet", ".csv")), ("pred_probs", (".npy",)))
        for name, endings in kinds:
            path: Path | None = getattr(self, name)
            if path is not None and path.suffix not in endings:
                flag = name.replace("_", "-")
                raise BadValue(f"labels --{flag}", f"a {' or '.join(endings)} file", str(path))
        if self.report is not None and any(
            (self.report / name).exists() for name in ("run.json", "audit.parquet")
        ):
            raise BadUsage(
                f"labels: --report {self.report} is a run's folder. Name another, for example found."
            )

    def keeps_in(self, run: Path) -> bool:
        """Whether the run's own folder is written to."""
        return self.keep and self.report is None and os.access(run, os.W_OK)

    @contextmanager
    def kept_in(self, run: Path) -> Generator[Path]:
        """The folder for votes: the run's, the report's, or one that goes when all is said."""
        if self.keeps_in(run) or self.report is not None:
            yield self.report or run
            return
        if self.keep:
            note = f"Note: {run} cannot be written to. Nothing is kept there; --report FOLDER keeps votes and a page."
            sys.stderr.write(f"{note}\n")
        with TemporaryDirectory(prefix="undertow-") as folder:
            yield Path(folder)

    def write(self, found: "LabelErrors", run: "Run | None", shown: Shown) -> list[Path]:
        """Write the files; those written."""
        from undertow.labels.suspects import write_table

        if self.out is not None:
            write_table(found, self.out, shown)
        if self.cleaned is not None:
            kept = found.clean(self.clean or "relabel", above=self.above)
            kept.write(self.cleaned, () if run else found.classes)
        if self.pred_probs is not None:
            _write_array(found, self.pred_probs)
        return [path for path in (self.out, self.cleaned, self.pred_probs) if path is not None]


def _write_array(found: "LabelErrors", path: Path) -> None:
    import numpy as np

    from undertow.files import aside

    with aside(path) as part, part.open("wb") as stream:
        np.save(stream, found.pred_probs)
