"""Predictions, losses and the checkpoints they belong to, as this room's measures take them.

    times = checked_times("consistency", run.epochs, count=20)      # (T,) rising whole numbers
    answers = checked_predictions("consistency", predictions, 20)   # (T, T, N) or (T, N) whole numbers
    place_of("consistency", times, 300)                             # where checkpoint 300 stands

`predictions[s, t, n]` is what composite(shallow s, deep t) answers for sample n, so `predictions[t, t]` is the
model itself and the column `predictions[:, t]` shows one deep part all shallow parts. A class below 0 means
that no number came out; it agrees with nothing, not even itself. Arrays may be numpy or tensors on any device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from undertow.errors import BadData, BadValue

Array = NDArray[Any] | Tensor
Times = Sequence[int] | NDArray[Any] | Tensor


def as_numpy(array: Array | Sequence[Any]) -> NDArray[Any]:
    """The same numbers as a numpy array."""
    if isinstance(array, Tensor):
        return array.detach().cpu().numpy()
    return np.asarray(array)


def checked_times(who: str, checkpoints: Times, count: int) -> NDArray[np.int64]:
    """The epochs or steps of `count` checkpoints; they must rise."""
    times = as_numpy(checkpoints)
    if times.ndim != 1 or len(times) != count or times.dtype.kind not in "iu":
        raise BadData(
            f"{who}: wanted the epochs or steps of {count} checkpoints as whole numbers, "
            f"got {times.dtype} of shape {times.shape}."
        )
    if (np.diff(times.astype(np.int64)) <= 0).any():
        raise BadData(f"{who}: wanted checkpoints that rise, got {times.tolist()}. Sort them, each once.")
    return times.astype(np.int64)


def place_of(who: str, times: NDArray[np.int64], at: int) -> int:
    """Where the checkpoint `at` stands; one that is not there is answered with its neighbours."""
    found = np.flatnonzero(times == at)
    if not len(found):
        near = sorted(times[np.argsort(np.abs(times - at), kind="stable")[:3]].tolist())
        raise BadValue(
            who, "the epoch or step of a checkpoint", at, f"The nearest are {', '.join(map(str, near))}."
        )
    return int(found[0])


def checked_predictions(who: str, predictions: Array, *, dims: tuple[int, ...] = (3,)) -> NDArray[Any]:
    """Whole numbers (T, T, N), or (T, N) where `dims` allows a column, of at least one sample."""
    answers = as_numpy(predictions)
    shapes = " or ".join({3: "(T, T, N)", 2: "(T, N)"}[ndim] for ndim in dims)
    square = answers.ndim != 3 or answers.shape[0] == answers.shape[1]
    if answers.ndim not in dims or not square or 0 in answers.shape or answers.dtype.kind not in "iu":
        raise BadData(
            f"{who}: wanted predicted classes {shapes} as whole numbers, "
            f"got {answers.dtype} of shape {answers.shape}. Take the argmax of the outputs."
        )
    return answers


def checked_finite(who: str, array: Array, what: str) -> NDArray[np.float64]:
    """Real numbers as float64; NaN and infinity are refused."""
    values = as_numpy(array)
    if values.dtype.kind not in "fiub" or 0 in values.shape:
        raise BadData(f"{who}: wanted {what}, at least one, got {values.dtype} of shape {values.shape}.")
    values = values.astype(np.float64)
    if not np.isfinite(values).all():
        raise BadData(
            f"{who}: wanted finite {what}, got NaN or infinity in {int((~np.isfinite(values)).sum())} "
            f"of {values.size} places. Has the network diverged?"
        )
    return values


def own_answers(predictions: NDArray[Any]) -> NDArray[Any]:
    """The diagonal (T, N) of predictions or losses (T, T, N): the models themselves."""
    steps = np.arange(len(predictions))
    return predictions[steps, steps]


def agreement(answers: NDArray[Any], others: NDArray[Any]) -> NDArray[np.bool_]:
    """Where two arrays of classes agree."""
    return (answers == others) & (answers >= 0)


def coverage_note(used: NDArray[np.int64], low: int, high: int) -> str:
    """What a window of whole numbers lost by being taken over the recorded checkpoints only."""
    if len(used) == high - low + 1:
        return ""
    return f"{len(used)} of the {high - low + 1} epochs or steps from {low} to {high} are recorded"


def joined(*parts: str) -> str:
    """The parts of a note that have something to say."""
    return "; ".join(filter(None, parts))
