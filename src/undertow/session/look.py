"""What can be sent to another process: a look at one checkpoint, and what was seen.

look = Look(20, places=(0, 2))              # of session.gauges
seen = look(session)                        # here or on a worker: values by place, or why there are none
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from undertow.errors import BadData, BadValue

if TYPE_CHECKING:
    from undertow.session.session import Session

SessionJob = Callable[["Session"], Any]
"""Can be sent; on a worker it is called with a session of the same run and samples."""


@dataclass(frozen=True)
class Seen:
    """What gauges found at a checkpoint."""

    values: dict[int, Any]
    refused: dict[str, BadData | BadValue]
    passed: Counter[tuple[int, str]]
    broken: str = ""


@dataclass(frozen=True)
class Look:
    """Measures some gauges at one checkpoint."""

    at: int
    places: tuple[int, ...]

    def __call__(self, session: Session) -> Seen | None:
        """Look with the gauges of the session; None where it keeps the values itself."""
        gauges = {place: session.gauges[place] for place in self.places}
        before = session.passed.copy()
        if gauges:
            session.look(self.at, list(gauges.values()))
        if not session.away:
            return None
        found = {place: session.value(one, self.at) for place, one in gauges.items()}
        return Seen(
            {place: value for place, value in found.items() if value is not None},
            {one.name: session.refused[one.name] for one in gauges.values() if one.name in session.refused},
            session.passed - before, session.broken.get(self.at, ""),
        )  # fmt: skip
