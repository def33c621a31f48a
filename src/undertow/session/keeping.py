"""What was measured: the part of a session that keeps values of gauges, in memory and in the cache on disk.

    session.keep(gauge, 20, value); session.value(gauge, 20); session.values(gauge)
    session.broken, session.refused                           # checkpoints and gauges that give no values, and why

A value lies under a hash of weights, of how the model's code runs them, of samples and all settings that would change
it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from undertow.errors import BadData, BadValue
from undertow.session.cache import key_of
from undertow.session.gauge import Gauge

if TYPE_CHECKING:
    from undertow.session.session import Session

T = TypeVar("T")


@dataclass(frozen=True)
class Soundness:
    """Why a checkpoint gives no numbers; nothing where it does."""

    reason: str


class Keeping:
    """The part of a session that keeps values."""

    def __init__(self) -> None:
        self.broken: dict[int, str] = {}
        self.refused: dict[str, BadData | BadValue] = {}
        self._values: dict[tuple[str, int, str], Any] = {}

    @property
    def whole(self) -> Session:
        """The session that this is a part of."""
        return cast("Session", self)

    def value(self, gauge: Gauge[T], at: int) -> T | None:
        """What a gauge found at a checkpoint; None where the checkpoint is broken or the gauge refused."""
        return self._kept(gauge, at)

    def values(self, gauge: Gauge[T]) -> dict[int, T]:
        """What a gauge found, by checkpoint."""
        found = {at: self._kept(gauge, at) for at in self.whole.checkpoints}
        return {at: one for at, one in found.items() if one is not None}

    def keep(self, gauge: Gauge[T], at: int, value: T) -> T:
        """Keep what a gauge found."""
        place, key = self._place(gauge, at)
        if gauge.stays_in_memory:
            self._values[gauge.name, place, key] = value
        return self.whole.cache.put(gauge.name, max(place, 0), key, value)

    def _kept(self, gauge: Gauge[T], at: int) -> T | None:
        place, key = self._place(gauge, at)
        known = (gauge.name, place, key)
        if known not in self._values:
            found = self.whole.cache.get(gauge.name, max(place, 0), key, gauge.kind)
            if found is None or not gauge.stays_in_memory:
                return found
            self._values[known] = found
        return cast("T", self._values[known])

    def _is_done(self, gauge: Gauge[Any], at: int) -> bool:
        if gauge.name in self.refused:
            return True
        if not gauge.stays_in_memory:
            place, key = self._place(gauge, at)
            return self.whole.cache.has(gauge.name, max(place, 0), key)
        kept = self._kept(gauge, at)
        return kept is not None and gauge.complete(kept)

    def _place(self, gauge: Gauge[Any], at: int) -> tuple[int, str]:
        if not gauge.depends_on_weights:
            return 0, self._key(None, *gauge.key(self.whole))
        return at, self._key(at, *gauge.key(self.whole))

    def _key(self, at: int | None, *more: Any) -> str:
        own = self.whole.config
        mark = None if at is None else self.whole.mark(at)
        return key_of(self.whole.samples.fingerprint, mark, own.conv, own.tokens, own.seed, *more)

    def _note_broken(self, at: int, reason: str) -> None:
        self.broken[at] = reason
        self.whole.cache.put("soundness", max(at, 0), self._key(at), Soundness(reason))

    def _is_broken(self, at: int) -> bool:
        if at not in self.broken:
            kept = self.whole.cache.get("soundness", max(at, 0), self._key(at), Soundness)
            if kept is not None:
                self.broken[at] = kept.reason
        return at in self.broken
