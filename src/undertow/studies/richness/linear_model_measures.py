"""What the studies of linear models measure: the theory beside regressions and gradient descent on drawn samples.

    learned_shares(None, case=..., seed=0, exponent=1.0)       # equations 15 and 16
    two_spectra(None, case=..., seed=0, power=-4.0)            # figure 7: ten sines fitted to four points

Features are Gaussian and independent (their eigenfunctions and eigenvalues are then known), or sines.
"""

from __future__ import annotations

import torch
from torch import Tensor

from undertow.richness.learnability import generalisation_loss, gradient_flow, learnability
from undertow.studies.findings import row
from undertow.studies.task import Rows
from undertow.training.run import Run

TIMES = (0.3, 1.0, 3.0, 10.0)
"""Of gradient flow, in units of one over the largest eigenvalue."""


def learned_shares(
    run: Run | None,
    *,
    case: str,
    seed: int,
    exponent: float,
    features: int = 300,
    samples: str = "10,30,100",
    draws: int = 300,
    flow_samples: int = 20_000,
) -> Rows:
    """Shares and losses of ridgeless regressions on drawn samples, and gradient descent, beside what theory tells.

    Feature k has variance k^-exponent; the target is a random mix of the first ten eigenfunctions.

    Options:
        seed: draws target and samples.
        exponent: of the power law.
        features: how many.
        samples: numbers of samples, parted by commas.
        draws: regressions for each.
        flow_samples: samples that gradient descent sees.
    """
    generator = torch.Generator().manual_seed(seed)
    values = torch.arange(1, features + 1, dtype=torch.float64) ** -exponent
    target = torch.zeros(features, dtype=torch.float64)
    target[:10] = torch.randn(10, generator=generator, dtype=torch.float64)
    rows: Rows = []
    for count in map(int, samples.split(",")):
        rows += _drawn_shares(values, target, count, draws, generator)
    return [*rows, *_descent(values, target, flow_samples, generator)]


def _drawn_shares(values: Tensor, target: Tensor, count: int, draws: int, generator: torch.Generator) -> Rows:
    """Every eigenfunction's share: the mean over draws of what regression finds of a target that is this function."""
    overlaps, losses = torch.zeros_like(values), list[float]()
    for _ in range(draws):
        functions = torch.randn(count, len(values), generator=generator, dtype=torch.float64)
        # Ridgeless regression finds the coefficients rho E^T (E rho E^T)^-1 E c of a target with coefficients c.
        kernel = (functions * values) @ functions.T
        found = values[:, None] * functions.T @ torch.linalg.solve(kernel, functions)  # (P, P)
        overlaps += found.diagonal()
        losses.append(float((found @ target - target).square().sum()))
    told = learnability(values, count)
    where = {"n": count}
    shares = [
        row(name, float(share), position=place, **where)
        for name, curve in (("share_drawn", overlaps / draws), ("share_told", told.shares))
        for place, share in enumerate(curve.tolist(), start=1)
    ]
    spread = float(torch.tensor(losses).std() / draws**0.5)
    return [
        *shares,
        row("loss_drawn", sum(losses) / draws, low=sum(losses) / draws - 2 * spread,
            high=sum(losses) / draws + 2 * spread, **where),
        row("loss_told", generalisation_loss(values, target, count), **where),
        row("share_sum", float(overlaps.sum() / draws), **where),
    ]  # fmt: skip


def _descent(values: Tensor, target: Tensor, count: int, generator: torch.Generator) -> Rows:
    """Gradient descent in small steps on many samples of the first ten features, beside equation 25."""
    values, target = values[:10], target[:10]
    functions = torch.randn(count, 10, generator=generator, dtype=torch.float64)
    features = functions * values.sqrt()
    moment, goal = features.T @ features / count, features.T @ (functions @ target) / count
    weights, step, rows = torch.zeros_like(target), 0.01 / float(values[0]), list[dict[str, object]]()
    done = 0
    for time in TIMES:
        for _ in range(round(time / 0.01) - done):
            weights = weights - step * (moment @ weights - goal)
        done = round(time / 0.01)
        told = gradient_flow(values, target, time / float(values[0]))
        rows += [
            row(name, float(value), position=place, time=time)
            for name, curve in (
                ("flow_found", weights * values.sqrt()),
                ("flow_told", told),
            )
            for place, value in enumerate(curve.tolist(), start=1)
        ]
    return rows


def two_spectra(
    run: Run | None,
    *,
    case: str,
    seed: int,
    power: float,
    functions: int = 10,
    points: int = 4,
    grid: int = 201,
) -> Rows:
    """The least-norm fit of f(x) = sum_k w_k k^power sqrt(2) sin(2 pi k x) to random points, which gradient flow finds.

    Options:
        seed: draws the points, the same for every power.
        power: of the features' sizes; eigenvalues are k^(2 power).
        functions: sines.
        points: to fit.
        grid: where the learned function is kept.
    """
    generator = torch.Generator().manual_seed(seed)
    x = (torch.arange(points) + 0.2 + 0.6 * torch.rand(points, generator=generator)).double() / points
    y = torch.randn(points, generator=generator, dtype=torch.float64)
    order = torch.arange(1, functions + 1, dtype=torch.float64)
    sizes = order**power
    weights = torch.linalg.pinv(_sines(x, order) * sizes) @ y
    used = weights * sizes  # coefficients of the orthonormal sines
    places = torch.linspace(0, 1, grid, dtype=torch.float64)
    curve = _sines(places, order) @ used
    shares = used.square() / used.square().sum()
    return [
        row("misfit", float((_sines(x, order) @ used - y).abs().max())),
        row("mean_frequency", float((shares * order).sum())),
        *(
            row("intensity", float(v), position=k)
            for k, v in enumerate((sizes / sizes.max()).square().tolist(), 1)
        ),
        *(row("used", float(v), position=k) for k, v in enumerate(shares.tolist(), 1)),
        *(row("curve", v, x=at) for at, v in zip(places.tolist(), curve.tolist(), strict=True)),
        *(row("point", v, x=at) for at, v in zip(x.tolist(), y.tolist(), strict=True)),
    ]


def _sines(x: Tensor, order: Tensor) -> Tensor:
    """(N, K) orthonormal on [0, 1]."""
    return 2**0.5 * (2 * torch.pi * x[:, None] * order).sin()
