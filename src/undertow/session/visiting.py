"""One pass for all: the part of a session that visits checkpoints and lets gauges measure.

    session.visit([gauge, ...]); session.value(gauge, 20)     # one pass over each split serves all gauges
    session.missing([gauge]), session.sound, session.broken

What adds up over samples that stream goes shard by shard (adding.py), all else checkpoint by checkpoint (look.py); both
are spread over workers where there are any (spreading.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from undertow.errors import BadData, BadValue
from undertow.room import give_back
from undertow.session.adding import add_up, shards_of
from undertow.session.gauge import Gauge
from undertow.session.keeping import Keeping
from undertow.session.look import Look, Seen
from undertow.session.reader import ENTERING
from undertow.session.sight import Broken, Sight, pack
from undertow.session.spreading import Spreading
from undertow.sizes import parse_size, show_size

APART = "its layers do not fit into the memory together: give more --memory"


EACH = 2
"""Shards for each worker that are spread together at least."""


class Visiting(Keeping, Spreading):
    """The part of a session that visits checkpoints."""

    def __init__(self) -> None:
        Keeping.__init__(self)
        Spreading.__init__(self)
        self.passed: Counter[tuple[int, str]] = Counter()
        self._sight: Sight | None = None

    @property
    def sound(self) -> tuple[int, ...]:
        """The chosen checkpoints that give numbers, as far as they were visited."""
        return tuple(at for at in self.whole.checkpoints if at not in self.broken)

    def visit(
        self,
        gauges: Sequence[Gauge[Any]],
        checkpoints: Sequence[int] | None = None,
        tell: Callable[[int], None] | None = None,
    ) -> None:
        """Measure what is missing, in one pass over each split for a checkpoint while features fit into the memory.

        Args:
            gauges: what to measure.
            checkpoints: where; all chosen ones when not given. Those that others are compared with come first.
            tell: hears of each checkpoint that is done.
        """
        numbers = self.whole.checkpoints if checkpoints is None else checkpoints
        self.gauges = tuple(gauges)
        if self.whole.samples.stream:
            self._add_up(numbers)
        looks = [one for one in map(self._held, self._looks(numbers)) if one.places]
        with self.working():
            looks = self._parted(looks)
            left = Counter(one.at for one in looks)
            for at in numbers:
                if tell is not None and at not in left:
                    tell(at)
            for look, seen in self.spread(looks, self.gauges):
                if seen is not None:
                    self._take_in(look, seen)
                left[look.at] -= 1
                if tell is not None and not left[look.at]:
                    tell(look.at)
        # What no training changes was measured at one checkpoint; where that is broken, another one does.
        for at in numbers:
            fixed = [one for one in gauges if not one.depends_on_weights]
            if not self._is_broken(at):
                self._held(Look(at, self._places(at, fixed)))(self.whole)

    def _add_up(self, numbers: Sequence[int]) -> None:
        """What adds up over shards; the rest is left to looks.

        Checkpoints go one by one, or a few together where one has too few shards for all workers.
        """
        gauges, looks = self.gauges, self._looks(numbers)
        with self.working():
            together = -(-EACH * self.hands // shards_of(self.whole)) if self.hands > 1 else 1
            for start in range(0, len(looks), together):
                some = looks[start : start + together]
                wanted = {one.at: [gauges[place] for place in one.places] for one in some}
                try:
                    for at, reason in add_up(self.whole, wanted).items():
                        self._note_broken(at, reason)
                finally:
                    self.gauges = gauges

    def _looks(self, numbers: Sequence[int]) -> list[Look]:
        """One for each checkpoint at which something is missing; what no training changes is missing at one."""
        sound = [at for at in numbers if not self._is_broken(at)]
        homes = {one.name: next((at for at in sound if one.wanted_at(at)), None) for one in self.gauges}
        found: list[Look] = []
        for at in sound:
            asked = [one for one in self.gauges if one.depends_on_weights or at == homes[one.name]]
            places = self._places(at, asked)
            if places:
                found.append(Look(at, places))
        return found

    def _parted(self, looks: list[Look]) -> list[Look]:
        """Looks of some gauges each where there are more workers than checkpoints; each makes a pass of its own."""
        parts = self.hands // len(looks) if looks else 1
        if parts < 2:
            return looks
        few = (replace(one, places=one.places[at::parts]) for one in looks for at in range(parts))
        return [one for one in few if one.places]

    def _places(self, at: int, asked: Sequence[Gauge[Any]]) -> tuple[int, ...]:
        return tuple(
            place
            for place, one in enumerate(self.gauges)
            if one in asked and one.wanted_at(at) and not self._is_done(one, at)
        )

    def _take_in(self, look: Look, seen: Seen) -> None:
        """Keep what a worker found."""
        for place, value in seen.values.items():
            self.keep(self.gauges[place], look.at, value)
        self.refused |= seen.refused
        self.passed.update(seen.passed)
        if seen.broken:
            self._note_broken(look.at, seen.broken)

    def look(self, at: int, gauges: Sequence[Gauge[Any]]) -> None:
        """Measure at one checkpoint, here; what is found is kept."""
        try:
            self._look(at, list(gauges))
        except Broken as reason:
            self._note_broken(at, str(reason))

    def _look(self, at: int, missing: list[Gauge[Any]]) -> None:
        sight = Sight(self.whole, at, [one.needs() for one in missing])
        for _ in sight.rounds():
            ready = [one for one in missing if sight.holds(one.needs()) or sight.never_holds(one.needs())]
            missing = [one for one in missing if one not in ready]
            for one in ready:
                self._measure(one, sight)
        self.refused |= {one.name: BadData(APART) for one in missing}

    def _measure(self, gauge: Gauge[Any], sight: Sight) -> None:
        try:
            value = gauge.measure(sight, self._kept(gauge, sight.at))
        except (BadData, BadValue) as reason:
            self.refused[gauge.name] = reason
            return
        finally:
            give_back()
        self.keep(gauge, sight.at, value)

    def seen(self, at: int) -> Sight:
        """The model of a checkpoint over samples that stream; the last one is held."""
        if self._sight is None or self._sight.at != at:
            self._sight = Sight(self.whole, at, [])
        return self._sight

    def count_passed(self, at: int, split: str, count: int) -> None:
        """Note how many samples of a split went through the model of a checkpoint."""
        self.passed[at, split] += count

    def _held(self, look: Look) -> Look:
        """The look without gauges for which what they need of streams cannot be held.

        What they know already by adding up stays all they know; those that know nothing are refused.
        """
        if not self.whole.samples.stream:
            return look
        small: list[int] = []
        for place in look.places:
            reason = self._too_large(self.gauges[place])
            if not reason:
                small.append(place)
            elif self._kept(self.gauges[place], look.at) is None:
                self.refused[self.gauges[place].name] = BadData(reason)
        return replace(look, places=tuple(small))

    def _too_large(self, gauge: Gauge[Any]) -> str:
        """Why what a gauge needs of samples that stream cannot be held; nothing where it can."""
        room = parse_size(self.whole.config.memory) // 3
        for split, layers in gauge.needs().items():
            held = [] if gauge.from_disk else layers
            own = self.whole.widths([name for name in held if name != ENTERING])
            need = 4 * len(self.whole.samples.split(split)) * max(self.whole.outputs, *own.values(), 0)
            if need > room:
                return (
                    f"it needs {show_size(need)} of the {split} samples at once, a third of the memory is "
                    f"{show_size(room)}. Give more --memory, or fewer --samples"
                )
        return ""

    def missing(self, gauges: Sequence[Gauge[Any]]) -> list[int]:
        """The checkpoints at which one of the gauges is still to be measured."""
        return [
            at
            for at in self.whole.checkpoints
            if not self._is_broken(at)
            and any(one.wanted_at(at) and not self._is_done(one, at) for one in gauges)
        ]

    def memory_words(self, layers: Sequence[str]) -> str:
        """How the features of layers on both splits are held, in words."""
        count, widths = sum(map(len, self.whole.splits())), self.whole.widths(layers)
        sizes = {name: count * width * 4 for name, width in widths.items()}
        rounds = pack(sizes, parse_size(self.whole.config.memory) // 3)
        held = [name for one in rounds for name in one]
        words = [f"{name}: too wide to be held, batch by batch" for name in sizes if name not in held]
        if held:
            often = "one pass" if len(rounds) == 1 else f"{len(rounds)} passes"
            total = show_size(sum(sizes[name] for name in held))
            words.insert(0, f"{', '.join(held)}: {total} of features held in memory, in {often}")
        return "; ".join(words)
