"""The tasks of a sweep on the engine that was chosen.

with engine.session():                                  # one connection for several sweeps
    failed = run_tasks(tasks, Store(out / "tasks"), workspace=out, engine=engine, watch=show)
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from undertow.crew.engine import Engine
from undertow.crew.limits import cores
from undertow.engine.store import Store
from undertow.engine.sweep import Answers, Watch, attempt, sweep
from undertow.studies.task import Task


def run_tasks(
    tasks: Sequence[Task], store: Store, *, workspace: Path, engine: Engine, watch: Watch | None = None
) -> dict[str, str]:
    """Run what is not done yet on the engine; returns why tasks failed, by their keys."""
    if engine.name == "local":
        workers, memory = engine.workers or cores(), engine.memory_bytes
        return run_local(tasks, store, workspace=workspace, workers=workers, memory=memory, watch=watch)
    from undertow.engine.cluster import AT_ONCE, Needs, run_on_cluster

    needs = Needs(1.0 if engine.cpus is None else engine.cpus, engine.gpus or 0.0, engine.memory_bytes)
    at_once, address = engine.workers or AT_ONCE, engine.address
    return run_on_cluster(
        tasks, store, workspace=workspace, address=address, needs=needs, at_once=at_once, watch=watch
    )


def run_local(
    tasks: Sequence[Task], store: Store, *, workspace: Path, workers: int = 1, memory: int | None = None,
    watch: Watch | None = None,
) -> dict[str, str]:  # fmt: skip
    """Run what is not done yet on this machine; returns why tasks failed, by their keys.

    Args:
        tasks: what to run; equal ones run once.
        store: where answers are kept.
        workspace: a folder that tasks keep their runs in.
        workers: processes, which share the cores; 1 is this one.
        memory: bytes that each task may take: even a single worker is then a process of its own.
        watch: told after each task.
    """

    def run(todo: list[Task]) -> Answers:
        if memory is None and (workers == 1 or len(todo) < 2):
            return ((task, attempt(task, workspace)) for task in todo)
        from undertow.engine.pool import in_pool

        return in_pool(todo, workspace, workers=workers, memory=memory)

    return sweep(tasks, store, run, watch)
