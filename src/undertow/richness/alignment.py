"""D_LR: how far the features are from the fewest that the learned functions need.

    d_lr(features, outputs)                      # (N, P) into the last layer, (N, C) out of it: a number
    low_rank(features, outputs).note             # the same with what a reader should know

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

Only Phi^T Phi costs anything (or Phi Phi^T, where samples are fewer: the norm is the same). Of float32 features it
is multiplied in float32, centred before and summed in float64 after each block: D_LR is then off by less than 1e-6
(1e-8 is usual), for two thirds of the time. All else is float64. `precise=True` makes it float64 throughout, as it
always is for float64 features.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

from undertow.errors import BadData
from undertow.latent.spectrum import eigh
from undertow.richness.kernel import Kernel, KernelSpread
from undertow.richness.rows import TOLERANCE, Array, float_rows, same_count


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
    found = low_rank(features, outputs, projection, precise=precise)
    if found.count <= found.dim:
        warnings.warn(f"d_lr: {found.note}.", stacklevel=2)
    return found.value


def low_rank(features: Array, outputs: Array, projection: bool = True, *, precise: bool = False) -> LowRank:
    """`d_lr` with the rank of the outputs and a note, and without warnings."""
    rows, outs = read_head(features, outputs, "d_lr")
    return low_rank_of(Kernel.of(rows, outs, precise=precise), projection)


def read_head(features: Array, outputs: Array, who: str) -> tuple[Tensor, Tensor]:
    """Checked features (N, P) and outputs (N, C) of the same samples, on one device."""
    rows, outs = float_rows(features, f"{who}, features"), float_rows(outputs, f"{who}, outputs")
    same_count(who, rows, outs)
    return rows, outs.to(rows.device)


def low_rank_of(kernel: Kernel, projection: bool = True) -> LowRank:
    """`low_rank` of products that were made with outputs."""
    spread = kernel.spread()
    values, ranks = d_lr_of(spread, kernel.mean, projection)
    value, rank, count, dim = float(values[0]), int(ranks[0]), kernel.count, len(kernel.mean)
    width = spread.output_means.shape[1]
    told = {
        f"only {count} samples for {dim} features: take more than {dim}": count <= dim,
        f"the {width} outputs span {rank} dimensions": rank < width,
    }
    return LowRank(value, rank, count, dim, "; ".join(text for text, holds in told.items() if holds))


def d_lr_of(of: KernelSpread, centre: Tensor, projection: bool = True) -> tuple[Tensor, Tensor]:
    """D_LR (B,) of sets of samples, and the dimensions of the learned functions' spans (B,).

    Args:
        of: each set's moments.
        centre: (P,) what was taken off the features of all.
        projection: see `d_lr`.
    """
    if float(of.counts.min()) < 2:
        raise BadData(f"d_lr: wanted at least 2 samples, got {int(of.counts.min())}.")
    own = torch.eye(of.cross.shape[2]).to(of.cross).expand_as(of.output_scatter)
    basis = _learned_basis(of) if projection else own  # (B, C, R)
    sizes = torch.linalg.matrix_norm(basis.mT @ of.output_scatter @ basis)  # (B,)
    if float(sizes.min()) <= (TOLERANCE**2 if projection else 0):
        raise BadData(_CONSTANT_OUTPUTS)
    means = (centre + of.means).square().sum(1)
    if bool((of.traces <= TOLERANCE**2 * of.counts * means).any()):
        raise BadData(_CONSTANT_FEATURES)
    values = 1 - (of.cross @ basis).square().sum((1, 2)) / (of.norms * sizes)
    # Cauchy and Schwarz: below 0 by rounding only, of features that have collapsed completely.
    values = torch.where((values > -1e-6) & (values < 0), 0, values)
    return values, (basis != 0).any(1).sum(1)


_CONSTANT_FEATURES = (
    "d_lr: wanted features that differ between samples, got constant ones up to rounding (a layer that "
    "died, or an offset a million times their spread: take off the mean first)."
)

_CONSTANT_OUTPUTS = (
    "d_lr: wanted outputs that differ between samples, got constant ones: no function was learned to compare "
    "the features with. Was the network trained, and was the right layer taken?"
)


def _learned_basis(of: KernelSpread) -> Tensor:
    """(B, C, R) coefficients A such that the columns of F A are orthonormal, or 0, and span those of the outputs F."""
    raw = (
        of.output_scatter + of.counts[:, None, None] * of.output_means[:, :, None] * of.output_means[:, None]
    )
    scale = raw.diagonal(dim1=1, dim2=2).sqrt()  # (B, C)
    if not bool((scale > 0).any(1).all()):
        raise BadData(
            "d_lr: wanted outputs, got zeros only. Was the network trained, and the right layer taken?"
        )
    scale = torch.where(scale > 0, 1 / scale, 0)
    values, vectors = eigh(of.output_scatter * scale[:, :, None] * scale[:, None])
    root = (vectors * values.clamp(min=0).sqrt()[:, None]).mT  # below 0 by rounding only
    mean = of.output_means * scale * of.counts.sqrt()[:, None]
    _, sizes, directions = torch.linalg.svd(torch.cat([root, mean[:, None]], 1), full_matrices=False)
    inverse = torch.where(sizes > TOLERANCE * sizes[:, :1], 1 / sizes, 0)
    return scale[:, :, None] * directions.mT * inverse[:, None]
