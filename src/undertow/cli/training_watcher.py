"""How a training shows itself: the numbers of its epochs beside the bar, or lines of JSON.

train(config, out, watch=TrainingWatcher(ProgressBar(stays=True)))
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from undertow.cli.progress import ProgressBar
from undertow.cli.screen import percent, print_json, thousands

if TYPE_CHECKING:
    from undertow.data.samples import DataSet
    from undertow.training.config import TrainConfig


class TrainingWatcher:
    """A training: epoch, loss, accuracies and speed beside the bar, or a line of JSON for each epoch."""

    def __init__(self, bar: ProgressBar | None = None, *, json: bool = False) -> None:
        self._bar, self._json = bar or ProgressBar(quiet=True), json

    def begin(self, config: TrainConfig, data: DataSet, steps_per_epoch: int, done: int) -> None:
        """Draw the bar where the training begins or goes on."""
        self._per_step = len(data.train) / steps_per_epoch
        self._epochs, self._steps = config.epochs, config.epochs * steps_per_epoch
        self._first = self._last = done * steps_per_epoch
        self._began, self._numbers = time.monotonic(), ""
        self._bar.plan("", self._steps)
        self._bar.step(f"epoch {done}/{self._epochs}", self._first / max(self._steps, 1))

    def step(self, epoch: int, step: int) -> None:
        """A batch was learned."""
        speed = (step - self._first) * self._per_step / max(time.monotonic() - self._began, 1e-9)
        label = f"epoch {epoch}/{self._epochs}  {self._numbers}{thousands(round(speed))}/s"
        self._bar.step(label, (step - self._last) / max(self._steps, 1))
        self._last = step

    def epoch(self, row: dict[str, Any]) -> None:
        """Show the epoch's numbers."""
        if self._json:
            print_json(row)
        loss = f"loss {row['train_loss']:.3f}  " if "train_loss" in row else ""
        fit = f"train {percent(row.get('train_accuracy'))}  " if "train_accuracy" in row else ""
        test = f"test {percent(row['test_accuracy'])}  " if "test_accuracy" in row else ""
        self._numbers = f"{loss}{fit}{test}"
        self.step(row["epoch"], row["step"])

    def end(self, reason: str) -> None:
        """Say why it ended."""
        if self._json:
            print_json({"ended": reason})
        self._bar.close()
