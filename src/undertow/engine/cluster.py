"""Running tasks on a Ray cluster: an existing one, or one of this machine that ends with the work.

    failed = run_on_cluster(tasks, Store(out / "tasks"), workspace=out, address="auto", needs=Needs(cpus=1))

The caller keeps the answers, so that nodes need no common disk. A task whose process or node is lost is tried
again elsewhere; its answer comes once, or twice into the same file. Where the nodes see the caller's workspace
they train in it, else in their own cache: a run that is not there is trained again.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from undertow._version import __version__
from undertow.crew.nodes import Needs, check_needs, mark_of, marked
from undertow.crew.ray_connection import connected, load_ray
from undertow.engine.store import Store, failure_words
from undertow.engine.sweep import Answers, TaskAnswer, Watch, attempt, sweep
from undertow.errors import RunProblem
from undertow.studies.task import Task

RETRIES = 3
"""How often Ray tries a task again whose process or node was lost."""

AT_ONCE = 500
"""Tasks handed to Ray and not yet answered; the rest waits here, however many there are."""


@dataclass(frozen=True)
class Caller:
    """What a task's process is told of who called it."""

    version: str
    workspace: str
    token: str  # what lies in the workspace's mark, if it is the same folder there
    threads: int


def run_on_cluster(
    tasks: Sequence[Task],
    store: Store,
    *,
    workspace: Path,
    address: str | None = None,
    needs: Needs | None = None,
    at_once: int = AT_ONCE,
    watch: Watch | None = None,
) -> dict[str, str]:
    """Run what is not done yet; returns why tasks failed, by their keys.

    Args:
        tasks: what to run; equal ones run once.
        store: where answers are kept.
        workspace: a folder that tasks keep their runs in, where the nodes see it.
        address: the cluster; see `ray_connection.connected`.
        needs: what one task takes of a node.
        at_once: tasks handed to Ray at a time.
        watch: told after each task.
    """
    wanted = needs or Needs()

    def run(todo: list[Task]) -> Answers:
        with connected(address), marked(workspace) as token:
            check_needs(wanted)
            caller = Caller(__version__, str(workspace.resolve()), token, max(1, int(wanted.cpus)))
            yield from _on_cluster(todo, caller, wanted, at_once)

    return sweep(tasks, store, run, watch)


def _on_cluster(todo: list[Task], caller: Caller, needs: Needs, at_once: int) -> Answers:
    ray = load_ray()
    remote = ray.remote(attempt_there).options(
        num_cpus=needs.cpus, num_gpus=needs.gpus, memory=needs.memory, max_retries=RETRIES
    )
    todo_next, out = deque(todo), dict[Any, Task]()
    try:
        while todo_next or out:
            while todo_next and len(out) < at_once:
                task = todo_next.popleft()
                out[remote.remote(task, caller)] = task
            for ref in _ready(ray, list(out)):
                yield out.pop(ref), _answer(ray, ref)
    except ConnectionError as error:
        raise RunProblem(
            f"The Ray cluster was lost ({failure_words(error)}). What was finished is kept: run the command again."
        ) from error
    finally:
        for ref in out:
            with suppress(Exception):
                ray.cancel(ref, force=True)


def _ready(ray: Any, refs: list[Any]) -> list[Any]:
    """All that are there, at least one."""
    ray.wait(refs, num_returns=1)
    return ray.wait(refs, num_returns=len(refs), timeout=0)[0]


def _answer(ray: Any, ref: Any) -> TaskAnswer:
    try:
        return ray.get(ref)
    except ConnectionError:
        raise
    except ray.exceptions.RayTaskError as error:
        return TaskAnswer([], 0.0, failure_words(error.cause))
    except ray.exceptions.RayError as error:
        lost = f"its process or node was lost {RETRIES + 1} times ({type(error).__name__}: out of memory?)."
        return TaskAnswer([], 0.0, f"{lost} All other tasks went on.")


def attempt_there(task: Task, caller: Caller) -> TaskAnswer:
    """Run a task on a node; another undertow there would give answers under our version's name."""
    if caller.version != __version__:
        node = f"node {socket.gethostname()} has undertow {__version__}"
        return TaskAnswer([], 0.0, f"{node}, the caller {caller.version}. Install the same on all nodes.")
    from undertow.crew.limits import keep_freed_memory, use_threads

    use_threads(caller.threads)
    keep_freed_memory()
    return attempt(task, _workspace(caller))


def _workspace(caller: Caller) -> Path:
    """The caller's folder if this node sees the same one, else a folder of this machine."""
    folder = Path(caller.workspace)
    if mark_of(folder, caller.token).exists():
        return folder
    from undertow.files import cache_folder

    own = cache_folder() / "work"
    own.mkdir(parents=True, exist_ok=True)
    return own
