"""`undertow audit`: a run through all lenses, a verdict on the screen, a page in its folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.console import Group
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from undertow.cli.feeding import load_given
from undertow.cli.opening import open_given
from undertow.cli.screen import console, print_json
from undertow.files import aside

if TYPE_CHECKING:
    from undertow.auditing import Audit
    from undertow.auditing.estimate import Estimate
    from undertow.auditing.measures import Condition

FAILED = 3
"""The exit code where a condition of --fail-if holds."""
PANEL = 110
"""Columns of the verdict at most: longer lines are hard to read."""


def audit(
    run: Path,
    *,
    model: str | None = None,
    data: str | None = None,
    scaling: str | None = None,
    layers: str = "auto",
    checkpoints: str = "all",
    lenses: str = "latent,richness,temporal,repair",
    labels: Literal["clean", "noisy", "none"] = "clean",
    quick: bool = False,
    samples: int | None = None,
    memory: str = "2GB",
    batch_size: int = 512,
    seed: int = 0,
    device: str | None = None,
    fail_if: list[str] | None = None,
    out: Path | None = None,
    report: bool = True,
    json: bool = False,
    csv: Path | None = None,
) -> int:
    """Look at a run through all lenses and say what was found; audit.parquet, audit.json and report.html are kept.

    Exit code 3 if a condition of --fail-if holds. What was done before is not done again.

    Args:
        run: the run's folder, or any folder of checkpoints with --model and --data.
        model: package.module:function that gives an untrained model, for checkpoints that are not undertow's.
        data: the data of such checkpoints: a name or a path.
        scaling: how such a model was fed: none (as the data is), unit, half, cifar, imagenet; without it floats are fed
            as they are and bytes as pixels from 0 to 1.
        layers: names or patterns joined by commas; auto takes the model's own choice.
        checkpoints: all, last, every:5 or a list such as 0,10,60.
        lenses: latent, richness, temporal, repair.
        labels: what the test labels are: clean, noisy (as those of training), or none to look at.
        quick: at most 8 checkpoints and 1,000 samples of each split; where the run's folder holds a full audit, what is
            found goes to audit-quick in it.
        samples: at most so many samples of each split.
        memory: how much memory features may take.
        batch_size: samples per forward pass.
        seed: of all that is drawn.
        device: cpu, cuda, ...; where the model is when not given.
        fail_if: a condition such as "latent_gap > 0.1"; may be given several times.
        out: the folder for what is kept; the run's own when not given.
        report: write report.html too; --no-report leaves it out.
        json: one JSON object instead of the verdict on the screen.
        csv: write the rows to this file too.
    """
    from undertow.auditing.measures import parse_condition
    from undertow.auditing.settings import AuditConfig
    from undertow.auditing.work import audit as work

    conditions = [parse_condition(text) for text in fail_if or ()]
    config = AuditConfig(
        layers=_names(layers), checkpoints=checkpoints, lenses=_names(lenses), labels=labels, quick=quick,
        samples=samples, memory=memory, batch_size=batch_size, seed=seed, device=device,
    )  # fmt: skip
    opened = open_given(run, model=model, data=data, needs=True)
    given = load_given(opened, data, scaling)
    found = work(opened, given, config=config, out=out, watch=Watch(quiet=json))
    kept = _kept(found, report=report, csv=csv)
    failed = [one for one in conditions if one.holds(found.measures)]
    if json:
        print_json({**found.to_dict(), "failed": [str(one) for one in failed]})
    else:
        screen = console()
        screen.print(panel(found), soft_wrap=False)
        screen.print(f"Kept in {', '.join(map(str, kept))}", markup=False)
    _tell(failed, found)
    return FAILED if failed else 0


def _kept(found: Audit, *, report: bool, csv: Path | None) -> list[Path]:
    """The files that the audit leaves behind."""
    from undertow.report.page import write_report

    folder = found.folder or Path()
    kept = [folder / "audit.parquet", folder / "audit.json"]
    if report:
        kept.append(write_report([folder], folder / "report.html"))
    if csv:
        with aside(csv) as part:
            found.table.to_csv(part, index=False)
        kept.append(csv)
    return kept


def panel(found: Audit) -> Panel:
    """The verdict as a panel: the headline, then a line for each topic."""
    lines = Table.grid(padding=(0, 2, 0, 0))
    for column in ("topic", "answer", "sentence"):
        lines.add_column(column, overflow="fold")
    for one in found.verdict:
        style = "dim" if one.answer == "cannot tell" else "bold"
        lines.add_row(Text(one.topic, style="cyan"), Text(one.short, style=style), Text(one.sentence))
    notes = [Text(f"Note: {note}", style="dim") for note in found.about["settings"]["notes"]]
    body = Group(Text(found.headline, style="bold"), Text(), lines, *notes)
    title = Text(f" {found.context.name} · {found.context.situation} ")
    width = min(PANEL, console().width)
    return Panel(body, title=title, title_align="left", padding=(1, 2), width=width, border_style="cyan")


def _tell(failed: list[Condition], found: Audit) -> None:
    for one in failed:
        print(f"undertow: failed: {one} (it is {found.measures[one.name]:.4g})", file=sys.stderr)  # noqa: T201


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


class Watch:
    """Prints the estimate and, on a terminal, one bar for the whole audit."""

    def __init__(self, *, quiet: bool) -> None:
        self._screen = None if quiet else console()
        self._bar: Progress | None = None

    def plan(self, estimate: Estimate) -> None:
        """Say what it will take before it starts."""
        if self._screen is None:
            return
        words = f"This takes {estimate}." if estimate.seconds else "All of it was computed before."
        self._screen.print(words, markup=False)
        if self._screen.is_terminal:
            self._bar = Progress(
                TextColumn("{task.fields[stage]:<11}"), BarColumn(bar_width=28), TextColumn("{task.fields[detail]}"),
                TimeRemainingColumn(compact=True), console=self._screen, transient=True,
            )  # fmt: skip
            self._task = self._bar.add_task("audit", total=1.0, stage="", detail="")
            self._bar.start()

    def step(self, stage: str, detail: str, share: float) -> None:
        """Move the bar."""
        if self._bar is not None:
            self._bar.update(self._task, advance=share, stage=stage, detail=detail)

    def close(self) -> None:
        """Take the bar off the screen."""
        if self._bar is not None:
            self._bar.stop()
