"""Which engine does the work, and with what.

    engine = Engine()                                       # this machine
    engine = Engine(workers=4, memory="2GB")                # of a sweep: one process for each worker
    engine = Engine("ray", address="auto", cpus=2, gpus=1)
    with engine.session(): ...                              # one connection for several sweeps

Settings are checked at once, before any work. Ray is imported only if it is chosen.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from undertow.crew.limits import parse_memory
from undertow.errors import BadValue, UndertowError, unknown

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
        from undertow.crew.ray_connection import connected

        return connected(self.address)
