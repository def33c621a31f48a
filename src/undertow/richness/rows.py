"""Arrays as this room takes them: tensors or numpy, as checked rows of finite numbers.

rows = float_rows(features, "d_lr, features")   # (N, D) tensor, its own dtype and device
same_count("d_lr", rows, others)                # refuses features and outputs of different samples
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from undertow.data.plain import as_array, check_dense
from undertow.errors import BadData
from undertow.features.moments import check_rows

Array = NDArray[Any] | Tensor

TOLERANCE = 1e-6
"""What is smaller than this share of the largest is rounding: outputs and features come in float32."""


def as_tensor(array: Array, where: str = "richness") -> Tensor:
    """The numbers as a tensor without gradients; numpy arrays are copied."""
    found = array.detach() if isinstance(array, Tensor) else torch.from_numpy(_numbers(array, where))
    return found.cpu() if found.device.type == "mps" else found  # mps has no float64


def _numbers(array: object, where: str) -> NDArray[Any]:
    """A copy of whatever numpy reads as numbers, in a kind and byte order that torch knows."""
    found = as_array(array, where)
    if found.dtype.kind not in "buifc":
        raise BadData(
            f"{where}: wanted numbers in rows of one length, got {type(array).__name__} of {found.dtype}. "
            "Give an array or a tensor."
        )
    kind = (
        np.float64 if found.dtype.kind == "f" and found.dtype.itemsize > 8 else found.dtype.newbyteorder("=")
    )
    return np.array(found, dtype=kind)


def float_rows(array: Array, where: str) -> Tensor:
    """`array` as finite float rows (N, D), at least one; whole numbers become float64."""
    if isinstance(array, Tensor):
        check_dense(array, where)
    rows = as_tensor(array, where)
    if not (rows.is_floating_point() or rows.is_complex()):
        rows = rows.double()
    check_rows(rows, where)
    if 0 in rows.shape:
        raise BadData(f"{where}: wanted at least one row and one column, got shape {tuple(rows.shape)}.")
    return rows


def same_count(who: str, first: Tensor, second: Tensor) -> None:
    """Refuse rows that cannot belong to the same samples."""
    if len(first) != len(second):
        raise BadData(
            f"{who}: wanted both of the same samples, got {len(first)} and {len(second)} rows. "
            "Compute both from one pass."
        )


def class_numbers(labels: Array, where: str) -> Tensor:
    """`labels` as whole numbers (N,); what they may be is checked where the classes are known."""
    if isinstance(labels, Tensor):
        check_dense(labels, where)
    found = as_tensor(labels, where)
    if found.ndim != 1 or found.is_floating_point() or found.dtype == torch.bool or found.is_complex():
        raise BadData(
            f"{where}: wanted whole-number labels (N,), got {found.dtype} of shape {tuple(found.shape)}."
        )
    return found.long()
