"""The bound's table, Omega, and rank correlation with clusters."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from undertow.errors import BadData
from undertow.studies.temporal.bound_distances import mmd_test, sliced_wasserstein, tv_lower_bound
from undertow.studies.temporal.bound_table import bound_table, correlate_surrogates, omega_rows
from undertow.studies.temporal.rank_correlation import rank_correlation


def made(shifts=(0.0, 0.5, 1.0, 2.0), count=40, window=3, seed=0):
    """Classes whose test features lie `shift` off, and a linear network that errs the more for it."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(shifts)), count)
    centre = 3.0 * np.arange(len(shifts))
    train = rng.normal(size=(window, len(labels), 2)) * 0.5
    train[..., 0] += centre[labels]
    test = rng.normal(size=(len(labels), 2)) * 0.5
    test[:, 0] += centre[labels] - np.array(shifts)[labels]  # towards the class before

    def predict(z):
        return np.abs(z[..., :1] - centre).argmin(-1)

    return {
        "train_features": train, "train_labels": labels, "test_features": test, "test_labels": labels,
        "train_predictions": predict(train[-1]), "test_predictions": predict(test),
    }  # fmt: skip


def test_a_row_per_class_by_plain_loops():
    given = made()
    table = bound_table(**given, permutations=49)
    assert list(table["class"]) == [0, 1, 2, 3]
    for row in table.to_dict("records"):
        mine = given["train_labels"] == row["class"]
        train = [p != row["class"] for p in given["train_predictions"][mine]]
        test = [p != row["class"] for p in given["test_predictions"][mine]]
        assert row["train_error"] == pytest.approx(sum(train) / len(train))
        assert row["test_error"] == pytest.approx(sum(test) / len(test))
        assert row["gap"] == pytest.approx(abs(row["test_error"] - row["train_error"]))
        omega = omega_rows(given["train_features"][:, mine])
        features = given["test_features"][mine]
        assert row["mmd"] == pytest.approx(mmd_test(omega, features).value, abs=1e-12)
        pooled = np.concatenate([omega.numpy(), features])
        assert row["wasserstein"] == pytest.approx(
            sliced_wasserstein(omega, features) / np.sqrt(pooled.var(0).mean())
        )
        assert row["tv_lower"] == tv_lower_bound(omega, features).lower


def test_distances_grow_with_the_shift():
    table = bound_table(**made(count=80), permutations=199)
    for name in ("mmd", "wasserstein", "tv_estimate", "gap"):
        assert table[name].iloc[3] > table[name].iloc[0]
    assert table["mmd_p"].iloc[3] == 1 / 200
    assert table["mmd_p"].iloc[0] > 0.01
    assert table["tv_lower"].iloc[3] > 0.5


def test_rows_are_limited():
    table = bound_table(**made(), rows=10, permutations=9)
    assert (table["train_count"] == 40).all()  # errors still speak of all
    # Five rows of either side are held out, so estimates are multiples of a fifth.
    np.testing.assert_allclose(table["tv_estimate"] * 5, (table["tv_estimate"] * 5).round(), atol=1e-9)


def test_omega_takes_each_sample_once():
    """Several checkpoints of one sample are dependent; p-values would be wrong with them."""
    features = np.arange(4)[:, None, None] * 100 + np.arange(50)[None, :, None] + np.zeros((4, 50, 1))
    drawn = omega_rows(features, seed=1)[:, 0].numpy()
    assert (drawn % 100 == np.arange(50)).all()
    assert set(drawn // 100) == {0, 1, 2, 3}
    assert (omega_rows(features, seed=1)[:, 0].numpy() == drawn).all()


def test_repeated_checkpoints_do_not_make_p_values_small():
    """Under the null with T nearly equal checkpoints, p stays uniform."""
    p = []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        train = rng.normal(size=(1, 24, 2)) + 1e-3 * rng.normal(size=(8, 24, 2))
        labels = np.zeros(24, int)
        table = bound_table(train, labels, rng.normal(size=(24, 2)), labels, labels, labels, permutations=39)
        p.append(table["mmd_p"].iloc[0])
    assert sum(np.array(p) <= 0.05) <= stats.binom.ppf(0.999, 100, 0.05)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"test_labels": np.r_[np.repeat([0, 1, 2], 40), np.repeat(2, 37), [3] * 3]},
            "class 3, got 40 and 3",
        ),
        ({"train_labels": np.zeros(5, int)}, "training labels: wanted 160"),
        ({"test_features": np.zeros((160, 3))}, "got shapes"),
        ({"train_predictions": np.zeros(160)}, "whole-number labels"),
    ],
)
def test_bad_tables_are_answered(change, message):
    with pytest.raises(BadData, match=message):
        bound_table(**{**made(), **change}, permutations=9)


def test_rho_is_scipys_with_ties():
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 6, 30).astype(float), rng.normal(size=30)
    found = rank_correlation(x, y, clusters=np.arange(30))
    exact = stats.spearmanr(x, y)
    assert found.rho == pytest.approx(exact.statistic, rel=1e-9)
    assert found.p == pytest.approx(exact.pvalue, abs=0.06)
    assert found.low < found.rho < found.high
    # Ranks do not change when numbers are stretched.
    assert rank_correlation(np.exp(x), y**3, clusters=np.arange(30)).rho == pytest.approx(exact.statistic)


def test_permutation_p_is_uniform_and_the_interval_covers():
    trials, rng = 200, np.random.default_rng(1)
    found = [
        rank_correlation(
            rng.normal(size=20),
            rng.normal(size=20),
            clusters=np.arange(20),
            permutations=99,
            resamples=200,
            seed=k,
        )
        for k in range(trials)
    ]
    p = np.array([one.p for one in found])
    low, high = stats.binom.ppf([0.0005, 0.9995], trials, 0.05)
    assert low <= (p <= 0.05).sum() <= high
    assert sum(one.low <= 0 <= one.high for one in found) > 0.88 * trials


def test_copies_of_a_class_are_no_new_evidence():
    """Ten layers that repeat six classes: by rows the p-value would be far too small."""
    rng = np.random.default_rng(2)
    false = {True: 0, False: 0}
    for k in range(60):
        x, y = np.tile(rng.normal(size=6), 10), np.tile(rng.normal(size=6), 10)
        classes = np.tile(np.arange(6), 10)
        for clustered in false:
            found = rank_correlation(
                x, y, clusters=classes if clustered else np.arange(60), permutations=99, resamples=50, seed=k
            )
            false[clustered] += found.p <= 0.05
    assert false[True] <= stats.binom.ppf(0.999, 60, 0.05)
    assert false[False] > 20


def test_clusters_keep_their_order_of_rows():
    """Exchanging whole classes keeps each layer with itself: a layer effect alone gives no small p."""
    layers = np.repeat(np.arange(5.0), 8)
    classes = np.tile(np.arange(8), 5)
    noise = 1e-3 * np.random.default_rng(3).normal(size=(2, 40))
    found = rank_correlation(layers + noise[0], layers + noise[1], clusters=classes)
    assert found.rho > 0.9
    assert found.p > 0.05
    assert found.clusters == 8


def test_correlations_over_layers_and_classes():
    tables = [
        bound_table(**made((0, 0.4, 0.8, 1.2, 1.6), seed=k), permutations=9).assign(layer=k) for k in range(2)
    ]
    found = correlate_surrogates(pd.concat(tables), ("mmd", "wasserstein"))
    assert list(found["surrogate"]) == ["mmd", "wasserstein"]
    assert (found["rho"] > 0.7).all()
    assert (found["clusters"] == 5).all()


@pytest.mark.parametrize(
    ("x", "y", "clusters", "message"),
    [
        (np.ones(6), np.arange(6.0), np.arange(6), "one side constant"),
        (np.arange(3.0), np.arange(3.0), np.arange(3), "at least 4 clusters"),
        (np.arange(6.0), np.arange(5.0), np.arange(6), "as many x as y"),
        (np.arange(9.0), np.arange(9.0), np.array([0, 0, 0, 1, 1, 2, 2, 3, 3]), "clusters of one size"),
        (np.array([1, np.nan, 2, 3]), np.arange(4.0), np.arange(4), "NaN"),
    ],
)
def test_correlations_that_mean_nothing_are_refused(x, y, clusters, message):
    with pytest.raises(BadData, match=message):
        rank_correlation(x, y, clusters=clusters)
