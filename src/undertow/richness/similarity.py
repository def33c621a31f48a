"""Companions of D_LR: alignment of two feature kernels, and the size of the parameters.

cka(features, others)               # linear CKA of two layers or networks on the same samples
initial_kernel_alignment(features_before, features)   # how much of the initial kernel is left: 1 = all of it
squared_parameter_norm(model)               # squared Frobenius norm of all parameters
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from undertow.errors import BadData
from undertow.richness.rows import TOLERANCE, Array, float_rows, narrowed, same_count


def cka(a: Array, b: Array) -> float:
    """Centred alignment of the kernels A A^T and B B^T of rows (N, P) and (N, Q), in [0, 1]; in float64."""
    first, second = _centred(a, "cka, a"), _centred(b, "cka, b")
    same_count("cka", first, second)
    cross = (first.T @ second.to(first.device)).square().sum()
    return float(cross) / math.prod(float(torch.linalg.matrix_norm(x.T @ x)) for x in (first, second))


def initial_kernel_alignment(features_init: Array, features_now: Array) -> float:
    """CKA of the last layer's feature kernels at initialisation and now, on the same samples."""
    return cka(features_init, features_now)


def squared_parameter_norm(model: nn.Module) -> float:
    """Squared Frobenius norm of all parameters, shared ones counted once; buffers are left out."""
    sizes = [
        float(torch.linalg.vector_norm(p.detach(), dtype=_wide(p)).double() ** 2) for p in model.parameters()
    ]
    if not sizes:
        raise BadData(
            f"squared_parameter_norm: wanted a model with parameters, got {type(model).__name__} without any."
        )
    total = math.fsum(sizes)
    if not math.isfinite(total):
        raise BadData(
            "squared_parameter_norm: wanted finite parameters, got NaN or infinity. The network has diverged."
        )
    return total


def _wide(parameter: Tensor) -> torch.dtype:
    return torch.float32 if parameter.device.type == "mps" else torch.float64  # mps has no float64


def _centred(array: Array, where: str) -> Tensor:
    """(N, min(N, P)) float64 rows around their mean."""
    rows = float_rows(array, where).double()
    off = rows - rows.mean(0)
    if float(off.norm()) <= TOLERANCE * float(rows.norm()):
        raise BadData(
            f"{where}: wanted features that differ between samples, got constant ones up to rounding."
        )
    # The kernel of constant or zero features has nothing to align; hence the check before any division.
    return narrowed(off)
