"""How work tells of itself: one plan, then steps whose shares add up to 1.

    progress.plan("about 40 s and 130 MB: probes 24 s, ...", steps=31)
    progress.step("epoch 20", 0.03)
    progress.close()

Every verb takes `progress=`; the command line's bar and a notebook's are such objects.
"""

from __future__ import annotations

import sys
import time
from typing import Protocol, TextIO


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
            spent = now - self._began
            left = spent * (1 - self._done) / max(self._done, 1e-9)
            bar = ("#" * round(24 * self._done)).ljust(24)
            line = f"{100 * self._done:3.0f} % |{bar}| {label} [{_clock(spent)} < {_clock(left)}]"
            print(f"\r{line.ljust(78)}", end="", file=self._stream, flush=True)

    def close(self) -> None:
        """End the line."""
        if self._shown:
            print(file=self._stream, flush=True)
        self._shown, self._done = 0.0, 0.0


REFRESH = 0.2
"""Seconds between two drawings of the bar."""


def python_progress(given: Progress | bool | None) -> Progress:
    """What a call in Python shows: what was given; else a bar in a notebook or on a terminal, nothing elsewhere.

    True shows it anywhere, False never.
    """
    if given is not None and not isinstance(given, bool):
        return given
    notebook = _in_notebook()
    if given is False or (given is None and not notebook and not sys.stderr.isatty()):
        return NoProgress()
    return TextBar(sys.stdout if notebook else sys.stderr)


def _in_notebook() -> bool:
    shell = sys.modules.get("IPython")
    found = None if shell is None else shell.get_ipython()
    return found is not None and hasattr(found, "kernel")


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
