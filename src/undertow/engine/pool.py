"""Tasks in processes of this machine, of which any may die without harm to the others.

    for task, answer in in_pool(todo, workspace, workers=2, memory=2_000_000_000):
        ...                              # as they finish

Each process has its share of the cores as maths threads, a pipe to here and one task at a time, so that a death
has one culprit: that task is tried once more in a fresh process, and one that kills its process twice has failed.
A task that runs out of the memory limit gets a second chance only if others used its process before it.
The standard library's pool would fail every waiting task with the first that dies.
"""

from __future__ import annotations

import os
import pickle
import signal
import time
from collections import Counter, deque
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from multiprocessing import connection, get_context, parent_process, resource_tracker
from pathlib import Path
from threading import Thread, current_thread, main_thread

from undertow.crew.limits import keep_freed_memory, limit_memory, ran_out, share_of_threads, use_threads
from undertow.engine.store import failure_words
from undertow.engine.sweep import Answers, TaskAnswer, attempt
from undertow.errors import RunProblem
from undertow.sizes import show_size
from undertow.studies.task import Task

DEATHS = 2
"""How many processes a task may kill before it counts as failed."""

PATIENCE = 5.0
"""Seconds for an idle process to end by itself."""


def in_pool(todo: list[Task], workspace: Path, *, workers: int, memory: int | None = None) -> Answers:
    """The answers of all tasks, as they finish."""
    size = min(workers, len(todo))
    pool = _Pool(todo, partial(Worker, workspace, share_of_threads(size), memory))
    try:
        for _ in range(size):
            pool.hire()
        yield from pool.answers()
    finally:
        pool.end()


class _Pool:
    """The processes and the tasks that wait for one."""

    def __init__(self, todo: list[Task], start: Callable[[], Worker]) -> None:
        self.start = start
        self.crew: list[Worker] = []
        self._leaving: list[Worker] = []
        self._waiting, self._deaths = deque(todo), Counter[str]()

    def hire(self) -> None:
        """One more process; a Ctrl-C meanwhile would leave one that nobody ends."""
        with _ctrl_c_later():
            self.crew.append(self.start())

    def answers(self) -> Answers:
        while self.crew:
            heard = connection.wait([worker.pipe for worker in self.crew])
            for worker in [one for one in self.crew if one.pipe in heard]:
                yield from self._hear(worker)

    def _hear(self, worker: Worker) -> Answers:
        task, answer = worker.task, worker.receive()
        final = answer or TaskAnswer([], worker.seconds, worker.death())
        again = task is not None and self._deserves_another(task, answer, worker)
        if task is not None and again:
            self._waiting.appendleft(task)
        self._occupy(worker, fresh=answer is None or answer.spent)
        # Last: whoever takes the answer may take long over it, and the worker need not wait for that.
        if task is not None and not again:
            yield task, final

    def _occupy(self, worker: Worker, *, fresh: bool) -> None:
        """Give the worker, or a fresh one in its place, the next task; let it go if there is none."""
        if self._waiting and not fresh:
            worker.give(self._waiting.popleft())
            return
        self.crew.remove(worker)
        self._leaving.append(worker)
        worker.dismiss()
        if self._waiting:
            self.hire()

    def _deserves_another(self, task: Task, answer: TaskAnswer | None, worker: Worker) -> bool:
        """Whether a fresh process might do better."""
        if answer is None:
            self._deaths[task.key] += 1
            return self._deaths[task.key] < DEATHS
        return answer.spent and worker.given > 1

    def end(self) -> None:
        for worker in self.crew:
            worker.end(now=True)
        for worker in self._leaving:
            worker.end()


class Worker:
    """One process, the pipe to it and what it is doing."""

    def __init__(self, workspace: Path, threads: int, memory: int | None) -> None:
        context = get_context("spawn")  # torch's threads do not survive a fork
        self.pipe, there = context.Pipe()
        self._process = context.Process(target=_serve, args=(there, workspace, threads, memory))
        self._process.start()
        there.close()  # or its death would not be heard here
        self.task: Task | None = None
        self.given = 0
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """Since its task was given."""
        return time.monotonic() - self._began

    def give(self, task: Task) -> None:
        """Hand it its next task."""
        self.task, self._began = task, time.monotonic()
        self.given += 1
        with suppress(OSError):  # it died meanwhile: the next thing heard of it says so
            self.pipe.send(task)

    def receive(self) -> TaskAnswer | None:
        """What it says: ready (an empty answer, before any task), an answer, or None if it is dead."""
        try:
            sent = self.pipe.recv_bytes()
        except (EOFError, OSError):
            self._leave()
            if self.task is None:
                raise RunProblem(
                    f"A worker process could not start ({self._how()}). In a script, call this under "
                    "`if __name__ == '__main__':`; or take --workers 1."
                ) from None
            return None
        try:
            return pickle.loads(sent)
        except Exception as error:  # rows of a type that cannot be made here are that task's own fault
            return TaskAnswer([], self.seconds, failure_words(error))

    def death(self) -> str:
        """Words for its death."""
        return f"its process died {DEATHS} times ({self._how()}). All other tasks went on."

    def _how(self) -> str:
        code = self._process.exitcode or 0
        if code >= 0:
            return f"exit code {code}"
        name = signal.Signals(-code).name
        return f"{name}: out of memory?" if name == "SIGKILL" else name

    def dismiss(self) -> None:
        """Let it end when it likes; a process that has loaded torch takes a second, for which nobody need wait."""
        self.pipe.close()

    def end(self, *, now: bool = False) -> None:
        """Wait until it has ended, or make it."""
        self.dismiss()
        if now:
            self._process.terminate()
        self._leave()
        self._process.close()

    def _leave(self) -> None:
        """Wait until its process has ended; one that cannot end is made to."""
        self._process.join(PATIENCE)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


@contextmanager
def _ctrl_c_later() -> Generator[None]:
    """Ctrl-C waits until the block is done, and never reaches a process that is started in it.

    A fresh Python takes a second to load, in which it would answer with a traceback from wherever it is: it inherits
    the mask, and has learned to ignore the signal (`_serve`) before anything lifts it.
    """
    if current_thread() is not main_thread() or not hasattr(signal, "pthread_sigmask"):
        yield  # elsewhere Python lets nobody choose what answers
        return
    resource_tracker.ensure_running()  # its own start would lift the mask
    heard: list[int] = []
    # Another thread of ours may hear it in spite of the mask, which is of one thread.
    before = signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, before)
    if heard:
        signal.raise_signal(signal.SIGINT)


def _serve(pipe: connection.Connection, workspace: Path, threads: int, memory: int | None) -> None:
    """The life of a worker process: say that it is ready, then answer tasks until the pipe closes."""
    # Ctrl-C reaches all processes; the first one ends the others
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()
    use_threads(threads)
    if memory is None:
        keep_freed_memory()
    else:
        limit_memory(memory)
    _say(pipe, TaskAnswer([], 0.0))
    while (task := _next(pipe)) is not None:
        answer = attempt(task, workspace) if memory is None else _attempt_within(task, workspace, memory)
        if not _say(pipe, answer):
            return


def _end_with_parent() -> None:
    """End at once when the process that asks dies: nobody would hear the answer, and a task may take hours."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _next(pipe: connection.Connection) -> Task | None:
    try:
        return pipe.recv()
    except (EOFError, OSError):
        return None


def _say(pipe: connection.Connection, answer: TaskAnswer) -> bool:
    """Send an answer; rows that cannot be sent are an error of their task. False if nobody listens."""
    try:
        pipe.send(answer)
    except OSError:
        return False
    except Exception as error:
        pipe.send(TaskAnswer([], answer.seconds, failure_words(error)))
    return True


def _attempt_within(task: Task, workspace: Path, memory: int) -> TaskAnswer:
    short: list[BaseException] = []

    def words(error: BaseException) -> str:
        if not ran_out(error):
            return failure_words(error)
        short.append(error)
        return f"needed more than {show_size(memory)}; raise --memory."

    answer = attempt(task, workspace, words)
    return replace(answer, spent=bool(short))
