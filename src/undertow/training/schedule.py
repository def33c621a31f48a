"""When a run keeps a checkpoint.

    schedule = CheckpointSchedule.parse("paper")     # epochs 0, 1, 2, 4, ..., 20, 25, 30, ...
    schedule.moments(last=60)                        # frozenset of epochs, the last one always among them
    CheckpointSchedule.parse("every:5")              # 0, 5, 10, ...
    CheckpointSchedule.parse("log:20steps")          # 20 log-spaced steps, first and last among them
    CheckpointSchedule.parse("0,1,5,10")             # just these (and the last)

The initial weights (0) belong to every schedule except an explicit list.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from undertow.errors import BadValue

Unit = Literal["epoch", "step", "model"]
"""What checkpoints are numbered by; `model` where there is one of which nobody knows when it was."""
_WANTED = "paper, every:K, log:N or a list such as 0,1,5 (each may end in 'steps')"


@dataclass(frozen=True)
class CheckpointSchedule:
    """Which epochs, or which optimiser steps, are kept."""

    kind: Literal["paper", "every", "log", "list"]
    numbers: tuple[int, ...] = ()
    unit: Unit = "epoch"

    @classmethod
    def parse(cls, text: str) -> CheckpointSchedule:
        """Read a schedule as it is written on the command line."""
        body, unit = text.strip(), "epoch"
        for ending in ("steps", "step"):
            if body.endswith(ending):
                body, unit = body.removesuffix(ending).rstrip(), "step"
                break
        if body == "paper" and unit == "epoch":
            return cls("paper")
        kind, _, rest = body.rpartition(":")
        try:
            numbers = tuple(int(part) for part in rest.split(","))
        except ValueError:
            raise BadValue("checkpoints", _WANTED, text) from None
        return cls._checked(kind or "list", numbers, unit, text)

    @classmethod
    def _checked(cls, kind: str, numbers: tuple[int, ...], unit: Unit, text: str) -> CheckpointSchedule:
        if kind in ("every", "log") and len(numbers) == 1 and numbers[0] >= 1:
            return cls(kind, numbers, unit)
        if kind == "list" and min(numbers) >= 0:
            return cls("list", tuple(sorted(set(numbers))), unit)
        raise BadValue("checkpoints", _WANTED, text)

    def moments(self, last: int) -> frozenset[int]:
        """The epochs or steps from 0 to `last` that are kept."""
        match self.kind:
            case "paper":
                early = {0, 1, *range(2, 21, 2)}
                kept = early | set(range(25, last + 1, 5))
            case "every":
                kept = set(range(0, last + 1, self.numbers[0]))
            case "log":
                kept = {0, *_log_spaced(self.numbers[0], last)}
            case "list":
                kept = set(self.numbers)
        return frozenset(number for number in kept if number <= last) | {last}


def _log_spaced(count: int, last: int) -> set[int]:
    if last <= 1 or count == 1:
        return {last}
    return {round(last ** (place / (count - 1))) for place in range(count)}
