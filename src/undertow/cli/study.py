"""`undertow study`: the papers' experiments, listed, explained, run and reported.

undertow study list
undertow study show richness/target-scale --scale laptop
undertow study run "richness/*" --scale smoke --out studies
undertow study report studies
"""

from __future__ import annotations

import time
import webbrowser
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undertow.cli.screen import console, counted, print_json, table
from undertow.errors import BadValue, UndertowError, unknown
from undertow.sizes import show_size
from undertow.studies.catalogue import STUDIES, find_studies, find_study
from undertow.studies.cost import cost_words
from undertow.studies.findings import Seen, number
from undertow.studies.recipe import SCALES, Study
from undertow.studies.required_data import check_data, data_needed, whereabouts
from undertow.training.config import TrainConfig

if TYPE_CHECKING:
    from rich.console import Console

    from undertow.engine import Engine, Progress
    from undertow.studies.outcome import StudyOutcome


PAPERS = {
    "temporal": (
        "000",
        "Feature dynamics as implicit data augmentation: a depth-decomposed view on deep neural network generalization",
    ),
    "latent": ("001", "On the dynamics and transferability of latent generalization during memorization"),
    "richness": (
        "002",
        "Decoupling dynamical richness from representation learning: towards practical measurement",
    ),
}
"""The papers' numbers and titles by the room that their studies are in."""
NARROW = 100
"""Columns of the screen below which the list leaves out the data and the cost of smoke."""


class SomeFailed(UndertowError):
    """Tasks that failed; the rest of the work is done and kept."""


def list_studies(*, json: bool = False) -> None:
    """List the studies with their cost at each scale and the data they need.

    Args:
        json: one JSON object per study.
    """
    studies = [find_study(name) for name in STUDIES]
    if json:
        for study in studies:
            print_json(_entry(study))
        return
    screen = console()
    columns = ["study", "what", "data (laptop)", *SCALES]
    lines = [dict(zip(columns, _line(study), strict=True)) for study in studies]
    if screen.width < NARROW:
        columns = ["study", "what", *SCALES[1:]]
    body = [[line[name] for name in columns] for line in lines]
    screen.print(table("", columns, body, right=SCALES, whole=["study", *SCALES]))
    for room, (paper, title) in PAPERS.items():
        screen.print(f"{room}/...: paper {paper}, {title}.", style="dim")
    screen.print(
        "All cases, one seed. smoke and laptop: on two cores, measured or scaled up from some cases. paper: an "
        "estimate for training on one GPU, right within a factor of three. smoke needs no data from outside. "
        "`undertow study show NAME` tells more: the figures and tables of its paper, what is trained, the claims."
    )


def _line(study: Study) -> list[str]:
    data = ", ".join(_whereabouts(name) for name in data_needed(study.at("laptop")))
    return [
        study.name, study.title, data or "none", *(cost_words(study, scale) for scale in SCALES),
    ]  # fmt: skip


def _entry(study: Study) -> dict[str, object]:
    return {
        "study": study.name, "title": study.title, "source": study.source,
        "cost": {scale: cost_words(study, scale) for scale in SCALES},
        "data": {
            scale: {name: whereabouts(name) for name in data_needed(study.at(scale))} for scale in SCALES
        },
    }  # fmt: skip


def _whereabouts(name: str) -> str:
    where = whereabouts(name)
    return name if where == "here" else f"{name} ({where})"


def show(name: str, *, scale: str = "laptop") -> None:
    """Show what a study trains, measures, claims, and what a scale changes.

    Args:
        name: a study; `undertow study list` lists them.
        scale: smoke, laptop or paper.
    """
    study = find_study(name)
    screen = console()
    named = [f"\nPaper {paper}: {title}." for paper, title in PAPERS.values() if paper in study.source]
    screen.print(f"[bold]{study.name}[/bold]  {study.title}\n{study.source}{''.join(named)}\n")
    data = ", ".join(_whereabouts(one) for one in data_needed(study.at(scale)))
    screen.print(
        f"Scale {scale}: {cost_words(study, scale)} for one seed; data: {data or 'none from outside'}\n"
    )
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
    if known:
        columns = ["case", "measure", "paper", "tolerance", "from"]
        screen.print()
        screen.print(table("", columns, known, right=["paper", "tolerance"]))


def _settings(config: TrainConfig) -> str:
    changed = {"model": config.model, "data": config.data, **config.changes()}
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in changed.items())


def run(
    *names: str, scale: str = "laptop", seeds: int = 1, first_seed: int = 0, out: str = "studies",
    workers: int = 0, memory: str | None = None, engine: str = "local", address: str | None = None,
    cpus: float | None = None, gpus: float | None = None, json: bool = False,
) -> None:  # fmt: skip
    """Run studies and set them against their papers.

    Args:
        names: studies, or patterns such as "richness/*".
        scale: smoke (seconds), laptop (minutes) or paper (a GPU).
        seeds: repeat with so many seeds.
        first_seed: the first of them; another one checks what was found, or tuned, on seed 0.
        out: the folder of results, or a URL such as s3://bucket/studies; finished work in it is not done again.
        workers: tasks at once; 0 takes one process for each core, or all that a cluster has.
        memory: the most that one task may take, such as 2GB; ray reserves it on the node.
        engine: local (processes of this machine) or ray (a cluster).
        address: ray's cluster: auto, HOST:PORT or ray://HOST:PORT; one is started here if none is given.
        cpus: of one task on ray, and its maths threads.
        gpus: of one task on ray; 0.25 lets four share one.
        json: one JSON object per study on standard output.
    """
    if not names:
        raise BadValue("study run", "a study's name", "none", "`undertow study list` lists them.")
    if scale not in SCALES:
        raise unknown("scale", scale, SCALES)
    from undertow.engine import Engine
    from undertow.engine.result_place import refuse_other_version

    means = Engine(engine, workers=workers, memory=memory, address=address, cpus=cpus, gpus=gpus)
    studies = find_studies(names)
    for study in studies:
        refuse_other_version(out, f"{study.name}/{scale}")
    which = range(first_seed, first_seed + seeds)
    unfinished = [study for study in studies if _unfinished(study, scale, which, out)]
    check_data(study.at(scale) for study in unfinished)
    failures: dict[str, str] = {}
    with means.session() if unfinished else nullcontext():
        for study in studies:
            outcome, failed = run_study(study, scale, which, out, means, quiet=json)
            failures |= failed
            if json:
                print_json(as_json(outcome))
    if failures:
        raise SomeFailed(
            f"{counted(len(failures), 'task')} failed; all else is kept. The first: {next(iter(failures.values()))}"
        )


def _unfinished(study: Study, scale: str, seeds: range, out: str) -> bool:
    """Whether any task is left to do: a study that is done needs no data."""
    from undertow.engine.store import Store

    return bool(Store.under(out).missing(study.at(scale).tasks(seeds)))


def run_study(
    study: Study, scale: str, seeds: int | range, out: Path | str, engine: Engine, *, quiet: bool = False
) -> tuple[StudyOutcome, dict[str, str]]:
    """Run one study and write what it found into OUT/NAME/SCALE."""
    from undertow.engine import Store, run_tasks
    from undertow.engine.result_place import results_folder, work_folder
    from undertow.studies.outcome import StudyOutcome

    screen, began = console(), time.monotonic()
    seeds = seeds if isinstance(seeds, range) else range(seeds)
    tasks, store = study.at(scale).tasks(seeds), Store.under(out)
    if not quiet:
        _announce(screen, study, scale, len(seeds))
    watch = None if quiet else lambda told: _told(screen, told)
    failed = run_tasks(tasks, store, workspace=work_folder(out), engine=engine, watch=watch)
    facts = {
        "seeds": len(seeds), "first_seed": seeds.start, "task_seconds": round(store.seconds(tasks), 1),
        "changes": study.differences(scale),
        "wall_seconds": round(time.monotonic() - began, 1), "failures": list(failed.values()),
    }  # fmt: skip
    outcome = StudyOutcome.of(study, scale, store.rows(tasks), facts)
    name = f"{study.name}/{scale}"
    with results_folder(out, name) as folder:
        outcome.save(folder)
        if len(outcome.findings.rows):
            outcome.draw(folder)
    if not quiet:
        tell(screen, outcome, f"{out}/{name}")
    return outcome, failed


def report(
    folder: Path = Path("studies"), *, out: Path | None = None, open: bool = False, json: bool = False
) -> None:
    """Write what the studies in a folder found as one HTML file that needs no network.

    Args:
        folder: the --out of `study run`.
        out: the file; report.html in the folder when not given.
        open: show it in the browser.
        json: the file's path and size, and how many studies are in it, as one JSON object.
    """
    from undertow.report.study import read_studies
    from undertow.report.study_page import render_studies

    studies = read_studies(folder)
    path = render_studies(studies, out or folder / "report.html", folder.name)
    size = path.stat().st_size
    if json:
        print_json({"path": str(path), "bytes": size, "studies": len(studies)})
    else:
        told = f"Written: {path} ({counted(len(studies), 'outcome')}, {show_size(size)})"
        console().print(told, markup=False)
    if open:
        webbrowser.open(path.resolve().as_uri())


def _announce(screen: Console, study: Study, scale: str, seeds: int) -> None:
    screen.print(f"[bold]{study.name}[/bold]  {study.title} ({scale}, {counted(seeds, 'seed')})")
    for line in study.differences(scale):
        screen.print(f"  changed: {line}")


def _told(screen: Console, told: Progress) -> None:
    state = f"failed: {told.error}" if told.error else f"{told.seconds:.0f} s"
    screen.print(f"  {told.done}/{told.total}  {told.task.label}: {state}", markup=False)


def tell(screen: Console, outcome: StudyOutcome, folder: str) -> None:
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


def as_json(outcome: StudyOutcome) -> dict[str, object]:
    """A study's outcome for machines."""
    table_rows: list[dict[str, object]] = outcome.comparison().to_dict("records")  # pyright: ignore[reportAssignmentType]
    return {
        "study": outcome.study.name, "scale": outcome.scale, **outcome.facts, "comparison": table_rows,
        "claims": [
            {"claim": claim.text, "verdict": verdict.word, "numbers": verdict.numbers}
            for claim, verdict in outcome.verdicts()
        ],
    }  # fmt: skip
