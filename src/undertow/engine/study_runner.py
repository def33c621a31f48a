"""Running a study: the road of `undertow study run`, as a function.

    outcome = run_study("richness/target-scale", "smoke")          # trains, measures, writes into studies/
    print(outcome); outcome.comparison(); outcome.findings.rows
    run_study("latent/transfer", "paper", seeds=3, out="s3://bucket/studies", engine="ray", address="auto", gpus=1)

What is finished in `out` is not done again, so that a run that was stopped goes on where it was.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from undertow.engine.engines import Engine, run_tasks
from undertow.engine.result_place import refuse_other_version, results_folder, work_folder
from undertow.engine.store import Store
from undertow.engine.sweep import Watch
from undertow.studies.catalogue import find_study
from undertow.studies.outcome import StudyOutcome
from undertow.studies.recipe import Scale, Study
from undertow.studies.required_data import check_data


def run_study(
    study: str | Study,
    scale: Scale | str = "laptop",
    *,
    seeds: int | range | None = None,
    out: Path | str = "studies",
    cases: Sequence[str] = (),
    engine: str = "local",
    workers: int = 1,
    memory: str | int | None = None,
    address: str | None = None,
    cpus: float | None = None,
    gpus: float | None = None,
    progress: Watch | None = None,
    finished_only: bool = False,
) -> StudyOutcome:
    """Train and measure what a study declares, set it against its paper, and write it into OUT/NAME/SCALE.

    Args:
        study: a study or its name, such as "richness/target-scale"; `undertow.studies.STUDIES` has all names.
        scale: smoke (seconds), laptop (minutes) or paper (a GPU).
        seeds: so many from 0 on, or a range of them; the study's own number when not given (one for smoke).
        out: a folder, or a URL such as s3://bucket/studies. Finished tasks in it are not run again.
        cases: train these cases alone; what is not done of the others counts as unfinished. None named trains all.
        engine: local (this machine) or ray (a cluster).
        workers: tasks at once. 1 is this process; 0 takes one for each core, or all that a cluster has.
            With more than 1, call it in a script under `if __name__ == "__main__":`.
        memory: the most that one task may take, such as 2GB.
        address: Ray's cluster: auto, HOST:PORT or ray://HOST:PORT. None starts one on this machine.
        cpus: for one task on Ray.
        gpus: for one task on Ray; 0.25 lets four share one.
        progress: called after each task with its label, how many are done, its seconds and its error.
        finished_only: train nothing; judge the tasks that are done in `out`, and say how many are not.

    Returns:
        The outcome: rows, comparison with the paper, verdicts on its claims. A task that failed stops no other;
        `failures` says why.

    Raises:
        NotThere: data that the study needs is missing; nothing was trained.
        RunProblem: `out` holds results of another version, or cannot be written.
    """
    recipe = find_study(study) if isinstance(study, str) else study
    means = Engine(engine, workers=workers, memory=memory, address=address, cpus=cpus, gpus=gpus)
    if not finished_only:
        check_studies([recipe], scale, seeds, out, cases)
    began, store = time.monotonic(), Store.under(out)
    numbers = recipe.seeds_at(scale, seeds)
    tasks = recipe.at(scale).tasks(numbers)
    waiting = [] if finished_only else recipe.at(scale).keep(cases).tasks(numbers)
    failed = run_tasks(waiting, store, workspace=work_folder(out), engine=means, watch=progress)
    facts = {
        "seeds": len(numbers), "first_seed": numbers.start, "task_seconds": round(store.seconds(tasks), 1),
        "changes": recipe.differences(scale), "wall_seconds": round(time.monotonic() - began, 1),
        "failures": list(failed.values()), "unfinished": len(store.missing(tasks)) - len(failed),
    }  # fmt: skip
    outcome = StudyOutcome.of(recipe, scale, store.rows(tasks), facts)
    with results_folder(out, f"{recipe.name}/{scale}") as folder:
        outcome.save(folder)
        if len(outcome.findings.rows):
            outcome.draw(folder)
    return outcome


def check_studies(
    studies: Sequence[Study], scale: Scale | str, seeds: int | range | None, out: Path | str,
    cases: Sequence[str] = (),
) -> list[Study]:  # fmt: skip
    """Find before any training what would stop it; returns the studies that are not finished in `out`."""
    for study in studies:
        study.change(scale)  # knows the scale
        refuse_other_version(out, f"{study.name}/{scale}")
    store = Store.under(out)
    unfinished = [
        study
        for study in studies
        if store.missing(study.at(scale).keep(cases).tasks(study.seeds_at(scale, seeds)))
    ]
    check_data(study.at(scale).keep(cases) for study in unfinished)  # one that is finished needs no data
    return unfinished


def minutes_left(
    studies: Sequence[Study], scale: Scale | str, seeds: int | range | None, out: Path | str,
    cases: Sequence[str] = (),
) -> tuple[float, list[str]]:  # fmt: skip
    """What is not finished in `out`, in minutes on two cores, and the studies whose cost nobody has measured.

    A network that several studies share counts once, where the recipes' minutes count it.
    """
    store, left, unknown = Store.under(out), 0.0, list[str]()
    for study in studies:
        tasks = study.at(scale).keep(cases).tasks(study.seeds_at(scale, seeds))
        missing, minutes = len(store.missing(tasks)), study.change(scale).minutes
        if missing and minutes is None:
            unknown.append(study.name)
        left += (minutes or 0.0) * missing / len(study.at(scale).cases)
    return left, unknown
