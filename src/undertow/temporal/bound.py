"""The bound of a class's generalisation gap, with measures that stand in for its total variation.

    table = bound_table(
        train_features, train_labels,              # (T, N, D) at the checkpoints of a window around t'; (N,)
        test_features, test_labels,                # (M, D) at t'; (M,)
        train_predictions, test_predictions,       # (N,) and (M,) by the network at t'
        window_predictions=composites,             # (T, N) by composite(u, t'); optional
        facts={"layer": "layer2", "checkpoint": 300},
    )                                              # a row per class
    correlate_surrogates(pd.concat(tables))        # rank correlation of each measure with the gap

The theorem: gap of class i <= TV(Omega_i, features of class i's true distribution at t') + delta, where Omega_i
is the distribution of features of class i's training samples over the checkpoints of the window, and delta the
share of them that composite(u, t') and f(t') classify differently.

Three remarks on it. The proof needs delta within the class, not over all classes, so that is what stands here.
Sets have P(A) - Q(A) <= TV with TV in [0, 1], without a factor 2. And literally taken Omega_i has finitely many
points, so that its TV to features without atoms is 1: the measures here take the training samples as a draw
and compare the distributions that both samples come from.

`network` = |test error - error on Omega_i| is the part of TV that the network's own decision sees; the gap is at
most `network` + `delta`, always. It is the step of the proof just before TV comes in.

Measures with a p-value or a confidence want independent rows, and checkpoints of one sample are not: they see
each training sample once, at a checkpoint drawn at random (`omega_rows`), which is a draw from Omega_i.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from undertow.errors import BadData, BadValue
from undertow.richness.rows import Array, as_tensor, class_numbers
from undertow.temporal.mmd import mmd_test
from undertow.temporal.ranks import rank_correlation
from undertow.temporal.two_sample import tv_lower_bound
from undertow.temporal.wasserstein import sliced_wasserstein

SURROGATES = ("mmd", "wasserstein", "tv_estimate", "tv_lower")
"""Columns that stand in for total variation; `network` too, where the composites' predictions are given."""

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
    window_predictions: Array | None = None,
    rows: int = 1000,
    permutations: int = 199,
    confidence: float = 0.95,
    seed: int = 0,
    facts: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """A row per class: its errors and gap, and how far its test features lie from its training features.

    Columns: the `facts`, class, train_count, test_count, train_error, test_error, gap, mmd, mmd_p, wasserstein
    (sliced, over the root of the total variance per dimension: comparable between layers), tv_estimate, tv_lower;
    with `window_predictions` also delta, omega_error and network.

    Args:
        train_features: (T, N, D) of the training samples at T checkpoints of the window; (N, D) for one.
        train_labels: class numbers (N,); which (given or true) decides what the gap speaks of.
        test_features: (M, D) of the test samples at the checkpoint t' of the deep part.
        test_labels: class numbers (M,).
        train_predictions: by the network at t' (N,).
        test_predictions: by the network at t' (M,).
        window_predictions: by the deep part at t' on the features of each checkpoint of the window (T, N).
        rows: how many rows of a class each side gives to the measures at most.
        permutations: of the MMD's p-value.
        confidence: of `tv_lower`, for each class by itself.
        seed: of all draws.
        facts: columns that say where this was measured, such as layer and checkpoint.
    """
    if rows < FEWEST:
        raise BadValue("bound_table, rows", f"{FEWEST} or more", rows)
    sides = _Sides.of(
        train_features, train_labels, test_features, test_labels, train_predictions, test_predictions,
        window_predictions,
    )  # fmt: skip
    found: list[dict[str, Any]] = []
    for c in torch.cat([sides.train_labels, sides.test_labels]).unique().tolist():
        omega, test = sides.rows_of(c, rows, seed)
        measures = _measures(omega, test, permutations, confidence, seed)
        found.append({**(facts or {}), "class": c, **sides.errors(c), **measures, **sides.memory(c)})
    return pd.DataFrame(found)


def omega_rows(features: Array, *, seed: int = 0) -> Tensor:
    """(N, D): each sample of features (T, N, D) once, at a checkpoint drawn at random."""
    held = as_tensor(features)
    if held.ndim != 3 or 0 in held.shape:
        raise BadData(f"omega_rows: wanted features (T, N, D), got shape {tuple(held.shape)}.")
    when = torch.randint(len(held), (held.shape[1],), generator=torch.Generator().manual_seed(seed))
    return held[when.to(held.device), torch.arange(held.shape[1], device=held.device)]


def correlate_surrogates(
    table: pd.DataFrame,
    surrogates: Sequence[str] = SURROGATES,
    *,
    gap: str = "gap",
    cluster: str | None = "class",
    permutations: int = 999,
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> pd.DataFrame:
    """Rank correlation of each measure with the gap, over all rows of the table.

    Rows of one class share its gap at each layer, so classes are drawn and exchanged as a whole
    (`cluster=None` takes each row as evidence of its own). Tables of several layers and checkpoints belong
    below each other, each with the same classes. A measure without variation gives an error.
    """
    missing = [name for name in (*surrogates, gap, *([cluster] if cluster else [])) if name not in table]
    if missing:
        raise BadValue("correlate_surrogates", f"columns of the table {list(table)}", missing)
    clusters = table[cluster].to_numpy() if cluster else None
    found = {
        name: rank_correlation(
            table[name].to_numpy(), table[gap].to_numpy(), clusters=clusters, permutations=permutations,
            resamples=resamples, confidence=confidence, seed=seed,
        )
        for name in surrogates
    }  # fmt: skip
    return pd.DataFrame([{"surrogate": name, **asdict(one)} for name, one in found.items()])


def _measures(
    omega: Tensor, test: Tensor, permutations: int, confidence: float, seed: int
) -> dict[str, float]:
    kernel = mmd_test(omega, test, permutations=permutations, seed=seed)
    pooled = torch.cat([omega, test])
    spread = float((pooled - pooled.mean(0)).square().mean().sqrt())
    bound = tv_lower_bound(omega, test, confidence=confidence, seed=seed)
    return {
        "mmd": kernel.value,
        "mmd_p": kernel.p,
        "wasserstein": sliced_wasserstein(omega, test, seed=seed) / spread,
        "tv_estimate": bound.estimate,
        "tv_lower": bound.lower,
    }


@dataclass(frozen=True, eq=False)
class _Sides:
    """Features, labels and predictions of both sides, checked."""

    train: Tensor  # (T, N, D)
    train_labels: Tensor
    train_predictions: Tensor
    test: Tensor  # (M, D)
    test_labels: Tensor
    test_predictions: Tensor
    window: Tensor | None  # (T, N)

    @classmethod
    def of(
        cls, train: Array, train_labels: Array, test: Array, test_labels: Array, train_predictions: Array,
        test_predictions: Array, window: Array | None,
    ) -> _Sides:  # fmt: skip
        held, other = as_tensor(train), as_tensor(test)
        held = held[None] if held.ndim == 2 else held
        if held.ndim != 3 or other.ndim != 2 or held.shape[2] != other.shape[1]:
            raise BadData(
                "bound_table: wanted training features (T, N, D) and test features (M, D), "
                f"got shapes {tuple(held.shape)} and {tuple(other.shape)}."
            )
        numbers = {
            name: class_numbers(given, f"bound_table, {name}").cpu()
            for name, given in (
                ("training labels", train_labels), ("training predictions", train_predictions),
                ("test labels", test_labels), ("test predictions", test_predictions),
            )
        }  # fmt: skip
        for (name, given), count in zip(numbers.items(), [held.shape[1]] * 2 + [len(other)] * 2, strict=True):
            if len(given) != count:
                raise BadData(f"bound_table, {name}: wanted {count}, one per sample, got {len(given)}.")
        seen = None if window is None else as_tensor(window).cpu()
        if seen is not None and (seen.shape != held.shape[:2] or seen.is_floating_point()):
            raise BadData(
                f"bound_table, window predictions: wanted class numbers {tuple(held.shape[:2])}, "
                f"got {seen.dtype} of shape {tuple(seen.shape)}."
            )
        a, b, c, d = numbers.values()
        return cls(held, a, b, other, c, d, seen)

    def rows_of(self, c: int, most: int, seed: int) -> tuple[Tensor, Tensor]:
        """Rows of class `c`: a draw from Omega, and test features; at most `most` each."""
        places = [(labels == c).nonzero().flatten() for labels in (self.train_labels, self.test_labels)]
        if min(map(len, places)) < FEWEST:
            raise BadData(
                f"bound_table: wanted at least {FEWEST} training and test samples of class {c}, got "
                f"{len(places[0])} and {len(places[1])}. Leave the class out."
            )
        rng = np.random.default_rng(seed)
        train, test = (_some(place, most, rng) for place in places)
        omega = omega_rows(self.train[:, train.to(self.train.device)], seed=seed)
        return omega.double(), self.test[test.to(self.test.device)].to(omega.device).double()

    def errors(self, c: int) -> dict[str, float]:
        """Counts, errors and the gap of class `c`."""
        train, test = self.train_labels == c, self.test_labels == c
        train_error, test_error = (
            float((part != c).double().mean())
            for part in (self.train_predictions[train], self.test_predictions[test])
        )
        return {
            "train_count": int(train.sum()), "test_count": int(test.sum()),
            "train_error": train_error, "test_error": test_error, "gap": abs(test_error - train_error),
        }  # fmt: skip

    def memory(self, c: int) -> dict[str, float]:
        """What the composites' predictions tell of class `c`; nothing without them."""
        if self.window is None:
            return {}
        train = self.train_labels == c
        seen = self.window[:, train]
        delta = float((seen != self.train_predictions[train]).double().mean())
        omega_error = float((seen != c).double().mean())
        network = abs(self.errors(c)["test_error"] - omega_error)
        return {"delta": delta, "omega_error": omega_error, "network": network}


def _some(places: Tensor, most: int, rng: np.random.Generator) -> Tensor:
    if len(places) <= most:
        return places
    kept: NDArray[np.int64] = np.sort(rng.permutation(len(places))[:most])
    return places[torch.from_numpy(kept)]
