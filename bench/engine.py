"""What an engine adds to the work of its tasks.

python bench/engine.py [--json FILE] [--skip-ray] [--epochs 20 60] [--rounds 3]

Overhead: 500 tasks that do nothing, in this process, in a pool of two processes and on a Ray cluster of this machine,
with and without the time that the engine needs to start (goal: under 20 ms a task in the pool, under 60 on Ray).
Sweep: 12 small trainings with one process and with two (goal: two are at least 1.7 times as fast on two cores), of
20 epochs and of 60, the demo's: medians of rounds in turn. A process loads torch for some seconds before it trains.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from statistics import median

from undertow.crew.limits import cores
from undertow.engine import Engine, Store, run_tasks
from undertow.studies.task import Rows, Task

EMPTY, TRAININGS = 500, 12
ENGINES = {
    "in process": Engine(workers=1),
    "pool of 2": Engine(workers=2),
    "ray, this machine": Engine("ray"),
}


def nothing(number: int, workspace: Path) -> Rows:
    return [{"number": number}]


def empty_tasks(count: int) -> list[Task]:
    return [Task("engine:nothing", {"number": number}) for number in range(count)]


def small_trainings(epochs: int) -> list[Task]:
    """The demo's network; with its 60 epochs some four seconds of one core each."""
    config = {"model": "mlp:256-256-256", "data": "digits", "epochs": epochs, "device": "cpu"}
    plan = {"case": "bench", "actions": [], "measure": "engine:last_accuracy", "options": {}}
    return [
        Task(
            "undertow.studies.train_and_measure:train_and_measure",
            {**plan, "seed": seed, "config": {**config, "seed": seed}},
        )
        for seed in range(TRAININGS)
    ]


def last_accuracy(run, case: str, seed: int) -> Rows:
    return [{"test_accuracy": run.metrics.test_accuracy.iloc[-1]}]


def seconds(tasks: list[Task], engine: Engine) -> tuple[float, float]:
    """Whole, and a task once the engine has started: after the first answer of each process."""
    told: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        store, began = Store.under(folder), time.perf_counter()
        failed = run_tasks(
            tasks,
            store,
            workspace=Path(folder),
            engine=engine,
            watch=lambda _: told.append(time.perf_counter()),
        )
        assert not failed, next(iter(failed.values()))
        assert len(store.rows(tasks)) == len(tasks)
    crew = engine.workers or 1
    return told[-1] - began, (told[-1] - told[crew - 1]) / (len(told) - crew)


def overheads(names: list[str]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for name in names:
        whole, running = seconds(empty_tasks(EMPTY), ENGINES[name])
        rows.append(
            {
                f"{EMPTY} empty tasks": name,
                "whole s": round(whole, 2),
                "ms a task": round(1e3 * whole / EMPTY, 2),
                "ms a task, started": round(1e3 * running, 2),
            }
        )
    return rows


def speed_up(epochs: int, rounds: int) -> dict[str, object]:
    """One process of one thread against two: more threads for the one would hide what the second process gives."""
    os.environ["OMP_NUM_THREADS"] = "1"
    tasks, crews = small_trainings(epochs), (Engine(workers=1, memory="8GB"), Engine(workers=2))
    # The memory limit puts the one into a process too.
    taken = [[seconds(tasks, crew) for crew in crews] for _ in range(rounds)]
    (one, one_running), (two, two_running) = (
        map(median, zip(*each, strict=True)) for each in zip(*taken, strict=True)
    )
    return {
        f"{TRAININGS} trainings": f"{epochs} epochs each, {cores()} cores",
        "one process s": round(one, 1),
        "two processes s": round(two, 1),
        "speed-up": round(one / two, 2),
        "speed-up, started": round(one_running / two_running, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--skip-ray", action="store_true")
    parser.add_argument("--epochs", type=int, nargs="+", default=[20, 60])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    # Here, not above: it loads torch, and each worker process loads this script.
    from _ratio import report

    report(overheads([name for name in ENGINES if not (options.skip_ray and "ray" in name)]), options.json)
    print()
    report([speed_up(epochs, options.rounds) for epochs in options.epochs])


if __name__ == "__main__":
    main()
