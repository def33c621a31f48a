"""Shares, their differences, and how sure they are.

    wilson(0.69, 500)                        # Number(value=.69, low=.648, high=.729)
    wilson(0.69, 500, tries=9)               # wider: the best of nine was looked for
    difference(wilson(0.94, 500), wilson(0.69, 500))

A share has one interval everywhere, in rows, charts and verdicts: Wilson's, which has a width at 0 and at 1 too. Where
the best of many shares was picked, its level allows for as many tries (Bonferroni). Of a difference it is Newcombe's,
from the two intervals as if the shares were independent: both models answer to the same samples, which makes the truth
narrower.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist
from typing import NamedTuple

LEVEL = 0.95


@dataclass(frozen=True)
class Share:
    """How many of how many."""

    hits: int
    count: int

    @property
    def value(self) -> float:
        """From 0 to 1."""
        return self.hits / self.count

    def sure(self, tries: int = 1) -> Sure:
        """With its interval, which allows for the best of so many tries."""
        return wilson(self.value, self.count, tries)


class Number(NamedTuple):
    """A number with the ends of its interval; None where nothing is known of them."""

    value: float
    low: float | None = None
    high: float | None = None


class Sure(NamedTuple):
    """A number whose interval is known."""

    value: float
    low: float
    high: float

    @property
    def plain(self) -> Number:
        """The same as a number."""
        return Number(*self)


def wilson(share: float, count: int, tries: int = 1) -> Sure:
    """A share of `count` samples with Wilson's interval; at 0 and 1 it has a width too."""
    z = NormalDist().inv_cdf(1 - (1 - LEVEL) / (2 * max(1, tries)))
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    reach = z / (1 + z * z / count) * sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    # By rounding alone an end could come to lie on the wrong side of 0, of 1, or of a share that is 0 or 1.
    return Sure(share, min(max(0.0, middle - reach), share), max(min(1.0, middle + reach), share))


def difference(one: Sure, other: Sure) -> Sure:
    """`one` minus `other`."""
    value = one.value - other.value
    down = sqrt((one.value - one.low) ** 2 + (other.high - other.value) ** 2)
    up = sqrt((one.high - one.value) ** 2 + (other.value - other.low) ** 2)
    return Sure(value, value - down, value + up)


def percent(share: float) -> str:
    """69.2 %."""
    return f"{100 * share:.1f} %"


def points(gain: float) -> str:
    """25.8 points."""
    return f"{100 * gain:.1f} points"


def within(number: Sure | Number, scale: float = 100, digits: int = 1) -> str:
    """(64.8 to 72.9); nothing where the ends are not known."""
    if number.low is None or number.high is None:
        return ""
    return f"({scale * number.low:.{digits}f} to {scale * number.high:.{digits}f})"
