"""The swap profile: in which part of the network memorisation sits.

    profile = swap_profile(early_late, late_early, early, late, cuts=["layer1", "layer2", "layer3"])
    print(profile.reading)             # Memorisation entered between layer1 and layer2: ...
    profile.cuts, profile.parts        # accuracies at every cut, what every part costs; with intervals
    profile.table(probe_gap=gaps, drift=drifts)

`early` and `late` (N,) say which test samples the early and the late model get right; `early_late` (K, N) the same
for composite(early shallow, late deep) at each of the K cuts, shallow to deep, `late_early` for the reverse. The
cuts divide the network into K + 1 parts. Walking over the cuts, parts turn late one by one in two orders:
    from below   f(early), late_early[0], ..., late_early[K-1], f(late)       the input's side first
    from above   f(early), early_late[K-1], ..., early_late[0], f(late)       the output's side first
and every step costs some accuracy: in each order the parts' drops add up to that between the two models.
A drop is clear if its interval (paired bootstrap over samples) lies above 0 and it is a fifth or more of the whole.

The reading follows these rules, the first that applies:
    1. the whole drop's interval does not lie above 0             nothing to place, or cannot tell
    2. a composite lies clearly below both models                 cannot tell: its parts no longer fit together
    3. no part has a clear drop from below                        cannot tell: it is spread out
    4. none of those parts has a clear drop from above            cannot tell: the two orders contradict each other
    5. else                                                       it entered in the parts that are clear from below
From below an early deep part reads ever later features, so a drop there is damage in the features. Where the parts
that are clear from above are others too, the reading says so: late parts then do harm together, not alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from undertow.errors import BadData
from undertow.temporal.intervals import CONFIDENCE, RESAMPLES, Interval, edges, resampled_means
from undertow.temporal.predictions import Array, as_numpy

if TYPE_CHECKING:
    import pandas as pd

SHARE = 0.2
"""The share of the whole drop from which on a part is named."""


@dataclass(frozen=True)
class SwapCut:
    """Test accuracy of both composites at one cut."""

    cut: str
    early_late: Interval  # early shallow, late deep
    late_early: Interval  # late shallow, early deep


@dataclass(frozen=True)
class SwapPart:
    """The accuracy that is lost when one part turns late."""

    name: str
    from_below: Interval  # with all parts before it late, all behind it early
    from_above: Interval  # with all parts before it early, all behind it late


@dataclass(frozen=True)
class SwapProfile:
    """Accuracies of the composites over cuts, the drops of the parts between them, and what they say."""

    early: Interval
    late: Interval
    drop: Interval  # early - late
    cuts: tuple[SwapCut, ...]
    parts: tuple[SwapPart, ...]  # one more than cuts
    entered: tuple[str, ...]  # names of the parts that memorisation entered in; empty: cannot tell
    reading: str
    count: int  # test samples

    def table(
        self,
        *,
        probe_gap: Sequence[float | None] | None = None,
        drift: Sequence[float | None] | None = None,
    ) -> pd.DataFrame:
        """One row per part, with the cut it ends at.

        Args:
            probe_gap: what probes find at each cut beyond the late model's accuracy (K).
            drift: relative change of the parameters of each part (K + 1).
        """
        import pandas as pd

        last = len(self.cuts)
        gaps = _column("probe_gap", probe_gap, last, "cut")
        moves = _column("drift", drift, last + 1, "part")
        rows: list[dict[str, Any]] = []
        for place, part in enumerate(self.parts):
            cut = self.cuts[place] if place < last else None
            rows.append(
                {
                    "part": part.name,
                    "cut": cut.cut if cut else None,
                    **_flat("early_late", cut.early_late if cut else None),
                    **_flat("late_early", cut.late_early if cut else None),
                    **_flat("from_below", part.from_below),
                    **_flat("from_above", part.from_above),
                    "entered": part.name in self.entered,
                    "probe_gap": gaps[place] if cut else None,
                    "drift": moves[place],
                }
            )
        return pd.DataFrame(rows)


def swap_profile(
    early_late: Array,
    late_early: Array,
    early: Array,
    late: Array,
    cuts: Sequence[str],
    *,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> SwapProfile:
    """The profile from right (True) and wrong answers on the test samples.

    Args:
        early_late: (K, N) of composite(early shallow, late deep) at each cut.
        late_early: (K, N) of composite(late shallow, early deep).
        early: (N,) of the early model.
        late: (N,) of the late model.
        cuts: names of the K cuts, shallow to deep.
        confidence: of the intervals.
        resamples: of the bootstrap over samples.
        seed: of the bootstrap.
    """
    names = tuple(cuts)
    rows = _stacked(early_late, late_early, early, late, len(names))
    draws = resampled_means(rows, resamples=resamples, seed=seed)
    # The values in the first row, the draws below it: what follows is reckoned for both at once.
    first, last, *columns = np.vstack([rows.mean(1), draws]).T
    forth, back = columns[: len(names)], columns[len(names) :]  # early_late, late_early

    def intervals(of: Iterable[NDArray[np.float64]]) -> list[Interval]:
        return [_interval(column, confidence) for column in of]

    below = intervals(_steps([first, *back, last]))
    above = intervals(_steps([first, *forth[::-1], last]))[::-1]
    parts = tuple(map(SwapPart, _part_names(names), below, above))
    whole = intervals([first, last, first - last])
    short = intervals(last - column for column in (*forth, *back))
    entered, reading = _read(names, whole, parts, short)
    composites = tuple(map(SwapCut, names, intervals(forth), intervals(back)))
    return SwapProfile(whole[0], whole[1], whole[2], composites, parts, entered, reading, rows.shape[1])


def _stacked(
    early_late: Array, late_early: Array, early: Array, late: Array, count: int
) -> NDArray[np.bool_]:
    """Rows of right answers (2 K + 2, N): early, late, then both kinds of composites."""
    given = {"early": early, "late": late, "early_late": early_late, "late_early": late_early}
    found = {name: _answers(name, array) for name, array in given.items()}
    samples = found["early"].shape[-1]
    for name, answers in found.items():
        wanted = (count, samples) if "_" in name else (samples,)
        if answers.shape != wanted:
            raise BadData(
                f"swap_profile, {name}: wanted right answers of shape {wanted} for {count} cuts, "
                f"got {answers.shape}. All must be of the same test samples."
            )
    return np.vstack(list(found.values()))


def _answers(name: str, array: Array) -> NDArray[np.bool_]:
    found = as_numpy(array)
    if 0 in found.shape or found.dtype.kind not in "biu" or not np.isin(found, (0, 1)).all():
        raise BadData(
            f"swap_profile, {name}: wanted True for right and False for wrong answers, got {found.dtype} of shape "
            f"{found.shape}. Compare predictions with labels first."
        )
    return found.astype(bool)


def _steps(path: Sequence[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
    """What every step on the way costs."""
    return [before - after for before, after in pairwise(path)]


def _interval(column: NDArray[np.float64], confidence: float) -> Interval:
    low, high = edges(column[1:], confidence)
    return Interval(float(column[0]), float(low), float(high))


def _read(
    names: tuple[str, ...], whole: list[Interval], parts: tuple[SwapPart, ...], short: list[Interval]
) -> tuple[tuple[str, ...], str]:
    """The parts that memorisation entered in and the reading, by the rules of the module."""
    early, late, drop = whole
    if drop.low <= 0:
        return (), _nothing_lost(early, late, drop)
    misfits = {names[place % len(names)]: None for place, one in enumerate(short) if _clear(one, drop)}
    if misfits:
        return (), (
            f"Cannot tell: cut after {' and '.join(misfits)}, a composite is worse than both models, so its parts "
            "no longer fit together. Take an early checkpoint nearer to the late one."
        )
    below = [place for place, part in enumerate(parts) if _clear(part.from_below, drop)]
    above = [place for place, part in enumerate(parts) if _clear(part.from_above, drop)]
    if not below:
        return (), (
            f"Cannot tell: the drop of {drop.value:.2f} is spread out, no part has a clear {SHARE:.0%} of it."
        )
    if not set(below) & set(above):
        other = f"it is {_where(above, names)}" if above else "no part is clear"
        return (), (
            f"Cannot tell: from below the drop of {drop.value:.2f} comes {_where(below, names)}, from above {other}."
        )
    return tuple(parts[place].name for place in below), _placed(names, drop, parts, below, above)


def _nothing_lost(early: Interval, late: Interval, drop: Interval) -> str:
    seen = f"{early.value:.2f} early, {late.value:.2f} late"
    if drop.high < 0:
        return f"Nothing to place: the late model is better than the early one ({seen})."
    return f"Cannot tell: the late model is not clearly worse than the early one ({seen})."


def _placed(
    names: tuple[str, ...], drop: Interval, parts: tuple[SwapPart, ...], below: list[int], above: list[int]
) -> str:
    cost = sum(parts[place].from_below.value for place in below)
    ways = "whichever way the parts are swapped"
    if below != above:
        ways = f"as an early deep part reads late features; from above it is {_where(above, names)}, so late "
        ways += "parts do harm together"
    bound = SHARE * drop.value
    free = [
        place
        for place, part in enumerate(parts)
        if part.from_below.high < bound and part.from_above.high < bound
    ]
    rest = f"; not {_where(free, names, ' or ')}" if free else ""
    return (
        f"Memorisation entered {_where(below, names)}: {cost:.2f} of the {drop.value:.2f} lost accuracy "
        f"goes there, {ways}{rest}."
    )


def _clear(one: Interval, drop: Interval) -> bool:
    return one.low > 0 and one.value >= SHARE * drop.value


def _part_names(cuts: tuple[str, ...]) -> list[str]:
    return [_where([place], cuts) for place in range(len(cuts) + 1)]


def _where(places: list[int], cuts: tuple[str, ...], between: str = " and ") -> str:
    """Parts in words, neighbours as one stretch; part k lies between cuts k - 1 and k."""
    stretches: list[list[int]] = []
    for place in places:
        if stretches and stretches[-1][1] == place - 1:
            stretches[-1][1] = place
        else:
            stretches.append([place, place])
    return between.join(_stretch(first, last, cuts) for first, last in stretches)


def _stretch(first: int, last: int, cuts: tuple[str, ...]) -> str:
    if first == 0:
        return "in all parts" if last == len(cuts) else f"up to {cuts[last]}"
    return f"after {cuts[first - 1]}" if last == len(cuts) else f"between {cuts[first - 1]} and {cuts[last]}"


def _flat(name: str, one: Interval | None) -> dict[str, float | None]:
    value, low, high = one or (None, None, None)
    return {name: value, f"{name}_low": low, f"{name}_high": high}


def _column(name: str, given: Sequence[float | None] | None, count: int, each: str) -> list[float | None]:
    values: list[float | None] = [None] * count if given is None else list(given)
    if len(values) != count:
        raise BadData(f"swap table, {name}: wanted {count} numbers, one per {each}, got {len(values)}.")
    return values
