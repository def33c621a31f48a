"""The spectrum view: bounds, QR, finite size, dependence, and the Nystrom method's accuracy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from undertow.errors import BadData, BadValue
from undertow.richness import feature_spectrum
from undertow.richness.eigenfunctions import ordered_basis


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def power_law(n, p, exponent, seed=0):
    """(n, p) Gaussian features whose eigenvalues are k^-exponent (the paper's eq. 61)."""
    scale = torch.arange(1, p + 1, dtype=torch.float64) ** (-exponent / 2)
    return draw(n, p, seed=seed) * scale


def by_projections(train, test, functions):
    """Share of the functions' span in the span of the first k eigenfunctions, by projectors in numpy."""
    train, test, functions = (np.asarray(x) for x in (train, test, functions))
    _, s, vt = np.linalg.svd(train, full_matrices=False)
    e = test @ vt.T / s
    target = functions @ np.linalg.pinv(functions)
    rank = np.linalg.matrix_rank(functions)
    return [
        np.trace(e[:, :k] @ np.linalg.pinv(e[:, :k]) @ target) / rank for k in range(1, train.shape[1] + 1)
    ]


def sample(p=12, n=200, m=150):
    train, test = power_law(n, p, 1.0) + 0.5, power_law(m, p, 1.0, seed=1) + 0.5
    labels = test[:, :3].argmax(1)
    outputs = test @ draw(p, 3, seed=3)
    return train, test, labels, outputs


def test_sums_are_shares_of_the_spaces():
    """Fails if contributions are squared again (the printed eq. 5), or QR mixes the order."""
    train, test, labels, outputs = sample()
    found = feature_spectrum(train, test, labels, outputs)
    onehot = torch.nn.functional.one_hot(labels)
    np.testing.assert_allclose(found.quality, by_projections(train, test, onehot), rtol=0, atol=1e-10)
    np.testing.assert_allclose(found.utilisation, by_projections(train, test, outputs), rtol=0, atol=1e-10)
    for curve, parts in (
        (found.quality, found.feature_quality),
        (found.utilisation, found.feature_utilisation),
    ):
        assert (parts >= 0).all()
        assert (curve <= 1 + 1e-12).all()
        torch.testing.assert_close(curve, parts.cumsum(0))
    assert found.utilisation[-1] == pytest.approx(1, abs=1e-12)  # outputs are linear in the features
    assert found.quality[-1] < 1
    assert (found.target_rank, found.learned_rank, found.warnings) == (3, 3, ())
    eigenvalues = np.linalg.eigvalsh(train.numpy().T @ train.numpy() / len(train))[::-1]
    np.testing.assert_allclose(found.eigenvalues, eigenvalues, rtol=1e-10)
    assert found.intensity[0] == 1
    same = feature_spectrum(train.numpy(), test.numpy(), onehot.numpy(), outputs.numpy())
    assert torch.equal(same.quality, found.quality)


@pytest.mark.parametrize(("n", "p"), [(200, 12), (200, 90), (60, 90)])
@pytest.mark.parametrize("qr", [True, False])
def test_the_first_positions_are_those_of_the_whole(n, p, qr):
    """Fails if another side, other eigenvectors or another order are taken for a few positions."""
    train, test, labels, outputs = sample(p=p, n=n)
    whole = feature_spectrum(train, test, labels, outputs, qr)
    few = feature_spectrum(train, test, labels, outputs, qr, positions=10)
    for name in (
        "eigenvalues",
        "quality",
        "utilisation",
        "intensity",
        "feature_quality",
        "feature_utilisation",
    ):
        wanted = getattr(whole, name)[:10]
        torch.testing.assert_close(getattr(few, name), wanted, rtol=1e-9, atol=1e-10)
    assert (few.target_rank, few.learned_rank) == (whole.target_rank, whole.learned_rank)
    more = feature_spectrum(train, test, labels, outputs, qr, positions=500)
    assert len(more.quality) == len(whole.quality)
    with pytest.raises(BadValue, match="1 or more"):
        feature_spectrum(train, test, labels, outputs, qr, positions=0)


def test_without_qr_sums_exceed_one():
    """The paper's appendix J: few samples, eigenfunctions that overlap on the test samples."""
    train, test = power_law(60, 50, 1.0), power_law(80, 50, 1.0, seed=1)
    outputs = test @ draw(50, 4, seed=2)
    plain, straight = (feature_spectrum(train, test, outputs, outputs, qr=qr) for qr in (False, True))
    assert plain.quality.max() > 1.5
    assert "Without QR the eigenfunctions overlap: sums may exceed 1." in plain.warnings
    assert straight.quality.max() <= 1 + 1e-12
    assert straight.quality[-1] == pytest.approx(1, abs=1e-9)


def test_collapsed_features_need_no_more_than_the_classes():
    onehot = torch.eye(4, dtype=torch.float64).repeat(30, 1)
    features = onehot @ torch.linalg.qr(draw(9, 9)).Q[:4] + 1e-5 * draw(120, 9, seed=2)
    found = feature_spectrum(features, features, onehot.argmax(1), onehot @ draw(4, 4, seed=3))
    assert found.quality[3] == pytest.approx(1, abs=1e-6)
    assert found.utilisation[3] == pytest.approx(1, abs=1e-6)
    assert found.intensity[4] < 1e-8


def test_too_few_test_samples_are_told():
    """Random features reach 1 when they are as many as the test samples, whatever the target."""
    found = feature_spectrum(draw(100, 40), draw(30, 40, seed=1), draw(30, 2, seed=2), draw(30, 2, seed=3))
    assert found.quality[29:] == pytest.approx(torch.ones(11).double(), abs=1e-10)
    assert "30 test samples for 40 features" in found.warnings[0]
    assert "10 of 40 eigenfunctions depend on earlier ones" in found.warnings[1]
    few = feature_spectrum(draw(20, 40), draw(90, 40, seed=1), draw(90, 2, seed=2), draw(90, 2, seed=3))
    assert len(few.eigenvalues) == 20
    assert "20 training samples for 40 features" in few.warnings[0]


def test_a_dependent_column_adds_nothing_and_hides_nothing():
    """Fails for plain QR: after a dependent column it puts an arbitrary direction that later ones need."""
    base = draw(20, 4)
    columns = torch.stack(
        [base[:, 0], base[:, 1], base[:, 0] - base[:, 1], base[:, 2], 0 * base[:, 0], base[:, 3]], 1
    )
    basis = ordered_basis(columns)
    assert basis.norm(dim=0) == pytest.approx(torch.tensor([1, 1, 0, 1, 0, 1]).double(), abs=1e-12)
    for k in range(1, 7):
        projector = basis[:, :k] @ basis[:, :k].T
        exact = columns[:, :k] @ torch.linalg.pinv(columns[:, :k])
        torch.testing.assert_close(projector, exact, rtol=0, atol=1e-10)


def test_features_dead_on_test_samples():
    train, test, labels, _ = sample()
    test[:, 5] = 0
    found = feature_spectrum(train, test, labels, test @ draw(12, 3, seed=3))
    assert "1 of 12 eigenfunctions depend on earlier ones" in found.warnings[0]
    assert found.utilisation[-1] == pytest.approx(1, abs=1e-10)
    assert (found.feature_utilisation >= 0).all()


@pytest.mark.parametrize("exponent", [1.0, 1.5, 2.0])
def test_nystrom_accuracy_on_power_laws(exponent):
    """The paper's figure 23 at n = 2,000, p = 200: eigenvalues accurate but the tail, span error below .25."""
    n, p = 2000, 200
    true = torch.arange(1, p + 1, dtype=torch.float64) ** -exponent
    errors, spans = [], []
    for seed in range(3):
        train = power_law(n, p, exponent, seed=seed)
        found = feature_spectrum(train, train, train[:, :2], train[:, :2])
        errors.append((found.eigenvalues - true) ** 2 / true**2)
        u = torch.linalg.eigh(train.T @ train).eigenvectors.flip(1)  # columns by falling eigenvalue
        shared = u.square().cumsum(0).cumsum(1).diagonal()  # sum over i, j up to k of (u_i . o_j)^2
        spans.append(1 - shared / torch.arange(1, p + 1))
    error, span = torch.stack(errors).mean(0), torch.stack(spans).mean(0)
    assert error[: p // 2].max() < 0.02
    assert error[-1] > 3 * error[: p // 2].max()  # the tail is off
    assert span.max() < 0.25
    assert span[-1] == pytest.approx(0, abs=1e-10)


@pytest.mark.parametrize(
    ("train", "test", "targets", "outputs", "message"),
    [
        (torch.zeros(9, 2), draw(9, 2), draw(9, 1), draw(9, 1), "got zeros only. The layer is dead"),
        (draw(9, 2), draw(9, 3), draw(9, 1), draw(9, 1), "test features of width 2, got 3"),
        (draw(9, 2), draw(9, 2), draw(8, 1), draw(9, 1), "got 9 and 8 rows"),
        (
            draw(9, 2),
            draw(9, 2),
            torch.zeros(9, 1),
            draw(9, 1),
            "test targets: wanted functions, got zeros only",
        ),
        (
            draw(9, 2),
            draw(9, 2),
            draw(9, 1),
            torch.zeros(9, 1),
            "test outputs: wanted functions, got zeros only",
        ),
        (
            draw(9, 2),
            draw(9, 2) * torch.nan,
            draw(9, 1),
            draw(9, 1),
            "spectrum, test features: wanted finite",
        ),
        (draw(9, 2), draw(9, 2), torch.arange(9) - 1, draw(9, 1), "class numbers from 0, got -1"),
    ],
    ids=["dead", "width", "counts", "targets", "outputs", "nan", "labels"],
)
def test_degenerate_input_is_refused_in_words(train, test, targets, outputs, message):
    with pytest.raises(BadData, match=message):
        feature_spectrum(train, test, targets, outputs)
