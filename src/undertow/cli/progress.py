"""How a command shows its progress: words and a bar on a terminal; words and, now and then, a line elsewhere.

    bar = ProgressBar()
    bar.plan("This takes about 12 s.", 40)       # printed; the bar appears on a terminal
    bar.step("epoch 3", 0.025)                   # a share of the whole is done
    bar.close()

The lines go to standard error: standard output holds the answer. `ProgressBar(quiet=True)` says nothing at all.
"""

from __future__ import annotations

import sys
import time

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from undertow.cli.screen import console
from undertow.session.progress import LogLines

REFRESH = 0.1
"""Seconds between two updates of the bar: a look at the clock is all that a step costs otherwise."""


class ProgressBar:
    """One bar for the whole of a command, whatever its stages are called."""

    def __init__(self, *, quiet: bool = False, stays: bool = False) -> None:
        self.done = 0.0
        """The share of the work that is done."""
        self._screen = None if quiet else console()
        self._stays = stays
        self._bar: Progress | None = None
        self._log: LogLines | None = None
        self._shown = 0.0

    def plan(self, words: str, steps: int) -> None:
        """Say what will be done; no bar where there is nothing to do."""
        if self._screen is None:
            return
        if words:
            self._screen.print(words, markup=False)
        if steps and not self._screen.is_terminal:
            self._log = LogLines(sys.stderr)
        elif steps and self._bar is None:
            columns = (BarColumn(bar_width=28), TextColumn("{task.description}", markup=False))
            self._bar = Progress(
                *columns, TimeRemainingColumn(compact=True), console=self._screen, transient=not self._stays
            )
            self._task = self._bar.add_task("", total=1.0)
            self._bar.start()

    def step(self, label: str, share: float) -> None:
        """So large a share more is done; `label` says what."""
        self.done += share
        if self._log is not None:
            self._log.step(label, share)
        if self._bar is not None and (time.monotonic() - self._shown >= REFRESH or self.done >= 1):
            self._shown = time.monotonic()
            self._bar.update(self._task, completed=self.done, description=label)

    def close(self) -> None:
        """Take the bar off the screen, or leave it there if it stays."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
