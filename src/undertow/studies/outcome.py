"""What a study found, set against the paper.

    outcome = StudyOutcome.of(study, "laptop", rows)          # rows: a pandas table
    print(outcome)                                       # the claims and what became of them
    outcome.comparison()                                 # pandas: case, measure, paper, ours, within
    outcome.verdicts()                                   # (Claim, ClaimVerdict) pairs
    outcome.save(folder); StudyOutcome.read(folder, find_study)
    outcome.draw(folder)                                 # figure.png and figure.svg

A study's folder holds rows.parquet, comparison.csv, claims.json, study.json and the figure: everything in
it can be read without undertow.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undertow._version import __version__
from undertow.errors import NotThere
from undertow.files import write_text
from undertow.spreadsheets import write_csv
from undertow.stored.documents import StudyDocument
from undertow.stored.door import speakable, write_document
from undertow.stored.seals import file_hash
from undertow.stored.study_folder import read_study_facts
from undertow.stored.tables import STUDY_ROWS, read_frame, write_table
from undertow.studies.claims import Claim, ClaimVerdict
from undertow.studies.findings import Findings, Seen
from undertow.studies.recipe import Published, Study

if TYPE_CHECKING:
    import pandas as pd

FORMAT = StudyDocument.newest
"""Raised when an older undertow could no longer read the folder."""

COLUMNS = [
    "case",
    "measure",
    "where",
    "paper",
    "ours",
    "low",
    "high",
    "seeds",
    "tolerance",
    "within",
    "reachable",
    "cause",
    "source",
]
"""Of the comparison with the paper."""


@dataclass(frozen=True)
class StudyOutcome:
    """A study at a scale, its rows, and how they were made."""

    study: Study  # at the scale
    scale: str
    findings: Findings
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])  # seconds, seeds, machine, failures

    @classmethod
    def of(
        cls, study: Study, scale: str, rows: pd.DataFrame, facts: Mapping[str, Any] | None = None
    ) -> StudyOutcome:
        """The outcome of `study` (as the paper has it) at `scale`."""
        small = study.at(scale)
        return cls(small, scale, Findings(small, rows), facts or {})

    def __str__(self) -> str:
        told = (f"  {verdict.word}: {claim.text} [{verdict.numbers}]" for claim, verdict in self.verdicts())
        return "\n".join([f"{self.study.name} ({self.scale}): {self.study.title}", *told])

    def compared(self) -> list[tuple[Published, Seen | None]]:
        """The paper's numbers, each with ours; None where this scale leaves it out."""
        found = self.findings
        return [
            (one, found.seen(*key, **one.where) if found.has(*key, **one.where) else None)
            for one in self.study.published
            for key in [(one.case, one.measure)]
        ]

    def comparison(self) -> pd.DataFrame:
        """The paper's numbers beside ours: mean and range over seeds, and whether ours is near enough."""
        import pandas as pd

        lines = [
            {
                "case": one.case, "measure": one.measure, "where": one.place, "paper": one.value,
                "tolerance": one.tolerance, "source": one.source, "cause": one.cause,
                "reachable": self.scale in one.reachable_at,
                **({} if ours is None else {"ours": ours.mean, **ours._asdict(), "within": one.near(ours.mean)}),
            }
            for one, ours in self.compared()
        ]  # fmt: skip
        return pd.DataFrame(lines, columns=COLUMNS)

    @property
    def failures(self) -> list[str]:
        """Why tasks failed; their numbers are missing from the rows."""
        return list(self.facts.get("failures", ()))

    def to_dict(self) -> dict[str, Any]:
        """Plain values: the facts, the comparison with the paper, and the claims."""
        return {
            "study": self.study.name, "scale": self.scale, **self.facts,
            "comparison": self.comparison().to_dict("records"), "claims": self._claims(),
        }  # fmt: skip

    def _claims(self) -> list[dict[str, Any]]:
        return [
            {
                "claim": claim.text, "verdict": verdict.word, "numbers": verdict.numbers, "agree": verdict.agree,
                "of": verdict.of, "p": verdict.p, "place": claim.place, "ours": claim.ours, "cause": claim.cause,
            }
            for claim, verdict in self.verdicts()
        ]  # fmt: skip

    def verdicts(self) -> list[tuple[Claim, ClaimVerdict]]:
        """Each claim with what the rows say of it; a claim without its numbers cannot be told."""
        return [(claim, claim.judge(self.findings)) for claim in self.study.claims]

    @property
    def rows_mark(self) -> str:
        """A hash of the rows, whatever their order: the same numbers have the same."""
        rows = self.findings.rows
        lines = rows[sorted(rows)].to_csv(index=False).splitlines()
        return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()[:12]

    def draw(self, folder: Path) -> list[Path]:
        """The study's figure as PNG and SVG."""
        from undertow.plots import save_figure, style

        with style():
            figure = self.study.figure(self.findings)
        return save_figure(figure, folder / "figure")

    def save(self, folder: Path) -> None:
        """Write rows, comparison, claims and facts."""
        write_table(folder / "rows.parquet", self.findings.rows)
        write_csv(folder / "comparison.csv", self.comparison())
        write_text(
            folder / "claims.json", json.dumps(speakable(self._claims()), indent=2, ensure_ascii=False) + "\n"
        )
        facts = {
            "format": FORMAT, "undertow": __version__, "study": self.study.name, "title": self.study.title,
            "source": self.study.source, "scale": self.scale, "notes": list(self.study.notes),
            "machine": _machine(), "rows": self.rows_mark, "recipe": self.study.mark, **self.facts,
            "files": {name: file_hash(folder / name) for name in ("rows.parquet", "comparison.csv", "claims.json")},
        }  # fmt: skip
        write_document(folder / "study.json", facts)

    @classmethod
    def read(cls, folder: Path, find_study: Callable[[str], Study]) -> StudyOutcome:
        """The outcome in `folder`; claims are judged anew from its rows."""
        facts = read_facts(folder)
        study = find_study(facts["study"])
        return cls.of(study, facts["scale"], read_frame(folder / "rows.parquet", STUDY_ROWS), facts)


def _machine() -> dict[str, Any]:
    """What the numbers of this folder may depend on."""
    packages = {name: version(name) for name in ("torch", "numpy")}
    return {
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        **packages,
    }


def read_facts(folder: Path) -> dict[str, Any]:
    """study.json of a study's folder, refused if a later undertow wrote it or if a file beside it changed."""
    if not (folder / "study.json").exists():
        raise NotThere(
            f"There is no study in {folder}. `undertow study run NAME --out {folder.parent}` makes one."
        )
    return read_study_facts(folder)
