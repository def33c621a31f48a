"""Logistic regression: the linear probe that minimises a loss.

    LogisticProbe().fit(features, labels)                      # the paper's recipe: 20 epochs of Adam
    probe = LogisticProbe(solver="lbfgs").fit(features, labels)   # to the minimum
    probe.converged_, probe.n_iter_, probe.loss_
    probe.coef_, probe.intercept_                              # (C, D), (C,)
    probe.probabilities(test_features)                         # (N, C)

The Adam recipe sees raw features, starts like `torch.nn.Linear`, shuffles each epoch and keeps its last
weights. It stops by the clock: on a few hundred rows twenty epochs are a handful of steps. No loader and no
autograd: the gradient of the softmax is written out, which is several times faster for so small a model.

The minimum has a small L2 penalty, without which it does not exist for separable classes.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from torch import Tensor

from undertow.errors import BadData, BadValue, unknown
from undertow.latent.arrays import Array, as_tensor, in_kind, matching
from undertow.latent.probe import ROWS, Probe

SOLVERS = ("adam", "lbfgs")


class LogisticProbe(Probe):
    """Softmax regression with bias.

    After `fit`: `coef_` (C, D), `intercept_` (C,), `n_iter_` (epochs or iterations), `converged_` (always
    False for Adam, which does not look), `loss_` (of the last epoch, or the minimum with its penalty).

    Args:
        solver: "adam" for the paper's recipe, "lbfgs" for the minimum.
        lr: Adam's learning rate.
        batch_size: rows per step of Adam.
        epochs: passes of Adam over the rows.
        seed: of Adam's first weights and of its batches.
        l2: weight of half the squared weights (not the bias) beside the mean loss; "lbfgs" only.
        tol: "lbfgs" has converged when no entry of the gradient is larger.
        max_iter: iterations of "lbfgs" at most.
    """

    coef_: Array
    intercept_: Array
    n_iter_: int
    converged_: bool
    loss_: float

    def __init__(
        self,
        solver: str = "adam",
        lr: float = 1e-3,
        batch_size: int = 128,
        epochs: int = 20,
        seed: int = 0,
        l2: float = 1e-4,
        tol: float = 1e-5,
        max_iter: int = 1000,
    ) -> None:
        self.solver = solver
        self.lr = lr
        self.batch_size = batch_size
        self.epochs = epochs
        self.seed = seed
        self.l2 = l2
        self.tol = tol
        self.max_iter = max_iter

    def probabilities(self, X: Array) -> Array:
        """The softmax of the scores (N, C)."""
        return in_kind(as_tensor(self.scores(X)).softmax(1), like=X)

    def _learn(self, rows: Tensor, index: Tensor, counts: Tensor) -> dict[str, Tensor]:
        weights = self._adam(rows, index, len(counts)) if self.solver == "adam" else self._lbfgs(rows, index, len(counts))
        if not torch.isfinite(weights).all():
            raise BadData(
                f"LogisticProbe: the weights have left the finite numbers; the largest feature is "
                f"{float(rows.abs().max()):.3g}. Scale the features or lower lr."
            )
        return {"coef_": weights[:-1].T.contiguous(), "intercept_": weights[-1].clone()}

    def _score(self, rows: Tensor) -> Tensor:
        return rows @ matching(self.coef_, rows).T + matching(self.intercept_, rows)
