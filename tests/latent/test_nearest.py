"""Nearest mean and neighbours against direct computations."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor

from undertow.errors import BadValue, UnknownName
from undertow.features.wide import TensorRows
from undertow.latent import KNN, NearestMean
from undertow.latent import nearest as module

Features = Callable[..., tuple[Tensor, Tensor]]


def test_nearest_mean_by_hand() -> None:
    rows = np.array([[1.0, 0.0], [3.0, 0.0], [0.0, 2.0], [0.0, 4.0]])
    labels = np.array([0, 0, 1, 1])
    asked = np.array([[5.0, 4.0], [0.1, 1.0], [2.0, 2.1]])
    cosine = NearestMean().fit(rows, labels)
    np.testing.assert_array_equal(cosine.means_, [[2, 0], [0, 3]])
    np.testing.assert_array_equal(cosine.predict(asked), [0, 1, 1])
    far = NearestMean("euclidean").fit(rows, labels)
    np.testing.assert_allclose(far.scores(asked)[0], [-5.0, -(26**0.5)])
    np.testing.assert_array_equal(far.predict(asked), [0, 1, 0])


def test_means_that_are_far_off_and_close_together() -> None:
    """Fails for distances by the matrix product: they cancel at an offset of 10 and a distance of 1e-7."""
    means = 10 + 1e-7 * torch.randn(30, 8, generator=torch.Generator().manual_seed(0)).double()
    probe = NearestMean("euclidean").fit(means, torch.arange(30))
    assert probe.predict(means).tolist() == list(range(30))


def test_rows_that_are_read_in_blocks(features: Features) -> None:
    rows, labels = features(100, 7)
    stored = NearestMean().fit_rows([TensorRows(rows, (labels == c).nonzero()[:, 0]) for c in range(4)])
    np.testing.assert_allclose(stored.means_, NearestMean().fit(rows, labels).means_, rtol=1e-12)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("k", [1, 4, 5])
def test_knn_equals_scikit_learn(metric: str, k: int) -> None:
    """Ties in a vote included: with 4 voters and 4 classes they are common."""
    # No ReLU: rows with one active unit have the same direction, and who of them votes is open.
    draw = torch.Generator().manual_seed(0)
    rows, asked = torch.randn(300, 6, generator=draw).double(), torch.randn(200, 6, generator=draw).double()
    labels = torch.arange(300) % 4
    theirs = KNeighborsClassifier(k, metric=metric, algorithm="brute").fit(rows.numpy(), labels.numpy())
    ours = KNN(k, metric).fit(rows, labels)
    np.testing.assert_array_equal(ours.predict(asked), theirs.predict(asked.numpy()))
    np.testing.assert_allclose(ours.scores(asked), theirs.predict_proba(asked.numpy()), rtol=1e-12)


def test_knn_far_from_the_origin(features: Features) -> None:
    """Fails if squared distances cancel at an offset of 1e7."""
    rows, labels = features(300, 6, spread=0.5)
    near = KNN(3, "euclidean").fit(rows, labels).predict(rows)
    far = KNN(3, "euclidean").fit(rows + 1e7, labels).predict(rows + 1e7)
    np.testing.assert_array_equal(near, far)


def test_knn_with_fewer_rows_than_neighbours() -> None:
    probe = KNN(5).fit(np.array([[1.0, 0.0], [0.0, 1.0], [0.1, 1.0]]), [0, 1, 1])
    np.testing.assert_allclose(probe.scores(np.array([[1.0, 0.0]])), [[1 / 3, 2 / 3]])


def test_knn_in_small_blocks(features: Features, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, labels = features(150, 6)
    fitted = KNN().fit(rows, labels)
    whole = fitted.scores(rows)
    monkeypatch.setattr(module, "PAIRS", 1000)
    np.testing.assert_array_equal(fitted.scores(rows), whole)


@pytest.mark.parametrize("probe", [NearestMean(), KNN()], ids=repr)
def test_a_zero_row_is_equally_near_to_all(probe: NearestMean | KNN, features: Features) -> None:
    rows, labels = features(100, 4)
    rows[:4] = 0
    scores = probe.fit(rows, labels).scores(torch.zeros(1, 4))
    assert torch.isfinite(scores).all()
    if isinstance(probe, NearestMean):
        assert scores.tolist() == [[0.0] * 4]


def test_settings_are_checked_in_fit(features: Features) -> None:
    with pytest.raises(UnknownName, match=r"no metric for KNN 'cosin'. Did you mean 'cosine'"):
        KNN(metric="cosin").fit(*features(20, 3))
    with pytest.raises(UnknownName, match=r"no metric for NearestMean 'l1'. Known: cosine, euclidean"):
        NearestMean("l1").fit(*features(20, 3))
    for k in (0, 1.5, True):
        with pytest.raises(BadValue, match="wanted a whole number from 1 up"):
            KNN(k).fit(*features(20, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products_in_float32_name_the_neighbours_of_float64(dtype: torch.dtype) -> None:
    """Fails if a float32 nearness is believed that is ahead by less than its rounding."""
    draw = torch.Generator().manual_seed(0)
    rows = torch.randn(400, 40, generator=draw, dtype=torch.float64)
    close = rows[:200] + 1e-6 * torch.randn(200, 40, generator=draw, dtype=torch.float64)
    # Twins closer to each other than float32 products can tell, off the origin, and both kinds of size.
    known = (torch.cat([rows, close]) + 3).to(dtype)
    asked = (rows[:200] + 0.3 * torch.randn(200, 40, generator=draw, dtype=torch.float64) + 3).to(dtype)
    labels = torch.arange(len(known))
    ours = KNN(1, "euclidean").fit(known, labels).predict(asked)
    far = (asked.double()[:, None] - known.double()).square().sum(2)
    assert torch.equal(ours, far.argmin(1))


def test_products_with_rows_that_are_far_off_are_off_by_more() -> None:
    """Fails if the rounding of a product grows with one of the two lengths alone."""
    draw = torch.Generator().manual_seed(1)
    rows = 100 * torch.randn(400, 40, generator=draw, dtype=torch.float64)
    known = torch.cat([rows, rows + 1e-4 * torch.randn(400, 40, generator=draw, dtype=torch.float64)])
    asked = 1e5 * torch.randn(300, 40, generator=draw, dtype=torch.float64)
    nearness = asked @ known.T - known.square().sum(1) / 2
    ours = KNN(1, "euclidean").fit(known, torch.arange(len(known))).predict(asked)
    assert torch.equal(ours, nearness.argmax(1))


@pytest.mark.parametrize("twins", [5, 60])
def test_neighbours_among_more_twins_than_are_looked_at_again(
    twins: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some rows are settled among a few more points, others need all; points come in several blocks."""
    monkeypatch.setattr("undertow.latent.nearest.ACROSS", 128)
    draw = torch.Generator().manual_seed(0)
    rows = torch.randn(8, 40, generator=draw, dtype=torch.float64).repeat(twins, 1)
    known = rows + 1e-7 * torch.randn(rows.shape, generator=draw, dtype=torch.float64)
    known = torch.cat([known, torch.randn(300, 40, generator=draw, dtype=torch.float64)]) + 3
    asked = known[:50] + 0.1 * torch.randn(50, 40, generator=draw, dtype=torch.float64)
    ours = KNN(1, "euclidean").fit(known, torch.arange(len(known))).predict(asked)
    assert torch.equal(ours, (asked[:, None] - known).square().sum(2).argmin(1))


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_neighbours_whose_squares_float32_cannot_hold(size: float) -> None:
    draw = torch.Generator().manual_seed(0)
    rows, labels = torch.randn(300, 6, generator=draw), torch.arange(300) % 4
    wanted = KNN(3, "euclidean").fit(rows.double(), labels).predict(rows.double())
    found = KNN(3, "euclidean").fit(size * rows.double(), labels).predict(size * rows.double())
    assert torch.equal(found, wanted)
