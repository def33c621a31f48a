"""Curves by the recipe of MNIST-1D (Greydanus and Kobak, 2020), vectorised.

    x = curves(labels, rng)             # (N,) class numbers 0 to 9 -> (N, 40), mean 0 and variance 1

A curve starts as its digit's template of 12 points. In turn: zeros follow it (36 to 60 of them), it is
stretched to 72 points, scaled, and rolled round; smooth noise fills what is not digit, white noise goes
everywhere, a slope is added, and 40 points are read off. The recipe and its constants are the published
ones; the draws are our generator's, so the curves are not those of the published file.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Floats = NDArray[np.float64]

PADDING = (36, 60)
STRETCHED = 72
LENGTH = 40
SCALE_SPREAD = 0.4
MOST_ROLLED = 48
SMOOTH_NOISE, SMOOTH_WIDTH = 0.25, 2.0
WHITE_NOISE = 0.02
SLOPE_SPREAD = 0.75

STROKES: Floats = np.array(
    [
        [5, 6, 6.5, 6.75, 7, 7, 7, 7, 6.75, 6.5, 6, 5],
        [5, 3, 3, 3.4, 3.8, 4.2, 4.6, 5, 5.4, 5.8, 5, 5],
        [5, 6, 6.5, 6.5, 6, 5.25, 4.75, 4, 3.5, 3.5, 4, 5],
        [5, 6, 6.5, 6.5, 6, 5, 5, 6, 6.5, 6.5, 6, 5],
        [5, 4.4, 3.8, 3.2, 2.6, 2.6, 5, 5, 5, 5, 5, 5],
        [5, 3, 3, 3, 3, 5, 6, 6.5, 6.5, 6, 4.5, 5],
        [5, 4, 3.5, 3.25, 3, 3, 3, 3, 3.25, 3.5, 4, 5],
        [5, 7, 7, 6.6, 6.2, 5.8, 5.4, 5, 4.6, 4.2, 5, 5],
        [5, 4, 3.5, 3.5, 4, 5, 5, 4, 3.5, 3.5, 4, 5],
        [5, 4, 3.5, 3.5, 4, 5, 5, 5, 5, 4.7, 4.3, 5],
    ]
)  # (10, 12), how far right the pen is on its way down


def templates() -> Floats:
    """The ten digits (10, 12): variance 1/36, starting at 0."""
    curves = STROKES / STROKES.std(axis=1, keepdims=True)
    return (curves - curves[:, :1]) / 6


def curves(labels: NDArray[np.int64], rng: Generator) -> Floats:
    """A distorted, noisy curve for each label; the whole has mean 0 and variance 1."""
    from scipy.ndimage import gaussian_filter1d  # late: a third of a second, and no other data set wants it

    count = len(labels)
    padding = rng.integers(PADDING[0], PADDING[1], count, endpoint=True)
    scale = 1 + SCALE_SPREAD * (rng.random(count) - 0.5)
    rolled = rng.integers(0, MOST_ROLLED, count)
    smooth = SMOOTH_NOISE * rng.standard_normal((count, STRETCHED))
    white = WHITE_NOISE * rng.standard_normal((count, STRETCHED))
    slope = SLOPE_SPREAD * (rng.random(count) - 0.5)

    digit, drawn = stretch(templates()[labels], padding)
    source = (np.arange(STRETCHED) - rolled[:, None]) % STRETCHED
    digit = np.take_along_axis(digit * scale[:, None], source, axis=1)
    drawn = np.take_along_axis(drawn, source, axis=1)
    x = np.where(drawn, digit, gaussian_filter1d(smooth, SMOOTH_WIDTH, axis=1)) + white
    x -= slope[:, None] * np.linspace(-0.5, 0.5, STRETCHED)
    x = read_off(x, np.linspace(0, STRETCHED - 1, LENGTH)[None].repeat(count, axis=0))
    return (x - x.mean()) / x.std()


def stretch(digits: Floats, padding: NDArray[np.int64]) -> tuple[Floats, NDArray[np.bool_]]:
    """Each digit with its zeros, read off at 72 points; and where it is still digit."""
    points = digits.shape[1]
    padded = np.pad(digits, ((0, 0), (0, PADDING[1])))
    at = np.linspace(0, 1, STRETCHED) * (points + padding[:, None] - 1)  # (N, 72)
    return read_off(padded, at), at < points


def read_off(rows: Floats, at: Floats) -> Floats:
    """The rows, linearly interpolated at positions `at` (N, M), counted from 0."""
    left = np.minimum(at.astype(np.int64), rows.shape[1] - 2)
    share = at - left
    start = np.take_along_axis(rows, left, axis=1)
    return start + share * (np.take_along_axis(rows, left + 1, axis=1) - start)
