"""Work that a session gives away: to this process, or to workers of a cluster.

    for job, answer in session.spread([Look(20, (0,)), Look(40, (0,))], gauges):
        ...                                                     # as they finish
    with session.working(): ...                                 # workers stay for all that is spread in the block
    session.held("composer", make)                              # made once in each process

A job is a function of a session that can be sent. The engine of the session's settings decides who calls it; answers
are the same, since everyone computes from the same samples, weights and settings in the same order.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

from undertow.session.look import SessionJob
from undertow.session.portable import SCRATCH, Portable

if TYPE_CHECKING:
    from undertow.crew.workers import Crew
    from undertow.session.session import Session

T = TypeVar("T")
J = TypeVar("J", bound=SessionJob)


class Spreading:
    """The part of a session that spreads work."""

    def __init__(self) -> None:
        self.gauges: tuple[Any, ...] = ()
        self.away = False  # on a worker, which gives back what it measures
        self._made: dict[Hashable, Any] = {}
        self._block: ExitStack | None = None
        self._workers: Crew | None = None

    def spread(self, jobs: Sequence[J], gauges: Sequence[Any] = ()) -> Iterator[tuple[J, Any]]:
        """Jobs and their answers as they finish.

        Args:
            jobs: what to do.
            gauges: what jobs speak of by place, as `session.gauges` where they run: gauges or tallies.
        """
        session = cast("Session", self)
        if session.config.means.name == "local" or not jobs:
            self.equip(gauges or self.gauges)
            yield from ((job, job(session)) for job in jobs)
            return
        with self.working():
            for place, answer in self._crew().answers(jobs, tuple(gauges)):
                yield jobs[place], answer

    @contextmanager
    def working(self) -> Generator[None]:
        """Keep the workers that are started in the block until its end: starting them takes seconds."""
        if self._block is not None:
            yield
            return
        with ExitStack() as self._block:
            try:
                yield
            finally:
                self._workers = self._block = None

    @property
    def hands(self) -> int:
        """How many jobs are done at once; asked while working."""
        return 1 if cast("Session", self).config.means.name == "local" else self._crew().room()

    def _crew(self) -> Crew:
        if self._workers is None:
            from undertow.crew.workers import crew_of

            session = cast("Session", self)
            assert self._block is not None  # only while working
            self._workers = self._block.enter_context(crew_of(Portable.of(session), session.config.means))
        return self._workers

    def equip(self, gauges: Sequence[Any]) -> None:
        """Take the gauges that jobs speak of."""
        self.gauges = tuple(gauges)

    def leave(self) -> None:
        """Remove the checkpoints that were sent here, if any were."""
        place = cast("Session", self).run.path
        if self.away and place.name.startswith(SCRATCH):
            shutil.rmtree(place, ignore_errors=True)

    def held(self, key: Hashable, make: Callable[[], T]) -> T:
        """What was made before under this key, else what `make` makes: a worker's jobs share it."""
        if key not in self._made:
            self._made[key] = make()
        return cast("T", self._made[key])
