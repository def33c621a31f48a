"""Forgetting: where a later deep part does worse on earlier features than their own deep part did.

    found = find_forgetting(losses, checkpoints)               # (T, T, N), or (T, T) without intervals
    found = find_forgetting(column, checkpoints, at=1000, models=own)       # one deep part: (T, N) and (T, N)
    found.where("larger")                                 # pairs (s, t) with certainly more loss
    print(found.reading)

For s < t compared: loss(composite(s, t)) - loss(f(theta_s)). In a linearised model trained by gradient descent
with a convex loss this is never above 0 on the training data, so a larger loss is evidence against such a model.
The interval is a paired bootstrap over samples (both losses of a sample are drawn together). A pair is
    larger        the interval lies above 0
    not larger    it lies at or below 0
    cannot tell   it holds 0 and what is above, or there are no samples to draw
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from undertow.errors import BadData, BadValue
from undertow.temporal.intervals import CONFIDENCE, RESAMPLES, edges, resampled_means
from undertow.temporal.predictions import Array, Times, checked_finite, checked_times, own_answers, place_of

Verdict = Literal["larger", "not larger", "cannot tell"]
Pair = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Forgetting:
    """How much more loss each composite has than the earlier model it took its shallow part from."""

    pairs: tuple[Pair, ...]  # (shallow, deep) checkpoints, shallow before deep
    difference: NDArray[np.float64]  # (P,)
    low: NDArray[np.float64] | None  # (P,); None without samples
    high: NDArray[np.float64] | None
    verdicts: tuple[Verdict, ...]
    reading: str
    note: str = ""

    def where(self, verdict: Verdict = "larger") -> tuple[Pair, ...]:
        """The pairs with this verdict."""
        return tuple(pair for pair, found in zip(self.pairs, self.verdicts, strict=True) if found == verdict)


def find_forgetting(
    losses: Array,
    checkpoints: Times,
    *,
    at: int | None = None,
    models: Array | None = None,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Forgetting:
    """Compare the loss of every composite(s, t), s < t, with that of the model at s.

    Args:
        losses: of all composites (T, T, N), or their means (T, T); with `at` the column (T, N) or (T,).
        checkpoints: their T epochs or steps.
        at: the checkpoint of the deep part, where losses are a column.
        models: losses of the models themselves, of the column's shape; only with `at`.
        confidence: of the intervals.
        resamples: of the bootstrap.
        seed: of the bootstrap.
    """
    values = checked_finite("find_forgetting", losses, "losses")
    times = checked_times("find_forgetting", checkpoints, len(values))
    if at is None:
        pairs, more = _all_pairs(values, times)
    else:
        pairs, more = _column_pairs(values, times, at, models)
    if not pairs:
        raise BadData("find_forgetting: wanted a checkpoint before the deep part's, got none.")
    if more.ndim == 1:
        count = int((more > 0).sum())
        reading = f"Cannot tell: mean losses alone have no interval; {count} of {len(pairs)} are larger."
        note = "give the losses of single samples for intervals"
        return Forgetting(pairs, more, None, None, ("cannot tell",) * len(pairs), reading, note)
    low, high = edges(resampled_means(more, resamples=resamples, seed=seed), confidence)
    verdicts: tuple[Verdict, ...] = tuple(
        _verdict(*ends) for ends in zip(low.tolist(), high.tolist(), strict=True)
    )
    return Forgetting(
        pairs, more.mean(1), low, high, verdicts, _reading(pairs, more.mean(1), verdicts, confidence)
    )


def _all_pairs(
    values: NDArray[np.float64], times: NDArray[np.int64]
) -> tuple[tuple[Pair, ...], NDArray[Any]]:
    if values.ndim not in (2, 3) or values.shape[0] != values.shape[1]:
        raise BadData(
            f"find_forgetting: wanted losses (T, T, N) or (T, T), got shape {values.shape}. For a column give at=."
        )
    shallow, deep = np.triu_indices(len(values), 1)
    pairs = tuple(zip(times[shallow].tolist(), times[deep].tolist(), strict=True))
    return pairs, values[shallow, deep] - own_answers(values)[shallow]


def _column_pairs(
    values: NDArray[np.float64], times: NDArray[np.int64], at: int, models: Array | None
) -> tuple[tuple[Pair, ...], NDArray[Any]]:
    if models is None:
        raise BadValue("find_forgetting", "models=, the models' own losses, beside a column", None)
    own, place = (
        checked_finite("find_forgetting, models", models, "losses"),
        place_of("find_forgetting", times, at),
    )
    if values.ndim not in (1, 2) or own.shape != values.shape:
        raise BadData(
            f"find_forgetting: wanted a column of losses (T, N) or (T,) and models of the same shape, "
            f"got {values.shape} and {own.shape}."
        )
    return tuple((one, at) for one in times[:place].tolist()), (values - own)[:place]


def _verdict(low: float, high: float) -> Verdict:
    if low > 0:
        return "larger"
    return "not larger" if high <= 0 else "cannot tell"


def _reading(
    pairs: tuple[Pair, ...], more: NDArray[np.float64], verdicts: tuple[Verdict, ...], confidence: float
) -> str:
    sure = [place for place, verdict in enumerate(verdicts) if verdict == "larger"]
    unsure = verdicts.count("cannot tell")
    rest = f"{unsure} of {len(pairs)} pairs cannot be told" if unsure else f"all {len(pairs)} pairs were told"
    if not sure:
        return f"No forgetting is seen: no composite has certainly more loss than its earlier model; {rest}."
    worst = max(sure, key=lambda place: float(more[place]))
    chance = len(pairs) * (1 - confidence) / 2
    return (
        f"Forgetting in {len(sure)} of {len(pairs)} pairs (about {chance:.1f} would be by chance alone), most "
        f"with features of {pairs[worst][0]} at {pairs[worst][1]}: {float(more[worst]):+.3g} loss, "
        f"which no linearised model shows; {rest}."
    )
