"""Gauges whose values add up: parts of shards of the samples, merged in the order of the shards.

    class Positive(Gauge[Found]):                          # beside measure(), which has all features at hand
        def begin(self, sight):
            return Round({"test": (self.layer,)}, Count(self.layer), lambda all: Found(all.hits / all.count))

    class Count:                                           # a tally: can be copied and sent
        def take(self, session, split, batch): ...         # one batch of a shard
        def merge(self, other): ...                        # the next shard's

A gauge begins with a round: which layers of which splits, an empty tally, and what follows from the merged one, a value
or another round (probes are fitted in the first and judged in the second). Shards have the same bounds whoever works
and are merged in one order, so that one process and a cluster give the same bits. A worker passes its shard once for
all tallies of the round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

import torch

from undertow.errors import BadData, BadValue
from undertow.features.stream import Batch
from undertow.session.gauge import Gauge, Needs
from undertow.session.sight import FINITE, Broken

if TYPE_CHECKING:
    from undertow.session.session import Session

Place = tuple[int, int]
"""A checkpoint, and which of its gauges."""
SHARD = 16_384
"""Samples of a shard: what is lost with a worker."""


class Tally(Protocol):
    """What is known of some samples."""

    def take(self, session: Session, split: str, batch: Batch) -> None:
        """Take in a batch."""
        ...

    def merge(self, other: Self) -> None:
        """Take in what is known of the samples that come next."""
        ...


@dataclass(frozen=True)
class Round:
    """One pass over some splits."""

    needs: Needs
    tally: Any  # a Tally that has seen nothing
    then: Callable[[Any], Any]  # the merged tally -> a value, or another Round


@dataclass(frozen=True)
class Shard:
    """Samples from one number to another."""

    split: str
    start: int
    stop: int


@dataclass(frozen=True)
class ShardLook:
    """A job: some tallies of one shard at one checkpoint, or why the checkpoint gives no numbers."""

    at: int
    shard: Shard
    layers: tuple[str, ...]
    places: tuple[int, ...]

    def __call__(self, session: Session) -> dict[int, Any] | str:
        """One pass over the shard, with copies of the tallies that the session was equipped with."""
        tallies = {place: deepcopy(session.gauges[place]) for place in self.places}
        try:
            sight = session.seen(self.at)
            for batch in sight.stream(
                self.shard.split, self.layers, within=slice(self.shard.start, self.shard.stop)
            ):
                if not bool(torch.isfinite(batch.outputs).all()):
                    raise Broken(FINITE)
                for tally in tallies.values():
                    tally.take(session, self.shard.split, batch)
        except Broken as reason:
            return str(reason)
        return tallies


def add_up(session: Session, wanted: Mapping[int, Sequence[Gauge[Any]]]) -> dict[int, str]:
    """Measure what adds up, shard by shard, and keep it; gauges that do not add up are left.

    Args:
        session: whose samples stream.
        wanted: gauges by checkpoint; those of several checkpoints are spread together, and their tallies held.

    Returns:
        Why checkpoints give no numbers, by their number.
    """
    broken: dict[int, str] = {}
    now: dict[Place, Round] = {}
    for at, gauges in wanted.items():
        try:
            now |= _begun(session, at, gauges)
        except Broken as reason:
            broken[at] = str(reason)
    while now:
        merged = _pass(session, now, broken)
        after: dict[Place, Round] = {}
        for (at, place), tally in merged.items():
            gauge = wanted[at][place]
            with _refusing(session, gauge):
                found = now[at, place].then(tally)
                if isinstance(found, Round):
                    after[at, place] = found
                else:
                    session.keep(gauge, at, found)
        now = {place: one for place, one in after.items() if place[0] not in broken}
    return broken


def shards_of(session: Session) -> int:
    """How many jobs one checkpoint makes in a pass over all samples."""
    return sum(-(-len(split) // SHARD) for split in session.splits())


def _begun(session: Session, at: int, gauges: Sequence[Gauge[Any]]) -> dict[Place, Round]:
    sight, found = session.seen(at), dict[Place, Round]()
    for place, gauge in enumerate(gauges):
        with _refusing(session, gauge):
            begun = gauge.begin(sight)
            if begun is not None:
                found[at, place] = begun
    return found


class _refusing:
    """What a gauge cannot do here is noted, and the others go on."""

    def __init__(self, session: Session, gauge: Gauge[Any]) -> None:
        self._session, self._gauge = session, gauge

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        if isinstance(error, BadData | BadValue):
            self._session.refused[self._gauge.name] = error
            return True
        return False


def _pass(session: Session, now: Mapping[Place, Round], broken: dict[int, str]) -> dict[Place, Any]:
    """The merged tallies of one round; checkpoints that turn out to give no numbers are noted and left out."""
    order = list(now)
    jobs = list(_jobs(session, [(at, now[at, place].needs) for at, place in order]))
    places = {job: number for number, job in enumerate(jobs)}
    merged: dict[int, Any] = {}
    waiting: dict[int, dict[int, Any]] = {}
    following = 0
    for job, found in session.spread(jobs, [now[place].tally for place in order]):
        if isinstance(found, str):
            broken[job.at] = found
        session.count_passed(job.at, job.shard.split, job.shard.stop - job.shard.start)
        waiting[places[job]] = {} if isinstance(found, str) else found
        while following in waiting:  # in the order of the shards, whoever was first
            for place, tally in waiting.pop(following).items():
                if place in merged:
                    merged[place].merge(tally)
                else:
                    merged[place] = tally
            following += 1
    return {order[place]: tally for place, tally in merged.items() if order[place][0] not in broken}


def _jobs(session: Session, needs: Sequence[tuple[int, Needs]]) -> Iterator[ShardLook]:
    """Shards of all checkpoints, one checkpoint after the other: a worker keeps the model of its last job."""
    for at, split in dict.fromkeys((at, name) for at, one in needs for name in one):
        asking = tuple(place for place, (own, one) in enumerate(needs) if own == at and split in one)
        layers = tuple(dict.fromkeys(layer for place in asking for layer in needs[place][1][split]))
        count = len(session.samples.split(split))
        for start in range(0, count, SHARD):
            yield ShardLook(at, Shard(split, start, min(start + SHARD, count)), layers, asking)
