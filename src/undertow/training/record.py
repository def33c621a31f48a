"""Keeping checkpoints of anyone's training loop, without holding it up.

    recorder = Recorder("runs/mine")
    for epoch in range(100):
        train_one_epoch(model, loader)
        recorder.save(model, epoch, test_accuracy=accuracy)
    recorder.close()                       # waits for the last file; also done when the process ends

`save` copies the weights and returns; one thread writes the files in order, aside and renamed. At most two
copies wait in memory. A failed write is raised by the next `save`, by all after it and by `close`. Each
file carries its own metrics, so that a killed process loses at most the checkpoints still waiting.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import torch
from torch import Tensor, nn

from undertow.data.plain import tensor_kind
from undertow.errors import BadValue, RunProblem
from undertow.files import aside
from undertow.outputs import as_path
from undertow.sizes import check_whole
from undertow.stored.archives import seal_archive
from undertow.stored.tables import METRICS, read_rows, write_table
from undertow.stored.tensors import storable, write_tensors
from undertow.training.facts import RunFacts, run_mark
from undertow.training.own_checkpoint import checkpoint_path, checkpoint_words
from undertow.training.schedule import Unit

METRICS_EVERY = 1.0
"""Seconds between two writings of metrics.parquet; the files of the checkpoints carry the same numbers."""
MOST_WAITING = 2
"""Copies of a model that wait in memory at most."""


class Writer:
    """Does jobs in order in a thread of its own; a failed job is raised to whoever comes next."""

    def __init__(self) -> None:
        self._jobs = _Jobs()
        # Runs when the writer is forgotten or the process ends, whichever is first.
        self._finish = weakref.finalize(self, _stop, self._jobs)

    def do(self, job: Callable[[], None]) -> None:
        """Queue a job; waits while two are waiting already."""
        if self._jobs.elsewhere:
            raise RunProblem(
                f"This recorder belongs to process {self._jobs.process}, of which this one is a fork: only that one "
                "writes. Save there, or make a Recorder of another folder here."
            )
        self._raise_failure()
        if not self.open:
            raise RunProblem("This recorder is closed. Make a new one to go on recording.")
        self._jobs.put(job)

    @property
    def open(self) -> bool:
        """Whether jobs are still taken."""
        return self._finish.alive and not self._jobs.elsewhere

    def close(self) -> None:
        """Wait for all jobs and raise what went wrong; a forked process has nothing to wait for."""
        if self._jobs.elsewhere:
            return
        if self._finish.detach():
            self._jobs.drain()
        self._raise_failure()

    def _raise_failure(self) -> None:
        if self._jobs.failures:
            raise self._jobs.failures[0]


class _Jobs:
    """Jobs that wait, and a thread that lives as long as there are any: a recorder at rest leaves nothing behind."""

    def __init__(self) -> None:
        self.failures: list[Exception] = []
        self.process = os.getpid()
        self._waiting: deque[Callable[[], None]] = deque()
        self._changed = threading.Condition()
        self._busy = False

    @property
    def elsewhere(self) -> bool:
        """Whether this is a forked copy: the thread is in the other process, and so may be the lock's holder."""
        return os.getpid() != self.process

    def put(self, job: Callable[[], None]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: len(self._waiting) < MOST_WAITING)
            self._waiting.append(job)
            if self._busy:
                return
            self._busy = True
        try:
            # No daemon: a process that ends waits for what is not written yet, and none dies within a library.
            threading.Thread(target=self._work, name="undertow-writer").start()
        except RuntimeError:  # an interpreter that ends starts no threads
            self._work()

    def drain(self) -> None:
        """Wait until nothing is left to do."""
        with self._changed:
            self._changed.wait_for(lambda: not self._busy)

    def _work(self) -> None:
        while (job := self._next()) is not None:
            try:
                if not self.failures:  # what follows a failed write would leave a gap before it
                    job()
            except Exception as error:  # the error belongs to the thread that asked for the job
                self.failures.append(error)

    def _next(self) -> Callable[[], None] | None:
        """The next job; without any the thread ends."""
        with self._changed:
            job = self._waiting.popleft() if self._waiting else None
            self._busy = job is not None
            self._changed.notify_all()
            return job


def _stop(jobs: _Jobs) -> None:
    """End a writer that nobody closed; nobody is left to raise to, so a failure is printed."""
    if jobs.elsewhere:
        return
    jobs.drain()
    if jobs.failures:
        print(f"undertow: {jobs.failures[0]}", file=sys.stderr)  # noqa: T201


def _whole(unit: Unit, number: object) -> int:
    if not hasattr(number, "__index__") or int(number) < 0:  # type: ignore[call-overload]
        raise BadValue(f"Recorder.save({unit}=...)", "a whole number from 0 on", number)
    check_whole(f"Recorder.save({unit}=...)", found := int(number), 0)  # type: ignore[call-overload]
    return found


def _number(name: str, value: object) -> float:
    if not name.isascii() and name != name.encode(errors="replace").decode():
        raise BadValue("Recorder.save", "names of metrics that are text", name)
    if isinstance(value, Tensor) and (kind := tensor_kind(value)):
        raise BadValue(f"Recorder.save({name}=...)", "a number", f"a {kind} tensor")
    try:
        return float(value)  # type: ignore[arg-type]
    except OverflowError:
        raise BadValue(f"Recorder.save({name}=...)", "a number that fits a float", "a larger one") from None
    except (TypeError, ValueError, RuntimeError):
        raise BadValue(f"Recorder.save({name}=...)", "a number", value) from None


def _kept_rows(path: Path) -> list[dict[str, Any]]:
    """The metrics that an earlier recorder left in the folder."""
    table = path / "metrics.parquet"
    return read_rows(table, METRICS, owner=run_mark(path)) if table.exists() else []


class Recorder:
    """Writes checkpoints and metrics of one run into a folder."""

    def __init__(
        self, path: str | Path, *, facts: RunFacts | None = None, metrics: list[dict[str, Any]] | None = None
    ) -> None:
        """Open or make the folder.

        Args:
            path: the run's folder.
            facts: what made the run; without it an existing run.json is kept, or a plain one written.
            metrics: rows to begin with, when a run is resumed.
        """
        self.path = as_path(path, "Recorder")
        self.rows: list[dict[str, Any]] = _kept_rows(self.path) if metrics is None else metrics
        kept = RunFacts.read(self.path) if facts is None and (self.path / "run.json").exists() else None
        self.facts = kept or facts or RunFacts.of_this_machine()
        if kept is None:
            self.facts.write(self.path)
        self._folder = self.path.stat().st_ino
        self._writer = Writer()
        self._metrics_due = 0.0

    def save(
        self, model: nn.Module, epoch: int | None = None, *, step: int | None = None, **metrics: float
    ) -> None:
        """Keep the weights of `model` as they are now, with any numbers that belong to them.

        A second save of the same epoch takes the place of the first, as a loop that was restarted needs it.
        """
        if (epoch is None) == (step is None):
            raise BadValue("Recorder.save", "an epoch or a step", f"epoch={epoch}, step={step}")
        if not isinstance(model, nn.Module):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise BadValue("Recorder.save", "the model, an nn.Module", type(model).__name__)
        unit: Unit = "epoch" if step is None else "step"
        at = _whole(unit, step if epoch is None else epoch)
        row = {unit: at, **{name: _number(name, value) for name, value in metrics.items()}}
        self.keep(snapshot(model), unit, at, row)
        self.rows[:] = [*(other for other in self.rows if other.get(unit) != at), row]
        self.write_metrics()

    def add(self, unit: Unit, at: int, numbers: Mapping[str, float]) -> None:
        """More numbers of a moment that was saved, found later; the checkpoint's file has those of before."""
        found = {name: _number(name, value) for name, value in numbers.items()}
        self.rows[:] = [row | found if row.get(unit) == at else row for row in self.rows]
        self.write_metrics(now=True)

    def keep(self, weights: dict[str, Tensor], unit: Unit, at: int, row: Mapping[str, Any]) -> None:
        """Write weights that nobody else will change."""
        path = checkpoint_path(self.path, unit, at)
        words = checkpoint_words(unit, at, row, self.facts.id)
        self.do(lambda: write_tensors(path, weights, words))

    def write_metrics(self, *, now: bool = False) -> None:
        """Write metrics.parquet if it is due."""
        if now or time.monotonic() >= self._metrics_due:
            self._metrics_due = time.monotonic() + METRICS_EVERY
            rows, path = list(self.rows), self.path / "metrics.parquet"
            self.do(lambda: write_table(path, rows, self.facts.id))

    def do(self, job: Callable[[], object]) -> None:
        """Queue any other write behind those before it."""
        self._writer.do(lambda: self._still_there(job))

    def _still_there(self, job: Callable[[], object]) -> None:
        """Do a job in the folder that the recorder began; a folder in its place would hold half a run."""
        self._check_folder()
        job()
        self._check_folder()

    def _check_folder(self) -> None:
        try:
            same = self.path.stat().st_ino == self._folder and (self.path / "run.json").exists()
        except OSError:
            same = False
        if not same:
            raise RunProblem(
                f"{self.path} was moved or deleted while its run was written. What was saved went with it: train anew, "
                "or bring the folder back and go on with --resume."
            )

    def close(self) -> None:
        """Wait until everything is on disk."""
        try:
            if self.rows and self._writer.open:
                self.write_metrics(now=True)
        finally:
            self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def snapshot(model: nn.Module) -> dict[str, Tensor]:
    """A copy of the state dict on the CPU; tied weights are stored once per name."""
    copies: dict[str, Tensor] = {}
    for name, value in model.state_dict().items():
        if not isinstance(value, Tensor):
            raise BadValue(
                f"checkpoint entry {name!r}",
                "a tensor",
                type(value).__name__,
                "Remove the module's get_extra_state or save that part yourself.",
            )
        if kind := tensor_kind(value):
            raise BadValue(
                f"checkpoint entry {name!r}", "a dense tensor that holds numbers", f"a {kind} one",
                "Give the model numbers, or save that part yourself.",
            )  # fmt: skip
        if not storable(value.dtype):
            raise BadValue(
                f"checkpoint entry {name!r}", "numbers of a type that safetensors holds", str(value.dtype)
            )
        copies[name.removeprefix("_orig_mod.")] = value.detach().to("cpu", copy=True).contiguous()
    return copies


def save_state(path: Path, state: dict[str, Any], owner: str = "") -> None:
    """Write what a resumed run needs, readable with `weights_only=True`, sealed, with the mark of the run."""
    with aside(path) as part:
        with part.open("wb") as file:
            stream = _Honest(file)
            try:
                torch.save(state, stream)  # pyright: ignore[reportArgumentType]
            except RuntimeError:
                if stream.failure is not None:
                    raise stream.failure from None
                raise
        seal_archive(part, owner)


class _Honest:
    """A file whose failure is kept: torch would only say that something about its archive went wrong."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.failure = file, None

    def write(self, content: Any) -> int:
        try:
            return self._file.write(content)
        except OSError as error:
            self.failure: OSError | None = error
            raise

    def flush(self) -> None:
        try:
            self._file.flush()
        except OSError as error:
            self.failure = error
            raise
