"""Where a power law changes its slope, and whether it does at all.

    found = find_break(sizes, errors)         # (N,), (N,): several points may share a size
    found.at, found.before, found.after       # where, and both slopes on log axes
    found.p                                   # how easily noise alone would improve one line as much

Two straight lines that meet are fitted on log axes, the meeting point by search. They are compared with one line by
an F test on the two parameters more. With a searched meeting point the test is approximate, and on few points it is
weak: a large p means that one power law fits as well, not that there is no break.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from undertow.errors import BadData
from undertow.studies.findings import Array

STEPS = 120
"""Meeting points that are tried between the second and the last but one size."""


@dataclass(frozen=True)
class Break:
    """Two power laws that meet."""

    at: float
    before: float  # slope on log axes
    after: float
    p: float


def find_break(sizes: Sequence[float] | Array, values: Sequence[float] | Array) -> Break:
    """The best two lines on log axes through positive points; at least three sizes more than a fit needs."""
    given, measured = np.asarray(sizes, float), np.asarray(values, float)
    known = np.unique(given)
    if len(known) < 6 or not (np.isfinite(measured) & (measured > 0)).all() or not (given > 0).all():
        raise BadData(
            f"find_break: wanted positive values at six sizes or more, got {len(known)} sizes and values from "
            f"{measured.min() if len(measured) else float('nan'):.3g}."
        )
    x, y = np.log10(given), np.log10(measured)
    places = np.linspace(np.log10(known[1]), np.log10(known[-2]), STEPS)
    fits = [_two_lines(x, y, place) for place in places]
    best = int(np.argmin([rest for _, rest in fits]))
    (slope, turn), rest = fits[best]
    straight = _rest(np.stack([np.ones_like(x), x], 1), y)[1]
    return Break(float(10 ** places[best]), slope, slope + turn, _chance(straight, rest, len(x)))


def _two_lines(x: Array, y: Array, place: float) -> tuple[tuple[float, float], float]:
    columns = np.stack([np.ones_like(x), x, np.maximum(x - place, 0)], 1)
    found, rest = _rest(columns, y)
    return (float(found[1]), float(found[2])), rest


def _rest(columns: Array, y: Array) -> tuple[Array, float]:
    found = np.asarray(np.linalg.lstsq(columns, y)[0], float)
    return found, float(np.square(y - columns @ found).sum())


def _chance(straight: float, broken: float, count: int) -> float:
    """The F test's p value for two parameters more (a slope and its place)."""
    from scipy.stats import f

    free = count - 4
    if broken <= 1e-12 * max(straight, 1e-300) or straight <= 1e-20 * count:
        return 0.0 if straight > 1e-20 * count else 1.0  # a perfect fit of two lines, or of one
    return float(f.sf((straight - broken) / 2 / (broken / free), 2, free))
