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
from undertow.richness.kernel import Kernel, shared_size
from undertow.richness.rows import TOLERANCE, Array, float_rows, same_count


def cka(a: Array, b: Array) -> float:
    """Centred alignment of the kernels A A^T and B B^T of rows (N, P) and (N, Q), in [0, 1]; in float64."""
    first, second = float_rows(a, "cka, a"), float_rows(b, "cka, b")
    same_count("cka", first, second)
    return cka_of(Kernel.of(first), first, second.to(first.device))


def cka_of(kernel: Kernel, rows: Tensor, others: Tensor, *, precise: bool = True) -> float:
    """`cka` of rows whose kernel is known with others of the same samples; not `precise` multiplies in float32."""
    other = Kernel.of(others, precise=precise)
    for each in (kernel, other):
        # The kernel of constant or zero features has nothing to align.
        if each.trace() <= TOLERANCE**2 * each.count * float(each.mean.square().sum()):
            raise BadData(
                "cka: wanted features that differ between samples, got constant ones up to rounding."
            )
    return shared_size(kernel, rows, other, others, precise=precise) / (kernel.norm() * other.norm())


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
