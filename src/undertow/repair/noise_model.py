"""How labels go wrong, learned from votes and given labels alone.

    fitted = fit_noise(votes, labels, kind="matrix")       # votes (N, C): log-scores without the sample's own label
    fitted.temperature, fitted.matrix                      # P(given | true), row by row
    fitted.clean                                           # (N, C): P(true | features)
    fitted.beliefs                                         # (N, C): P(true | features, given label)
    better_kind([(even, fitted), ...], labels, folds)      # "even" or "matrix": which foretells held-out labels

The model: the true class of sample i is k with probability q_ik, proportional to share_k exp(temperature x votes_ik),
and a label that is truly k is given as g with probability T_kg. T is found by EM and the temperature by a search
outside of it, both by the likelihood of the given labels. So the temperature is not a matter of taste: it is the one
at which the votes, seen through T, foretell the labels best. Without shares of the classes, T would have to explain
that some classes are larger than others, and clean labels of a rare class would pass for noise.

`even` noise has one parameter (every wrong class is as likely), and the shares are those that it turns into the given
ones. `matrix` has C (C - 1), and takes the shares as given: T and shares together would be too free. A matrix that is
not there is paid for with wrong suspects among classes that look alike, so it is taken only where it foretells labels
of folds that it was not fitted on. A class that is never given is never believed in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

NoiseShape = Literal["even", "matrix"]

FIRST_STEPS, MORE_STEPS, LAST_STEPS = 10, 4, 40
"""Of EM: from the first guess, at each further temperature from the matrix of the one before, and at the last one."""
STILL = 1e-4
"""EM ends when no chance in the matrix and no share changes by more."""
MOST_CLIMBS = 12
FIRST_RATE = 0.2
"""Where EM starts; the likelihood has one maximum in T for given votes, since it is concave in T."""


@dataclass(frozen=True, eq=False)
class NoiseFit:
    """A temperature and a noise matrix with what they say of the samples."""

    temperature: float
    matrix: Tensor  # (C, C) float64: row k says how labels that are truly k are given
    odds: Tensor  # (C, N) float64: what the votes say if all classes are equally frequent
    clean: Tensor  # (N, C) float64
    beliefs: Tensor  # (N, C) float64
    likelihood: float  # of the given labels: sum of logarithms
    gain: float  # of that over the likelihood of the classes' shares alone

    @property
    def informative(self) -> bool:
        """Whether the votes tell the labels better than shares do, by more than the two parameters of even noise."""
        return self.gain > 2


@dataclass(frozen=True, eq=False)
class Noise:
    """How often classes truly occur, and how labels of each are given."""

    matrix: Tensor  # (C, C)
    shares: Tensor  # (C,)

    @classmethod
    def first_guess(cls, labels: Tensor, classes: int) -> Noise:
        """Even noise at the first rate; classes as often as labels are given."""
        return cls(
            even_matrix(FIRST_RATE, classes), labels.bincount(minlength=classes).double() / len(labels)
        )


@dataclass(frozen=True, eq=False)
class _Tried:
    """What one temperature came to."""

    temperature: float
    noise: Noise
    likelihood: float


def fit_noise(votes: Tensor, labels: Tensor, kind: NoiseShape) -> NoiseFit:
    """Temperature and noise of most likelihood for given labels (N,)."""
    # Classes in rows: products and sums of few long rows are twice as fast as those of many short ones.
    rows = votes.double().T.contiguous()  # (C, N)
    first = Noise.first_guess(labels, len(rows))
    start = 1 / (float(rows[rows.isfinite()].std()) or 1.0)  # one unit of the votes' own spread
    best = _at_temperature(rows, labels, kind, start, first, FIRST_STEPS)
    for factor in (2.0, 2.0**0.5, 2.0**0.25, 2.0**0.125, 2.0**0.0625):  # climb in steps of 2, then finer ones
        best = _climb(rows, labels, kind, best, factor)
    odds = (rows * best.temperature).softmax(0)
    noise = improve(odds, labels, best.noise, kind, LAST_STEPS)
    clean = true_chances(odds, noise.shares)
    likelihood = log_likelihood(clean, labels, noise.matrix)
    gain = likelihood - float(first.shares.log()[labels].sum())
    beliefs = believe(clean.T, labels, noise.matrix)
    return NoiseFit(best.temperature, noise.matrix, odds, clean.T, beliefs, likelihood, gain)


def _climb(rows: Tensor, labels: Tensor, kind: NoiseShape, best: _Tried, factor: float) -> _Tried:
    """Go on by `factor`, up or down, as long as the likelihood grows."""
    for way in (factor, 1 / factor):
        first = best
        for _ in range(MOST_CLIMBS):
            tried = _at_temperature(rows, labels, kind, best.temperature * way, best.noise, MORE_STEPS)
            if tried.likelihood <= best.likelihood:
                break
            best = tried
        if best is not first:
            break
    return best


def _at_temperature(
    rows: Tensor, labels: Tensor, kind: NoiseShape, temperature: float, noise: Noise, steps: int
) -> _Tried:
    odds = (rows * temperature).softmax(0)
    noise = improve(odds, labels, noise, kind, steps)
    return _Tried(temperature, noise, log_likelihood(true_chances(odds, noise.shares), labels, noise.matrix))


def improve(odds: Tensor, labels: Tensor, noise: Noise, kind: NoiseShape, steps: int) -> Noise:
    """The noise after so many steps of EM, or when it holds still.

    Args:
        odds: (C, N), what votes say if all classes are equally frequent.
        labels: (N,) given.
        noise: where to start.
        kind: of the noise.
        steps: at most.
    """
    matrix, shares, classes = noise.matrix, noise.shares, len(odds)
    given = torch.nn.functional.one_hot(labels, classes).T.double()
    seen = given.mean(1)
    for _ in range(steps):
        before, clean = (matrix, shares), true_chances(odds, shares)
        # Beliefs clean_ki T_kg / chance_i, summed over the samples given as g, without making them.
        counts = matrix * (clean @ (given / _chance(clean, labels, matrix)).T)
        if kind == "even":
            matrix = even_matrix(1 - float(counts.diagonal().sum()) / len(labels), classes)
            shares = _behind(seen, shares, matrix)
        else:
            counts += 1 / classes  # one label of each row spread evenly: a class without belief keeps a row
            matrix = counts / counts.sum(1, keepdim=True)
        if (
            max(float((now - then).abs().max()) for now, then in zip((matrix, shares), before, strict=True))
            < STILL
        ):
            break
    return Noise(matrix, shares)


def _behind(seen: Tensor, shares: Tensor, matrix: Tensor) -> Tensor:
    """One step from `shares` towards those true shares that the matrix turns into the `seen` ones (C,)."""
    expected = shares @ matrix
    return shares * (matrix @ torch.where(seen > 0, seen / expected, 0))


def true_chances(odds: Tensor, shares: Tensor) -> Tensor:
    """(C, N): P(true | features)."""
    weighted = odds * shares[:, None]
    return weighted / weighted.sum(0)


def _chance(clean: Tensor, labels: Tensor, matrix: Tensor) -> Tensor:
    """(N,): P(given | features), for `clean` (C, N)."""
    return (matrix.T @ clean).gather(0, labels[None])[0].clamp(min=torch.finfo(torch.float64).tiny)


def log_likelihood(clean: Tensor, labels: Tensor, matrix: Tensor) -> float:
    """Of the given labels: the sum of log P(given | features), for `clean` (C, N)."""
    return float(_chance(clean, labels, matrix).log().sum())


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
    fits: Iterable[tuple[NoiseFit, NoiseFit]], labels: Tensor, folds: Sequence[Tensor]
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
    total, classes = 0.0, len(fit.odds)
    for fold in folds:
        others = torch.ones(len(labels), dtype=torch.bool)
        others[fold] = False
        # From the first guess, not from the fit to all labels, which has seen this fold.
        first = Noise.first_guess(labels[others], classes)
        noise = improve(fit.odds[:, others], labels[others], first, kind, FIRST_STEPS)
        clean = true_chances(fit.odds[:, fold], noise.shares)
        total += log_likelihood(clean, labels[fold], noise.matrix)
    return total
