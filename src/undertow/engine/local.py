"""Running tasks on this machine, in this process or in a pool.

    failed = run_local(tasks, Store(out / "tasks"), workspace=out, workers=2, watch=show)
    # {task: "why"} of those that failed; all others are in the store

A finished task is never run again, one bad task does not stop the rest, and each answer is in the store as
soon as it is there. In a pool the processes share the cores; a memory limit needs a process to hold to it, so
that with one even a single worker is a process of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from undertow.engine.store import Store
from undertow.engine.sweep import Answers, Progress, Watch, attempt, sweep
from undertow.studies.task import Task

__all__ = ["Progress", "Watch", "run_local"]


def run_local(
    tasks: Sequence[Task],
    store: Store,
    *,
    workspace: Path,
    workers: int = 1,
    memory: int | None = None,
    watch: Watch | None = None,
) -> dict[str, str]:
    """Run what is not done yet; returns why tasks failed, by their keys.

    Args:
        tasks: what to run; equal ones run once.
        store: where answers are kept.
        workspace: a folder that tasks keep their runs in.
        workers: processes; 1 is this one.
        memory: bytes that each task's process may take.
        watch: told after each task.
    """

    def run(todo: list[Task]) -> Answers:
        if memory is None and (workers == 1 or len(todo) < 2):
            return _in_process(todo, workspace)
        from undertow.engine.pool import in_pool

        return in_pool(todo, workspace, workers=workers, memory=memory)

    return sweep(tasks, store, run, watch)


def _in_process(todo: list[Task], workspace: Path) -> Answers:
    for task in todo:
        yield task, attempt(task, workspace)
