"""LDA and QDA against Gaussian densities written out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from torch import Tensor

from undertow.errors import BadData, BadValue
from undertow.features.moments import Moments
from undertow.latent import LDA, QDA, discriminant

Features = Callable[..., tuple[Tensor, Tensor]]


def unbalanced(features: Features, dim: int = 5) -> tuple[Tensor, Tensor]:
    rows, labels = features(300, dim, classes=3, spread=1.5)
    kept = (labels > 0) | (torch.arange(300) < 90)  # the first class is rarer
    return rows[kept], labels[kept]


def log_densities(rows: Tensor, labels: Tensor, pooled: bool) -> np.ndarray:
    """(N, C) log of prior times density, covariances divided by the number of rows."""
    x, y = rows.numpy(), labels.numpy()
    means = [x[y == c].mean(0) for c in range(3)]
    off = x - np.stack(means)[y]
    columns = []
    for c in range(3):
        own = off if pooled else off[y == c]
        density = multivariate_normal(means[c], own.T @ own / len(own)).logpdf(x)
        columns.append(density + np.log((y == c).mean()))
    return np.stack(columns, 1)


def relative(scores: np.ndarray) -> np.ndarray:
    """Scores up to a constant per row."""
    return scores - scores.mean(1, keepdims=True)


@pytest.mark.parametrize(("probe", "pooled"), [(LDA(), True), (QDA(), False)], ids=["LDA", "QDA"])
def test_scores_are_log_densities(features: Features, probe: LDA | QDA, pooled: bool) -> None:
    rows, labels = unbalanced(features)
    exact = log_densities(rows, labels, pooled)
    for fitted in (probe.fit(rows, labels), probe.fit_moments(Moments.of(rows, labels, 3))):
        np.testing.assert_allclose(
            relative(fitted.scores(rows).numpy()), relative(exact), rtol=1e-8, atol=1e-9
        )


@pytest.mark.parametrize("dim", [5, 60])
def test_lda_predicts_as_scikit_learn(features: Features, dim: int) -> None:
    rows, labels = unbalanced(features, dim)
    theirs = LinearDiscriminantAnalysis().fit(rows.numpy(), labels.numpy())
    agreement = (LDA().fit(rows, labels).predict(rows).numpy() == theirs.predict(rows.numpy())).mean()
    assert agreement > 0.995  # releases differ in what they divide the covariance by


def test_qda_predicts_as_scikit_learn(features: Features) -> None:
    rows, labels = unbalanced(features)
    theirs = QuadraticDiscriminantAnalysis().fit(rows.numpy(), labels.numpy())
    agreement = (QDA().fit(rows, labels).predict(rows).numpy() == theirs.predict(rows.numpy())).mean()
    assert agreement > 0.99


def test_lda_with_fewer_rows_than_dimensions(features: Features) -> None:
    """Fails if the small side of the matrix gives other directions than the large one."""
    rows, labels = features(60, 61, classes=3)
    wide = LDA().fit(rows, labels)
    off = rows - torch.stack([rows[labels == c].mean(0) for c in range(3)])[labels]
    means = torch.stack([rows[labels == c].mean(0) for c in range(3)])
    narrow = LDA()
    learned = narrow._from_within(off.T @ off / 60, means, torch.tensor([20, 20, 20]))
    np.testing.assert_allclose(
        wide.coef_, learned["coef_"], rtol=0, atol=1e-6 * float(wide.coef_.abs().max())
    )


def test_lda_leaves_out_constant_directions(features: Features) -> None:
    """A dead unit, a unit that never moves and a copy of another: none may blow up the scores."""
    rows, labels = unbalanced(features)
    # The mean of equal numbers is off by a last digit for some.
    still = torch.tensor([0.0, 0.1, 0.3, 0.7, 1.1, 3.3, 1e3 / 3], dtype=torch.float64)
    extra = torch.cat([still.expand(len(rows), -1), rows[:, :1]], 1)
    plain, more = LDA().fit(rows, labels), LDA().fit(torch.cat([rows, extra], 1), labels)
    np.testing.assert_allclose(
        relative(more.scores(torch.cat([rows, extra], 1)).numpy()),
        relative(plain.scores(rows).numpy()),
        rtol=1e-6,
        atol=1e-7,
    )


def test_lda_from_float32_moments_ignores_rounding_noise() -> None:
    """Fails if directions of which float32 products know nothing are divided by their noise."""
    draw = torch.Generator().manual_seed(0)
    labels = torch.arange(2000) % 3
    narrow = torch.randn(2000, 10, generator=draw) + 1.5 * torch.eye(3, 10)[labels]
    rows = narrow @ torch.randn(10, 40, generator=draw)  # rank 10 in 40 dimensions
    exact = LDA().fit(rows.double(), labels)
    found = LDA().fit_moments(Moments.of(rows, labels, 3))
    np.testing.assert_allclose(found.coef_, exact.coef_, rtol=0, atol=1e-3 * float(exact.coef_.abs().max()))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_lda_without_eigenvectors_is_the_same(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    """Fails if the short way leaves out other directions, or is never taken."""
    draw = torch.Generator().manual_seed(3)
    labels = torch.arange(900) % 3
    rows = torch.relu(torch.randn(900, 60, generator=draw) + torch.eye(3, 60)[labels]).to(dtype)
    rows[:, 7] = 0  # a dead unit
    off = rows.double() - torch.stack([rows[labels == c].double().mean(0) for c in range(3)])[labels]
    means = torch.stack([rows[labels == c].double().mean(0) for c in range(3)])
    exact = (means - means.mean(0)) @ torch.linalg.pinv(off.T @ off / 900, hermitian=True)

    def refuse(_: Tensor) -> None:
        raise AssertionError("eigenvectors were computed")

    monkeypatch.setattr(discriminant, "eigh", refuse)
    tolerance = 1e-10 if dtype == torch.float64 else 1e-5
    found = LDA().fit(rows, labels).coef_
    np.testing.assert_allclose(found, exact, rtol=0, atol=tolerance * float(exact.abs().max()))
    with pytest.raises(AssertionError, match="eigenvectors were computed"):
        LDA().fit(torch.cat([rows, rows[:, :1]], 1), labels)  # a copy of a unit: one direction is none


def test_lda_of_float32_rows_far_from_zero() -> None:
    """Fails if rows are centred by rounded means: at 1e6 these are off by up to 0.03 deviations."""
    draw = torch.Generator().manual_seed(4)
    labels = torch.arange(3000) % 3
    rows = torch.randn(3000, 8, generator=draw) + 1.5 * torch.eye(3, 8)[labels] + 1e6
    found, exact = LDA().fit(rows, labels).coef_, LDA().fit(rows.double(), labels).coef_
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-5 * float(exact.abs().max()))


def test_lda_of_float32_rows_whose_distance_overflows() -> None:
    rows = 1e38 * torch.tensor([[3, 1], [-3, 2], [-3, 1.4], [3, -2], [-3, -1], [-3, -1.5]])
    labels = torch.tensor([0, 0, 0, 1, 1, 1])
    assert LDA().fit(rows, labels).predict(rows).tolist() == labels.tolist()


def test_lda_where_nothing_varies_predicts_the_most_frequent() -> None:
    rows, labels = torch.ones(10, 3), torch.tensor([0, 0, 1, 1, 1, 1, 2, 2, 2, 1])
    assert LDA().fit(rows, labels).predict(rows).tolist() == [1] * 10


@pytest.mark.parametrize("dim", [4, 9])
def test_one_row_per_class(dim: int) -> None:
    rows, labels = torch.eye(6, dim), torch.arange(6)
    assert torch.isfinite(LDA().fit(rows, labels).scores(rows)).all()
    with pytest.raises(
        BadData, match=f"got class 0 with 1 sample and {dim} constant directions. Set reg above 0"
    ):
        QDA().fit(rows, labels)
    assert QDA(reg=0.5).fit(rows[:4, :4], labels[:4]).predict(rows[:4, :4]).tolist() == [0, 1, 2, 3]


def test_settings_are_checked_in_fit(features: Features) -> None:
    with pytest.raises(BadValue, match=r"LDA\(tol=...\): wanted a number above 0, got 0"):
        LDA(tol=0).fit(*features(20, 3))
    with pytest.raises(BadValue, match=r"QDA\(reg=...\): wanted a number from 0 to 1, got 2"):
        QDA(reg=2).fit(*features(20, 3))


def test_what_a_fit_is_said_to_take_holds_its_matrices() -> None:
    """Float64, as they are there together: rows and three matrices of their shape, or one matrix for each class."""
    count, dim = 100, 1000
    assert LDA().fit_bytes(count, dim, 4) >= 8 * (4 * count * dim + count**2)
    assert LDA().fit_bytes(dim, count, 4) >= 8 * 2 * count**2
    assert QDA().fit_bytes(count, 50, 4, fits=3) >= 8 * 3 * 4 * 50**2
