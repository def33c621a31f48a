"""Data sets that need no network: scikit-learn's digits and small generated ones.

    make_embedded("digits", seed=0)                     # 1,297 + 500 images (N, 1, 8, 8), float32 in [0, 1]
    make_embedded("mod-division:p=31", seed=0)          # tokens (N, 4): x op y =
    make_embedded("blobs:classes=4,n=500", seed=0)      # points (N, 2)

The names, options and defaults are in `catalogue.DATA`. The seed decides everything that is drawn:
points, noise and which pairs are for training. Only the split of digits is fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from math import isqrt, pi
from pathlib import Path

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray

from undertow.data import mnist1d
from undertow.data.catalogue import DATA
from undertow.data.options import split_spec, typed_options
from undertow.data.samples import DataSet, Samples
from undertow.data.subset import balanced
from undertow.errors import BadValue, unknown

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

DIGITS_TEST = 500
DIGITS_SEED = 0


def make_embedded(spec: str, seed: int) -> DataSet:
    """The embedded set that `spec` names, with its options."""
    name, given = split_spec(spec)
    if name not in _MAKERS:
        raise unknown("embedded data set", name, _MAKERS)
    options = typed_options(name, given, DATA[name].options)
    train, test, classes = _MAKERS[name](np.random.default_rng(seed), options)
    return DataSet(spec, train, test, tuple(map(str, range(classes))), DATA[name].scaling)


Made = tuple[Samples, Samples, int]  # training and test samples, number of classes
Options = Mapping[str, int | float]


def _digits(rng: Generator, options: Options) -> Made:
    del rng, options  # everyone's digits are split alike
    table = torch.from_numpy(_digits_table())
    every = Samples.of((table[:, :64] / 16).float().reshape(-1, 1, 8, 8), table[:, 64].long())
    test = balanced(every, DIGITS_TEST, DIGITS_SEED)
    rest = torch.ones(len(every), dtype=torch.bool)
    rest[test.index] = False
    return every.take(rest.nonzero()[:, 0]), test, 10


def _digits_table() -> Floats:
    """(1797, 65) of scikit-learn: pixels from 0 to 16, then the label.

    From its file where it can be found: importing scikit-learn takes longer than training on digits.
    """
    package = find_spec("sklearn")
    for folder in (package and package.submodule_search_locations) or ():
        file = Path(folder, "datasets", "data", "digits.csv.gz")
        if file.exists():
            return np.loadtxt(file, delimiter=",")
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    return np.column_stack([pixels, labels])


def _mnist1d(rng: Generator, options: Options) -> Made:
    n = _count("mnist1d", options, at_least=10)
    labels = _shuffled_labels(rng, n, classes=10)
    return *_cut(mnist1d.curves(labels, rng), labels, n), 10


def _mod_division(rng: Generator, options: Options) -> Made:
    p, share = int(options["p"]), float(options["share"])
    if p < 3 or any(p % factor == 0 for factor in range(2, isqrt(p) + 1)):
        raise BadValue(
            "mod-division option p", "a prime from 3 on", p, "Only then each y > 0 has an inverse."
        )
    x, y = (grid.ravel() for grid in np.meshgrid(np.arange(p), np.arange(1, p), indexing="ij"))
    inverse = np.array([0, *(pow(each, -1, p) for each in range(1, p))])
    rows = np.stack([x, np.full_like(x, p), y, np.full_like(x, p + 1)], axis=1)  # (p (p - 1), 4)
    answers = x * inverse[y] % p
    n = round(share * len(rows)) if 0 < share < 1 else 0
    if not 0 < n < len(rows):
        raise BadValue("mod-division option share", "a share that leaves pairs for both splits", share)
    order = rng.permutation(len(rows))
    tokens, labels = torch.from_numpy(rows[order]), torch.from_numpy(answers[order])
    return Samples.of(tokens[:n], labels[:n]), Samples.of(tokens[n:], labels[n:]), p


def _heaviside(rng: Generator, options: Options) -> Made:
    n = _count("heaviside", options, at_least=4)
    x = rng.uniform(-1, 1, (n + n // 4, 1)).astype(np.float32)
    return *_cut(x, (x[:, 0] > 0).astype(np.int64), n), 2


def _blobs(rng: Generator, options: Options) -> Made:
    n, classes, noise = _plane("blobs", options)
    labels = _shuffled_labels(rng, n, classes)
    angle = 2 * pi * labels / classes
    return *_cut(_around(np.ones(len(labels)), angle, noise, rng), labels, n), classes


def _spirals(rng: Generator, options: Options) -> Made:
    n, classes, noise = _plane("spirals", options)
    labels = _shuffled_labels(rng, n, classes)
    # Each arm makes three quarters of a turn; square roots spread the points evenly over its area.
    along = np.sqrt(rng.uniform(0.01, 1, len(labels)))
    angle = 2 * pi * (labels / classes + 0.75 * along)
    return *_cut(_around(along, angle, noise, rng), labels, n), classes


def _around(radius: Floats, angle: Floats, noise: float, rng: Generator) -> Floats:
    """Points given by radius and angle, with Gaussian noise on both coordinates."""
    points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return points + noise * rng.standard_normal(points.shape)


def _shuffled_labels(rng: Generator, n: int, classes: int) -> Labels:
    """Labels for `n` training and n // 4 test samples, as balanced as can be."""
    return rng.permutation(np.arange(n + n // 4) % classes)


def _cut(x: NDArray[np.floating], labels: Labels, n: int) -> tuple[Samples, Samples]:
    vectors, y = torch.from_numpy(x).float(), torch.from_numpy(labels)
    return Samples.of(vectors[:n], y[:n]), Samples.of(vectors[n:], y[n:])


def _plane(name: str, options: Options) -> tuple[int, int, float]:
    classes, noise = int(options["classes"]), float(options["noise"])
    if classes < 2:
        raise BadValue(f"{name} option classes", "two classes or more", classes)
    if not 0 <= noise < float("inf"):
        raise BadValue(f"{name} option noise", "a standard deviation of 0 or more", noise)
    return _count(name, options, at_least=max(4, classes)), classes, noise


def _count(name: str, options: Options, at_least: int) -> int:
    n = int(options["n"])
    if n < at_least:
        raise BadValue(f"{name} option n", f"at least {at_least} training samples", n)
    return n


_MAKERS: Mapping[str, Callable[[Generator, Options], Made]] = {
    "digits": _digits,
    "mnist1d": _mnist1d,
    "mod-division": _mod_division,
    "heaviside": _heaviside,
    "blobs": _blobs,
    "spirals": _spirals,
}
