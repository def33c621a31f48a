"""Whether the first eigenfunction of the features is the constant function.

    constant_share(features)            # |<1|e_1>|: 1 if it is, 0 if its mean is 0

The paper finds it above .95 throughout training (its appendix D.2), which is why the first eigenvalue is left out of
effective dimensions and centring costs D_LR nothing.
"""

from __future__ import annotations

import torch

from undertow.errors import BadData
from undertow.latent.spectrum import eigh
from undertow.richness.rows import Array, float_rows


def constant_share(features: Array) -> float:
    """How much of the first eigenfunction of features (N, P) is constant: |mean e_1| over the root of mean e_1^2."""
    rows = float_rows(features, "constant_share, features").double()
    if not float(rows.norm()):
        raise BadData("constant_share: wanted features, got zeros only. The layer is dead.")
    wide = len(rows) < rows.shape[1]  # the smaller side has the same first function, as its own eigenvector
    leading = eigh(rows @ rows.T if wide else rows.T @ rows)[1][:, -1]
    first = leading if wide else rows @ leading
    return float(first.mean().abs() / torch.linalg.vector_norm(first) * len(rows) ** 0.5)
