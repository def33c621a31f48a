"""`undertow study`: the papers' experiments, listed, explained, run and reported.

undertow study list
undertow study show richness/target-scale --scale laptop
undertow study run "richness/*" --scale smoke --out studies
undertow study report studies
"""

from __future__ import annotations

import webbrowser
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undertow.cli.screen import console, counted, print_json, table
from undertow.errors import BadValue, UndertowError
from undertow.sizes import show_size
from undertow.studies.catalogue import STUDIES, find_studies, find_study
from undertow.studies.cost import cost_words
from undertow.studies.findings import Seen, number
from undertow.studies.papers import PAPERS
from undertow.studies.recipe import SCALES, Published, Study
from undertow.studies.required_data import data_needed, whereabouts
from undertow.training.config import TrainConfig

if TYPE_CHECKING:
    from undertow.engine import SweepProgress
    from undertow.studies.outcome import StudyOutcome

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
    for room, paper in PAPERS.items():
        screen.print(f"{room}/...: paper {paper.number}, {paper.title}.", style="dim")
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
    named = [f"\nPaper {one.number}: {one.title}." for one in PAPERS.values() if one.number in study.source]
    screen.print(f"[bold]{study.name}[/bold]  {study.title}\n{study.source}{''.join(named)}\n")
    data = ", ".join(_whereabouts(one) for one in data_needed(study.at(scale)))
    screen.print(
        f"Scale {scale}: {cost_words(study, scale)} for one seed; data: {data or 'none from outside'}\n"
    )
    for case in study.at(scale).cases:
        trained = "nothing is trained" if case.train is None else _settings(case.train)
        screen.print(f"  [bold]{case.name}[/bold]  {trained}{''.join('; ' + one for one in case.actions)}")
    _list(f"What scale {scale} changes", study.differences(scale) or ["nothing: this is the paper's setting"])
    for note in study.notes:
        screen.print(f"\nNote: {note}")
    _list("Claims", [claim.text for claim in study.claims])
    known = [
        [one.case, one.measure, number(one.value), number(one.tolerance), one.source]
        for one in study.published
    ]
    if known:
        columns = ["case", "measure", "paper", "tolerance", "from"]
        screen.print()
        screen.print(table("", columns, known, right=["paper", "tolerance"]))


def _list(title: str, lines: Sequence[str]) -> None:
    console().print("\n".join([f"\n{title}:", *(f"  {line}" for line in lines)]), markup=False)


def _settings(config: TrainConfig) -> str:
    changed = {"model": config.model, "data": config.data, **config.changes()}
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in changed.items())


def run(
    *names: str, all: bool = False, finished: bool = False, scale: str = "laptop", seeds: int | None = None,
    first_seed: int = 0, cases: tuple[str, ...] = (), out: str = "studies",
    workers: int = 0, memory: str | None = None, engine: str = "local", address: str | None = None,
    cpus: float | None = None, gpus: float | None = None, json: bool = False,
) -> None:  # fmt: skip
    """Run studies and set them against their papers.

    Args:
        names: studies, or patterns such as "richness/*"; `undertow study list` lists them.
        all: every study there is.
        finished: train nothing; judge what is done in --out so far.
        scale: smoke (seconds), laptop (minutes) or paper (a GPU).
        seeds: repeat with so many seeds; each study's own number when not given: one for smoke, else 3 or 5.
        first_seed: the first of them; another one checks what was found, or tuned, on seed 0.
        cases: train this case alone, such as "MLP on MNIST"; give it again for another. The rest stays unfinished.
        out: the folder of results, or a URL such as s3://bucket/studies; finished work in it is not done again.
        workers: tasks at once; 0 takes one process for each core, or all that a cluster has.
        memory: the most that one task may take, such as 2GB; ray reserves it on the node.
        engine: local (processes of this machine) or ray (a cluster).
        address: ray's cluster: auto, HOST:PORT or ray://HOST:PORT; one is started here if none is given.
        cpus: of one task on ray, and its maths threads.
        gpus: of one task on ray; 0.25 lets four share one.
        json: one JSON object per study on standard output.
    """
    from undertow.crew.limits import keep_freed_memory
    from undertow.engine import Engine, check_studies

    if memory is None:
        keep_freed_memory()  # a single worker is this process
    settings: dict[str, Any] = {
        "workers": workers, "memory": memory, "address": address, "cpus": cpus, "gpus": gpus,
    }  # fmt: skip
    means, studies = Engine(engine, **settings), find_studies(_asked(names, all))
    which = {study.name: _seeds(study, scale, seeds, first_seed) for study in studies}
    unfinished = [
        study
        for study in studies
        if not finished and check_studies([study], scale, which[study.name], out, cases)
    ]
    settings |= {"cases": cases} | ({"finished_only": True} if finished else {})
    if not json and len(studies) > 1 and not finished:
        _estimate(studies, scale, which, out, cases)
    with means.session() if unfinished else nullcontext():
        outcomes = [
            _run_one(study, scale, json=json, seeds=which[study.name], out=out, engine=engine, **settings)
            for study in studies
        ]
    failures = [why for outcome in outcomes for why in outcome.failures]
    if failures:
        raise SomeFailed(
            f"{counted(len(failures), 'task')} failed; the rest is done and kept. The first: {failures[0]}"
        )


def _asked(names: Sequence[str], all: bool) -> list[str]:
    if bool(names) == all:
        raise BadValue(
            "study run",
            "names of studies, or --all",
            "both" if all else "neither",
            "`undertow study list` lists them.",
        )
    return ["*"] if all else list(names)


def _seeds(study: Study, scale: str, seeds: int | None, first: int) -> range:
    many = study.seeds_at(scale, seeds)
    return range(first, first + len(many)) if first else many


def _estimate(
    studies: Sequence[Study], scale: str, seeds: Mapping[str, range], out: str, cases: Sequence[str]
) -> None:
    """What is left to do, before it begins; finished tasks are not done again."""
    from undertow.engine import minutes_left

    found = [minutes_left([study], scale, seeds[study.name], out, cases) for study in studies]
    minutes, unknown = sum(own for own, _ in found), [name for _, names in found for name in names]
    words = f"{minutes / 60:.1f} h" if minutes >= 90 else f"{minutes:.0f} min"
    more = f", and {', '.join(unknown)}, which nobody has measured" if unknown else ""
    told = f"{len(studies)} studies, about {words} left on two cores{more}."
    console().print(f"{told} Stopped at any time, the same command goes on.\n", markup=False)


def _run_one(study: Study, scale: str, *, json: bool, out: str, **settings: Any) -> StudyOutcome:
    from undertow.engine import run_study

    if json:
        outcome = run_study(study, scale, out=out, **settings)
        print_json(outcome.to_dict())
        return outcome
    _announce(study, scale, len(settings["seeds"]))
    outcome = run_study(study, scale, out=out, progress=_show, **settings)
    _tell(outcome, f"{out}/{study.name}/{scale}")
    return outcome


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


def _announce(study: Study, scale: str, seeds: int) -> None:
    screen = console()
    screen.print(f"[bold]{study.name}[/bold]  {study.title} ({scale}, {counted(seeds, 'seed')})")
    for line in study.differences(scale):
        screen.print(f"  changed: {line}")


def _show(told: SweepProgress) -> None:
    state = f"failed: {told.error}" if told.error else f"{told.seconds:.0f} s"
    console().print(f"  {told.done}/{told.total}  {told.task.label}: {state}", markup=False)


def _tell(outcome: StudyOutcome, folder: str) -> None:
    """The table paper / ours / within, and the claims."""
    screen = console()
    there = {case.name for case in outcome.study.cases}  # a scale may leave cases out
    lines = [
        [
            one.case,
            f"{one.measure} {one.place}",
            number(one.value),
            str(ours or "–"),
            _within(one, ours, outcome.scale),
        ]
        for one, ours in outcome.compared()
        if one.case in there
    ]
    if lines:
        columns = ["case", "measure", "paper", "ours", "within"]
        screen.print(table("", columns, lines, right=["paper", "ours"]))
    for claim, verdict in outcome.verdicts():
        colour = {True: "green", False: "red", None: "yellow"}[verdict.holds]
        screen.print(f"  [{colour}]{verdict.word}[/{colour}]: {claim.text}  ", end="")
        screen.print(f"[{verdict.numbers}]", markup=False)
    screen.print(f"  {folder}/figure.png, rows.parquet, comparison.csv, claims.json\n", markup=False)


def _within(one: Published, ours: Seen | None, scale: str) -> str:
    if ours is None:
        return "–"
    return "yes" if one.near(ours.mean) else "no" if scale in one.reachable_at else "out of reach"
