"""Labels that go wrong where two classes are hard to tell apart: polynomial margin diminishing noise, type I.

    given = margin_flips(rows, y, classes=10, p=0.3, source=generator)

Zhang et al. 2021 (Learning with feature-dependent label noise): a label flips between the two likeliest classes of a
clean model with a chance of c (1 - m^2) / 2, m being the difference of their probabilities. Here the clean model is a
logistic regression on the leading directions of the inputs, for each half of the samples learned from the other, and c
is such that a share p of all labels flips. A label that is neither of the two stays as it is.
"""

from __future__ import annotations

import warnings

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from undertow.errors import BadData, BadValue

DIRECTIONS = 60
HELD_BACK = 0.01
"""The inverse strength of the regression's penalty: enough for probabilities between 0 and 1."""
LARGEST = 1e6


def margin_flips(rows: Tensor, y: Tensor, classes: int, p: float, source: torch.Generator) -> Tensor:
    """Noisy labels (N,) of inputs (N, D) float64; for one generator, those at a smaller p are among them."""
    chance, half = torch.rand(2, len(rows), generator=source, dtype=torch.float64)
    likely = _likely(rows, y, classes, half < 0.5)
    first, second = likely.topk(2, 1).indices.T
    margin = likely.gather(1, first[:, None]) - likely.gather(1, second[:, None])
    inside = (y == first) | (y == second)
    tau = torch.where(inside, (1 - margin[:, 0].square()) / 2, 0.0)
    flips = chance < (_factor(tau, p) * tau).clamp(max=1)
    return torch.where(flips, torch.where(y == first, second, first), y)


def _factor(tau: Tensor, p: float) -> float:
    """C for which min(c tau, 1) is p on average."""
    low, high = 0.0, 1.0
    while float((high * tau).clamp(max=1).mean()) < p:
        low, high = high, 2 * high
        if high > LARGEST:
            most = float((tau > 0).double().mean())
            raise BadValue(
                "margin label noise", f"a share below {most:.2f}, of labels that a clean model finds likely", p,
                "Take less, or another kind.",
            )  # fmt: skip
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if float((middle * tau).clamp(max=1).mean()) < p else (low, middle)
    return low


def _likely(rows: Tensor, y: Tensor, classes: int, half: Tensor) -> Tensor:
    """(N, C) float64: class probabilities of each half by a model of the other."""
    from sklearn.decomposition import PCA

    count = min(DIRECTIONS, *rows.shape)
    low = PCA(count, random_state=0).fit_transform(rows.numpy())
    likely = torch.zeros(len(rows), classes, dtype=torch.float64)
    for held in (half, ~half):
        learned, there = _regression(low[~held], y[~held].numpy(), low[held])
        likely[held.nonzero(), torch.from_numpy(there)] = torch.from_numpy(learned)
    return likely


def _regression(
    rows: NDArray[np.float64], labels: NDArray[np.int64], others: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Probabilities of other rows, and of which classes they are."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    if len(np.unique(labels)) < 2:
        raise BadData(
            "margin label noise: wanted two classes in each half of the samples, got one. Give more."
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # close is enough: any margin makes noise
        model = LogisticRegression(C=HELD_BACK, max_iter=200).fit(rows, labels)
    return model.predict_proba(others), model.classes_
