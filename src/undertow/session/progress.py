"""How work tells of itself: one plan, then steps whose shares add up to 1.

    progress.plan("about 40 s and 130 MB: probes 24 s, ...", steps=31)
    progress.step("epoch 20", 0.03)
    progress.close()

Every verb takes `progress=`; the command line's bar and a notebook's are such objects.
"""

from __future__ import annotations

from typing import Protocol


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
