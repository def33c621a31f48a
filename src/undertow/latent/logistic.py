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
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult, minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from undertow.errors import BadData, BadValue, unknown
from undertow.features.products import FINE, column_means, product_dtype
from undertow.latent.arrays import Array, as_tensor, in_kind, is_positive, is_whole, matching
from undertow.latent.probe import ROWS, LabelSet, Probe

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

    def _learn_each(
        self, rows: Tensor, sets: Sequence[LabelSet], probes: Sequence[Probe]
    ) -> list[dict[str, Any]]:
        """Adam's fits with equally many classes start and shuffle alike: one pass over the rows serves them all."""
        if self.solver != "adam":
            return super()._learn_each(rows, sets, probes)
        found: dict[int, dict[str, Any]] = {}
        for count in dict.fromkeys(len(counts) for _, counts in sets):
            places = [at for at, (_, counts) in enumerate(sets) if len(counts) == count]
            own = self._adam(rows, torch.stack([sets[at][0] for at in places]), count)
            found |= zip(places, own, strict=True)
        return [found[at] for at in range(len(sets))]

    def _learn(self, rows: Tensor, index: Tensor, counts: Tensor) -> dict[str, Any]:
        if self.solver == "adam":
            return self._adam(rows, index[None], len(counts))[0]
        return self._minimum(rows, index, len(counts))

    def _adam(self, rows: Tensor, index: Tensor, classes: int) -> list[dict[str, Any]]:
        """The fits of several sets of class numbers (F, N)."""
        draw = torch.Generator().manual_seed(self.seed)
        bound = rows.shape[1] ** -0.5
        model = _Softmax(rows, len(index), classes, _panels(rows.shape[1]))
        model.start_from(torch.empty(classes * (rows.shape[1] + 1)).uniform_(-bound, bound, generator=draw))
        truth = one_hot(index, classes).transpose(1, 2).flatten(0, 1).to(rows.dtype)  # (F * C, N)
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
        clock = {"n_iter_": self.epochs, "converged_": False}
        return [clock | own for own in _learned(model, rows, index, rows.dtype)]

    def _minimum(self, rows: Tensor, index: Tensor, classes: int) -> dict[str, Any]:
        """Float32 rows are first followed down in float32, at half the price; float64 goes on and has the last word.

        At the minimum the loss changes by less than float32 can tell.
        """
        even = _Evened.of(rows)
        fine = even.rows(rows)
        start, spent = np.zeros(classes * (rows.shape[1] + 1)), 0
        if product_dtype(rows) == torch.float32:
            quick = fine.float()
            found = self._lbfgs(_Softmax(quick, 1, classes, 1), quick, index, even, start, 0)
            start, spent = (found.x if np.isfinite(found.fun) else start), int(found.nit)
        model = _Softmax(fine, 1, classes, 1)
        found = self._lbfgs(model, fine, index, even, start, spent)
        model.flat.copy_(torch.from_numpy(found.x))
        ended = self._ended(even.steepest(model.slope.new_tensor(found.jac), classes), spent + int(found.nit))
        return ended | even.back(_learned(model, fine, index[None], torch.float64)[0], rows.dtype)

    def _lbfgs(
        self,
        model: _Softmax,
        rows: Tensor,
        index: Tensor,
        even: _Evened,
        start: NDArray[np.float64],
        spent: int,
    ) -> Any:
        """Scipy's answer from `start` on, of which so many iterations are `spent`."""

        def objective(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            model.flat.copy_(torch.from_numpy(flat))
            loss, slope = model.loss_and_slope(rows, index, self.l2 / even.scale.square())
            return loss, slope.cpu().numpy()

        if spent >= self.max_iter:  # scipy would take one step more
            loss, slope = objective(start)
            return OptimizeResult(x=start, fun=loss, jac=slope, nit=0)
        # Only the gradient decides, a stop for small steps would look like convergence; but float32 cannot tell them.
        least = torch.finfo(rows.dtype).eps if rows.dtype == torch.float32 else 0.0
        options = {"maxiter": self.max_iter - spent, "maxfun": 2 * self.max_iter, "ftol": least}
        options |= {"gtol": self.tol / even.steeper}
        return minimize(objective, start, jac=True, method="L-BFGS-B", options=options)

    def _ended(self, steepest: float, spent: int) -> dict[str, Any]:
        if steepest > self.tol:
            warnings.warn(
                f"LogisticProbe: after {spent} iterations the gradient is {steepest:.2g}, above tol="
                f"{self.tol:g}. Scale the features, or raise max_iter, l2 or tol.",
                ConvergenceWarning,
                stacklevel=9,
            )
        return {"n_iter_": spent, "converged_": steepest <= self.tol}

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


@dataclass(frozen=True, eq=False)
class _Evened:
    """Columns around 0 with a spread of 1: the same minimum in other coordinates, which needs far fewer steps.

    A weight there is a weight here times the column's spread, and the intercept takes the means in; the penalty stays
    that of the weights here.
    """

    mean: Tensor  # (D,) float64
    scale: Tensor  # (D,) float64

    @classmethod
    def of(cls, rows: Tensor) -> _Evened:
        """By the mean and the standard deviation of each column; constant ones keep their size."""
        mean = column_means(rows)
        parts = rows.split(FINE)
        squares = torch.stack([column_means(torch.sub(part, mean).square_()) * len(part) for part in parts])
        scale = (squares.sum(0) / len(rows)).sqrt()
        constant = scale <= torch.finfo(rows.dtype).eps * mean.abs()
        return cls(mean, scale.masked_fill(constant, 1.0))

    @property
    def steeper(self) -> float:
        """How many times steeper the loss may be here than there."""
        return max(1.0, float((self.scale + self.mean.abs()).max()))

    def rows(self, rows: Tensor) -> Tensor:
        """Rows there, in float64."""
        return torch.cat([torch.sub(part, self.mean).div_(self.scale) for part in rows.split(FINE)])

    def steepest(self, slope: Tensor, classes: int) -> float:
        """The largest entry of the gradient here, by that (C * D + C,) there."""
        coef, bias = slope[:-classes].view(classes, -1), slope[-classes:]
        here = coef * self.scale + torch.outer(bias, self.mean)
        return max(float(here.abs().max()), float(bias.abs().max()))

    def back(self, learned: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
        """What was learned there, as weights here."""
        coef = learned["coef_"] / self.scale
        bias = learned["intercept_"] - coef @ self.mean
        return learned | {"coef_": coef.to(dtype), "intercept_": bias.to(dtype)}


def _panels(width: int) -> int:
    """Into how many equal panels so many columns are cut."""
    return next(count for count in range(max(1, width // PANEL), 0, -1) if width % count == 0)


def _learned(model: _Softmax, rows: Tensor, index: Tensor, dtype: torch.dtype) -> list[dict[str, Any]]:
    """The fitted attributes of each fit."""
    if not torch.isfinite(model.flat).all():
        raise BadData(
            "LogisticProbe: wanted finite weights, got NaN or infinity from features as large as "
            f"{float(rows.abs().max()):.3g}. Scale the features, or lower lr."
        )
    parts = zip(model.coef, model.intercept, model.losses(rows, index), strict=True)
    return [
        {"coef_": coef.to(dtype, copy=True), "intercept_": bias.to(dtype, copy=True), "loss_": loss}
        for coef, bias, loss in parts
    ]


class _Softmax:
    """Weights of linear layers and their gradient, each in one flat tensor so that a step is few operations.

    All is laid out class by class: products with so few classes are fastest that way round. Several fits (F) of one
    number of classes lie one after the other, as if their classes were one layer's; only the softmax parts them.
    """

    def __init__(self, rows: Tensor, fits: int, classes: int, panels: int) -> None:
        width, lines = rows.shape[1], fits * classes
        self.fits, self.classes = fits, classes
        self.flat, self.slope = rows.new_zeros(2, lines * (width + 1))
        shape = panels, lines, width // panels
        self._coef, self._coef_slope = (one[: lines * width].view(shape) for one in (self.flat, self.slope))
        self._bias, self._bias_slope = (one[lines * width :] for one in (self.flat, self.slope))

    @property
    def coef(self) -> Tensor:
        """(F, C, D), a copy."""
        return self._coef.transpose(0, 1).flatten(1).unflatten(0, (self.fits, self.classes))

    @property
    def intercept(self) -> Tensor:
        """(F, C)."""
        return self._bias.view(self.fits, self.classes)

    def start_from(self, flat: Tensor) -> None:
        """Take over weights (C, D) and intercepts (C,), one after the other in `flat`, for each fit."""
        coef, intercept = flat.split([len(flat) - self.classes, self.classes])
        panels, _, width = self._coef.shape
        self._coef.copy_(coef.view(self.classes, panels, width).transpose(0, 1).repeat(1, self.fits, 1))
        self._bias.copy_(intercept.repeat(self.fits))

    def in_panels(self, rows: Tensor, size: int) -> list[Tensor]:
        """Batches of `size` rows (N, D) as panels (P, N, D / P), which share the memory of `rows`."""
        shape = len(self._coef), self._coef.shape[2]
        return [batch.unflatten(1, shape).transpose(0, 1) for batch in rows.split(size)]

    def find_slope(self, batch: Tensor, truth: Tensor) -> None:
        """Set `slope` to the gradient of the mean cross-entropy of panels (P, N, D / P); one-hot `truth` (F * C, N)."""
        scores = torch.bmm(self._coef, batch.mT).sum(0).add_(self._bias[:, None])
        off = scores.view(self.fits, self.classes, -1).softmax(1).view_as(scores)
        off = off.sub_(truth).div_(batch.shape[1])
        torch.bmm(off.expand(len(batch), *off.shape), batch, out=self._coef_slope)
        torch.sum(off, 1, out=self._bias_slope)

    def losses(self, rows: Tensor, index: Tensor) -> list[float]:
        """The mean cross-entropy of each fit with class numbers (F, N)."""
        totals, weights = [0.0] * self.fits, self.coef.flatten(0, 1).T
        for part, right in zip(rows.split(ROWS), index.split(ROWS, 1), strict=True):
            scores = torch.addmm(self._bias, part, weights).double().chunk(self.fits, 1)
            each = zip(scores, right, strict=True)
            totals = [
                total + float(cross_entropy(own, truth, reduction="sum"))
                for total, (own, truth) in zip(totals, each, strict=True)
            ]
        return [total / len(rows) for total in totals]

    def loss_and_slope(self, rows: Tensor, index: Tensor, l2: Tensor) -> tuple[float, Tensor]:
        """The mean cross-entropy of the only fit, with the penalty of each column `l2` (D,), and a float64 gradient."""
        coef = self.coef[0]
        pull = coef.double() * l2
        slope = torch.cat([pull.flatten(), torch.zeros_like(self._bias, dtype=torch.float64)])
        total = 0.0
        for part, right in zip(rows.split(ROWS), index.split(ROWS), strict=True):
            logs = torch.addmm(self._bias[:, None], coef, part.T).log_softmax(0)
            total -= float(logs.gather(0, right[None]).sum(dtype=torch.float64))
            off = logs.exp_().scatter_add_(0, right[None], logs.new_full((1, len(right)), -1)).div_(len(rows))
            slope += torch.cat([(off @ part).flatten(), off.sum(1)])
        return total / len(rows) + float((pull * coef).sum()) / 2, slope


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
