"""Jobs on the workers of a Ray cluster, each of which holds what all jobs need.

    with crew_of(holder, Engine("ray", address="auto", gpus=1)) as crew:   # holder.open(...) is what jobs are given
        for place, answer in crew.answers(jobs, tools):
            ...                                              # jobs[place](opened) was `answer`, as they finish

A worker is an actor: it loads models and samples once, and has one job at a time, so that a death has one culprit. The
job of a lost worker goes to another, and an answer is taken once. Workers are as many as the cluster has room for; on
GPUs one for each. One that is lost is replaced where a node has room. Whoever calls keeps the answers: nodes need no
common disk, and those that do not see the holder's folder are sent its files.
"""

from __future__ import annotations

import socket
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from undertow._version import __version__
from undertow.crew.engine import Engine
from undertow.crew.nodes import Needs, check_needs, mark_of, marked
from undertow.crew.ray_connection import connected, load_ray
from undertow.errors import RunProblem, UndertowError

Job = Callable[[Any], Any]
"""Can be sent, and is called with what the holder opens."""

DEATHS = 4
"""How many workers a job may lose before it is told."""


class Holder(Protocol):
    """What a worker holds, in a form that can be sent."""

    @property
    def folder(self) -> Path:
        """Where its files lie."""
        ...

    def files(self) -> dict[str, Path]:
        """Files by name, for nodes that do not see the folder."""
        ...

    def open(self, files: Mapping[str, bytes] | None, *, gpu: bool) -> Any:
        """What jobs are called with; from the files' content where the folder is not seen."""
        ...


@dataclass(frozen=True)
class Caller:
    """What a worker is told of who called it."""

    version: str
    token: str  # of the mark in the holder's folder
    threads: int
    gpu: bool


@dataclass(frozen=True)
class Asked:
    """Which job a worker has: of which call, and its place there."""

    spread: int
    place: int


BIRTH = Asked(0, 0)
"""Not a job: whether it can begin."""


class Worker:
    """Runs on a node, in a process of its own."""

    def __init__(self, holder: Holder, caller: Caller) -> None:
        self._holder, self._caller = holder, caller
        self._opened: Any = None
        self._equipped = 0

    def ready(self) -> str:
        """Nothing if it sees the folder, "files" if those must be sent; another undertow is told in words."""
        from undertow.crew.limits import use_threads

        if self._caller.version != __version__:
            node = f"node {socket.gethostname()} has undertow {__version__}"
            return f"{node}, the caller {self._caller.version}. Install the same on all nodes."
        use_threads(self._caller.threads)
        if not mark_of(self._holder.folder, self._caller.token).exists():
            return "files"
        self._opened = self._holder.open(None, gpu=self._caller.gpu)
        return ""

    def supply(self, files: Mapping[str, list[Any]]) -> str:
        """Take the content of the files, each of which lies in Ray's store."""
        ray = load_ray()
        content = {name: ray.get(ref) for name, (ref,) in files.items()}
        self._opened = self._holder.open(content, gpu=self._caller.gpu)
        return ""

    def do(self, job: Job, tools: tuple[int, list[Any]]) -> Any:
        """The job's answer; what a user can mend comes as a value, so that it keeps its type."""
        number, (ref,) = tools
        if number != self._equipped:  # once for all jobs that share them: tools may remember what they met
            self._opened.equip(load_ray().get(ref))
            self._equipped = number
        try:
            return job(self._opened)
        except UndertowError as error:
            return error

    def leave(self) -> None:
        """Remove what was sent."""
        self._opened.leave()


@contextmanager
def crew_of(holder: Holder, engine: Engine) -> Generator[Crew]:
    """Workers that stay for all jobs of the block; they start with the first."""
    needs = Needs(1.0 if engine.cpus is None else engine.cpus, engine.gpus or 0.0, engine.memory_bytes)
    with connected(engine.address), marked(holder.folder) as token:
        check_needs(needs)
        caller = Caller(__version__, token, max(1, int(needs.cpus)), needs.gpus > 0)
        crew = Crew(load_ray(), holder, caller, needs, engine.workers)
        try:
            yield crew
        except ConnectionError as error:
            raise RunProblem(
                f"The Ray cluster was lost ({type(error).__name__}). What was finished is kept: run the command again."
            ) from error
        finally:
            crew.end()


class Crew:
    """The workers, and who does what."""

    def __init__(self, ray: Any, holder: Holder, caller: Caller, needs: Needs, most: int) -> None:
        self._ray, self._caller, self._needs, self._most = ray, caller, needs, most
        self._holder = holder
        self._sent = ray.put(holder)
        self._files: dict[str, list[Any]] = {}
        self._workers: list[Any] = []
        self._waits: dict[Any, tuple[Any, Asked]] = {}  # what was asked, of whom
        self._idle: deque[Any] = deque()
        self._stillborn = 0
        self._spreads = 0

    def answers(self, jobs: Sequence[Job], tools: Any = None) -> Iterator[tuple[int, Any]]:
        """The answers of all jobs as they finish, each with the job's place in the sequence.

        Args:
            jobs: what to do.
            tools: what jobs share; workers equip what they hold with it.

        Raises:
            UndertowError: as a job raised it.
            RunProblem: a job lost one worker after the other, or none could start.
        """
        todo, deaths, left = deque(range(len(jobs))), Counter[int](), len(jobs)
        self._spreads += 1
        own = self._spreads
        shared = own, [self._ray.put(tools)]
        for _ in range(len(self._workers), min(self.room(), len(jobs))):
            self._start()
        while left:
            while todo and self._idle:
                place, worker = todo.popleft(), self._idle.popleft()
                self._waits[worker.do.remote(jobs[place], shared)] = (worker, Asked(own, place))
            for ref in self._finished():
                worker, asked = self._waits.pop(ref)
                try:
                    answer = self._ray.get(ref)
                except self._lost as error:
                    if asked is BIRTH:
                        self._check_births(error)
                    elif asked.spread == own:
                        deaths[asked.place] += 1
                        _check_deaths(deaths[asked.place], error)
                        todo.appendleft(asked.place)
                    self._replace(worker)
                    continue
                except Exception:
                    if asked is not BIRTH:
                        self._idle.append(worker)  # it is sound, whatever the job was
                    if asked in (BIRTH, Asked(own, asked.place)):
                        raise
                    continue
                self._heard(worker, asked, answer)
                # Whoever asked may have left before all had answered: what comes then is nobody's.
                if asked.spread == own:
                    if isinstance(answer, UndertowError):
                        raise answer
                    left -= 1
                    yield asked.place, answer

    def end(self) -> None:
        """Let all workers go; those that were sent files remove them first."""
        if self._files:
            with suppress(Exception):
                self._ray.get([worker.leave.remote() for worker in self._idle], timeout=10)
        for worker in self._workers:
            with suppress(Exception):
                self._ray.kill(worker)

    @property
    def _lost(self) -> tuple[type[Exception], ...]:
        errors = self._ray.exceptions
        return errors.RayActorError, errors.WorkerCrashedError, errors.ObjectLostError, errors.NodeDiedError

    def room(self) -> int:
        """How many workers all nodes have room for."""
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        room = max(1, sum(self._needs.times(one) for one in nodes))
        return min(room, self._most or room)

    def _start(self) -> None:
        needs = self._needs
        worker = self._ray.remote(Worker).options(
            num_cpus=needs.cpus, num_gpus=needs.gpus, memory=needs.memory, max_restarts=0
        ).remote(self._sent, self._caller)  # fmt: skip
        self._workers.append(worker)
        self._waits[worker.ready.remote()] = (worker, BIRTH)

    def _replace(self, worker: Any) -> None:
        """Another in place of one that was lost: it starts when a node has room, and nobody waits for it alone."""
        self._workers.remove(worker)
        self._start()

    def _check_births(self, error: Exception) -> None:
        """Workers of which none ever begins to work have all the same trouble: what they say is told."""
        self._stillborn += 1
        if self._stillborn >= DEATHS:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            raise RunProblem(
                f"No worker of the Ray cluster could start: {lines[-1] if lines else type(error).__name__}. Nodes need "
                "the same packages, and the code of your model where they can import it."
            ) from error

    def _finished(self) -> list[Any]:
        refs = list(self._waits)
        self._ray.wait(refs, num_returns=1)
        return self._ray.wait(refs, num_returns=len(refs), timeout=0)[0]

    def _heard(self, worker: Any, asked: Asked, answer: Any) -> None:
        if asked is BIRTH and answer:
            if answer != "files":
                raise answer if isinstance(answer, UndertowError) else RunProblem(answer)
            self._waits[worker.supply.remote(self._supplies())] = (worker, BIRTH)
            return
        self._stillborn = 0
        self._idle.append(worker)

    def _supplies(self) -> dict[str, list[Any]]:
        """The files in Ray's store, put there for the first node that needs them."""
        if not self._files:
            self._files = {
                name: [self._ray.put(path.read_bytes())] for name, path in self._holder.files().items()
            }
        return self._files


def _check_deaths(count: int, error: Exception) -> None:
    if count >= DEATHS:
        raise RunProblem(
            f"A worker was lost {count} times over the same job ({type(error).__name__}: out of memory?). What was "
            "finished is kept: give workers more memory, or fewer samples, and run the command again."
        ) from error
