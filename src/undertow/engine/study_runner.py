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
    seeds: int | range = 1,
    out: Path | str = "studies",
    engine: str = "local",
    workers: int = 1,
    memory: str | int | None = None,
    address: str | None = None,
    cpus: float | None = None,
    gpus: float | None = None,
    progress: Watch | None = None,
) -> StudyOutcome:
    """Train and measure what a study declares, set it against its paper, and write it into OUT/NAME/SCALE.

    Args:
        study: a study or its name, such as "richness/target-scale"; `undertow.studies.STUDIES` has all names.
        scale: smoke (seconds), laptop (minutes) or paper (a GPU).
        seeds: so many from 0 on, or a range of them.
        out: a folder, or a URL such as s3://bucket/studies. Finished tasks in it are not run again.
        engine: local (this machine) or ray (a cluster).
        workers: tasks at once. 1 is this process; 0 takes one for each core, or all that a cluster has.
            With more than 1, call it in a script under `if __name__ == "__main__":`.
        memory: the most that one task may take, such as 2GB.
        address: Ray's cluster: auto, HOST:PORT or ray://HOST:PORT. None starts one on this machine.
        cpus: for one task on Ray.
        gpus: for one task on Ray; 0.25 lets four share one.
        progress: called after each task with its label, how many are done, its seconds and its error.

    Returns:
        The outcome: rows, comparison with the paper, verdicts on its claims. A task that failed stops no other;
        `failures` says why.

    Raises:
        NotThere: data that the study needs is missing; nothing was trained.
        RunProblem: `out` holds results of another version, or cannot be written.
    """
    recipe = find_study(study) if isinstance(study, str) else study
    means = Engine(engine, workers=workers, memory=memory, address=address, cpus=cpus, gpus=gpus)
    check_studies([recipe], scale, seeds, out)
    began, store = time.monotonic(), Store.under(out)
    tasks = recipe.at(scale).tasks(seeds)
    failed = run_tasks(tasks, store, workspace=work_folder(out), engine=means, watch=progress)
    numbers = seeds if isinstance(seeds, range) else range(seeds)
    facts = {
        "seeds": len(numbers), "first_seed": numbers.start, "task_seconds": round(store.seconds(tasks), 1),
        "changes": recipe.differences(scale), "wall_seconds": round(time.monotonic() - began, 1),
        "failures": list(failed.values()),
    }  # fmt: skip
    outcome = StudyOutcome.of(recipe, scale, store.rows(tasks), facts)
    with results_folder(out, f"{recipe.name}/{scale}") as folder:
        outcome.save(folder)
        if len(outcome.findings.rows):
            outcome.draw(folder)
    return outcome


def check_studies(
    studies: Sequence[Study], scale: Scale | str, seeds: int | range, out: Path | str
) -> list[Study]:
    """Find before any training what would stop it; returns the studies that are not finished in `out`."""
    for study in studies:
        study.change(scale)  # knows the scale
        refuse_other_version(out, f"{study.name}/{scale}")
    store = Store.under(out)
    unfinished = [study for study in studies if store.missing(study.at(scale).tasks(seeds))]
    check_data(study.at(scale) for study in unfinished)  # one that is finished needs no data
    return unfinished
