"""The swap profile: in which part of the network memorisation sits.

    profile = swap_profile(early_late, late_early, early, late, cuts=["layer1", "layer2", "layer3"])
    profile.finding                    # "entered", or why it cannot be told
    profile.entered                    # ("layer2",): the parts it entered in, by the cut that they end at
    profile.cuts, profile.parts        # accuracies at every cut, what every part costs; with intervals

`early` and `late` (N,) say which test samples the early and the late model get right; `early_late` (K, N) the same
for composite(early shallow, late deep) at each of the K cuts, shallow to deep, `late_early` for the reverse. The
cuts divide the network into K + 1 parts, each called by the cut that it ends at, the last one AFTER_LAST. Walking
over the cuts, parts turn late one by one in two orders:
    from below   f(early), late_early[0], ..., late_early[K-1], f(late)       the input's side first
    from above   f(early), early_late[K-1], ..., early_late[0], f(late)       the output's side first
and every step costs some accuracy: in each order the parts' drops add up to that between the two models.
A drop is clear if its interval (paired bootstrap over samples) lies above 0 and it is a fifth or more of the whole.

The finding follows these rules, the first that applies:
    nothing lost         the whole drop's interval lies below 0: the late model is better
    not clearly worse    it holds 0
    misfit               a composite lies clearly below both models: its parts no longer fit together
    spread out           no part has a clear drop from below
    ways disagree        none of those parts has a clear drop from above
    entered              else: in the parts that are clear from below
From below an early deep part reads ever later features, so a drop there is damage in the features. Where the parts
that are clear from above are others too, late parts do harm together, not alone. No words are made here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from undertow.errors import BadData
from undertow.temporal.intervals import CONFIDENCE, RESAMPLES, Interval, edges, resampled_means
from undertow.temporal.predictions import Array, as_numpy

SHARE = 0.2
"""The share of the whole drop from which on a part is named."""
AFTER_LAST = "after the last cut"
"""The name of the part that no cut ends."""

SwapFinding = Literal["entered", "nothing lost", "not clearly worse", "misfit", "spread out", "ways disagree"]
Intervals = list[Interval]


@dataclass(frozen=True)
class SwapCut:
    """Test accuracy of both composites at one cut."""

    cut: str
    early_late: Interval  # early shallow, late deep
    late_early: Interval  # late shallow, early deep
    misfit: bool  # whether one of them is clearly worse than both models


@dataclass(frozen=True)
class SwapPart:
    """The accuracy that is lost when one part turns late."""

    name: str  # the cut that it ends at, or AFTER_LAST
    from_below: Interval  # with all parts before it late, all behind it early
    from_above: Interval  # with all parts before it early, all behind it late
    clear_below: bool  # whether it clearly costs a fifth of the whole drop or more
    clear_above: bool
    free: bool  # whether both intervals end below a fifth of the whole drop


@dataclass(frozen=True)
class SwapProfile:
    """Accuracies of the composites over cuts, the drops of the parts between them, and what they say."""

    finding: SwapFinding
    early: Interval
    late: Interval
    drop: Interval  # early - late
    cuts: tuple[SwapCut, ...]
    parts: tuple[SwapPart, ...]  # one more than cuts
    count: int  # test samples

    @property
    def entered(self) -> tuple[str, ...]:
        """The parts that memorisation entered in, shallow to deep; empty unless the finding is "entered"."""
        return self.below if self.finding == "entered" else ()

    @property
    def below(self) -> tuple[str, ...]:
        """The parts with a clear drop from below."""
        return tuple(part.name for part in self.parts if part.clear_below)

    @property
    def above(self) -> tuple[str, ...]:
        """The parts with a clear drop from above."""
        return tuple(part.name for part in self.parts if part.clear_above)

    @property
    def free(self) -> tuple[str, ...]:
        """The parts that clearly cost less than a fifth of the whole drop, whichever way parts are swapped."""
        return tuple(part.name for part in self.parts if part.free)

    @property
    def misfits(self) -> tuple[str, ...]:
        """The cuts at which a composite is clearly worse than both models."""
        return tuple(one.cut for one in self.cuts if one.misfit)

    @property
    def cost(self) -> float:
        """The accuracy that is lost, from below, with the parts that are clear there."""
        return sum(part.from_below.value for part in self.parts if part.clear_below)


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

    def intervals(of: Iterable[NDArray[np.float64]]) -> Intervals:
        return [_interval(column, confidence) for column in of]

    whole = intervals([first, last, first - last])
    below = intervals(_steps([first, *back, last]))
    above = intervals(_steps([first, *forth[::-1], last]))[::-1]
    short = intervals(last - column for column in (*forth, *back))
    parts = _parts(names, below, above, whole[2])
    composites = _cuts(names, intervals(forth), intervals(back), short, whole[2])
    finding = _find(whole[2], composites, parts)
    return SwapProfile(finding, whole[0], whole[1], whole[2], composites, parts, rows.shape[1])


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


def _parts(
    names: tuple[str, ...], below: Intervals, above: Intervals, drop: Interval
) -> tuple[SwapPart, ...]:
    bound = SHARE * drop.value if drop.low > 0 else -np.inf
    return tuple(
        SwapPart(name, one, other, _clear(one, drop), _clear(other, drop), max(one.high, other.high) < bound)
        for name, one, other in zip((*names, AFTER_LAST), below, above, strict=True)
    )


def _cuts(
    names: tuple[str, ...], forth: Intervals, back: Intervals, short: Intervals, drop: Interval
) -> tuple[SwapCut, ...]:
    """`short`: by how much composites are worse than the late model, first of `forth`, then of `back`."""
    torn = [
        _clear(one, drop) or _clear(other, drop)
        for one, other in zip(short[: len(names)], short[len(names) :], strict=True)
    ]
    return tuple(map(SwapCut, names, forth, back, torn))


def _find(drop: Interval, cuts: tuple[SwapCut, ...], parts: tuple[SwapPart, ...]) -> SwapFinding:
    """By the rules of the module."""
    if drop.low <= 0:
        return "nothing lost" if drop.high < 0 else "not clearly worse"
    if any(one.misfit for one in cuts):
        return "misfit"
    if not any(part.clear_below for part in parts):
        return "spread out"
    return "entered" if any(part.clear_below and part.clear_above for part in parts) else "ways disagree"


def _clear(one: Interval, drop: Interval) -> bool:
    return drop.low > 0 and one.low > 0 and one.value >= SHARE * drop.value
