"""D_LR: how far the features are from the fewest that the learned functions need.

    d_lr(features, outputs)                      # (N, P) into the last layer, (N, C) out of it: a number
    low_rank(features, outputs).note             # the same with what a reader should know
    d_lr_from_moments(moments)                   # gathered batch by batch, with outputs

D_LR = 1 - CKA(T, T_MP) in [0, 1]: 0 is rich, towards 1 is lazy. T is the kernel of the features, T_MP the
projection on the span of the learned functions (the columns of the outputs) and any multiple of the
constant. No labels, no accuracy, no initial state.

With U an orthonormal basis of the span and everything centred afterwards,
    CKA = |Phi^T U|^2 / (|Phi^T Phi| |U^T U|)    (Frobenius norms).
The order matters. Orthonormalising after centring would give full weight to a direction that is almost
constant (outputs that sum to nearly 1 have one); centring afterwards leaves of it what is not constant.

All of it follows from second moments. U = F A is never made: A comes from the outputs' scatter S and mean
m, through the singular values of [S^1/2; sqrt(n) m^T], which has the same squares as F but keeps the
digits of S where m is large. A function counts if its singular value exceeds 1e-6 of the largest, after
each output was scaled to size 1.

Only Phi^T Phi costs anything. Of float32 features it is multiplied in float32, centred before and summed in
float64 after each block: D_LR is then off by less than 1e-6 (1e-8 is usual), for two thirds of the time. All else
is float64. `precise=True` makes it float64 throughout, as it always is for float64 features.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

from undertow.errors import BadData
from undertow.features.joint import Joint
from undertow.features.moments import Moments
from undertow.features.products import product_dtype, resolution
from undertow.latent.spectrum import eigh
from undertow.richness.rows import TOLERANCE, Array, float_rows, narrowed, same_count

BLOCK = 512
"""Rows that are made float64 at once."""

PANEL = 128
"""Rows of the (P, P) matrix that one product fills; with blocks of 512 rows 128 was fastest at P = 1024."""


@dataclass(frozen=True)
class LowRank:
    """D_LR and what it was computed from; `float(...)` gives the number."""

    value: float
    rank: int  # dimension of the learned functions' span
    count: int  # samples
    dim: int  # features
    note: str = ""  # empty if there is nothing to say

    def __float__(self) -> float:
        return self.value


def d_lr(features: Array, outputs: Array, projection: bool = True, *, precise: bool = False) -> float:
    """D_LR of the features (N, P) that enter the last linear layer and the outputs (N, C).

    Warns when there are no more samples than features: the number then says little.

    Args:
        features: of the same samples as the outputs, from training or test.
        outputs: the network's outputs before any softmax.
        projection: as defined. False takes the paper's shortcut (appendix E): the outputs themselves
            instead of the projection on their span. It weights each function by its size, and so is not
            invariant to mixing the outputs; the two agree where outputs are orthogonal and of one size.
        precise: multiply in float64 whatever the features' dtype.
    """
    return _told(low_rank(features, outputs, projection, precise=precise))


def d_lr_from_moments(moments: Moments, projection: bool = True) -> float:
    """The same number from moments that were gathered with outputs (see `d_lr`)."""
    return _told(low_rank_from_moments(moments, projection))


def low_rank(features: Array, outputs: Array, projection: bool = True, *, precise: bool = False) -> LowRank:
    """`d_lr` with the rank of the outputs and a note, and without warnings."""
    rows, outs = float_rows(features, "d_lr, features"), float_rows(outputs, "d_lr, outputs")
    same_count("d_lr", rows, outs)
    dim = rows.shape[1]
    rows, outs = (narrowed(rows) if dim > len(rows) else rows), outs.to(rows.device)
    return low_rank_from_moments(_gathered(rows, outs, precise), projection, dim)


def low_rank_from_moments(moments: Moments, projection: bool = True, dim: int | None = None) -> LowRank:
    """`d_lr_from_moments` with the rank of the outputs and a note, and without warnings.

    Args:
        moments: gathered with outputs.
        projection: see `d_lr`.
        dim: the features' width where they were narrowed before.
    """
    joint = moments.joint
    if joint is None:
        raise BadData("d_lr: wanted moments with outputs, got none. Gather them with outputs.")
    if joint.count < 2:
        raise BadData(f"d_lr: wanted at least 2 samples, got {joint.count}.")
    own = torch.eye(len(joint.output_mean), dtype=torch.float64, device=joint.cross.device)
    basis = learned_basis(joint) if projection else own  # (C, R)
    spread = basis.T @ joint.output_scatter @ basis  # (R, R)
    if projection and float(torch.linalg.matrix_norm(spread)) <= TOLERANCE**2:
        raise BadData(_CONSTANT_OUTPUTS)
    size = _feature_size(moments) * float(torch.linalg.matrix_norm(spread))
    if not size:
        raise BadData(_CONSTANT_OUTPUTS)
    value = 1 - float((joint.cross @ basis).square().sum()) / size
    # Cauchy and Schwarz: below 0 by rounding only, of features that have collapsed completely.
    value = 0.0 if -1e-6 < value < 0 else value
    rank = basis.shape[1]
    return LowRank(value, rank, joint.count, dim or moments.dim, _note(joint, rank, dim or moments.dim))


_CONSTANT_OUTPUTS = (
    "d_lr: wanted outputs that differ between samples, got constant ones: no function was learned to compare "
    "the features with. Was the network trained, and was the right layer taken?"
)


def learned_basis(joint: Joint) -> Tensor:
    """(C, R) coefficients A such that the columns of F A are orthonormal and span those of the outputs F."""
    scale = joint.raw_outputs().diagonal().sqrt()
    if not bool((scale > 0).any()):
        raise BadData(
            "d_lr: wanted outputs, got zeros only. Was the network trained, and the right layer taken?"
        )
    scale = torch.where(scale > 0, 1 / scale, 0)
    values, vectors = eigh(joint.output_scatter * torch.outer(scale, scale))
    root = (vectors * values.clamp(min=0).sqrt()).T  # below 0 by rounding only
    mean = joint.output_mean * scale * math.sqrt(joint.count)
    _, sizes, directions = torch.linalg.svd(torch.cat([root, mean[None]]), full_matrices=False)
    kept = sizes > TOLERANCE * sizes[0]
    return scale[:, None] * directions[kept].T / sizes[kept]


def _gathered(rows: Tensor, outputs: Tensor, precise: bool) -> Moments:
    """Moments of rows that are all at hand: two passes, which need fewer copies than a stream.

    Only panels on and above the diagonal are multiplied.
    """
    (count, dim), width = rows.shape, outputs.shape[1]
    mean, output_mean = _mean(rows), _mean(outputs)
    upper, cross, scatter = (mean.new_zeros(size) for size in ((dim, dim), (dim, width), (width, width)))
    dtype = product_dtype(rows, precise)
    centre, scale = mean.to(dtype), _power_of_two(rows)
    for part, out in zip(rows.split(BLOCK), outputs.split(BLOCK), strict=True):
        off, f = (part.to(dtype) - centre) / scale, out.double() - output_mean
        for i in range(0, dim, PANEL):
            upper[i : i + PANEL, i:].add_(off[:, i : i + PANEL].T @ off[:, i:])
        cross.addmm_(off.double().T, f)
        scatter.addmm_(f.T, f)
    # What the centre lost by rounding; `cross` does not need it, since outputs are centred in float64.
    left = (mean - centre.double()) / scale
    upper.addr_(left, left, alpha=-count)
    joint = Joint(count, mean, output_mean, cross * scale, scatter)
    counts = torch.tensor([count], device=mean.device)
    return Moments(counts, mean[None], upper[None] * scale**2, joint, resolution(dtype))


def _power_of_two(rows: Tensor) -> float:
    """Near the largest magnitude: squares of rows over it neither overflow nor vanish in float32."""
    low, high = (float(end) for end in torch.aminmax(rows))
    return 2.0 ** min(math.frexp(max(-low, high))[1], 500)  # the square of this is used too


def _mean(rows: Tensor) -> Tensor:
    """(D,) float64; a product with ones adds up columns several times faster than a sum over the first dimension."""
    ones = torch.ones(BLOCK, dtype=torch.float64, device=rows.device)
    total = torch.zeros(rows.shape[1], dtype=torch.float64, device=rows.device)
    for part in rows.split(BLOCK):
        total += ones[: len(part)] @ part.double()
    return total / len(rows)


def _feature_size(moments: Moments) -> float:
    """Frobenius norm of the centred feature products; refuses features that do not vary."""
    total = moments.total()
    variance, mean = float(total.covariance.trace()), float(total.mean.square().sum())
    if variance <= TOLERANCE**2 * mean or variance == 0:
        raise BadData(
            "d_lr: wanted features that differ between samples, got constant ones up to rounding (a layer that "
            "died, or an offset a million times their spread: take off the mean first)."
        )
    return moments.count * float(torch.linalg.matrix_norm(total.covariance))


def _note(joint: Joint, rank: int, dim: int) -> str:
    width = len(joint.output_mean)
    parts = [
        f"only {joint.count} samples for {dim} features: take more than {dim}" if joint.count <= dim else "",
        f"the {width} outputs span {rank} dimensions" if rank < width else "",
    ]
    return "; ".join(filter(None, parts))


def _told(found: LowRank) -> float:
    if found.count <= found.dim:
        warnings.warn(f"d_lr: {found.note}.", stacklevel=3)
    return found.value
