"""Today's different ways of telling about progress, each handed on to the one bar of progress.py.

train(config, out, watch=TrainingWatcher(bar)); audit(run, watch=AuditWatcher(bar))
probe_grid(run, watch=GridWatcher(bar)); label_errors(run, watch=LabelsWatcher(bar))
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from undertow.cli.progress import ProgressBar
from undertow.cli.screen import percent, print_json, thousands

if TYPE_CHECKING:
    from undertow.auditing.estimate import Estimate
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
        self._numbers = f"{loss}{fit}test {percent(row['test_accuracy'])}  "
        self.step(row["epoch"], row["step"])

    def end(self, reason: str) -> None:
        """Say why it ended."""
        if self._json:
            print_json({"ended": reason})
        self._bar.close()


class AuditWatcher:
    """An audit: its estimate, then stage by stage."""

    def __init__(self, bar: ProgressBar) -> None:
        self._bar, self.close = bar, bar.close

    def plan(self, estimate: Estimate) -> None:
        """Say what it will take."""
        words = f"This takes {estimate}." if estimate.seconds else "All of it was computed before."
        self._bar.plan(words, len(estimate.stages) if estimate.seconds else 0)

    def step(self, stage: str, detail: str, share: float) -> None:
        """A piece of work is done."""
        self._bar.step(f"{stage} {detail}".strip(), share)


class GridWatcher:
    """A grid of probes: how many there are, then checkpoint by checkpoint."""

    def __init__(self, bar: ProgressBar) -> None:
        self._bar, self.close = bar, bar.close

    def plan(self, words: Sequence[str], cells: int, done: int) -> None:
        """Say how many probes there are and how features are held."""
        there = f", {thousands(done)} of them there already" if done else ""
        self._left = cells - done
        lines = [f"{thousands(cells)} probes to fit{there}.", *(f"  {word}" for word in words)]
        self._bar.plan("\n".join(lines), self._left)

    def checkpoint(self, at: int, cells: int) -> None:
        """A checkpoint is probed."""
        self._bar.step(f"checkpoint {at}", cells / max(self._left, 1))


class LabelsWatcher:
    """A search for wrong labels: pass by pass."""

    def __init__(self, bar: ProgressBar) -> None:
        self._bar = bar

    def __call__(self, done: int, total: int) -> None:
        """`done` of `total` passes are over."""
        self._bar.plan("", total)
        self._bar.step("asking the layers", done / max(total, 1) - self._bar.done)
