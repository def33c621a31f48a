"""How an audit tells of its progress: one plan, one bar over all stages.

    audit(run, watch=watcher)        # watcher.plan(estimate), then watcher.step("probes", "epoch 20", 0.03), ...

Shares are of the estimated time, so a bar over them moves evenly; they add up to about 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from undertow.auditing.estimate import Estimate
from undertow.latent.grid import FRESH


class AuditWatcher(Protocol):
    """Whoever wants to see how the audit goes."""

    def plan(self, estimate: Estimate) -> None:
        """What it will take."""
        ...

    def step(self, stage: str, detail: str, share: float) -> None:
        """A piece of work is done, `share` of the whole."""
        ...

    def close(self) -> None:
        """All is done, or something went wrong."""
        ...


class Silent:
    """Says nothing."""

    def plan(self, estimate: Estimate) -> None:
        """Nothing."""

    def step(self, stage: str, detail: str, share: float) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class GridSteps:
    """Hands the probe grid's progress on: one call for each checkpoint."""

    def __init__(self, tell: Callable[[int], None]) -> None:
        self._tell = tell

    def plan(self, words: Sequence[str], cells: int, done: int) -> None:
        """The audit has told its own plan."""

    def checkpoint(self, at: int, cells: int) -> None:
        """One of the checkpoints is probed."""
        if at != FRESH:
            self._tell(at)

    def close(self) -> None:
        """The audit goes on."""
