"""Temporal consistency: does a deep part answer the same for features of other times?

    found = pointwise_consistency(predictions, checkpoints, start=200, deep=300)   # memory: start < deep
    found.values                                   # (N,) consistency of every sample; found.mean: its interval
    pointwise_consistency(predictions, checkpoints, start=500, deep=300)           # transferability
    pointwise_consistency(column, checkpoints, 500, 300, models=own)   # a column (T, N) instead of (T, T, N)
    matrix = consistency_matrix(predictions, checkpoints, reference="deep")
    matrix.values[s, t]                            # share of samples with composite(s, t) = f(theta_t)

Point-wise, with T1 = start and T2 = deep, u running over the recorded checkpoints from min to max of both:
    consistency(x) = mean over u of 1[composite(u, T2)(x) = f(theta_max(u, T2))(x)]
so the reference is f(theta_T2) for memory and f(theta_u) for transferability; u = T2 agrees with itself.
The data set's consistency compares composite(s, t) with f(theta_t) ("deep") or with f(theta_s) ("shallow",
the paper's figure 3). Both count equal answers, right or wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from undertow.errors import BadData, BadValue, unknown
from undertow.temporal.intervals import CONFIDENCE, RESAMPLES, Interval, bootstrap_mean, share_interval
from undertow.temporal.predictions import (
    Array,
    Times,
    agreement,
    checked_predictions,
    checked_times,
    coverage_note,
    joined,
    own_answers,
    place_of,
)

Reference = Literal["deep", "shallow"]
Kind = Literal["memory", "transferability", "itself"]


@dataclass(frozen=True, eq=False)
class Pointwise:
    """The consistency of every sample with one deep part over a window of shallow parts."""

    values: NDArray[np.float64]  # (N,) multiples of 1 / len(used)
    mean: Interval  # bootstrap over samples
    kind: Kind
    start: int
    deep: int
    used: tuple[int, ...]  # the recorded checkpoints in the window
    note: str = ""


@dataclass(frozen=True, eq=False)
class ConsistencyMatrix:
    """Shares of samples on which composite(s, t) agrees with its reference, rows s, columns t."""

    values: NDArray[np.float64]  # (T, T)
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    checkpoints: tuple[int, ...]
    reference: Reference
    count: int  # samples
    note: str = "the diagonal compares a model with itself"


def pointwise_consistency(
    predictions: Array,
    checkpoints: Times,
    start: int,
    deep: int,
    models: Array | None = None,
    *,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Pointwise:
    """The consistency of every sample for the window from `start` to `deep`.

    Args:
        predictions: classes (T, T, N) of all composites, or (T, N) of those with the deep part of `deep`.
        checkpoints: their T epochs or steps.
        start: T1, the window's other end; need not be recorded.
        deep: T2, the checkpoint of the deep part.
        models: classes (T, N) of the models themselves; for a column and `start` after `deep`.
        confidence: of the interval of the mean.
        resamples: of the bootstrap.
        seed: of the bootstrap.
    """
    who = "pointwise_consistency"
    answers = checked_predictions(who, predictions, dims=(3, 2))
    times = checked_times(who, checkpoints, len(answers))
    place = place_of(who, times, deep)
    low, high = min(start, deep), max(start, deep)
    used = np.flatnonzero((times >= low) & (times <= high))
    column, own = _column(who, answers, place, models)
    if own is None and used[-1] > place:
        raise BadValue(who, "models=, the models' own answers, for a start after deep", None)
    wanted = (own[u] if own is not None and u > place else column[place] for u in used)
    values = np.stack([agreement(column[u], one) for u, one in zip(used, wanted, strict=True)]).mean(0)
    mean = bootstrap_mean(values, confidence=confidence, resamples=resamples, seed=seed)
    kind: Kind = "memory" if start < deep else "transferability" if start > deep else "itself"
    note = joined(
        coverage_note(times[used], low, high),
        "all samples alike: the interval has no width" if np.ptp(values) == 0 else "",
    )
    return Pointwise(values, mean, kind, start, deep, tuple(times[used].tolist()), note)


def consistency_matrix(
    predictions: Array, checkpoints: Times, reference: Reference = "deep", *, confidence: float = CONFIDENCE
) -> ConsistencyMatrix:
    """The share of samples on which each composite (T, T, N) agrees with a model, by its part's checkpoint."""
    who = "consistency_matrix"
    if reference not in get_args(Reference):
        raise unknown("reference", str(reference), get_args(Reference))
    answers = checked_predictions(who, predictions)
    times = checked_times(who, checkpoints, len(answers))
    own, count = own_answers(answers), answers.shape[2]
    hits = np.zeros(answers.shape[:2], dtype=np.int64)
    for t in range(len(answers)):  # one column at a time: nothing of the size of all answers is made
        hits[:, t] = agreement(answers[:, t], own[t] if reference == "deep" else own).sum(1)
    low, high = share_interval(hits, count, confidence)
    return ConsistencyMatrix(hits / count, low, high, tuple(times.tolist()), reference, count)


def _column(
    who: str, answers: NDArray[Any], place: int, models: Array | None
) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Answers (T, N) of one deep part, and those of the models themselves where they are known."""
    if answers.ndim == 3:
        return answers[:, place], own_answers(answers)
    if models is None:
        return answers, None
    own = checked_predictions(who, models, dims=(2,))
    if own.shape != answers.shape or (own[place] != answers[place]).any():
        raise BadData(
            f"{who}: wanted models of shape {answers.shape} whose answers at the deep part's checkpoint are "
            f"the column's, got {own.shape} or others. Both must come from the same samples in the same order."
        )
    return answers, own
