"""How a training shows itself: a bar on a terminal, lines of JSON for machines, nothing in a pipe.

train(config, out, watch=watcher(json=False))
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from undertow.cli.screen import console, percent, print_json, thousands

if TYPE_CHECKING:
    from undertow.data.samples import DataSet
    from undertow.training.config import TrainConfig
    from undertow.training.loop import Watcher

REFRESH = 0.1
"""Seconds between two updates of the bar: a look at the clock is all that a step costs otherwise."""


def watcher(*, json: bool = False, quiet: bool = False) -> Watcher:
    """The way of showing progress that suits standard output."""
    if json:
        return JsonLines()
    return Silent() if quiet or not console().is_terminal else Bar()


class Silent:
    """Says nothing."""

    def begin(self, config: TrainConfig, data: DataSet, steps_per_epoch: int, done: int) -> None:
        """Nothing."""

    def step(self, epoch: int, step: int) -> None:
        """Nothing."""

    def epoch(self, row: dict[str, Any]) -> None:
        """Nothing."""

    def end(self, reason: str) -> None:
        """Nothing."""


class JsonLines(Silent):
    """One JSON object per epoch."""

    def epoch(self, row: dict[str, Any]) -> None:
        """Print the row."""
        print_json(row)

    def end(self, reason: str) -> None:
        """Print why it ended."""
        print_json({"ended": reason})


class Bar(Silent):
    """A bar with loss, accuracies, speed and the time left."""

    def begin(self, config: TrainConfig, data: DataSet, steps_per_epoch: int, done: int) -> None:
        """Draw the bar."""
        self._samples_per_step = len(data.train) / steps_per_epoch
        self._epochs, self._first = config.epochs, done * steps_per_epoch
        self._progress = Progress(
            TextColumn("epoch {task.fields[epoch]}/{task.fields[epochs]}"),
            BarColumn(bar_width=28),
            TextColumn("{task.fields[numbers]}"),
            TimeRemainingColumn(compact=True),
            console=console(),
        )
        self._task = self._progress.add_task(
            "train",
            total=config.epochs * steps_per_epoch,
            completed=self._first,
            epoch=done,
            epochs=config.epochs,
            numbers="",
        )
        self._progress.start()
        self._began, self._shown, self._numbers = time.monotonic(), 0.0, ""

    def step(self, epoch: int, step: int) -> None:
        """Move the bar, at most ten times a second."""
        if time.monotonic() - self._shown >= REFRESH:
            self._show(epoch, step)

    def _show(self, epoch: int, step: int) -> None:
        self._shown = time.monotonic()
        speed = (step - self._first) * self._samples_per_step / max(self._shown - self._began, 1e-9)
        numbers = f"{self._numbers}{thousands(round(speed))}/s"
        self._progress.update(self._task, completed=step, epoch=epoch, numbers=numbers)

    def epoch(self, row: dict[str, Any]) -> None:
        """Show the epoch's numbers."""
        loss = f"loss {row['train_loss']:.3f}  " if "train_loss" in row else ""
        fit = f"train {percent(row.get('train_accuracy'))}  " if "train_accuracy" in row else ""
        self._numbers = f"{loss}{fit}test {percent(row['test_accuracy'])}  "
        self._show(row["epoch"], row["step"])

    def end(self, reason: str) -> None:
        """Leave the finished bar on the screen."""
        self._progress.stop()
