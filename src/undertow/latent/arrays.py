"""Arrays as probes take them, and answers in kind: tensors for tensors, numpy for all else.

    rows = feature_rows(probe, X, reset=True)    # checked (N, D) float tensor, n_features_in_ noted
    labels = label_array(y, len(rows))           # checked (N,) numpy array
    return in_kind(scores, like=X)               # numpy array, or tensor on X's device

Numbers are float32 or float64: half precision becomes float32, whole numbers become float64.
"""

from __future__ import annotations

import warnings
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite, column_or_1d, validate_data
from torch import Tensor

from undertow.errors import BadData

Array = NDArray[Any] | Tensor


class HasWidth(Protocol):
    """An estimator that notes the width of its features, as scikit-learn wants it."""

    n_features_in_: int


def feature_rows(probe: HasWidth, features: Any, *, reset: bool) -> Tensor:
    """`features` as a checked (N, D) tensor; `reset` notes their width, otherwise it must match."""
    who = type(probe).__name__
    if isinstance(features, Tensor):
        rows = _tensor_rows(who, features)
        if reset:
            probe.n_features_in_ = rows.shape[1]
        elif rows.shape[1] != probe.n_features_in_:
            raise BadData(
                f"{who}: wanted rows of width {probe.n_features_in_}, as in fit, got {rows.shape[1]}."
            )
    else:
        # scikit-learn's own check: its messages, and the column names of data frames.
        checked: Any = validate_data(
            probe, features, reset=reset, dtype=[np.float64, np.float32], ensure_all_finite=False
        )
        rows = as_tensor(checked)
    _check_finite(who, rows)
    return rows


def _tensor_rows(who: str, features: Tensor) -> Tensor:
    if features.ndim != 2 or features.layout != torch.strided or features.is_complex() or 0 in features.shape:
        raise BadData(
            f"{who}: wanted a dense real tensor (N, D) with at least one row and column, got "
            f"{features.dtype} {features.layout} of shape {tuple(features.shape)}. Flatten maps with flatten(1)."
        )
    rows = features.detach()
    if rows.is_floating_point():
        return rows.to(torch.promote_types(rows.dtype, torch.float32))
    return rows.double()


def _check_finite(who: str, rows: Tensor) -> None:
    # The largest magnitude meets any NaN or infinity without a mask as large as the data.
    if torch.isfinite(torch.stack(torch.aminmax(rows))).all():
        return
    bad = (~torch.isfinite(rows).all(1)).nonzero()
    raise BadData(
        f"{who}: wanted finite features, got NaN or infinity in {len(bad)} of {len(rows)} rows"
        f" (the first is row {int(bad[0])}). The network has diverged here, or its input has such values."
    )


def label_array(who: str, labels: object, count: int) -> NDArray[Any]:
    """`labels` as a checked (N,) numpy array of class names: whole numbers, strings, booleans."""
    if labels is None:
        raise BadData(f"{who} requires y to be passed, but the target y is None.")
    given = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else labels
    checked = column_or_1d(given, warn=True)
    if (
        checked.dtype.kind not in "iub"
    ):  # whole numbers are always names, and looking closer takes longer than a fit
        assert_all_finite(checked, input_name="y")
        with warnings.catch_warnings():
            # Labels are always names here, however many: one row per class is no regression.
            warnings.filterwarnings("ignore", message="The number of unique classes is greater than 50%")
            check_classification_targets(checked)
    if len(checked) != count:
        raise BadData(f"{who}: wanted one label per row, got {count} rows and {len(checked)} labels.")
    return checked


def as_tensor(array: Array) -> Tensor:
    """The same numbers as a tensor, without a copy where possible."""
    if isinstance(array, Tensor):
        return array
    with warnings.catch_warnings():
        # Memory-mapped features are read-only; nothing here writes to its input.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(np.ascontiguousarray(array))


def matching(array: Array, rows: Tensor) -> Tensor:
    """`array` as a tensor of the dtype and on the device of `rows`."""
    return as_tensor(array).to(rows.device, rows.dtype)


def in_kind(answer: Tensor, like: object) -> Array:
    """`answer` as a tensor on the device of `like`, or as a numpy array if `like` is no tensor."""
    return answer.to(like.device) if isinstance(like, Tensor) else answer.cpu().numpy()


@contextmanager
def as_written(device: torch.device) -> Generator[None]:
    """Arithmetic in the dtypes that are written: no gradients, and no autocast to half precision around it."""
    with torch.no_grad(), torch.autocast(device.type, enabled=False):
        yield


def is_whole(value: object, low: int) -> bool:
    """Whether a setting is a whole number from `low` up."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= low)


def is_positive(value: object) -> bool:
    """Whether a setting is a number above 0."""
    return isinstance(value, int | float | np.floating | np.integer) and bool(value > 0)


def scaled(rows: Tensor) -> Tensor:
    """`rows` divided by a power of two where their squares would overflow or vanish; else themselves."""
    low, high = (float(end) for end in torch.aminmax(rows))
    peak = max(-low, high)
    if peak == 0 or 1e-12 < peak < 1e12:
        return rows
    # Two steps: the inverse of a subnormal number is infinite.
    exponent = -int(np.frexp(peak)[1])
    return rows * 2.0 ** (exponent // 2) * 2.0 ** (exponent - exponent // 2)
