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

import json
import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undertow._version import __version__
from undertow.errors import BadData, NotThere, RunProblem
from undertow.files import aside, write_text
from undertow.studies.findings import Findings, Seen
from undertow.studies.recipe import Claim, ClaimVerdict, Published, Study

if TYPE_CHECKING:
    import pandas as pd

FORMAT = 1
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
                "tolerance": one.tolerance, "source": one.source,
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

    def _claims(self) -> list[dict[str, str]]:
        return [
            {"claim": claim.text, "verdict": verdict.word, "numbers": verdict.numbers}
            for claim, verdict in self.verdicts()
        ]

    def verdicts(self) -> list[tuple[Claim, ClaimVerdict]]:
        """Each claim with what the rows say of it; a claim without its numbers cannot be told."""
        return [(claim, self._judge(claim)) for claim in self.study.claims]

    def _judge(self, claim: Claim) -> ClaimVerdict:
        try:
            return claim.check(self.findings)
        except BadData as reason:
            return ClaimVerdict(None, str(reason))

    def draw(self, folder: Path) -> list[Path]:
        """The study's figure as PNG and SVG."""
        from undertow.plots import save_figure, style

        with style():
            figure = self.study.figure(self.findings)
        return save_figure(figure, folder / "figure")

    def save(self, folder: Path) -> None:
        """Write rows, comparison, claims and facts."""
        with aside(folder / "rows.parquet") as part:
            self.findings.rows.to_parquet(part, index=False)
        with aside(folder / "comparison.csv") as part:
            self.comparison().to_csv(part, index=False)
        write_text(folder / "claims.json", json.dumps(self._claims(), indent=2, ensure_ascii=False) + "\n")
        facts = {
            "format": FORMAT, "undertow": __version__, "study": self.study.name, "title": self.study.title,
            "source": self.study.source, "scale": self.scale, "notes": list(self.study.notes),
            "machine": _machine(), **self.facts,
        }  # fmt: skip
        write_text(folder / "study.json", json.dumps(facts, indent=2, ensure_ascii=False) + "\n")

    @classmethod
    def read(cls, folder: Path, find_study: Callable[[str], Study]) -> StudyOutcome:
        """The outcome in `folder`; claims are judged anew from its rows."""
        import pandas as pd

        facts = read_facts(folder)
        study = find_study(facts["study"])
        return cls.of(study, facts["scale"], pd.read_parquet(folder / "rows.parquet"), facts)


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
    """study.json of a study's folder, refused if a later undertow wrote it."""
    path = folder / "study.json"
    if not path.exists():
        raise NotThere(
            f"There is no study in {folder}. `undertow study run NAME --out {folder.parent}` makes one."
        )
    return read_own(path.read_bytes(), str(path), FORMAT)


def read_own(content: bytes, path: str, newest: int) -> dict[str, Any]:
    """A JSON file that undertow wrote, refused if its format is newer than `newest`."""
    try:
        facts: dict[str, Any] = json.loads(content)
        given = int(facts["format"])
    except (ValueError, KeyError, TypeError) as error:
        raise RunProblem(f"{path} cannot be read ({error}). Choose another --out.") from error
    if given > newest:
        raise RunProblem(
            f"{path} is of a newer undertow: {facts.get('undertow')}, format {given}. "
            "Update undertow, or choose another --out."
        )
    return facts
