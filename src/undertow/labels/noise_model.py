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

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

NoiseShape = Literal["even", "matrix"]

FIRST_STEPS, MORE_STEPS, LAST_STEPS = 10, 8, 40
"""Of EM: from the first guess, at each further temperature from the matrix of the one before, and at the last one."""
STILL = 1e-4
"""EM ends when no chance in the matrix and no share changes by more."""
MOST_CLIMBS, MOST_TRIES = 12, 6
"""Of temperatures: in steps of 2, and between two lower ones."""
NEAR_TOP, FAR = 0.03, 0.35
"""The search ends at the top of a parabola, less than this away in logarithms, over neighbours no further away."""
TINY = torch.finfo(torch.float64).tiny
"""For chances of 0, whose logarithm is wanted."""
LEAST_ODDS = 1e-200
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
    size = float(rows[rows.isfinite()].abs().max()) or 1.0
    rows /= size  # or squares of large votes are infinite, those of small ones nothing
    first = Noise.first_guess(labels, len(rows))
    start = 1 / (float(rows[rows.isfinite()].std()) or 1.0)  # one unit of the votes' own spread

    def at(temperature: float, near: Noise, steps: int = MORE_STEPS) -> _Tried:
        odds = _odds(rows, temperature)
        noise = improve(odds, labels, near, kind, steps)
        return _Tried(temperature, noise, log_likelihood(odds, labels, noise))

    best = _highest(at, at(start, first, FIRST_STEPS))
    odds = _odds(rows, best.temperature)
    noise = improve(odds, labels, best.noise, kind, LAST_STEPS)
    likelihood = log_likelihood(odds, labels, noise)
    gain = likelihood - float(first.shares.log()[labels].sum())
    clean = true_chances(odds, noise.shares).T
    beliefs = believe(clean, labels, noise.matrix)
    return NoiseFit(best.temperature / size, noise.matrix, odds, clean, beliefs, likelihood, gain)


def _odds(rows: Tensor, temperature: float) -> Tensor:
    """(C, N): what votes say if all classes are equally frequent; never that a class cannot be.

    Or a sample whose votes leave only classes that are never given would have no chance to be labelled at all: as it
    is, its votes then say nothing.
    """
    return (rows * temperature).softmax(0).clamp_(min=LEAST_ODDS)


def _highest(at: Callable[[float, Noise], _Tried], best: _Tried) -> _Tried:
    """Climb in steps of 2 to between two lower ones, then to the tops of parabolas over the three, in logarithms."""
    below, above = at(best.temperature / 2, best.noise), at(best.temperature * 2, best.noise)
    for _ in range(MOST_CLIMBS):
        if above.likelihood > max(best.likelihood, below.likelihood):
            below, best, above = best, above, at(above.temperature * 2, above.noise)
        elif below.likelihood > best.likelihood:
            below, best, above = at(below.temperature / 2, below.noise), below, best
        else:
            break
    else:
        return max((below, best, above), key=lambda one: one.likelihood)
    best = max(
        best, at(best.temperature, best.noise), key=lambda one: one.likelihood
    )  # as much EM as its neighbours
    for _ in range(MOST_TRIES):
        sides = [_height(one, best) for one in (below, above)]
        step = _next_step(*sides)
        if not step:
            return replace(best, temperature=best.temperature * math.exp(_to_top(*sides)))
        tried = at(best.temperature * math.exp(step), best.noise)
        rose = tried.likelihood > best.likelihood
        lower, best = (best, tried) if rose else (tried, best)
        if rose == (step > 0):
            below = lower
        else:
            above = lower
    return best


def _height(one: _Tried, best: _Tried) -> tuple[float, float]:
    """Where it lies beside the best, and how far below it."""
    return math.log(one.temperature / best.temperature), one.likelihood - best.likelihood


def _next_step(left: tuple[float, float], right: tuple[float, float]) -> float:
    """From the best at (0, 0) to where to try next, in logarithms; 0 when the top is near enough.

    To the top of the parabola; where that is here already but a neighbour is far, some way towards it: a parabola over
    far neighbours is not to be believed.
    """
    top, (a, _), (b, _) = _to_top(left, right), left, right
    if abs(top) >= NEAR_TOP:
        return top
    far = b if b > -a else a
    return far / 3 if abs(far) > FAR else 0.0


def _to_top(left: tuple[float, float], right: tuple[float, float]) -> float:
    """Where the parabola through (0, 0), which is the highest, and a point on each side has its top."""
    (a, u), (b, v) = left, right
    bend = u * b - v * a
    return (u * b**2 - v * a**2) / (2 * bend) if bend < 0 else 0.0


def improve(odds: Tensor, labels: Tensor, noise: Noise, kind: NoiseShape, steps: int) -> Noise:
    """The noise after so many steps of EM, or when it holds still.

    Args:
        odds: (C, N), what votes say if all classes are equally frequent.
        labels: (N,) given.
        noise: where to start; even noise from the rate of the first class.
        kind: of the noise.
        steps: at most.
    """
    return (_improve_even if kind == "even" else _improve_matrix)(odds, labels, noise, steps)


def _improve_even(odds: Tensor, labels: Tensor, noise: Noise, steps: int) -> Noise:
    """One rate: all that it asks of a sample is P(its given class is the true one | features)."""
    classes, told = len(odds), odds.gather(0, labels[None])[0]
    seen = labels.bincount(minlength=classes).double() / len(labels)
    matrix, shares = noise.matrix, noise.shares
    for _ in range(steps):
        kept, other = float(matrix[0, 0]), float(matrix[0, 1])
        right = shares[labels] * told / (shares @ odds)
        chance = (other + (kept - other) * right).clamp(min=TINY)
        after = even_matrix(1 - kept * float((right / chance).mean()), classes)
        before, shares = shares, _behind(seen, shares, after)
        matrix = after
        if abs(float(after[0, 0]) - kept) < STILL and float((shares - before).abs().max()) < STILL:
            break
    return Noise(matrix, shares)


def _improve_matrix(odds: Tensor, labels: Tensor, noise: Noise, steps: int) -> Noise:
    """A chance for each pair of classes; the shares stay."""
    classes, matrix = len(odds), noise.matrix
    given = torch.nn.functional.one_hot(labels, classes).T.double()
    for _ in range(steps):
        joint = noise.shares[:, None] * matrix
        # Beliefs odds_ki joint_kg / chance_i, summed over the samples given as g, without making them.
        counts = joint * (odds @ (given / _chance(odds, labels, joint)).T)
        counts += 1 / classes  # one label of each row spread evenly: a class without belief keeps a row
        before, matrix = matrix, counts / counts.sum(1, keepdim=True)
        if float((matrix - before).abs().max()) < STILL:
            break
    return Noise(matrix, noise.shares)


def _behind(seen: Tensor, shares: Tensor, matrix: Tensor) -> Tensor:
    """One step from `shares` towards those true shares that the matrix turns into the `seen` ones (C,)."""
    expected = shares @ matrix
    return shares * (matrix @ torch.where(seen > 0, seen / expected, 0))


def true_chances(odds: Tensor, shares: Tensor) -> Tensor:
    """(C, N): P(true | features)."""
    weighted = odds * shares[:, None]
    return weighted / weighted.sum(0)


def _chance(odds: Tensor, labels: Tensor, joint: Tensor) -> Tensor:
    """(N,): P(given | features) up to P(features), for `joint` (C, C) = P(true, given)."""
    return (joint.T @ odds).gather(0, labels[None])[0].clamp(min=TINY)


def log_likelihood(odds: Tensor, labels: Tensor, noise: Noise) -> float:
    """Of the given labels: the sum of log P(given | features), for `odds` (C, N)."""
    joint = noise.shares[:, None] * noise.matrix
    return float((_chance(odds, labels, joint) / (noise.shares @ odds)).log().sum())


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
        total += log_likelihood(fit.odds[:, fold], labels[fold], noise)
    return total
