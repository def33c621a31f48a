"""The stochastic differential equation of features beside the steps that SGD really takes.

    found = step_equation(model, x, y, probe_x, cut="layer1", batches=128, batch_size=64, lr=0.1)
    found.slope, found.bend                       # (M, D) the deterministic part: along the gradient, and Ito's term
    found.random                                  # (B, M, D) the random part of each mini-batch
    found.measured                                # (B, M, D) what the step did
    found.mean_error, found.covariance_error      # how far the equation is off, relative to what was measured
    found.random_share                            # of the mean squared step

The paper's equations 1 to 3: dz = (-J grad L + 1/2 tr(H Sigma)) dt + J sqrt(Sigma) dB, with J and H the first and
second derivative of a feature by the parameters. A step of SGD has dt = lr and Sigma = lr C, where C is the covariance
of mini-batch gradients, so that with v_b = -lr g_b
    slope     J v, v the mean over batches
    bend      1/2 tr(H cov(v_b)), by second derivatives along each v_b: mean of v_b' H v_b less v' H v
    random    J (v_b - v)
Nothing of the size of parameters times parameters is made. Both sides see the same mini-batches, so that what is left
between them is the equation's doing. A layer that is piecewise linear in its own parameters, such as the paper's first
layer with ReLU, has H = 0: Ito's term is nothing there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import jvp
from torch.nn import functional

from undertow.errors import BadData, BadValue
from undertow.studies.temporal.sgd_model import Loss, SteppedModel, StepSource
from undertow.studies.temporal.sgd_steps import draw_batches

Parameters = dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class StepEquation:
    """The equation's three parts for M inputs and B mini-batches, and the steps themselves."""

    slope: Tensor  # (M, D)
    bend: Tensor  # (M, D)
    random: Tensor  # (B, M, D), mean 0
    measured: Tensor  # (B, M, D)

    @property
    def mean_error(self) -> float:
        """|mean step - slope - bend| / |mean step|."""
        return self._mean_error(self.slope + self.bend)

    @property
    def first_order_error(self) -> float:
        """The same without Ito's term."""
        return self._mean_error(self.slope)

    @property
    def covariance_error(self) -> float:
        """|S - S'| / |S| of the covariances of measured and of random parts, over all inputs together."""
        seen = self.measured - self.measured.mean(0)
        squares = [_product(a, b) for a, b in ((seen, seen), (seen, self.random), (self.random, self.random))]
        # By rounding alone it could come out below 0.
        apart = max(0.0, squares[0] - 2 * squares[1] + squares[2])
        return (apart / squares[0]) ** 0.5

    @property
    def random_share(self) -> float:
        """The share of the mean squared step that differs between mini-batches."""
        around = float((self.measured - self.measured.mean(0)).square().sum()) / (len(self.measured) - 1)
        return around / (around + float(self.measured.mean(0).square().sum()))

    @property
    def bend_share(self) -> float:
        """|bend| / |slope|: how much Ito's term adds."""
        return float(self.bend.norm() / self.slope.norm())

    def _mean_error(self, expected: Tensor) -> float:
        mean = self.measured.mean(0)
        return float((mean - expected).norm() / mean.norm())


def step_equation(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    probe_x: Tensor,
    *,
    cut: str,
    batches: int | Tensor = 128,
    batch_size: int = 64,
    lr: float = 0.1,
    loss: Loss = functional.cross_entropy,
    generator: torch.Generator | None = None,
    prepare: Callable[[Tensor], Tensor] | None = None,
    dtype: torch.dtype | None = None,
) -> StepEquation:
    """The equation and the steps for the features of `probe_x` at `cut`; arguments as of `sgd_noise`."""
    if not lr > 0:
        raise BadValue("step_equation, lr", "a number above 0", lr)
    rows = batches if isinstance(batches, Tensor) else draw_batches(len(x), batches, batch_size, generator)
    if len(rows) < 2:
        raise BadValue("step_equation, batches", "two mini-batches or more", len(rows))
    with SteppedModel.of(model, cut, dtype) as net:
        source = StepSource(net, x, y, loss, lr, prepare)
        found = _equation(source, source.inputs(probe_x), rows)
    if not bool(torch.isfinite(found.measured).all()):
        raise BadData("step_equation: got NaN or infinity in the features. The network has diverged.")
    if not float(found.measured.abs().sum()):
        raise BadData(
            "step_equation: no step changed any feature. The gradient is 0: there is nothing to compare."
        )
    return found


def _equation(source: StepSource, probes: Tensor, rows: Tensor) -> StepEquation:
    net = source.net
    moving = net.moving(probes[:1])
    start = {name: one.detach() for name, one in moving.items()}

    def features(parameters: Parameters) -> Tensor:
        return net.features(probes, {**net.tensors, **parameters})

    before, first, second, measured = features(start), list[Tensor](), list[Tensor](), list[Tensor]()
    mean = {name: torch.zeros_like(one) for name, one in start.items()}
    for batch in rows:
        step = _step(source, moving, batch)
        along, bent = derivatives(features, start, step)
        first.append(along)
        second.append(bent)
        measured.append(features({name: start[name] + step[name] for name in start}) - before)
        mean = {name: mean[name] + step[name] / len(rows) for name in mean}
    slope, inner = derivatives(features, start, mean)
    # Of B draws the mean square around their own mean is (B - 1) / B of the variance.
    bend = (torch.stack(second).mean(0) - inner) * (len(rows) / (len(rows) - 1) / 2)
    return StepEquation(slope, bend, torch.stack(first) - slope, torch.stack(measured))


def derivatives(
    function: Callable[[Parameters], Tensor], at: Parameters, along: Parameters
) -> tuple[Tensor, Tensor]:
    """First and second derivative of a function of parameters along one direction."""

    def slope(parameters: Parameters) -> Tensor:
        return jvp(function, (parameters,), (along,))[1]

    first, second, *_ = jvp(slope, (at,), (along,))
    return first, second


def _step(source: StepSource, moving: Mapping[str, Tensor], batch: Tensor) -> Parameters:
    inputs, labels = source.batch(batch)
    value = source.loss(source.net.outputs(inputs, {**source.net.tensors, **moving}), labels)
    slopes = torch.autograd.grad(value, list(moving.values()))
    return {name: -source.lr * slope for name, slope in zip(moving, slopes, strict=True)}


def _product(a: Tensor, b: Tensor) -> float:
    """tr(A'A B'B) of clouds (B, M, D), input by input: the inner product of their covariances."""
    return float(torch.einsum("amd,bmd->mab", a, b).square().sum())
