"""Forgetting: where a later deep part does worse on earlier features than their own deep part did.

    found = find_forgetting(column, checkpoints, at=1000, models=own)     # losses (T, N) of composites and of models
    found.verdicts                                                        # larger, not larger, cannot tell

For s < t compared: loss(composite(s, t)) - loss(f(theta_s)). The paper holds that in a linearised model trained by
gradient descent this is never above 0 on the training data; `linearised.py` says why that does not follow.
The interval is a paired bootstrap over samples (both losses of a sample are drawn together). A pair is
    larger        the interval lies above 0
    not larger    it lies at or below 0
    cannot tell   it holds 0 and what is above
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from undertow.errors import BadData
from undertow.temporal.intervals import RESAMPLES, edges, resampled_means
from undertow.temporal.predictions import Array, Times, checked_finite, checked_times, place_of

LossChange = Literal["larger", "not larger", "cannot tell"]


@dataclass(frozen=True, eq=False)
class Forgetting:
    """How much more loss each composite has than the earlier model it took its shallow part from."""

    shallow: tuple[int, ...]  # P checkpoints before the deep part's
    difference: NDArray[np.float64]  # (P,)
    low: NDArray[np.float64]  # (P,)
    high: NDArray[np.float64]  # (P,)
    verdicts: tuple[LossChange, ...]


def find_forgetting(
    losses: Array, checkpoints: Times, *, at: int, models: Array, resamples: int = RESAMPLES, seed: int = 0
) -> Forgetting:
    """Compare the loss of every composite(s, at), s < at, with that of the model at s.

    Args:
        losses: of the composites with the deep part of `at` (T, N), by their shallow part.
        checkpoints: their T epochs or steps.
        at: the checkpoint of the deep part.
        models: losses of the models themselves (T, N).
        resamples: of the bootstrap.
        seed: of the bootstrap.
    """
    who = "find_forgetting"
    values, own = (checked_finite(who, part, "losses") for part in (losses, models))
    if values.ndim != 2 or own.shape != values.shape:
        raise BadData(
            f"{who}: wanted losses (T, N) and models of the same shape, got {values.shape} and {own.shape}."
        )
    times = checked_times(who, checkpoints, len(values))
    place = place_of(who, times, at)
    if not place:
        raise BadData(f"{who}: wanted a checkpoint before the deep part's, got none.")
    more = (values - own)[:place]
    low, high = edges(resampled_means(more, resamples=resamples, seed=seed))
    verdicts: tuple[LossChange, ...] = tuple(
        _verdict(*ends) for ends in zip(low.tolist(), high.tolist(), strict=True)
    )
    return Forgetting(tuple(times[:place].tolist()), more.mean(1), low, high, verdicts)


def _verdict(low: float, high: float) -> LossChange:
    if low > 0:
        return "larger"
    return "not larger" if high <= 0 else "cannot tell"
