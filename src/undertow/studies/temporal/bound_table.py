"""The bound of a class's generalisation gap, with measures that stand in for its total variation.

    table = bound_table(
        train_features, train_labels,              # (T, N, D) at the checkpoints of a window around t'; (N,)
        test_features, test_labels,                # (M, D) at t'; (M,)
        train_predictions, test_predictions,       # (N,) and (M,) by the network at t'
    )                                              # a row per class
    correlate_surrogates(pd.concat(tables))        # rank correlation of each measure with the gap

The theorem: gap of class i <= TV(Omega_i, features of class i's true distribution at t') + delta, where Omega_i
is the distribution of features of class i's training samples over the checkpoints of the window, and delta the
share of them that composite(u, t') and f(t') classify differently.

Two remarks on it. Sets have P(A) - Q(A) <= TV with TV in [0, 1], without a factor 2. And literally taken Omega_i has
finitely many points, so that its TV to features without atoms is 1: the measures here take the training samples as a
draw and compare the distributions that both samples come from.

Measures with a p-value or a confidence want independent rows, and checkpoints of one sample are not: they see
each training sample once, at a checkpoint drawn at random (`omega_rows`), which is a draw from Omega_i.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from undertow.errors import BadData, BadValue
from undertow.richness.rows import Array, as_tensor, class_numbers
from undertow.studies.temporal.bound_distances import mmd_test, sliced_wasserstein, tv_lower_bound
from undertow.studies.temporal.rank_correlation import rank_correlation

SURROGATES = ("mmd", "wasserstein", "tv_estimate", "tv_lower")
"""Columns that stand in for total variation."""

FEWEST = 4
"""Samples of a class on either side, below which nothing can be held out."""


def bound_table(
    train_features: Array,
    train_labels: Array,
    test_features: Array,
    test_labels: Array,
    train_predictions: Array,
    test_predictions: Array,
    *,
    rows: int = 1000,
    permutations: int = 199,
    seed: int = 0,
) -> pd.DataFrame:
    """A row per class: its errors and gap, and how far its test features lie from its training features.

    Columns: class, train_count, test_count, train_error, test_error, gap, mmd, mmd_p, wasserstein (sliced, over the
    root of the total variance per dimension: comparable between layers), tv_estimate, tv_lower.

    Args:
        train_features: (T, N, D) of the training samples at T checkpoints of the window.
        train_labels: class numbers (N,); which (given or true) decides what the gap speaks of.
        test_features: (M, D) of the test samples at the checkpoint t' of the deep part.
        test_labels: class numbers (M,).
        train_predictions: by the network at t' (N,).
        test_predictions: by the network at t' (M,).
        rows: how many rows of a class each side gives to the measures at most.
        permutations: of the MMD's p-value.
        seed: of all draws.
    """
    if rows < FEWEST:
        raise BadValue("bound_table, rows", f"{FEWEST} or more", rows)
    train, test = as_tensor(train_features), as_tensor(test_features)
    if train.ndim != 3 or test.ndim != 2 or train.shape[2] != test.shape[1]:
        raise BadData(
            "bound_table: wanted training features (T, N, D) and test features (M, D), "
            f"got shapes {tuple(train.shape)} and {tuple(test.shape)}."
        )
    sizes = {"training": train.shape[1], "test": len(test)}
    labels = _numbers("labels", sizes, train_labels, test_labels)
    answers = _numbers("predictions", sizes, train_predictions, test_predictions)
    found: list[dict[str, Any]] = []
    for c in torch.cat(labels).unique().tolist():
        places = [(part == c).nonzero().flatten() for part in labels]
        errors = [float((part[own] != c).double().mean()) for part, own in zip(answers, places, strict=True)]
        omega, other = _rows_of_class(c, train, test, places, rows, seed)
        counts = {
            "class": c, "train_count": len(places[0]), "test_count": len(places[1]), "train_error": errors[0],
            "test_error": errors[1], "gap": abs(errors[1] - errors[0]),
        }  # fmt: skip
        found.append(counts | _measures(omega, other, permutations, seed))
    return pd.DataFrame(found)


def omega_rows(features: Array, *, seed: int = 0) -> Tensor:
    """(N, D): each sample of features (T, N, D) once, at a checkpoint drawn at random."""
    held = as_tensor(features)
    when = torch.randint(len(held), (held.shape[1],), generator=torch.Generator().manual_seed(seed))
    return held[when.to(held.device), torch.arange(held.shape[1], device=held.device)]


def correlate_surrogates(
    table: pd.DataFrame, surrogates: Sequence[str] = SURROGATES, *, seed: int = 0
) -> pd.DataFrame:
    """Rank correlation of each measure with the gap, over all rows of the table.

    Rows of one class share its gap at each layer, so classes are drawn and exchanged as a whole. Tables of several
    layers and checkpoints belong below each other, each with the same classes. A measure without variation gives an
    error.
    """
    gap, classes = table["gap"].to_numpy(), table["class"].to_numpy()
    found = {
        name: rank_correlation(table[name].to_numpy(), gap, clusters=classes, seed=seed)
        for name in surrogates
    }
    return pd.DataFrame([{"surrogate": name, **asdict(one)} for name, one in found.items()])


def _measures(omega: Tensor, test: Tensor, permutations: int, seed: int) -> dict[str, float]:
    kernel = mmd_test(omega, test, permutations=permutations, seed=seed)
    pooled = torch.cat([omega, test])
    spread = float((pooled - pooled.mean(0)).square().mean().sqrt())
    bound = tv_lower_bound(omega, test, seed=seed)
    return {
        "mmd": kernel.value,
        "mmd_p": kernel.p,
        "wasserstein": sliced_wasserstein(omega, test, seed=seed) / spread,
        "tv_estimate": bound.estimate,
        "tv_lower": bound.lower,
    }


def _rows_of_class(
    c: int, train: Tensor, test: Tensor, places: list[Tensor], most: int, seed: int
) -> tuple[Tensor, Tensor]:
    """Rows of class `c`: a draw from Omega, and test features; at most `most` each."""
    if min(map(len, places)) < FEWEST:
        raise BadData(
            f"bound_table: wanted at least {FEWEST} training and test samples of class {c}, got "
            f"{len(places[0])} and {len(places[1])}. Leave the class out."
        )
    rng = np.random.default_rng(seed)
    first, second = (_some(place, most, rng) for place in places)
    omega = omega_rows(train[:, first.to(train.device)], seed=seed)
    return omega.double(), test[second.to(test.device)].to(omega.device).double()


def _numbers(what: str, sizes: Mapping[str, int], *given: Array) -> list[Tensor]:
    """Class numbers of training and of test samples."""
    found: list[Tensor] = []
    for array, (side, count) in zip(given, sizes.items(), strict=True):
        found.append(class_numbers(array, f"bound_table, {side} {what}").cpu())
        if len(found[-1]) != count:
            raise BadData(
                f"bound_table, {side} {what}: wanted {count}, one per sample, got {len(found[-1])}."
            )
    return found


def _some(places: Tensor, most: int, rng: np.random.Generator) -> Tensor:
    if len(places) <= most:
        return places
    return places[torch.from_numpy(np.sort(rng.permutation(len(places))[:most]))]
