"""Labels, features and probabilities as people hand them over, without a run.

    given = read_labels(["cat", "dog", None, "cat"])     # given.labels: (N,) 0, 1, -1, 0; given.names: ("cat", "dog")
    read_features({"clip": A, "dino": B})                # views that never saw the labels
    evened(view)                                         # columns on one scale, where one of them drowns the others
    read_probabilities(P), read_probabilities([P, Q])

A label is missing where it is -1, NaN, None or an empty text: such samples are proposed for, but not judged.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor
from mmap import mmap
from os import PathLike
from typing import Any, cast
from unicodedata import normalize

import numpy as np
import torch
from torch import Tensor

from undertow.data.plain import as_array, check_unmasked, plain_inputs
from undertow.errors import BadData
from undertow.labels.shelf import slices
from undertow.labels.views import View

FEWEST_NUMBERS = 100
"""Class numbers below it are taken in any case; others that no sample count reaches are names: 20260131 is one class,
not the last of twenty million."""
TOLERANCE = 1e-2
"""How far a row of probabilities may be from adding up to 1."""
DROWNS, WIDER = 0.9, 10.0
"""Columns so many times wider than the middle one that together have this share of all variance are in other units:
neighbours and class directions see nothing else."""
SINGLE = (float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max))
"""The sizes that float32 can hold in full."""
LARGEST = 2**53
"""Numbers beyond it are no longer told apart in float64."""


@dataclass(frozen=True, eq=False)
class GivenLabels:
    """Class numbers, and what the classes are called."""

    labels: Tensor  # (N,) int64; -1 where missing
    names: tuple[str, ...]


def read_labels(labels: Any, classes: int = 0) -> GivenLabels:
    """Numbers or names as class numbers; `classes` is how many there are at least."""
    array = _array(labels)
    if array.ndim != 1:
        raise BadData(f"labels: wanted one label per sample, got shape {array.shape}.")
    if array.dtype.kind in "iub":
        return _numbered(array.astype(np.int64), classes)
    if array.dtype.kind == "f":
        whole = np.where(np.isnan(array), -1, array)
        if (far := ~(np.abs(whole) < LARGEST)).any():
            at = int(far.argmax())
            raise BadData(f"labels: wanted class numbers or names, got {whole[at]:g} at {at}.")
        if (whole != np.round(whole)).any():
            raise BadData("labels: wanted class numbers or names, got broken numbers. Scores are no labels.")
        return _numbered(whole.astype(np.int64), classes)
    return _named(array)


def _array(labels: Any) -> np.ndarray:
    """Labels as numpy has them; a list with gaps keeps its gaps, and its numbers stay numbers."""
    check_unmasked(labels, "labels")
    array = as_array(labels, "labels") if isinstance(labels, Tensor) else np.asarray(labels)
    if array.dtype.kind in "US" and not isinstance(labels, np.ndarray):
        array = np.asarray(labels, dtype=object)  # numpy would write NaN among texts as a text
    if array.dtype.kind != "O" or array.ndim != 1:
        return array
    values = [np.nan if _is_missing(one) else one for one in array.tolist()]
    if all(isinstance(one, int | float) for one in values):
        return np.asarray(values, dtype=np.float64)
    return array


def _numbered(numbers: np.ndarray, classes: int) -> GivenLabels:
    if len(numbers) and int(numbers.min()) < -1:
        at = int((numbers < -1).argmax())
        raise BadData(
            f"labels: wanted class numbers from 0 on, or -1 where missing, got {numbers[at]} at {at}."
        )
    most = int(numbers.max(initial=-1))
    if most >= max(
        classes, len(numbers), FEWEST_NUMBERS
    ):  # no class numbers: names that are written as numbers
        known, places = np.unique(numbers[numbers >= 0], return_inverse=True)
        numbers = numbers.copy()
        numbers[numbers >= 0] = places
        return GivenLabels(torch.from_numpy(numbers), tuple(map(str, known.tolist())))
    return GivenLabels(torch.from_numpy(numbers), tuple(map(str, range(max(classes, most + 1)))))


def _named(values: np.ndarray) -> GivenLabels:
    listed = values.tolist()
    for at, one in enumerate(listed):
        if isinstance(one, Mapping | Sequence | np.ndarray) and not isinstance(one, str | bytes):
            raise BadData(f"labels: wanted one class number or name for each sample, got {one!r} at {at}.")
    # Two ways to write one letter, as the systems of Apple and others do, are one class.
    texts = [None if _is_missing(one) else normalize("NFC", str(one)) for one in listed]
    names = tuple(sorted({one for one in texts if one is not None}))
    places = {name: place for place, name in enumerate(names)}
    return GivenLabels(torch.tensor([-1 if one is None else places[one] for one in texts]), names)


def _is_missing(value: object) -> bool:
    import pandas as pd

    return value is None or value is pd.NA or value in (-1, "") or value != value or not str(value).strip()


def read_features(features: Any) -> list[View]:
    """One view, or several by name."""
    if features is None:
        return []
    if isinstance(features, Mapping):
        parts = cast("Mapping[str, Any]", features)
        return [_view(one, str(name)) for name, one in parts.items()]
    return [_view(features, "features")]


def _view(given: Any, name: str) -> View:
    """Features where they are; those in a file stay there if they are float32."""
    rows = _rows(given, name)
    mapped = isinstance(given, np.memmap) and given.dtype == np.float32 and isinstance(given.base, mmap)
    return View(name, rows=rows, file=cast("mmap", given.base) if mapped else None)


def evened(view: View) -> tuple[View, str]:
    """The view as it is, or with each column divided by its own spread; and what to say of it.

    In a table of measurements one column may be in thousands and the others in parts of one. Features of a network
    share one scale, and the spreads of their columns mean something.
    """
    spread = _spread(view.rows)
    total = float((spread**2).sum())
    if not total > 0:  # nothing varies, or there is a NaN, which is refused later
        return view, ""
    wide = spread > WIDER * spread[spread > 0].median()
    share = float((spread[wide] ** 2).sum()) / total
    if share <= DROWNS:
        return view, ""
    which = f"Column {int(wide.nonzero()[0])}" if int(wide.sum()) == 1 else f"{int(wide.sum())} columns"
    note = (
        f"{which} of {view.title} held {floor(1000 * share) / 10:.1f} % of all variance, as happens where columns "
        "have different units."
    )
    if view.file is not None:
        return view, f"{note} Divide each column by its standard deviation before you search."
    rows = (view.rows - view.rows.mean(0)) / torch.where(spread > 0, spread, 1.0).float()
    return View(view.name, rows=rows), f"{note} Each column was divided by its standard deviation."


def _spread(rows: Tensor) -> Tensor:
    """(D,) float64: standard deviations, block by block."""
    centre, total = rows[:1000].double().mean(0), torch.zeros(2, rows.shape[1], dtype=torch.float64)
    for part in slices(len(rows), rows.shape[1]):
        away = rows[part].double() - centre
        total += torch.stack([away.sum(0), (away**2).sum(0)])
    mean, square = total / len(rows)
    return (square - mean**2).clamp(min=0).sqrt()


def _rows(given: Any, where: str) -> Tensor:
    if isinstance(given, Tensor):
        if given.dtype == torch.float64:
            _check_scale(as_array(given, where), where)
        rows = plain_inputs(given, where)
    else:
        check_unmasked(given, where)
        try:
            array = np.asarray(given)
        except ValueError as error:  # numpy's words are of inhomogeneous shapes
            raise BadData(f"{where}: wanted numbers (N, D), got rows of different lengths.") from error
        if array.dtype.kind not in "iufb":
            raise BadData(f"{where}: wanted numbers (N, D), got {_came(given, array)}.")
        _check_scale(array, where)
        with warnings.catch_warnings(
            action="ignore", category=UserWarning
        ):  # of arrays that must not be written to
            rows = torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))
    if rows.ndim < 2:
        raise BadData(f"{where}: wanted features of shape (N, D), got {tuple(rows.shape)}.")
    return rows.flatten(1).float()


def _check_scale(array: np.ndarray, where: str) -> None:
    """Refuse numbers that float32 would make infinite, and those of which it would leave nothing."""
    if array.dtype.kind != "f" or array.dtype.itemsize <= 4 or not array.size:
        return
    high, low = float(np.fmax.reduce(array, axis=None)), float(np.fmin.reduce(array, axis=None))
    largest = max(high, -low)  # NaN was passed over; it and infinity are refused later, with their rows
    least, most = SINGLE
    if most < largest < np.inf or 0 < largest < least:
        raise BadData(
            f"{where}: wanted numbers that float32 can hold, got numbers up to {largest:.3g}. Multiply them by one "
            "number so that they are near 1."
        )


def _came(given: Any, array: np.ndarray) -> str:
    """What came instead of numbers."""
    if isinstance(given, str | PathLike):
        return f"the text {str(cast('str', given))!r}. Load the file first, for example with numpy.load"
    if (columns := getattr(given, "columns", None)) is not None:
        texts = [str(name) for name in columns if not is_number(given[name].dtype)]
        return f"no numbers in column {', '.join(texts)}. Leave it out" if texts else str(array.dtype)
    return str(array.dtype)


def is_number(kind: Any) -> bool:
    """Whether a column of this dtype holds numbers."""
    return getattr(kind, "kind", "O") in "iufb"


def read_probabilities(given: Any) -> list[Tensor]:
    """One table of probabilities (N, C), or several: listed, by name, or as (K, N, C)."""
    if given is None:
        return []
    if isinstance(given, Mapping):
        return [_probabilities(one) for one in cast("Mapping[str, Any]", given).values()]
    listed = isinstance(given, Sequence) and not isinstance(given, str) and np.ndim(given[0]) == 2
    several = listed or getattr(given, "ndim", 2) == 3
    return [_probabilities(one) for one in (cast("Sequence[Any]", given) if several else [given])]


def _probabilities(given: Any) -> Tensor:
    rows = _rows(given, "pred_probs")
    if not bool(torch.isfinite(rows).all()) or float(rows.min()) < 0:
        raise BadData("pred_probs: wanted probabilities from 0 to 1, got negative or missing numbers.")
    sums = rows.sum(1)
    if float((sums - 1).abs().max()) > TOLERANCE:
        at = int((sums - 1).abs().argmax())
        raise BadData(f"pred_probs: wanted rows that add up to 1, got {float(sums[at]):.3g} in row {at}.")
    return rows
