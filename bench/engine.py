"""What an engine adds to the work of its tasks.

python bench/engine.py [--json FILE] [--skip-ray] [--epochs 20 60] [--rounds 3]
python bench/engine.py --part audit [--rounds 3]

Overhead: 500 tasks that do nothing, in this process, in a pool of two processes and on a Ray cluster of this machine,
with and without the time that the engine needs to start (goal: under 20 ms a task in the pool, under 60 on Ray).
Sweep: 12 small trainings with one process and with two (goal: two are at least 1.7 times as fast on two cores), of
20 epochs and of 60, the demo's: medians of rounds in turn. A process loads torch for some seconds before it trains.
Audit (`--part audit`): the same audit in one process of one thread and on two workers of one core each, once all have
started and audited a little (goal: at least 1.7 times as fast). On a busy machine the clock says little; what the
processor did for each process says what the clock would at best: the longest of them, or half of all.
"""

from __future__ import annotations

import argparse
import copy
import os
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import undertow as ut
from undertow.crew.limits import cores
from undertow.engine import Engine, Store, run_tasks
from undertow.session import Session
from undertow.studies.task import Rows, Task

if TYPE_CHECKING:
    from torch import Tensor, nn

    from undertow.training.run import Run

    Pair = tuple[Tensor, Tensor]

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


# ---------------------------------------------------------------------- an audit on two workers

CHECKPOINTS, LAYERS, SAMPLES = 12, 4, 4000


AUDIT = {"probes": ("masc", "velpic", "lda"), "lenses": ("latent", "richness")}


class Spent:
    """A job: processor seconds of the process that it runs in; each worker gets one, as it waits for all to come."""

    def __init__(self, meeting: str, count: int) -> None:
        self.meeting, self.count = meeting, count

    def __call__(self, session: Session) -> tuple[int, float]:
        warm_up(session)
        found = os.getpid(), time.process_time()
        (Path(self.meeting) / str(found[0])).touch()
        while len(list(Path(self.meeting).iterdir())) < self.count:
            time.sleep(0.01)
        return found


def audited_run(folder: Path) -> tuple[Run, Pair, Pair]:
    """A network whose probes take seconds at each checkpoint; what it learned does not matter here."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    parts = [part for at in range(LAYERS) for part in (nn.Linear(512 if at else 64, 512), nn.ReLU())]
    model, centres = nn.Sequential(*parts, nn.Linear(512, 10)), torch.randn(10, 64)

    def some(count: int) -> Pair:
        y = torch.arange(count) % 10
        return centres[y] + torch.randn(count, 64), y

    train, test = some(SAMPLES), some(SAMPLES // 4)
    optimiser = torch.optim.Adam(model.parameters(), 1e-3)
    with ut.Recorder(folder) as recorder:
        for at in range(CHECKPOINTS):
            recorder.save(model, at)
            for rows in torch.randperm(SAMPLES).split(250):
                nn.functional.cross_entropy(model(train[0][rows]), train[1][rows]).backward()
                optimiser.step()
                optimiser.zero_grad()
    return ut.open_run(folder, model=_Same(model)), train, test


class _Same:
    """Builds a copy of a model; can be sent."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def __call__(self) -> nn.Module:
        return copy.deepcopy(self.model)


def warm_up(session: Session) -> None:
    """A small audit, so that all libraries are there; the first only."""
    import torch

    def small() -> bool:
        few = [one.take(torch.arange(100)) for one in (session.samples.train, session.samples.test) if one]
        with tempfile.TemporaryDirectory() as place:
            ut.audit(session.run, *((one.x, one.y) for one in few), checkpoints="last", out=place, **AUDIT)
        return True

    session.held("warm", small)


def audit_on_two(rounds: int) -> list[dict[str, object]]:
    import torch

    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        run, train, test = audited_run(Path(folder) / "run")
        warm_up(Session(run, train, test, out=Path(folder) / "warm"))
        for number in range(rounds):
            here, here_spent = _audited(Session(run, train, test, out=Path(folder) / f"here-{number}"))
            far = Session(run, train, test, out=Path(folder) / f"far-{number}", engine="ray")
            with far.working():
                before = _of_workers(far, Path(folder) / f"a{number}")
                wall, driver = _audited(far)
                after = _of_workers(far, Path(folder) / f"b{number}")
            workers = [after[pid] - before[pid] for pid in before]
            best = max(*workers, driver, (sum(workers) + driver) / cores())
            rows.append({
                "audit": f"{CHECKPOINTS} checkpoints, {LAYERS} layers, {SAMPLES:,} samples",
                "here s": round(here, 1), "on two s": round(wall, 1), "speed-up": round(here / wall, 2),
                "processor s here": round(here_spent, 1), "driver": round(driver, 1),
                "workers": " + ".join(f"{one:.1f}" for one in workers),
                "speed-up at best": round(here_spent / best, 2),
            })  # fmt: skip
    return rows


def _audited(session: Session) -> tuple[float, float]:
    began = time.perf_counter(), time.process_time()
    ut.audit(session, **AUDIT)
    return time.perf_counter() - began[0], time.process_time() - began[1]


def _of_workers(session: Session, meeting: Path) -> dict[int, float]:
    """Processor seconds so far of each worker; starts them if need be."""
    meeting.mkdir()
    job = Spent(str(meeting), cores())
    return dict(found for _, found in session.spread([job] * cores()))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--skip-ray", action="store_true")
    parser.add_argument("--epochs", type=int, nargs="+", default=[20, 60])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--part", choices=("tasks", "audit"), default="tasks")
    options = parser.parse_args()
    if options.part == "audit":
        from _ratio import report

        report(audit_on_two(options.rounds), options.json)
        return
    # Here, not above: it loads torch, and each worker process loads this script.
    from _ratio import report

    report(overheads([name for name in ENGINES if not (options.skip_ray and "ray" in name)]), options.json)
    print()
    report([speed_up(epochs, options.rounds) for epochs in options.epochs])


if __name__ == "__main__":
    main()
