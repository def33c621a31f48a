"""Which engine runs the tasks of a sweep, and with what.

    engine = Engine()                                       # this machine, one process for each core
    engine = Engine(workers=4, memory="2GB")
    engine = Engine("ray", address="auto", cpus=2, gpus=1)
    with engine.session():                                  # one connection for several sweeps
        failed = run_tasks(tasks, Store(out / "tasks"), workspace=out, engine=engine, watch=show)

Settings are checked at once, before any work. Ray is imported only if it is chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from undertow.engine.limits import cores, parse_memory
from undertow.engine.store import Store
from undertow.engine.sweep import Answers, Watch, attempt, sweep
from undertow.errors import BadValue, UndertowError, unknown
from undertow.studies.task import Task

ENGINES = ("local", "ray")


class NeedsRay(UndertowError, ValueError):
    """A setting that the local engine does not have."""

    exit_code = 2


@dataclass(frozen=True)
class Engine:
    """An engine and what it may take.

    Args:
        name: local (processes of this machine) or ray (a cluster).
        workers: tasks at once; 0: local takes one process for each core, ray what the cluster has.
        memory: the most that one task's process may take, such as 2GB; ray reserves it on the node.
        address: ray's cluster: auto, HOST:PORT or ray://HOST:PORT; None starts one on this machine.
        cpus: of one task on ray; also its maths threads. 1 if not given.
        gpus: of one task on ray; a share such as 0.25 lets several have one.
    """

    name: str = "local"
    workers: int = 0
    memory: str | int | None = None
    address: str | None = None
    cpus: float | None = None
    gpus: float | None = None

    def __post_init__(self) -> None:
        if self.name not in ENGINES:
            raise unknown("engine", self.name, ENGINES)
        if self.workers < 0:
            raise BadValue("workers", "0 (chosen for you) or more", self.workers)
        for name in ("cpus", "gpus"):
            if (getattr(self, name) or 0) < 0:
                raise BadValue(name, "0 or more", getattr(self, name))
        for name in ("address", "cpus", "gpus"):
            if self.name != "ray" and getattr(self, name) is not None:
                raise NeedsRay(
                    f'{name} is a setting of the Ray engine. Add --engine ray (in Python: engine="ray").'
                )
        _ = self.memory_bytes

    @property
    def memory_bytes(self) -> int | None:
        """The memory limit as a number."""
        return None if self.memory is None else parse_memory(self.memory)

    def session(self) -> AbstractContextManager[None]:
        """Keep one connection for all sweeps in the block."""
        if self.name == "local":
            return nullcontext()
        from undertow.engine.ray_connection import connected

        return connected(self.address)


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
