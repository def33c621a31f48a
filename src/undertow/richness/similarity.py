"""Companions of D_LR: alignment of two feature kernels, and the size of the parameters.

cka(features, others)               # linear CKA of two layers or networks on the same samples
initial_kernel_alignment(features_before, features)   # how much of the initial kernel is left: 1 = all of it
squared_parameter_norm(model)               # squared Frobenius norm of all parameters
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from undertow.errors import BadData
from undertow.richness.kernel import Kernel, shared_size
from undertow.richness.rows import TOLERANCE, Array, as_tensor, float_rows, same_count


class KnownKernel(NamedTuple):
    """Features (N, P) and their kernel, which can be aligned with that of several others."""

    rows: Tensor
    kernel: Kernel

    @classmethod
    def of(cls, features: Array, where: str = "features") -> KnownKernel:
        """Of checked features; float32 ones are multiplied in float32."""
        rows = float_rows(features, where)
        return cls(rows, Kernel.of(rows, precise=False))


def cka(a: Array, b: Array) -> float:
    """Centred alignment of the kernels A A^T and B B^T of rows (N, P) and (N, Q), in [0, 1].

    Sums are float64. Products of float32 rows are float32, 512 rows at a time: in the tests within 2e-8 of float64.
    """
    first = KnownKernel.of(a, "cka, a")
    return cka_of(first, KnownKernel.of(as_tensor(b, "cka, b").to(first.rows.device), "cka, b"))


def cka_of(first: KnownKernel, second: KnownKernel) -> float:
    """`cka` of features of the same samples."""
    same_count("cka", first.rows, second.rows)
    for kernel in (first.kernel, second.kernel):
        # The kernel of constant or zero features has nothing to align.
        if kernel.trace() <= TOLERANCE**2 * kernel.count * float(kernel.mean.square().sum()):
            raise BadData(
                "cka: wanted features that differ between samples, got constant ones up to rounding."
            )
    size = shared_size(first.kernel, first.rows, second.kernel, second.rows)
    return size / (first.kernel.norm() * second.kernel.norm())


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
