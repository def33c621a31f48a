"""Which checkpoints of a run: all, last, every:5, a list, or at most so many.

choose(run, "every:10"), choose(run, [0, 10, -1])      # numbers of kept checkpoints, rising
thinned((0, 1, 2, 4, 8), 3)                            # (0, 2, 8): the first and the last stay
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from undertow.errors import BadValue
from undertow.training.run import Run
from undertow.training.schedule import CheckpointSchedule

Checkpoints = str | int | Iterable[int]
FORMS = "all, last, every:5 or a list such as 0,10,60"


def choose(run: Run, asked: Checkpoints) -> tuple[int, ...]:
    """The numbers of the checkpoints that `asked` names."""
    if isinstance(asked, str):
        if asked == "all":
            return run.epochs
        if asked == "last":
            return (run.epochs[-1],)
        try:
            schedule = CheckpointSchedule.parse(asked)
        except BadValue:
            raise BadValue("checkpoints", FORMS, asked) from None
        if schedule.kind != "list":
            return tuple(at for at in run.epochs if at in schedule.moments(run.epochs[-1]))
        asked = schedule.numbers
    numbers = list(asked) if isinstance(asked, Iterable) else [asked]
    if not numbers:
        raise BadValue("checkpoints", "at least one", numbers)
    return tuple(sorted({run.checkpoint(at).at for at in numbers}))


def thinned(numbers: Sequence[int], most: int) -> tuple[int, ...]:
    """At most `most` of the numbers, spread evenly over their places; the first and the last stay."""
    if len(numbers) <= most:
        return tuple(numbers)
    if most == 1:
        return (numbers[-1],)
    places = {round(step * (len(numbers) - 1) / (most - 1)) for step in range(most)}
    return tuple(numbers[place] for place in sorted(places))
