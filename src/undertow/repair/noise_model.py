"""How labels go wrong, learned from votes and given labels alone.

    fitted = fit_noise(votes, labels, kind="matrix")       # votes (N, C): log-scores without the sample's own label
    fitted.temperature, fitted.matrix                      # P(given | true), row by row
    fitted.clean                                           # (N, C): P(true | features)
    fitted.beliefs                                         # (N, C): P(true | features, given label)
    better_kind([(even, fitted), ...], labels, folds)      # "even" or "matrix": which foretells held-out labels

The model: the true class of sample i is k with probability q_ik = softmax(temperature x votes_i)_k, and a label
that is truly k is given as g with probability T_kg. Both are found by maximum likelihood of the given labels:
T by EM, the temperature by a search outside of it. So the temperature is not a matter of taste: it is the one at
which the votes, seen through T, foretell the labels best. `even` noise has one parameter (every wrong class is as
likely), `matrix` has C (C - 1); a matrix that is not there is paid for with wrong suspects among classes that look
alike, so it is taken only where it foretells labels of folds that it was not fitted on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

NoiseShape = Literal["even", "matrix"]

FIRST_STEPS, MORE_STEPS = 10, 4
"""Of EM: from the first guess, and at each further temperature from the matrix of the one before."""
MOST_CLIMBS = 12
FIRST_RATE = 0.2
"""Where EM starts; the likelihood has one maximum in T for given votes, since it is concave in T."""


@dataclass(frozen=True, eq=False)
class NoiseFit:
    """A temperature and a noise matrix with what they say of the samples."""

    temperature: float
    matrix: Tensor  # (C, C) float64: row k says how labels that are truly k are given
    clean: Tensor  # (N, C) float64
    beliefs: Tensor  # (N, C) float64
    likelihood: float  # of the given labels: sum of logarithms


@dataclass(frozen=True, eq=False)
class _Tried:
    """What one temperature came to."""

    temperature: float
    matrix: Tensor
    likelihood: float


def fit_noise(votes: Tensor, labels: Tensor, kind: NoiseShape) -> NoiseFit:
    """Temperature and noise matrix of most likelihood for given labels (N,)."""
    start = 1 / (float(votes[votes.isfinite()].std()) or 1.0)  # one unit of the votes' own spread
    best = _at_temperature(votes, labels, kind, start, even_matrix(FIRST_RATE, votes.shape[1]), FIRST_STEPS)
    for factor in (2.0, 2.0**0.5, 2.0**0.25, 2.0**0.125, 2.0**0.0625):  # climb in steps of 2, then finer ones
        best = _climb(votes, labels, kind, best, factor)
    clean = (votes * best.temperature).softmax(1)
    beliefs = believe(clean, labels, best.matrix)
    return NoiseFit(best.temperature, best.matrix, clean, beliefs, best.likelihood)


def _climb(votes: Tensor, labels: Tensor, kind: NoiseShape, best: _Tried, factor: float) -> _Tried:
    """Go on by `factor`, up or down, as long as the likelihood grows."""
    for way in (factor, 1 / factor):
        first = best
        for _ in range(MOST_CLIMBS):
            tried = _at_temperature(votes, labels, kind, best.temperature * way, best.matrix, MORE_STEPS)
            if tried.likelihood <= best.likelihood:
                break
            best = tried
        if best is not first:
            break
    return best


def _at_temperature(
    votes: Tensor, labels: Tensor, kind: NoiseShape, temperature: float, matrix: Tensor, steps: int
) -> _Tried:
    clean = (votes * temperature).softmax(1)
    matrix = fit_matrix(clean, labels, kind, matrix, steps)
    return _Tried(temperature, matrix, log_likelihood(clean, labels, matrix))


def fit_matrix(clean: Tensor, labels: Tensor, kind: NoiseShape, matrix: Tensor, steps: int) -> Tensor:
    """The noise matrix after so many steps of EM from `matrix`."""
    if kind == "even":
        return _fit_even(clean.gather(1, labels[:, None])[:, 0], clean.shape[1], matrix, steps)
    given = torch.nn.functional.one_hot(labels, clean.shape[1]).double()
    for _ in range(steps):
        # Beliefs clean_ik T_kg / chance_i, summed over the samples given as g, without making them.
        counts = matrix * (clean.T @ (given / _chance(clean, labels, matrix)[:, None]))
        counts += (
            1 / clean.shape[1]
        )  # one label of each row spread evenly: a class without belief keeps a row
        matrix = counts / counts.sum(1, keepdim=True)
    return matrix


def _fit_even(own: Tensor, classes: int, matrix: Tensor, steps: int) -> Tensor:
    """The same for even noise, which asks only for `own` (N,): what is said of the class that is given."""
    right = float(matrix[0, 0])
    for _ in range(steps):
        other = (1 - right) / (classes - 1)
        chance = own * right + (1 - own) * other
        right = float(torch.where(chance > 0, own * right / chance, own).mean())
    return even_matrix(1 - right, classes)


def _chance(clean: Tensor, labels: Tensor, matrix: Tensor) -> Tensor:
    """(N,): P(given | features)."""
    return (clean @ matrix).gather(1, labels[:, None])[:, 0]


def log_likelihood(clean: Tensor, labels: Tensor, matrix: Tensor) -> float:
    """Of the given labels: the sum of log P(given | features)."""
    return float(_chance(clean, labels, matrix).clamp(min=torch.finfo(torch.float64).tiny).log().sum())


def believe(clean: Tensor, labels: Tensor, matrix: Tensor) -> Tensor:
    """P(true | features, given), from P(true | features) and the noise matrix."""
    joint = clean * matrix.T[labels]
    total = joint.sum(1, keepdim=True)
    if bool((total > 0).all()):
        return joint / total
    return torch.where(
        total > 0, joint / total, clean
    )  # a label that the model holds impossible says nothing


def even_matrix(rate: float, classes: int) -> Tensor:
    """Labels wrong at `rate`, every wrong class as likely."""
    matrix = torch.full((classes, classes), rate / (classes - 1), dtype=torch.float64)
    return matrix.fill_diagonal_(1 - rate)


def better_kind(
    fits: Sequence[tuple[NoiseFit, NoiseFit]], labels: Tensor, folds: Sequence[Tensor]
) -> NoiseShape:
    """The kind of noise that foretells labels of folds it was not fitted on, over all voters.

    Args:
        fits: for each voter its fit with even noise and its fit with a matrix.
        labels: (N,) given labels.
        folds: disjoint sets of sample numbers.
    """
    gain = sum(
        _foretold(matrix, labels, folds, "matrix") - _foretold(even, labels, folds, "even")
        for even, matrix in fits
    )
    return "matrix" if gain > 0 else "even"


def _foretold(fit: NoiseFit, labels: Tensor, folds: Sequence[Tensor], kind: NoiseShape) -> float:
    """Log-likelihood of each fold's labels under the noise of the other folds."""
    total = 0.0
    for fold in folds:
        others = torch.ones(len(labels), dtype=torch.bool)
        others[fold] = False
        # From the even guess, not from the fit to all labels, which has seen this fold.
        first = even_matrix(FIRST_RATE, fit.clean.shape[1])
        matrix = fit_matrix(fit.clean[others], labels[others], kind, first, FIRST_STEPS)
        total += log_likelihood(fit.clean[fold], labels[fold], matrix)
    return total
