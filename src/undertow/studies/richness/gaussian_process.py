"""The linear model beside a learning curve: regression with the Gaussian process of an infinitely wide network.

    outputs = gp_outputs(train_inputs, one_hot, test_inputs, layers=3)
    rows = gp_rows(run.data(), objective, most=25_000)        # error and loss, as the network's are counted

The kernel is that of a ReLU network of so many hidden layers with He's initial weights (arc-cosine kernel of order
one, layer by layer). Its features never change, so it is as lazy as a model can be.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from undertow.data.inputs import to_inputs
from undertow.data.samples import DataSet
from undertow.studies.findings import row
from undertow.studies.task import Rows
from undertow.training.objective import Objective

RIDGE = 1e-6
"""Added to the diagonal, in shares of its mean: only as much as the factorisation needs."""


def relu_kernel(first: Tensor, second: Tensor, layers: int) -> Tensor:
    """(N, M) covariances of the outputs of a wide ReLU network at rows (N, D) and (M, D)."""
    width = first.shape[1]
    covariance = first @ second.T / width
    own, other = (rows.square().sum(1) / width for rows in (first, second))
    size = (own[:, None] * other[None, :]).sqrt()
    for _ in range(layers):  # with He's weights the variances stay as they are, only angles shrink
        cosine = (covariance / size.clamp_min(torch.finfo(size.dtype).tiny)).clamp(-1, 1)
        angle = cosine.arccos()
        covariance = size / torch.pi * (angle.sin() + (torch.pi - angle) * cosine)
    return covariance


def gp_outputs(train: Tensor, targets: Tensor, test: Tensor, layers: int) -> Tensor:
    """(M, C) posterior means at test rows, given targets (N, C) at training rows, in float64."""
    rows, others = train.flatten(1).double(), test.flatten(1).double()
    kernel = relu_kernel(rows, rows, layers)
    kernel.diagonal().add_(RIDGE * float(kernel.diagonal().mean()))
    factor = torch.linalg.cholesky(kernel)
    return relu_kernel(others, rows, layers) @ torch.cholesky_solve(targets.double(), factor)


def gp_rows(data: DataSet, objective: Objective, *, most: int, layers: int = 3) -> Rows:
    """Error and loss of the process on the test samples of `data`, fitted to its training samples.

    With more than `most` training samples the kernel is not made, and the rows say so.
    """
    count = len(data.train)
    if count > most:
        note = f"{count:,} samples: the process is fitted to at most {most:,}"
        return [row(name, None, split="test", note=note) for name in ("gp_error", "gp_loss")]
    train, test = (to_inputs(part.tensor, data.scaling) for part in (data.train, data.test))
    outputs = gp_outputs(train, one_hot(data.train.y, len(data.classes)) / objective.alpha, test, layers)
    error = float((outputs.argmax(1) != data.test.y).double().mean())
    where = {"split": "test", "n": len(data.test)}
    return [
        row("gp_error", error, **where),
        row("gp_loss", float(objective.loss(outputs, data.test.y)), **where),
    ]
