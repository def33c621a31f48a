"""Logistic regression: the linear probe that minimises a loss.

    LogisticProbe().fit(features, labels)                         # the paper's recipe: 20 epochs of Adam
    probe = LogisticProbe(solver="lbfgs").fit(features, labels)   # to the minimum
    probe.converged_, probe.n_iter_, probe.loss_
    probe.coef_, probe.intercept_                                 # (C, D), (C,)
    probe.probabilities(test_features)                            # (N, C)

The Adam recipe sees raw features, starts like `torch.nn.Linear`, shuffles each epoch and keeps its last
weights. It stops by the clock: on a few hundred rows twenty epochs are a handful of steps. There is no
loader and no autograd: for so small a model the written-out gradient of the softmax is several times faster. Its
products go panel by panel of columns: with so few classes, maths threads share out panels but not one product.

The minimum has a small L2 penalty, without which it does not exist for separable classes.
"""

from __future__ import annotations

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

PANEL = 256
"""Columns of a panel at least: narrower ones are read in too small pieces."""

FETCH = 2**20
"""Numbers that are fetched at once, in whole batches, at least one: more do not stay in the cache."""

GAP = 16
"""Unused numbers between a batch's rows: rows a power of two apart push each other out of the processor's cache."""


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
        model = _Softmax(fine, len(counts), _panels(fine.shape[1]) if self.solver == "adam" else 1)
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
        model.start_from(torch.empty(model.flat.shape).uniform_(-bound, bound, generator=draw))
        truth = one_hot(index, len(model.intercept)).T.to(rows.dtype)
        adam = _Adam(model.flat, model.slope, self.lr)
        ahead = max(1, FETCH // (self.batch_size * rows.shape[1])) * self.batch_size
        fetched = rows.new_empty(min(ahead, len(rows)), rows.shape[1] + GAP)[:, :-GAP]
        lengths = len(fetched), len(rows) % len(fetched)
        panels = {length: model.in_panels(fetched[:length], self.batch_size) for length in lengths}
        for _ in range(self.epochs):
            order = torch.randperm(len(rows), generator=draw).to(rows.device)
            truths = truth.index_select(1, order).split(len(fetched), 1)
            for at, right in zip(order.split(len(fetched)), truths, strict=True):
                torch.index_select(rows, 0, at, out=fetched[: len(at)])
                for batch, own in zip(panels[len(at)], right.split(self.batch_size, 1), strict=True):
                    model.find_slope(batch, own)
                    adam.step()
        self.n_iter_, self.converged_ = self.epochs, False

    def _lbfgs(self, model: _Softmax, rows: Tensor, index: Tensor) -> None:
        truth = one_hot(index, len(model.intercept)).to(rows.dtype)

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


def _panels(width: int) -> int:
    """Into how many equal panels so many columns are cut."""
    return next(count for count in range(max(1, width // PANEL), 0, -1) if width % count == 0)


class _Softmax:
    """Weights of a linear layer and their gradient, each in one flat tensor so that a step is few operations.

    All is laid out class by class: products with so few classes are fastest that way round.
    """

    def __init__(self, rows: Tensor, classes: int, panels: int) -> None:
        width = rows.shape[1]
        shape = panels, classes, width // panels
        self.flat, self.slope = rows.new_zeros(2, classes * (width + 1))
        self._coef, self._coef_slope = (one[: classes * width].view(shape) for one in (self.flat, self.slope))
        self.intercept, self._intercept_slope = (one[classes * width :] for one in (self.flat, self.slope))
        self._bias = self.intercept[:, None]

    @property
    def coef(self) -> Tensor:
        """(C, D)."""
        return self._coef.transpose(0, 1).flatten(1)

    def start_from(self, flat: Tensor) -> None:
        """Take over weights (C, D) and intercepts (C,), one after the other in `flat`."""
        coef, intercept = flat.split([self._coef.numel(), len(self.intercept)])
        panels, classes, width = self._coef.shape
        self._coef.copy_(coef.view(classes, panels, width).transpose(0, 1))
        self.intercept.copy_(intercept)

    def in_panels(self, rows: Tensor, size: int) -> list[Tensor]:
        """Batches of `size` rows (N, D) as panels (P, N, D / P), which share the memory of `rows`."""
        shape = len(self._coef), self._coef.shape[2]
        return [batch.unflatten(1, shape).transpose(0, 1) for batch in rows.split(size)]

    def find_slope(self, batch: Tensor, truth: Tensor) -> None:
        """Set `slope` to the gradient of the mean cross-entropy of panels (P, N, D / P); one-hot `truth` (C, N)."""
        scores = torch.bmm(self._coef, batch.mT).sum(0).add_(self._bias)
        off = scores.softmax(0).sub_(truth).div_(batch.shape[1])
        torch.bmm(off.expand(len(batch), *off.shape), batch, out=self._coef_slope)
        torch.sum(off, 1, out=self._intercept_slope)

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
    """Adam with its usual constants, on one flat tensor.

    `torch.optim.Adam(fused=True)` ends in this call too, but the Python before it takes ten times as long.
    """

    def __init__(self, flat: Tensor, slope: Tensor, lr: float) -> None:
        steps = torch.zeros((), device=flat.device)
        self.state = [flat], [slope], [torch.zeros_like(flat)], [torch.zeros_like(flat)], [], [steps]
        self.lr, self.steps = lr, steps

    def step(self) -> None:
        self.steps += 1
        torch._fused_adam_(  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
            *self.state,
            lr=self.lr,
            beta1=0.9,
            beta2=0.999,
            eps=1e-8,
            weight_decay=0.0,
            amsgrad=False,
            maximize=False,
        )
