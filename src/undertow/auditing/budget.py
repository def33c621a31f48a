"""How much an audit looks at by default: as much as fits into about two minutes.

    part = affordable(auditor, seconds=120)       # Part(checkpoints=12, samples=2000), or None: all of it fits
    print(part.words)

Where a rough estimate leaves doubt, all lenses look at the last checkpoint with a few samples and with twice as many;
what they took tells how the cost grows. Then the first rung of a ladder that fits is taken: samples and checkpoints
become fewer in turns. `full=True` takes all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch

from undertow.errors import UndertowError
from undertow.session.session import Session, count_of
from undertow.session.splits import Split

if TYPE_CHECKING:
    from undertow.auditing.estimate import Estimate

SECONDS = 120.0
SURELY = 0.1
"""An estimate this far below the budget is believed; it leaves out some of the work."""
FEW = 150
GROWTH = 1.2
"""How the cost of a checkpoint grows with its samples: neighbours and wide layers more than in proportion."""
LADDER = (
    (None, 5000), (20, 5000), (20, 3000), (12, 3000), (12, 2000), (8, 2000), (8, 1000), (6, 1000), (5, 700), (4, 500),
    (3, 300),
)  # fmt: skip
"""Checkpoints and samples of each split at most."""


@dataclass(frozen=True)
class Part:
    """What is looked at."""

    checkpoints: int
    samples: int
    of_checkpoints: int
    of_samples: int
    seconds: float

    @property
    def words(self) -> str:
        """For people, before the work begins."""
        return (
            f"Looking at {self.checkpoints} of {self.of_checkpoints} checkpoints and at most {self.samples:,} samples "
            f"of each split (there are {self.of_samples:,}), so that it takes about {_time(self.seconds)}; full=True "
            "(--full) takes all."
        )


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} minutes"


def affordable(
    session: Session, rough: Estimate, looked: Callable[[Session], None], seconds: float | None = None
) -> Part | None:
    """The part of a session that an audit can look at in so many seconds; None where that is all of it.

    Args:
        session: with all checkpoints and samples.
        rough: what the audit would take, roughly.
        looked: looks at the last checkpoint of a session through all lenses.
        seconds: the budget; SECONDS when not given.
    """
    seconds = SECONDS if seconds is None else seconds
    if rough.seconds < SURELY * seconds:
        return None
    whole = (len(session.checkpoints), max(count_of(session.samples.train), count_of(session.samples.test)))
    cost = _measured(session, looked)
    pairs = rough.stages.get("composites", 0.0)

    def takes(checkpoints: int, samples: int) -> float:
        share = min(checkpoints, 30) / min(whole[0], 30)
        return checkpoints * cost(min(samples, whole[1])) + pairs * share**2

    if takes(*whole) <= seconds:
        return None
    rungs = list(ladder(*whole))
    chosen = next((rung for rung in rungs if takes(*rung) <= seconds), rungs[-1])
    return Part(*chosen, *whole, takes(*chosen))


def ladder(checkpoints: int, samples: int) -> Iterator[tuple[int, int]]:
    """Numbers of checkpoints and samples to try, most first; never more than there are."""
    for most, each in LADDER:
        yield min(most or checkpoints, checkpoints), min(each, samples)


def _measured(session: Session, looked: Callable[[Session], None]) -> Callable[[int], float]:
    """Seconds of a checkpoint by its number of samples, from two trials."""
    spent: dict[int, float] = {}
    for count in (FEW, 2 * FEW):
        with TemporaryDirectory() as place:
            trial = _with_few(session, count, Path(place))
            began = time.perf_counter()
            try:
                looked(trial)
            except UndertowError:
                return lambda samples: 0.0  # said again where the audit meets it
            spent[count] = time.perf_counter() - began
    first, second = spent[FEW], spent[2 * FEW]
    each = max(0.0, second - first) / ((2 * FEW) ** GROWTH - FEW**GROWTH)
    start = max(0.0, second - each * (2 * FEW) ** GROWTH)
    return lambda samples: start + each * samples**GROWTH


def _with_few(session: Session, count: int, place: Path) -> Session:
    """The same session with a few samples and nothing kept."""
    own = session.samples
    few: dict[str, Any] = {"train": _few(own.train, count), "test": _few(own.test, count)}
    return session.over(replace(own, **few, source=None, drawn=(count, 0)), place)


def _few(split: Split | None, count: int) -> Split | None:
    if split is None or len(split) <= count:
        return split
    order = torch.randperm(len(split), generator=torch.Generator().manual_seed(0))
    return split.take(order[:count].sort().values)
