"""Logistic regression: the linear probe that minimises a loss.

    LogisticProbe().fit(features, labels)                         # the paper's recipe: 20 epochs of Adam
    probe = LogisticProbe(solver="lbfgs").fit(features, labels)   # to the minimum
    probe.converged_, probe.n_iter_, probe.loss_
    probe.coef_, probe.intercept_                                 # (C, D), (C,)
    probe.probabilities(test_features)                            # (N, C)

The Adam recipe sees raw features, starts like `torch.nn.Linear`, shuffles each epoch and keeps its last
weights. It stops by the clock: on a few hundred rows twenty epochs are a handful of steps. There is no
loader and no autograd: for so small a model the written-out gradient of the softmax is several times faster.

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
from torch.nn.functional import cross_entropy, one_hot

from undertow.errors import BadData, BadValue, unknown
from undertow.latent.arrays import Array, as_tensor, in_kind, is_positive, is_whole, matching
from undertow.latent.probe import ROWS, Probe

SOLVERS = ("adam", "lbfgs")


class LogisticProbe(Probe):
    """Softmax regression with bias.

    After `fit`: `coef_` (C, D), `intercept_` (C,), `loss_` (mean cross-entropy of the training rows),
    `n_iter_` (epochs or iterations), `converged_` (False for Adam, which does not look).

    Args:
        solver: "adam" for the paper's recipe, "lbfgs" for the minimum.
        lr: Adam's learning rate.
        batch_size: rows per step of Adam.
        epochs: passes of Adam over the rows.
        seed: of Adam's first weights and of its batches.
        l2: weight of half the squared weights (without the bias) beside the mean loss; "lbfgs" only.
        tol: "lbfgs" has converged when no entry of the gradient is larger.
        max_iter: iterations of "lbfgs" at most.
    """

    coef_: Array
    intercept_: Array
    loss_: float
    n_iter_: int
    converged_: bool

    def __init__(
        self,
        solver: str = "adam",
        lr: float = 1e-3,
        batch_size: int = 128,
        epochs: int = 20,
        seed: int = 0,
        l2: float = 1e-4,
        tol: float = 1e-4,
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
        # At the minimum the loss changes by less than float32 can tell.
        fine = rows if self.solver == "adam" else rows.double()
        model = _Softmax(fine, len(counts))
        fit = self._adam if self.solver == "adam" else self._lbfgs
        fit(model, fine, index)
        if not torch.isfinite(model.flat).all():
            raise BadData(
                "LogisticProbe: wanted finite weights, got NaN or infinity from features as large as "
                f"{float(rows.abs().max()):.3g}. Scale the features, or lower lr."
            )
        self.loss_ = model.loss(fine, index)
        return {
            "coef_": model.coef.to(rows.dtype, copy=True),
            "intercept_": model.intercept.to(rows.dtype, copy=True),
        }

    def _adam(self, model: _Softmax, rows: Tensor, index: Tensor) -> None:
        draw = torch.Generator().manual_seed(self.seed)
        bound = rows.shape[1] ** -0.5
        model.flat.copy_(torch.empty(model.flat.shape).uniform_(-bound, bound, generator=draw))
        truth = one_hot(index, len(model.coef)).to(rows.dtype)
        adam = _Adam(model.flat, self.lr)
        batch = rows.new_empty(min(self.batch_size, len(rows)), rows.shape[1])  # one piece of memory for all
        for _ in range(self.epochs):
            for at in torch.randperm(len(rows), generator=draw).to(rows.device).split(self.batch_size):
                part = torch.index_select(rows, 0, at, out=batch[: len(at)])
                adam.step(model.slope(part, truth.index_select(0, at)))
        self.n_iter_, self.converged_ = self.epochs, False

    def _lbfgs(self, model: _Softmax, rows: Tensor, index: Tensor) -> None:
        truth = one_hot(index, len(model.coef)).to(rows.dtype)

        def objective(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            model.flat.copy_(torch.from_numpy(flat))
            loss, slope = model.loss_and_slope(rows, truth, self.l2)
            return loss, slope.cpu().numpy()

        # Only the gradient decides: a stop for small steps would look like convergence.
        options = {"maxiter": self.max_iter, "maxfun": 2 * self.max_iter, "gtol": self.tol, "ftol": 0.0}
        start = np.zeros(len(model.flat))
        found: Any = minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
        model.flat.copy_(torch.from_numpy(found.x))
        steepest = float(np.abs(found.jac).max())
        self.n_iter_, self.converged_ = int(found.nit), steepest <= self.tol
        if not self.converged_:
            warnings.warn(
                f"LogisticProbe: after {self.n_iter_} iterations the gradient is {steepest:.2g}, above tol="
                f"{self.tol:g}. Scale the features, or raise max_iter, l2 or tol.",
                ConvergenceWarning,
                stacklevel=4,
            )

    def _score(self, rows: Tensor) -> Tensor:
        return rows @ matching(self.coef_, rows).T + matching(self.intercept_, rows)

    def _check_settings(self) -> None:
        if self.solver not in SOLVERS:
            raise unknown("solver for LogisticProbe", self.solver, SOLVERS)
        for name, low in (("batch_size", 1), ("epochs", 1), ("max_iter", 1), ("seed", 0)):
            if not is_whole(getattr(self, name), low):
                raise BadValue(
                    f"LogisticProbe({name}=...)", f"a whole number from {low} up", getattr(self, name)
                )
        for name in ("lr", "tol"):
            if not is_positive(getattr(self, name)):
                raise BadValue(f"LogisticProbe({name}=...)", "a number above 0", getattr(self, name))
        if self.l2 != 0 and not is_positive(self.l2):
            raise BadValue("LogisticProbe(l2=...)", "a number from 0 up", self.l2)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = self.solver == "adam"  # by design: it stops by the clock
        return tags


class _Softmax:
    """Weights of a linear layer and their gradient, each in one flat tensor so that a step is few operations.

    All is laid out class by class: products with so few classes are fastest that way round.
    """

    def __init__(self, rows: Tensor, classes: int) -> None:
        width = rows.shape[1]
        self.flat, self._slope = rows.new_zeros(2, classes * (width + 1))
        self.coef = self.flat[: classes * width].view(classes, width)
        self.intercept = self.flat[classes * width :]
        self._coef_slope = self._slope[: classes * width].view(classes, width)
        self._intercept_slope = self._slope[classes * width :]

    def slope(self, rows: Tensor, truth: Tensor) -> Tensor:
        """The gradient of the mean cross-entropy, for one-hot `truth` (N, C); overwritten by the next call."""
        off = torch.addmm(self.intercept[:, None], self.coef, rows.T).softmax(0).sub_(truth.T).div_(len(rows))
        torch.mm(off, rows, out=self._coef_slope)
        torch.sum(off, 1, out=self._intercept_slope)
        return self._slope

    def loss(self, rows: Tensor, index: Tensor) -> float:
        """The mean cross-entropy."""
        total = sum(
            float(
                cross_entropy(torch.addmm(self.intercept, part, self.coef.T).double(), right, reduction="sum")
            )
            for part, right in zip(rows.split(ROWS), index.split(ROWS), strict=True)
        )
        return total / len(rows)

    def loss_and_slope(self, rows: Tensor, truth: Tensor, l2: float) -> tuple[float, Tensor]:
        """The mean cross-entropy with the penalty, and its gradient as a new tensor."""
        penalty = l2 / 2 * float(self.coef.square().sum())
        slope = torch.cat([l2 * self.coef.flatten(), torch.zeros_like(self.intercept)])
        total = 0.0
        for part, right in zip(rows.split(ROWS), truth.split(ROWS), strict=True):
            logs = torch.addmm(self.intercept[:, None], self.coef, part.T).log_softmax(0)
            total -= float((logs * right.T).sum())
            off = logs.exp_().sub_(right.T).div_(len(rows))
            slope += torch.cat([(off @ part).flatten(), off.sum(1)])
        return total / len(rows) + penalty, slope


class _Adam:
    """Adam with its usual constants, on one flat tensor."""

    def __init__(self, flat: Tensor, lr: float) -> None:
        self.flat, self.lr, self.steps = flat, lr, 0
        self.first, self.second, self.size = (
            torch.zeros_like(flat),
            torch.zeros_like(flat),
            torch.empty_like(flat),
        )

    def step(self, slope: Tensor, keep: float = 0.9, keep_square: float = 0.999, eps: float = 1e-8) -> None:
        self.steps += 1
        self.first.lerp_(slope, 1 - keep)
        self.second.mul_(keep_square).addcmul_(slope, slope, value=1 - keep_square)
        # Both corrections of the start are put into the step, which saves a pass over the weights.
        correction = math.sqrt(1 - keep_square**self.steps)
        torch.sqrt(self.second, out=self.size).add_(eps * correction)
        self.flat.addcdiv_(self.first, self.size, value=-self.lr * correction / (1 - keep**self.steps))
