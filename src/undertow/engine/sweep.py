"""What all engines share: a task's answer, and keeping answers as they come.

    answer = attempt(task, workspace)                     # never raises: an error is kept in words
    failed = sweep(tasks, store, run, watch=show)         # `run` yields (task, answer) in any order

The process that called keeps the answers, whoever computed them: no worker needs the store's disk, and an
answer that comes twice is the same file. One bad task does not stop the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from undertow.engine.store import Store, failure_words
from undertow.errors import FOREIGN, RunProblem
from undertow.studies.task import Rows, Task


@dataclass(frozen=True)
class TaskAnswer:
    """What came of a task: rows, or why there are none."""

    rows: Rows
    seconds: float
    error: str | None = None
    spent: bool = False  # the process ran out of its memory: what comes next deserves a fresh one


@dataclass(frozen=True)
class SweepProgress:
    """What a watcher is told after each task."""

    task: Task
    done: int
    total: int
    seconds: float
    error: str | None = None


Watch = Callable[[SweepProgress], None]
Answers = Generator[tuple[Task, TaskAnswer]]


def attempt(task: Task, workspace: Path, words: Callable[[BaseException], str] = failure_words) -> TaskAnswer:
    """Run one task; an error becomes words."""
    began = time.monotonic()
    try:
        rows = task.run(workspace)
    except FOREIGN as error:
        return TaskAnswer([], time.monotonic() - began, words(error))
    return TaskAnswer(rows, time.monotonic() - began)


def sweep(
    tasks: Sequence[Task], store: Store, run: Callable[[list[Task]], Answers], watch: Watch | None = None
) -> dict[str, str]:
    """Run what is not done yet and keep each answer as it comes; returns why tasks failed, by their keys."""
    store.claim()
    todo = store.missing(tasks)
    failed: dict[str, str] = {}
    if not todo:
        return failed
    # Closed by us, not whenever the garbage is collected: its processes must end with the sweep.
    with closing(run(todo)) as answers:
        for count, (task, answer) in enumerate(answers, start=1):
            error = _keep(store, task, answer)
            if error is not None:
                failed[task.key] = error
            if watch:
                watch(SweepProgress(task, count, len(todo), answer.seconds, error))
    return failed


def _keep(store: Store, task: Task, answer: TaskAnswer) -> str | None:
    error = answer.error
    if error is None:
        try:
            store.keep(task, answer.rows, answer.seconds)
        except (OSError, RunProblem):  # a full disk or a place that is gone is not the task's fault
            raise
        except Exception as problem:  # rows that no table can hold are
            error = failure_words(problem)
    if error is not None:
        store.fail(task, error)
    return error
