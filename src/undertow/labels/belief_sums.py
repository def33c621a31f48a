"""Beliefs of many voters, summed up by checkpoint as they come.

    tally = Tally(labels)
    tally.add(4, fit_noise(votes, labels, "even"))       # a voter of epoch 4
    tally.beliefs(), tally.beliefs([1, 2, 4])            # (N, C), the average over voters
    tally.rates[4]                                       # the share of wrong labels as each of them sees it
    both = tally.joined(other)

All voters at once would take voters x samples x classes numbers; sums by checkpoint are all that is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from undertow.labels.noise_model import NoiseFit


class Tally:
    """What voters believe of the samples with given labels (N,)."""

    def __init__(self, labels: Tensor) -> None:
        self.labels = labels
        self.rates: dict[int, list[float]] = {}
        self._beliefs: dict[int, Tensor] = {}
        self._clean: Tensor | None = None

    def add(self, epoch: int, fit: NoiseFit) -> None:
        """Count a voter of a checkpoint."""
        right = float(fit.beliefs.gather(1, self.labels[:, None]).mean())
        self.rates.setdefault(epoch, []).append(1 - min(right, 1.0))  # above 1 by rounding only
        self._beliefs[epoch] = _sum(self._beliefs.get(epoch), fit.beliefs)
        self._clean = _sum(self._clean, fit.clean)

    def joined(self, other: Self) -> Self:
        """The voters of both."""
        whole = copy(self)
        epochs = dict.fromkeys([*self.rates, *other.rates])
        whole.rates = {epoch: [*self.rates.get(epoch, []), *other.rates.get(epoch, [])] for epoch in epochs}
        whole._beliefs = {**self._beliefs}
        for epoch, beliefs in other._beliefs.items():
            whole._beliefs[epoch] = _sum(self._beliefs.get(epoch), beliefs)
        whole._clean = self._clean if other._clean is None else _sum(self._clean, other._clean)
        return whole

    def __len__(self) -> int:
        return sum(map(len, self.rates.values()))

    def rate(self, epoch: int) -> float:
        """The share of wrong labels, on average over the voters of a checkpoint."""
        return float(np.mean(self.rates[epoch]))

    def beliefs(self, epochs: Iterable[int] | None = None) -> Tensor:
        """(N, C) float64: P(true class | features, given label), on average over voters of some checkpoints or all."""
        chosen = list(self.rates if epochs is None else epochs)
        whole = torch.stack([self._beliefs[epoch] for epoch in chosen]).sum(0)
        return whole / sum(len(self.rates[epoch]) for epoch in chosen)

    def clean(self) -> Tensor:
        """(N, C) float64: P(true class | features), on average over all voters."""
        assert self._clean is not None
        return self._clean / len(self)

    def interval(self, epoch: int) -> tuple[float, float]:
        """The range of a checkpoint's rates, widened by the sampling error of a share among so many labels."""
        middle = self.rate(epoch)
        error = 1.96 * (max(middle * (1 - middle), 0.0) / len(self.labels)) ** 0.5
        return max(0.0, min(self.rates[epoch]) - error), min(1.0, max(self.rates[epoch]) + error)

    def matrix(self, epoch: int) -> NDArray[np.float64]:
        """(C, C): how labels of each true class are given; a class that nobody believes in stays itself."""
        counts = given_counts(self.beliefs([epoch]), self.labels)
        sizes = counts.sum(1, keepdim=True)
        own = torch.eye(len(counts), dtype=torch.float64)
        return torch.where(sizes > 0, counts / sizes.clamp(min=torch.finfo(torch.float64).tiny), own).numpy()


def given_counts(beliefs: Tensor, labels: Tensor) -> Tensor:
    """(C, C): how many samples of true class k, by belief, are given as g."""
    return beliefs.T @ torch.nn.functional.one_hot(labels, beliefs.shape[1]).double()


def _sum(before: Tensor | None, more: Tensor) -> Tensor:
    return more.clone() if before is None else before + more
