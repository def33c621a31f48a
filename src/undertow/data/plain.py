"""What anyone's tensors and arrays hold, as plain dense numbers: every reader of samples goes through here.

    rows = as_array(values, "train")             # numpy: of tensors, lists, masked arrays without a mask
    x = plain_inputs(tensor, "train")            # dense, float32 or whole numbers, without a gradient
    y = class_labels(labels, "train labels")     # (N,) int64
    check_range(y, 10, "train labels")           # numbers of ten classes

Sparse, nested, quantised, complex and meta tensors hold no rows of numbers that a model was trained on as they are;
they are refused by what they are, before torch says something about a kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from undertow.errors import BadData

MOST_CLASSES = 200_000
"""A number from here on is no class but an id: a table of so many classes would take all memory."""
NUMPY_FLOATS = (torch.float16, torch.float32, torch.float64)


def as_array(values: Any, where: str = "samples") -> NDArray[Any]:
    """Whatever holds numbers as a numpy array; one of objects where rows have several lengths."""
    if isinstance(values, Tensor):
        return _of_tensor(values, where)
    check_unmasked(values, where)
    if isinstance(values, Iterator):
        raise BadData(
            f"{where}: wanted an array, a tensor or a list, got a {type(values).__name__}. Give list(...)."
        )
    try:
        return np.asarray(values)
    except ValueError:  # numpy's answer to lists of unequal length
        return np.empty(len(values), object)
    except (TypeError, RuntimeError) as error:
        raise BadData(f"{where}: wanted numbers, got {_reason(error)}.") from error


def check_unmasked(values: Any, where: str) -> None:
    """Refuse arrays of numpy that hide numbers behind a mask: everyone would read what is hidden."""
    if np.ma.is_masked(values):
        raise BadData(
            f"{where}: wanted a number everywhere, got a masked array. Leave masked samples out, or fill them in."
        )


def _of_tensor(values: Tensor, where: str) -> NDArray[Any]:
    check_dense(values, where)
    plain = values.detach().cpu().resolve_conj().resolve_neg()
    if plain.is_floating_point() and plain.dtype not in NUMPY_FLOATS:  # numpy has neither bfloat16 nor float8
        plain = plain.float()
    try:
        return plain.numpy()
    except (TypeError, RuntimeError) as error:
        raise BadData(f"{where}: wanted numbers, got {values.dtype} ({_reason(error)}).") from error


def _reason(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")


def check_dense(values: Tensor, where: str) -> None:
    """Refuse tensors that hold no table of numbers."""
    kind = tensor_kind(values)
    if kind:
        hint = (
            " Give .to_dense()."
            if kind == "sparse"
            else " Give .dequantize()."
            if kind == "quantised"
            else ""
        )
        raise BadData(f"{where}: wanted a dense tensor of numbers, got a {kind} one ({values.dtype}).{hint}")


def tensor_kind(values: Tensor) -> str:
    """What keeps a tensor from being a plain table of numbers; nothing for one that is."""
    if torch.nn.parameter.is_lazy(values):
        return "lazy"
    if values.is_nested:
        return "nested"
    if values.is_meta:
        return "meta"
    if values.is_quantized:
        return "quantised"
    return "" if values.layout == torch.strided else "sparse"


def plain_inputs(x: Tensor, where: str) -> Tensor:
    """Inputs as both splits of a data set have them: float32, bytes or int64, without a gradient."""
    check_dense(x, where)
    if x.is_complex():
        raise BadData(f"{where}: wanted real numbers, got {x.dtype}. Give real and imaginary parts apart.")
    x = x.detach()
    if x.is_floating_point() or x.dtype == torch.bool:
        return x.to(torch.float32)
    return x if x.dtype == torch.uint8 else x.to(torch.int64)


def class_labels(y: Any, where: str) -> Tensor:
    """Class numbers (N,) as int64 on the CPU; which classes there are is not asked."""
    if isinstance(y, Tensor) and y.dtype == torch.int64 and y.ndim == 1 and not tensor_kind(y):
        return y.detach().cpu()
    labels = as_array(y, where)
    if labels.dtype.kind == "f":
        raise BadData(
            f"{where}: wanted whole-number class labels, got {labels.dtype}. If they are class numbers, convert them "
            "to int64. Targets of a regression have no classes."
        )
    if labels.dtype.kind not in "iub":
        raise BadData(
            f"{where}: wanted whole-number class labels, got {labels.dtype}. "
            "Number names with numpy.unique(y, return_inverse=True)."
        )
    if labels.ndim != 1:
        raise BadData(
            f"{where}: wanted shape (N,), got {labels.shape}. Take the column, or argmax(1) of one-hot rows."
        )
    if labels.dtype.kind == "u" and len(labels) and int(labels.max()) >= 2**63:
        raise BadData(f"{where}: wanted class numbers, got {int(labels.max())}. Number the classes from 0.")
    return torch.from_numpy(np.array(labels, np.int64))


def check_range(labels: Tensor, classes: int, where: str) -> None:
    """Refuse numbers that none of the classes has."""
    bad = ((labels < 0) | (labels >= classes)).nonzero()
    if len(bad):
        at = int(bad[0])
        raise BadData(
            f"{where}: wanted class numbers 0 to {classes - 1}, got {int(labels[at])} at index {at}"
            f" ({len(bad)} such labels). Number the classes from 0."
        )


def check_finite(x: Tensor, where: str) -> None:
    """Refuse NaN and infinity, with the first sample that has one."""
    # A sum meets any NaN or inf without a mask as large as the data; the mask is made only to find the index.
    if not len(x) or torch.isfinite(x.sum(dtype=torch.float64)):
        return
    bad = (~torch.isfinite(x.reshape(len(x), -1)).all(1)).nonzero()
    if len(bad):  # none: the numbers are finite and only their sum is not
        raise BadData(
            f"{where}: wanted finite numbers, got NaN or infinity in the sample at index {int(bad[0])}"
            f" ({len(bad)} such samples). Remove or repair them."
        )


def all_tensors(x: Any) -> bool:
    """Whether these are several inputs by position: tensors, and maybe options beside them."""
    return isinstance(x, tuple | list) and any(isinstance(part, Tensor) for part in cast("list[Any]", x))
