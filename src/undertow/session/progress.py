"""How work tells of itself: one plan, then steps whose shares add up to 1.

    progress.plan("about 40 s and 130 MB: probes 24 s, ...", steps=31)
    progress.step("epoch 20", 0.03)
    progress.close()

Every verb takes `progress=`; the command line's bar, a notebook's and the lines of a log are such objects.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Protocol, TextIO

from undertow.errors import BadValue


class Progress(Protocol):
    """Whoever wants to see how work goes."""

    def plan(self, words: str, steps: int) -> None:
        """What it will take, in words, and in how many steps."""
        ...

    def step(self, label: str, share: float) -> None:
        """A piece of work is done, `share` of the whole."""
        ...

    def close(self) -> None:
        """All is done, or something went wrong."""
        ...


class NoProgress:
    """Says nothing."""

    def plan(self, words: str, steps: int) -> None:
        """Nothing."""

    def step(self, label: str, share: float) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class TextBar:
    """A line that is written over, on a terminal or in a notebook: 45 % |####    | epoch 20 [0:32 < 0:40]."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._done, self._shown, self._began = stream, 0.0, 0.0, time.monotonic()

    def plan(self, words: str, steps: int) -> None:
        """Say what it will take."""
        print(words, file=self._stream, flush=True)
        self._began = time.monotonic()

    def step(self, label: str, share: float) -> None:
        """Draw the bar anew, a few times a second at most."""
        self._done = min(1.0, self._done + share)
        now = time.monotonic()
        if now - self._shown >= REFRESH or self._done >= 1:
            self._shown = now
            bar = ("#" * round(24 * self._done)).ljust(24)
            line = f"{100 * self._done:3.0f} % |{bar}| {label} {_times(now - self._began, self._done)}"
            print(f"\r{line.ljust(78)}", end="", file=self._stream, flush=True)

    def close(self) -> None:
        """End the line."""
        if self._shown:
            print(file=self._stream, flush=True)
        self._shown, self._done = 0.0, 0.0


class LogLines:
    """A line now and then, for a log: 45 % done: epoch 20 [2:10 < 2:39]. Short work leaves none."""

    def __init__(self, stream: TextIO, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock = stream, clock
        self._plan, self._done = "", 0.0
        self._began = self._said = clock()

    def plan(self, words: str, steps: int) -> None:
        """Keep in mind what it will take: said with the first line."""
        self._plan = "\n".join(filter(None, [self._plan, words]))
        self._done, self._began, self._said = 0.0, self._clock(), self._clock()

    def step(self, label: str, share: float) -> None:
        """Say how far the work is, where the last line is long ago."""
        self._done = min(1.0, self._done + share)
        now = self._clock()
        if now - self._said < LOG_EVERY:
            return
        self._said = now
        if self._plan:
            print(self._plan, file=self._stream)
            self._plan = ""
        times = _times(now - self._began, self._done)
        print(f"{100 * self._done:3.0f} % done: {label} {times}", file=self._stream, flush=True)

    def close(self) -> None:
        """What was not said by now needs no words."""
        self._plan = ""


REFRESH = 0.2
"""Seconds between two drawings of the bar."""
LOG_EVERY = 20.0
"""Seconds between two lines of a log."""


def python_progress(given: Progress | bool | None) -> Progress:
    """What a call in Python shows: what was given; else a bar in a notebook or on a terminal, lines in a log.

    True shows a bar anywhere, False nothing.
    """
    if given is not None and not isinstance(given, bool):
        if not all(callable(getattr(given, name, None)) for name in ("plan", "step", "close")):
            raise BadValue("progress", "True, False, or an object with plan, step and close", given)
        return given
    if given is False:
        return NoProgress()
    notebook = _in_notebook()
    if given is None and not notebook and not sys.stderr.isatty():
        return LogLines(sys.stderr)
    return TextBar(sys.stdout if notebook else sys.stderr)


def asked_progress(given: Progress | bool | None) -> Progress:
    """The same where nothing is shown unless it is asked for."""
    return NoProgress() if given is None else python_progress(given)


def _in_notebook() -> bool:
    shell = sys.modules.get("IPython")
    found = None if shell is None else shell.get_ipython()
    return found is not None and hasattr(found, "kernel")


def _times(spent: float, done: float) -> str:
    """The time that is spent, and what is left at that pace."""
    return f"[{_clock(spent)} < {_clock(spent * (1 - done) / max(done, 1e-9))}]"


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
