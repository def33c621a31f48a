"""Whether a repair is worth it, judged on samples that the model was not trained on.

    found = judge(before, after, labels, classes=10)                # predicted classes (N,), clean labels
    found = judge(before, after, noisy, classes=10, noise=0.4)      # labels with known noise
    found = judge(before, after, noisy, classes=10, noise=None)     # noise of unknown rate
    found.accepted, found.reason
    found.gain, found.low, found.high                               # of accuracy, with a bootstrap interval

Both models answer for the same samples, so the bootstrap draws samples, not models: the difference of two
accuracies depends only on how many samples the one gets right and the other wrong, and resampling these
counts is a multinomial draw. A repair is accepted if the interval lies above `least` as a whole.

Noise. Suppose each label is replaced with probability p by one drawn evenly from all C classes, whatever
the input. An answer that is right with probability a then agrees with the given label with probability
    a (1 - p) + p / C
because a replaced label agrees with any answer once in C times. The accuracy is found by solving for a, and
the difference of two models shrinks by 1 - p: its sign needs no p, and without p the measured difference is
a bound from below on the size of the true one. This holds for labels that neither model has learned; it does
not hold where noise depends on the input or on the class, nor for samples that the model was trained on,
whose noise it has memorised.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from torch import Tensor

from undertow.errors import BadData, BadValue

FEWEST = 30
"""Samples below which nothing is judged: with a handful the bootstrap's interval has no width."""
RESAMPLES = 10_000

GateVerdict = Literal["better", "not worth it", "cannot tell", "not asked"]


@dataclass(frozen=True)
class Judgement:
    """Accuracies before and after, their difference with its interval, and what follows from it.

    Numbers are None where there is no evidence. Under noise of a known rate they are corrected for it.
    """

    verdict: GateVerdict
    reason: str
    count: int = 0
    before: float | None = None
    after: float | None = None
    gain: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def accepted(self) -> bool:
        """Whether the repair is to be taken."""
        return self.verdict in ("better", "not asked")


def judge(
    before: Tensor,
    after: Tensor,
    labels: Tensor,
    *,
    classes: int,
    noise: float | None = 0.0,
    least: float = 0.0,
    confidence: float = 0.95,
    seed: int = 0,
) -> Judgement:
    """Judge `after` against `before` by a paired bootstrap of the difference of their accuracies.

    Args:
        before: predicted classes (N,) of the model as it was, for samples it was not trained on.
        after: predicted classes (N,) of the repaired one, for the same samples.
        labels: (N,) their labels.
        classes: how many classes there are.
        noise: the share of labels drawn at random; 0 for clean labels, None where it is unknown.
        least: the gain that is wanted at the lower end of the interval.
        confidence: of the interval.
        seed: of the resamples.
    """
    _check(before, after, labels, classes, noise, confidence)
    count = len(labels)
    if count < FEWEST:
        return Judgement(
            "cannot tell", f"cannot tell: {count} held-out samples are too few, {FEWEST} are wanted", count
        )
    if noise == 1:
        return Judgement("cannot tell", "cannot tell: labels that are all random say nothing", count)
    fixed, broken = (int(part.sum()) for part in _changes(before, after, labels))
    draws = _resampled_gains(fixed, broken, count, np.random.default_rng(seed))
    tail = (1 - confidence) / 2
    kept = 1 - (noise or 0.0)
    low, high = (float(edge) / kept for edge in np.quantile(draws, [tail, 1 - tail]))
    shares = [clean_accuracy(_share(said == labels), noise or 0.0, classes) for said in (before, after)]
    numbers = (count, shares[0], shares[1], shares[1] - shares[0], low, high)
    words = _words(*numbers, least=least, confidence=confidence, noise=noise)
    if low > least:
        return Judgement("better", f"accepted: {words}", *numbers)
    return Judgement("not worth it", f"not worth it: {words}", *numbers)


def clean_accuracy(noisy: float, noise: float, classes: int) -> float:
    """The accuracy against true labels, from that against labels of which the share `noise` is drawn at random.

    Not clamped: a value outside 0 to 1 says that the rate is not that of these labels.
    """
    if not 0 <= noise < 1:
        raise BadValue("clean_accuracy(noise=...)", "a share from 0 to below 1", noise)
    return (noisy - noise / classes) / (1 - noise)


def _check(
    before: Tensor, after: Tensor, labels: Tensor, classes: int, noise: float | None, confidence: float
) -> None:
    if not len(before) == len(after) == len(labels):
        got = f"{len(before)}, {len(after)} and {len(labels)}"
        raise BadData(f"judge: wanted as many answers before and after as labels, got {got}.")
    if classes < 2:
        raise BadValue("judge(classes=...)", "two or more", classes)
    if noise is not None and not 0 <= noise <= 1:
        raise BadValue("noise of the held-out labels", "a share from 0 to 1, or None if unknown", noise)
    if not 0 < confidence < 1:
        raise BadValue("confidence", "a share between 0 and 1", confidence, "For 95 % write 0.95.")


def _changes(before: Tensor, after: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Samples that only the repaired model gets right, and those that only the old one does."""
    was, is_now = before == labels, after == labels
    return is_now & ~was, was & ~is_now


def _resampled_gains(fixed: int, broken: int, count: int, rng: np.random.Generator) -> np.ndarray:
    shares = np.array([fixed, broken, count - fixed - broken]) / count
    drawn = rng.multinomial(count, shares, size=RESAMPLES)
    return (drawn[:, 0] - drawn[:, 1]) / count


def _share(right: Tensor) -> float:
    return int(right.sum()) / len(right)


def _words(
    count: int, before: float, after: float, gain: float, low: float, high: float,
    *, least: float, confidence: float, noise: float | None,
) -> str:  # fmt: skip
    text = (
        f"{100 * before:.1f} % before, {100 * after:.1f} % after, {100 * gain:+.1f} points on {count} held-out "
        f"samples ({confidence:.0%} interval {100 * low:+.1f} to {100 * high:+.1f}"
    )
    text += f"; at least {100 * least:+.1f} wanted)" if least else ")"
    if noise is None:
        text += ", against labels with unknown noise: the true difference is no smaller, if the noise is even"
    elif noise:
        text += f", corrected for even label noise of {noise:g}"
        if not 0 <= max(before, after) <= 1:
            text += "; an accuracy outside 0 to 1 says that this rate is wrong"
    return text
