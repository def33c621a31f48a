"""`undertow study`: the papers' experiments, listed, explained and run.

undertow study list
undertow study show richness/target-scale --scale laptop
undertow study run "richness/*" --scale smoke --out studies
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undertow.cli.screen import console, counted, print_json, table
from undertow.errors import BadValue, UndertowError, unknown
from undertow.studies.catalogue import STUDIES, find_studies, find_study
from undertow.studies.findings import Seen, number
from undertow.studies.recipe import SCALES, Study
from undertow.train.config import TrainConfig

if TYPE_CHECKING:
    from rich.console import Console

    from undertow.engine.local import Progress
    from undertow.studies.outcome import Outcome


class SomeFailed(UndertowError):
    """Tasks that failed; the rest of the work is done and kept."""


def list_studies() -> None:
    """List the studies with their cost and the data they need."""
    rows = [_line(find_study(name)) for name in STUDIES]
    screen = console()
    screen.print(
        table("", ["study", "what", "from", "data", "smoke", "laptop"], rows, right=["smoke", "laptop"])
    )
    screen.print(
        "Minutes: all cases, one seed, two cores. The paper's scale wants a GPU. `undertow study show NAME`."
    )


def _line(study: Study) -> list[str]:
    minutes = [study.changes[scale].minutes for scale in ("smoke", "laptop")]
    return [
        study.name, study.title, study.source, ", ".join(study.data) or "none",
        *("?" if one is None else f"{one:g} min" for one in minutes),
    ]  # fmt: skip


def show(name: str, *, scale: str = "laptop") -> None:
    """Show what a study trains, measures, claims, and what a scale changes.

    Args:
        name: a study.
        scale: smoke, laptop or paper.
    """
    study = find_study(name)
    screen = console()
    screen.print(f"[bold]{study.name}[/bold]  {study.title}\n{study.source}\n")
    for case in study.at(scale).cases:
        trained = "nothing is trained" if case.train is None else _settings(case.train)
        screen.print(f"  [bold]{case.name}[/bold]  {trained}{''.join('; ' + one for one in case.actions)}")
    screen.print(f"\nWhat scale {scale} changes:")
    for line in study.differences(scale) or ["nothing: this is the paper's setting"]:
        screen.print(f"  {line}")
    for note in study.notes:
        screen.print(f"\nNote: {note}")
    screen.print("\nClaims:")
    for claim in study.claims:
        screen.print(f"  {claim.text}")
    known = [
        [one.case, one.measure, number(one.value), number(one.tolerance), one.source]
        for one in study.published
    ]
    screen.print()
    screen.print(
        table("", ["case", "measure", "paper", "tolerance", "from"], known, right=["paper", "tolerance"])
    )


def _settings(config: TrainConfig) -> str:
    changed = {"model": config.model, "data": config.data, **config.changes()}
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in changed.items())


def run(
    *names: str, scale: str = "laptop", seeds: int = 1, out: Path = Path("studies"), workers: int = 0,
    json: bool = False,
) -> None:  # fmt: skip
    """Run studies and set them against their papers.

    Args:
        names: studies, or patterns such as "richness/*".
        scale: smoke (seconds), laptop (minutes) or paper (a GPU).
        seeds: repeat with so many seeds.
        out: the folder of results; finished work in it is not done again.
        workers: processes; 0 takes one for each core, but not more than there is work.
        json: one JSON object per study on standard output.
    """
    if not names:
        raise BadValue("study run", "a study's name", "none", "`undertow study list` lists them.")
    if scale not in SCALES:
        raise unknown("scale", scale, SCALES)
    failures: dict[str, str] = {}
    for study in find_studies(names):
        outcome, failed = run_study(study, scale, seeds, out, workers or os.cpu_count() or 1, quiet=json)
        failures |= failed
        if json:
            print_json(as_json(outcome))
    if failures:
        raise SomeFailed(
            f"{counted(len(failures), 'task')} failed; all else is kept. The first: {next(iter(failures.values()))}"
        )


def run_study(
    study: Study, scale: str, seeds: int, out: Path, workers: int, *, quiet: bool = False
) -> tuple[Outcome, dict[str, str]]:
    """Run one study and write what it found into OUT/NAME/SCALE."""
    from undertow.engine.local import run_local
    from undertow.engine.store import Store
    from undertow.studies.outcome import Outcome

    screen, began = console(), time.monotonic()
    tasks, store = study.at(scale).tasks(seeds), Store(out / "tasks")
    if not quiet:
        _announce(screen, study, scale, seeds)
    watch = None if quiet else lambda told: _told(screen, told)
    failed = run_local(tasks, store, workspace=out, workers=workers, watch=watch)
    facts = {
        "seeds": seeds, "task_seconds": round(store.seconds(tasks), 1), "changes": study.differences(scale),
        "wall_seconds": round(time.monotonic() - began, 1), "failures": list(failed.values()),
    }  # fmt: skip
    outcome = Outcome.of(study, scale, store.rows(tasks), facts)
    folder = out / study.name / scale
    outcome.save(folder)
    if len(outcome.findings.rows):
        outcome.draw(folder)
    if not quiet:
        tell(screen, outcome, folder)
    return outcome, failed


def _announce(screen: Console, study: Study, scale: str, seeds: int) -> None:
    screen.print(f"[bold]{study.name}[/bold]  {study.title} ({scale}, {counted(seeds, 'seed')})")
    for line in study.differences(scale):
        screen.print(f"  changed: {line}")


def _told(screen: Console, told: Progress) -> None:
    state = f"failed: {told.error}" if told.error else f"{told.seconds:.0f} s"
    screen.print(f"  {told.done}/{told.total}  {told.task.label}: {state}", markup=False)


def tell(screen: Console, outcome: Outcome, folder: Path) -> None:
    """The table paper / ours / within, and the claims."""
    known: list[dict[str, Any]] = outcome.comparison().to_dict("records")  # pyright: ignore[reportAssignmentType]
    there = {case.name for case in outcome.study.cases}  # a scale may leave cases out
    lines = [
        [
            line["case"],
            f"{line['measure']} {line['where']}".strip(),
            number(line["paper"]),
            _ours(line),
            _within(line),
        ]
        for line in known
        if line["case"] in there
    ]
    if lines:
        screen.print(
            table("", ["case", "measure", "paper", "ours", "within"], lines, right=["paper", "ours"])
        )
    for claim, verdict in outcome.verdicts():
        colour = {True: "green", False: "red", None: "yellow"}[verdict.holds]
        screen.print(f"  [{colour}]{verdict.word}[/{colour}]: {claim.text}  ", end="")
        screen.print(f"[{verdict.numbers}]", markup=False)
    screen.print(f"  {folder}/figure.png, rows.parquet, comparison.csv, claims.json\n", markup=False)


def _ours(line: dict[str, Any]) -> str:
    if _missing(line["ours"]):
        return "–"
    return str(Seen(line["ours"], line["low"], line["high"], int(line["seeds"])))


def _within(line: dict[str, Any]) -> str:
    return "–" if _missing(line["ours"]) else "yes" if line["within"] else "no"


def _missing(value: Any) -> bool:
    return value is None or value != value  # NaN, in a column of numbers


def as_json(outcome: Outcome) -> dict[str, object]:
    """A study's outcome for machines."""
    table_rows: list[dict[str, object]] = outcome.comparison().to_dict("records")  # pyright: ignore[reportAssignmentType]
    return {
        "study": outcome.study.name, "scale": outcome.scale, **outcome.facts, "comparison": table_rows,
        "claims": [
            {"claim": claim.text, "verdict": verdict.word, "numbers": verdict.numbers}
            for claim, verdict in outcome.verdicts()
        ],
    }  # fmt: skip
