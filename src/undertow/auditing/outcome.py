"""What an audit gives: a table, a verdict, a headline, and the numbers behind them.

result.table                     # pandas, one row per number
print(result.verdict)            # the headline, and a line for each topic; also a list of findings
result.headline, result.measures["latent_gap"], result.measures["latent_gap_low"]
result.save("runs/m40")          # audit.parquet and audit.json
result.to_html("report.html")    # the page that undertow.report makes of them
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from undertow._version import __version__
from undertow.auditing.evidence import Context, Evidence
from undertow.auditing.finding import Finding
from undertow.auditing.headline import headline_of
from undertow.auditing.rules import judge
from undertow.errors import UndertowError
from undertow.files import aside, together
from undertow.rows import Row, frame
from undertow.stored.documents import AuditDocument
from undertow.stored.door import document_text, read_document
from undertow.stored.tables import write_part
from undertow.training.facts import now
from undertow.words import MARKS

if TYPE_CHECKING:
    import pandas as pd

FORMAT = 1
"""Raised when an older undertow could no longer read audit.json."""
TABLE, FACTS = "audit.parquet", "audit.json"
QUICK = "audit-quick"
"""The folder in a run's own for a quick audit that would else replace a fuller one."""


class Verdict(list[Finding]):
    """The findings in order; printed, the headline and each topic with its answer and sentence."""

    def __init__(self, findings: Iterable[Finding] = (), headline: str = "") -> None:
        super().__init__(findings)
        self.headline = headline

    def topic(self, name: str) -> Finding | None:
        """The finding about a topic; None where nothing was said about it."""
        return next((one for one in self if one.topic == name), None)

    def __str__(self) -> str:
        wide = max((len(one.short) for one in self), default=0)
        lines = [f"{one.topic:<12}{one.short:<{wide}}  {one.meaning:<8}{one.sentence}" for one in self]
        return "\n".join([self.headline, "", *lines] if self.headline else lines)

    def to_table(self) -> str:
        """A compact HTML table."""
        rows = "".join(
            f"<tr><td>{escape(one.topic)}</td><td>{MARKS[one.meaning].sign} {escape(one.short)}</td>"
            f"<td style='text-align:left'>{escape(one.sentence)}</td></tr>"
            for one in self
        )
        return f"<p><b>{escape(self.headline)}</b></p><table>{rows}</table>"

    def _repr_html_(self) -> str:
        return self.to_table()


@dataclass(frozen=True, eq=False)
class Audit:
    """One run, audited."""

    evidence: Evidence  # the typed results of all lenses
    verdict: Verdict
    measures: dict[str, float]
    about: dict[str, Any]  # run_id, quick, settings, data
    made: str
    folder: Path | None = None  # where it was saved

    @property
    def context(self) -> Context:
        """Which run, which labels."""
        return self.evidence.context

    @property
    def headline(self) -> str:
        """The verdict in a sentence or two."""
        return self.verdict.headline

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know beside the verdict: files passed over, how pixels were fed, what could not be looked at."""
        return tuple(self.about.get("settings", {}).get("notes", ()))

    @cached_property
    def rows(self) -> list[Row]:
        """One row per number."""
        return self.evidence.rows()

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row per number."""
        return frame(self.rows)

    def to_dict(self) -> dict[str, Any]:
        """What audit.json holds."""
        return {
            "format": FORMAT,
            "undertow": __version__,
            "made": self.made,
            "run": self.context.name,
            "unit": self.context.unit,
            "situation": self.context.situation,
            "headline": self.headline,
            "verdict": [one.to_dict() for one in self.verdict],
            "measures": self.measures,
            **self.about,
        }

    def save(self, folder: str | Path) -> Path:
        """Write audit.parquet and audit.json into `folder`."""
        place = Path(folder)
        # Both are written before either takes its place: a killed audit leaves a pair, old or new.
        with together(place), aside(place / FACTS) as facts, aside(place / TABLE) as table:
            seal = write_part(table, self.table, self.about.get("run_id", ""))
            facts.write_text(document_text({**self.to_dict(), "table": seal}), encoding="utf-8")
        return place

    def to_html(self, path: str | Path) -> Path:
        """Write the report's page; with the run's own facts where the audit was saved in its folder."""
        # The report is a later room, which this one must not know: the package's front door does.
        import undertow

        if self.folder is not None:
            return Path(undertow.write_report([self.folder], path))
        with TemporaryDirectory() as folder:
            return Path(undertow.write_report([self.save(folder)], path))

    def _repr_html_(self) -> str:
        """The verdict, and where the page is, for notebooks."""
        data = self.about.get("data", {})
        about = (
            f"{self.context.name}: {data.get('train', 0):,} training and {data.get('test', 0):,} test samples"
        )
        kept = "" if self.folder is None else f" Saved in <code>{escape(str(self.folder))}</code>."
        notes = "".join(f"<p>Note: {escape(note)}</p>" for note in self.notes)
        return f"<p>{escape(about)}.{kept}</p>{self.verdict.to_table()}{notes}"

    def __repr__(self) -> str:
        return f"<Audit of {self.context.name}: {self.headline}>"

    def __str__(self) -> str:
        return "\n".join([str(self.verdict), *(f"Note: {note}" for note in self.notes)])


def holds_full_audit(folder: Path) -> bool:
    """Whether an audit is kept in `folder` that was not a quick one."""
    try:
        return not read_document(folder / FACTS, AuditDocument).get("quick")
    except UndertowError:
        return False  # none, or torn: nothing to lose


def make_audit(seen: Evidence, about: dict[str, Any]) -> Audit:
    """The audit of this evidence: its verdict follows from it alone."""
    findings = judge(seen)
    verdict = Verdict(findings, headline_of(seen, findings))
    return Audit(seen, verdict, seen.measures(), about, now())
