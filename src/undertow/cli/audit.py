"""`undertow audit`: a run through all lenses, a verdict on the screen, a page in its folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from undertow.auditing.settings import LENSES, AuditConfig
from undertow.cli.flags import FLAGS
from undertow.cli.given_run import Theirs, files_of, load_given, open_given
from undertow.cli.progress import ProgressBar
from undertow.cli.screen import console, print_json
from undertow.outputs import check_output_folder, check_outputs
from undertow.spreadsheets import write_csv
from undertow.words import MARKS, meaning_of

if TYPE_CHECKING:
    from undertow.auditing import Audit
    from undertow.auditing.measures import Condition
    from undertow.training.run import Run

FAILED = 3
"""The exit code where a condition of --fail-if holds."""
PANEL = 110
"""Columns of the verdict at most: longer lines are hard to read."""
ANSWER = 20
"""Columns of its answers at most: names of layers can be long."""


def audit(
    run: Path,
    *,
    config: Annotated[AuditConfig, FLAGS] = AuditConfig(),  # noqa: B008  (frozen)
    theirs: Annotated[Theirs, FLAGS] = Theirs(),  # noqa: B008
    fail_if: list[str] | None = None,
    out: Path | None = None,
    report: bool = True,
    json: bool = False,
    csv: Path | None = None,
) -> int:
    """Look at a run through all lenses and say what was found; audit.parquet, audit.json and report.html are kept.

    Exit code 3 if a condition of --fail-if holds. What was done before is not done again. With --quick, the files go
    to audit-quick in a folder that already holds a full audit.

    Args:
        run: The run's folder, or any folder of checkpoints with --model and --data.
        config: What to look at.
        theirs: What other programs' checkpoints do not say.
        fail_if: A condition such as "latent_gap > 0.1"; may be given several times.
        out: The folder for these files; the run's own when not given.
        report: Write report.html too; --no-report leaves it out.
        json: Print one JSON object instead of the verdict.
        csv: Write the rows to this file too.
    """
    from undertow.auditing.audit_run import audit as work
    from undertow.auditing.measures import parse_condition

    own = any(one not in LENSES for one in config.lenses)
    conditions = [parse_condition(text, own=own) for text in fail_if or ()]
    opened = open_given(run, theirs)
    _check_outputs(opened, theirs, out, csv, report=report)
    given = load_given(opened, theirs, config.scaling)
    found = work(opened, given, config=config, out=out, progress=ProgressBar(quiet=json))
    kept = _kept(found, report=report, csv=csv)
    failed = [one for one in conditions if one.holds(found.measures)]
    if json:
        print_json({**facts_of(found), "failed": [str(one) for one in failed]})
    else:
        screen = console()
        screen.print(panel(found), soft_wrap=False)
        screen.print(f"Written: {', '.join(map(str, kept))}", markup=False)
    _tell(failed, found)
    return FAILED if failed else 0


def _check_outputs(opened: Run, theirs: Theirs, out: Path | None, csv: Path | None, *, report: bool) -> None:
    """Whatever cannot be written is said before anything is measured."""
    check_output_folder("audit", "--out", out)
    place = out or opened.path
    own = [place / name for name in ("audit.parquet", "audit.json", *["report.html"] * report)]
    check_outputs("audit", [("--csv", csv)], used=[*own, *files_of(opened, theirs)])


def facts_of(found: Audit) -> dict[str, Any]:
    """An audit in plain values; every finding says what it means."""
    facts = found.to_dict()
    return {**facts, "verdict": [{**one, "meaning": meaning_of(one)} for one in facts["verdict"]]}


def _kept(found: Audit, *, report: bool, csv: Path | None) -> list[Path]:
    """The files that the audit leaves behind."""
    from undertow.report.page import write_report

    folder = found.folder or Path()
    kept = [folder / "audit.parquet", folder / "audit.json"]
    if report:
        kept.append(write_report([folder], folder / "report.html"))
    if csv:
        write_csv(csv, found.table)
        kept.append(csv)
    return kept


def panel(found: Audit) -> Panel:
    """The verdict as a panel: the headline, then a line for each topic."""
    lines = Table.grid(padding=(0, 2, 0, 0))
    for column, most in (("topic", None), ("answer", ANSWER), ("sentence", None)):
        lines.add_column(column, overflow="fold", max_width=most)
    for one in facts_of(found)["verdict"]:
        lines.add_row(Text(one["topic"], style="cyan"), answer_text(one), Text(one["sentence"]))
    notes = [Text(f"Note: {note}", style="dim") for note in found.about["settings"]["notes"]]
    body = Group(Text(found.headline, style="bold"), Text(), lines, *notes)
    title = Text(f" {found.context.name} · {found.context.situation} ")
    width = min(PANEL, console().width)
    return Panel(body, title=title, title_align="left", padding=(1, 2), width=width, border_style="cyan")


def answer_text(finding: dict[str, Any]) -> Text:
    """✗ yes (bad): what was answered and what it means, by sign, word and colour."""
    meaning = meaning_of(finding)
    mark, answer = MARKS[meaning], finding["answer"]
    word = mark.word(answer)
    short = f"{finding['short']} ({word})" if answer in ("yes", "no") else word
    return Text(f"{mark.sign} {short}", style=f"bold {mark.colour}" if meaning != "unknown" else mark.colour)


def _tell(failed: list[Condition], found: Audit) -> None:
    for one in failed:
        print(f"undertow: failed: {one} (it is {found.measures[one.name]:.4g})", file=sys.stderr)  # noqa: T201
