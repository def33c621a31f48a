"""Effective dimension: how many directions carry the features.

    effective_dimension(features)                       # exp(entropy of the eigenvalue shares), eq. 8
    effective_dimension(features, leave_first=True)     # 1 + the same without the first eigenvalue, eq. 9
    effective_dimension(eigenvalues)                    # (P,) instead of (N, P)

Eigenvalues are those of the second moment, not centred: the first is then usually the constant function,
much larger than the rest, which `leave_first` counts as one dimension and no more. For C collapsed classes
of one size that gives C.
"""

from __future__ import annotations

import torch
from torch import Tensor

from undertow.errors import BadData
from undertow.richness.kernel import Kernel
from undertow.richness.rows import Array, as_tensor, float_rows


def effective_dimension(values: Array, leave_first: bool = False) -> float:
    """Of features (N, P), or of eigenvalues (P,) in any order.

    Args:
        values: features as rows, or eigenvalues.
        leave_first: leave out the largest eigenvalue and add 1 (the paper's eq. 9).
    """
    found = as_tensor(values)
    if found.ndim == 1:
        return dimension_of(_checked(found), leave_first)
    rows = float_rows(found, "effective_dimension, features")
    return dimension_of(Kernel.of(rows).eigenvalues(), leave_first)


def dimension_of(values: Tensor, leave_first: bool) -> float:
    """`effective_dimension` of eigenvalues that are negative by rounding only."""
    values = values.sort(descending=True).values
    kept = values[values > len(values) * torch.finfo(torch.float64).eps * values[0]]
    if not float(values[0]) > 0 or len(kept) <= leave_first:
        wanted = (
            "a second eigenvalue above 0 to leave the first out" if leave_first else "an eigenvalue above 0"
        )
        raise BadData(f"effective_dimension: wanted {wanted}, got features of rank {len(kept)}.")
    kept = kept[1:] if leave_first else kept
    share = kept / kept.sum()
    return float(leave_first + torch.exp(-(share * share.log()).sum()))


def _checked(values: Tensor) -> Tensor:
    values = values.double()
    if not len(values) or not bool(torch.isfinite(values).all()):
        raise BadData("effective_dimension: wanted finite eigenvalues, got none, NaN or infinity.")
    if float(values.min()) < -1e-6 * float(values.abs().max()):
        raise BadData(f"effective_dimension: wanted eigenvalues of 0 or more, got {float(values.min()):.3g}.")
    return values
