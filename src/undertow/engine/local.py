"""Running tasks on this machine, in this process or in a pool.

    failed = run_local(tasks, Store(out / "tasks"), workspace=out, workers=2, watch=show)
    # {task: "why"} of those that failed; all others are in the store

A finished task is never run again, one bad task does not stop the rest, and each answer is in the store as
soon as it is there. In a pool every process has one maths thread: two on busy cores collapse.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from undertow.engine.store import Store, failure_words
from undertow.studies.task import Task


@dataclass(frozen=True)
class Progress:
    """What a watcher is told after each task."""

    task: Task
    done: int
    total: int
    seconds: float
    error: str | None = None


Watch = Callable[[Progress], None]


def run_local(
    tasks: Sequence[Task], store: Store, *, workspace: Path, workers: int = 1, watch: Watch | None = None
) -> dict[str, str]:
    """Run what is not done yet; returns why tasks failed, by their keys."""
    todo = list({task.key: task for task in tasks if not store.has(task)}.values())
    failed: dict[str, str] = {}
    finished = _in_process if workers == 1 or len(todo) < 2 else _in_pool
    for count, (task, seconds, error) in enumerate(finished(todo, store, workspace, workers), start=1):
        if error is not None:
            failed[task.key] = error
            store.fail(task, error)
        if watch:
            watch(Progress(task, count, len(todo), seconds, error))
    return failed


Finished = tuple[Task, float, "str | None"]


def _in_process(todo: list[Task], store: Store, workspace: Path, workers: int) -> Iterator[Finished]:
    for task in todo:
        yield task, *attempt(task, store, workspace)


def _in_pool(todo: list[Task], store: Store, workspace: Path, workers: int) -> Iterator[Finished]:
    context = get_context("spawn")  # torch's threads do not survive a fork
    with ProcessPoolExecutor(min(workers, len(todo)), context, _one_thread) as pool:
        waiting = {pool.submit(attempt, task, store, workspace): task for task in todo}
        for future in as_completed(waiting):
            yield waiting[future], *_answer(future)


def _answer(future: Future[tuple[float, str | None]]) -> tuple[float, str | None]:
    try:
        return future.result()
    except BrokenProcessPool:
        return 0.0, "its process was killed (out of memory?); run the command again"


def attempt(task: Task, store: Store, workspace: Path) -> tuple[float, str | None]:
    """Run one task and store its answer; returns the seconds and what went wrong."""
    began = time.monotonic()
    try:
        rows = task.run(workspace)
        store.keep(task, rows, time.monotonic() - began)
    except Exception as error:
        return time.monotonic() - began, failure_words(error)
    return time.monotonic() - began, None


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)
