"""MASC against the algorithm as the paper writes it, and the laws it must keep."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from undertow.errors import BadData, BadValue
from undertow.features.moments import Moments, MomentsAccumulator
from undertow.features.sketch import ClassSketches
from undertow.features.wide import TensorRows
from undertow.latent import MASC

Features = Callable[..., tuple[Tensor, Tensor]]


def literal_angles(rows: Tensor, labels: Tensor, test: Tensor, variance: float) -> np.ndarray:
    """(N, C) angles by the paper's algorithm: negatives beside the rows, PCA, projection, angle."""
    angles = []
    for c in labels.unique().tolist():
        part = rows[labels == c].numpy()
        augmented = np.concatenate([part, -part])
        assert abs(augmented.mean(0)).max() < 1e-12
        values, vectors = np.linalg.eigh(np.cov(augmented, rowvar=False))
        values, vectors = values[::-1], vectors[:, ::-1]
        keep = int((np.cumsum(values) / values.sum() <= variance).sum()) + 1
        basis = vectors[:, : min(keep, int((values > 1e-12 * values[0]).sum()))]
        projected = test.numpy() @ basis @ basis.T
        cosine = (test.numpy() * projected).sum(1) / (
            np.linalg.norm(test.numpy(), axis=1) * np.linalg.norm(projected, axis=1)
        )
        angles.append(np.arccos(np.clip(cosine, -1, 1)))
    return np.stack(angles, 1)


@pytest.mark.parametrize("variance", [0.5, 0.9, 0.99, 0.999])
@pytest.mark.parametrize(("count", "dim"), [(400, 20), (60, 40), (2400, 30), (120, 300)])
def test_equals_the_literal_algorithm(features: Features, count: int, dim: int, variance: float) -> None:
    """Both sides of the matrix, from one direction to nearly all."""
    rows, labels = features(count, dim)
    test, _ = features(50, dim, seed=1)
    probe = MASC(variance).fit(rows, labels)
    angles = literal_angles(rows, labels, test, variance)

    np.testing.assert_array_equal(probe.predict(test), angles.argmin(1))
    np.testing.assert_allclose(probe.scores(test), np.cos(angles) ** 2, rtol=0, atol=1e-9)


def test_scores_are_the_squared_length_of_the_projection(features: Features) -> None:
    """The paper's proposition: the smallest angle is the largest ||U^T x||^2."""
    rows, labels = features(300, 24)
    probe = MASC(0.95).fit(rows, labels)
    inside = np.stack([((rows @ basis) ** 2).sum(1) for basis in probe.bases_], 1)
    np.testing.assert_array_equal(probe.predict(rows), inside.argmax(1))
    np.testing.assert_allclose(
        probe.scores(rows), inside / (rows**2).sum(1, keepdim=True).numpy(), rtol=1e-12
    )


@pytest.mark.parametrize("dim", [30, 100, 101])
def test_gram_and_covariance_routes_agree(features: Features, dim: int) -> None:
    """100 rows per class: on either side of the border, the subspaces are those of X^T X."""
    rows, labels = features(400, dim)
    probe = MASC(0.97).fit(rows, labels)
    for c, basis in enumerate(probe.bases_):
        moment = rows[labels == c].T @ rows[labels == c]
        values, vectors = torch.linalg.eigh(moment)
        exact = vectors[:, -basis.shape[1] :]
        np.testing.assert_allclose(basis @ basis.T, exact @ exact.T, rtol=0, atol=1e-9)
        assert float(values[-basis.shape[1] :].sum() / values.sum()) == pytest.approx(float(probe.shares_[c]))


@pytest.mark.parametrize("dim", [20, 150])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_bases_are_orthonormal(features: Features, dim: int, dtype: torch.dtype) -> None:
    rows, labels = features(240, dim)
    for variance in (0.9, 0.9999):
        probe = MASC(variance).fit(rows.to(dtype), labels)
        assert probe.bases_[0].dtype == dtype
        for basis in probe.bases_:
            tolerance = 1e-12 if dtype == torch.float64 else 1e-5
            np.testing.assert_allclose(basis.T @ basis, np.eye(basis.shape[1]), rtol=0, atol=tolerance)


def test_the_smallest_subspace_above_the_share(features: Features) -> None:
    """Fails for a rule that is off by one in either direction."""
    rows, labels = features(400, 40)
    for variance in (0.8, 0.9, 0.99):
        probe = MASC(variance).fit(rows, labels)
        for c, k in enumerate(probe.dimensions_.tolist()):
            values = torch.linalg.eigvalsh(rows[labels == c].T @ rows[labels == c]).flip(0)
            held = values.cumsum(0) / values.sum()
            assert held[k - 1] > variance
            assert k == 1 or held[k - 2] <= variance


@pytest.mark.parametrize("dim", [16, 200])
def test_rotations_and_scales_change_no_prediction(features: Features, dim: int) -> None:
    rows, labels = features(200, dim)
    test, _ = features(60, dim, seed=3)
    turn = torch.linalg.qr(torch.randn(dim, dim, generator=torch.Generator().manual_seed(5)).double())[0]
    plain = MASC(0.95).fit(rows, labels).scores(test)
    np.testing.assert_allclose(MASC(0.95).fit(rows @ turn, labels).scores(test @ turn), plain, atol=1e-9)
    for scale in (1e-100, 1e100):  # squares would vanish or overflow
        far = MASC(0.95).fit(rows * scale, labels).scores(test * scale)
        np.testing.assert_allclose(far, plain, atol=1e-9)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_float32_squares_neither_vanish_nor_overflow(features: Features, scale: float) -> None:
    rows, labels = features(200, 20)
    rows = rows.float()
    probe = MASC(0.95).fit(rows * scale, labels)
    np.testing.assert_allclose(
        probe.scores(rows * scale), MASC(0.95).fit(rows, labels).scores(rows), atol=1e-5
    )


def test_a_number_of_components_instead(features: Features) -> None:
    rows, labels = features(400, 30)
    whole = MASC(1.0).fit(rows, labels)
    five = MASC(components=5).fit(rows, labels)
    assert five.dimensions_.tolist() == [5, 5, 5, 5]
    for few, all_of_it in zip(five.bases_, whole.bases_, strict=True):
        np.testing.assert_allclose(few @ few.T, all_of_it[:, :5] @ all_of_it[:, :5].T, rtol=0, atol=1e-9)


@pytest.mark.parametrize("cuts", [[], [1], [40, 41], [0, 200]], ids=str)
@pytest.mark.parametrize("variance", [0.9, 0.99])
def test_moments_give_the_same_probe(features: Features, cuts: list[int], variance: float) -> None:
    """Gathered in any parts, without seeing a feature again."""
    rows, labels = features(400, 30)
    seen = MomentsAccumulator(30, 4)
    for part, numbers in zip(rows.tensor_split(cuts), labels.tensor_split(cuts), strict=True):
        seen.update(part, numbers)
    probe = MASC(variance).fit_moments(seen.compute())
    whole = MASC(variance).fit(rows, labels)
    assert probe.dimensions_.tolist() == whole.dimensions_.tolist()
    assert probe.n_features_in_ == 30
    np.testing.assert_allclose(probe.scores(rows), whole.scores(rows), rtol=0, atol=1e-9)


def test_moments_of_float32_rows(features: Features) -> None:
    """Products in float32 hold six digits; the probe must not pretend to more, nor hold less."""
    rows, labels = features(4000, 300, latent=40)
    rows = rows.float()
    probe = MASC().fit_moments(Moments.of(rows, labels, 4))
    whole = MASC().fit(rows.double(), labels)
    assert (probe.dimensions_ - whole.dimensions_).abs().max() <= 1
    assert float((probe.predict(rows) == whole.predict(rows)).double().mean()) > 0.999


@pytest.mark.parametrize("dim", [30, 300])
def test_rows_that_are_read_in_blocks(features: Features, dim: int) -> None:
    rows, labels = features(200, dim)
    stored = [TensorRows(rows, (labels == c).nonzero()[:, 0]) for c in range(4)]
    probe = MASC(0.97).fit_rows(stored, classes=["a", "b", "c", "d"])
    whole = MASC(0.97).fit(rows, labels)
    np.testing.assert_allclose(probe.scores(rows), whole.scores(rows), rtol=0, atol=1e-5)
    assert probe.predict(rows).tolist() == ["abcd"[c] for c in whole.predict(rows)]


def test_a_class_without_rows_is_never_predicted(features: Features) -> None:
    rows, labels = features(200, 12)
    moments = Moments.of(rows, labels * 2, 7)  # classes 1, 3 and 5 have no rows
    probe = MASC(0.9).fit_moments(moments)
    assert probe.dimensions_.tolist()[1::2] == [0, 0, 0]
    scores = probe.scores(torch.cat([rows, torch.zeros(1, 12).double()]))
    assert torch.isneginf(scores[:, 1::2]).all()
    assert torch.isfinite(scores[:, ::2]).all()
    assert set(probe.predict(rows).tolist()) <= {0, 2, 4, 6}


def test_no_rows_at_all_is_refused() -> None:
    with pytest.raises(BadData, match="wanted training rows, got none for any of 3 classes"):
        MASC().fit_moments(Moments.empty(4, 3))


def test_names_must_match_the_classes(features: Features) -> None:
    rows, labels = features(40, 5)
    with pytest.raises(BadData, match="wanted names for 4 classes, got 2"):
        MASC().fit_moments(Moments.of(rows, labels, 4), classes=["a", "b"])


def test_a_zero_row_goes_to_the_first_class(features: Features) -> None:
    """It makes no angle with anything: all scores are 0, and none is NaN."""
    rows, labels = features(80, 6)
    probe = MASC(0.9).fit(rows, labels)
    assert probe.scores(torch.zeros(2, 6)).tolist() == [[0.0] * 4] * 2
    assert probe.predict(torch.zeros(2, 6)).tolist() == [0, 0]


def test_a_class_of_zero_rows_has_no_subspace(features: Features) -> None:
    rows, labels = features(80, 6)
    rows[labels == 2] = 0
    probe = MASC(0.9).fit(rows, labels)
    assert probe.dimensions_.tolist()[2] == 0
    assert probe.scores(rows)[:, 2].abs().max() == 0
    assert torch.isfinite(probe.scores(rows)).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"variance": 0}, r"MASC\(variance=...\): wanted a share above 0 and at most 1, got 0. For 99 %"),
        ({"variance": 99}, "got 99"),
        ({"variance": float("nan")}, "got nan"),
        ({"components": 0}, r"MASC\(components=...\): wanted a whole number from 1 up, or None, got 0"),
        ({"components": 2.5}, "got 2.5"),
        ({"components": True}, "got True"),
    ],
)
def test_settings_are_checked_in_fit(settings: dict[str, float], message: str, features: Features) -> None:
    probe = MASC(**settings)  # scikit-learn: not before
    with pytest.raises(BadValue, match=message):
        probe.fit(*features(20, 3))
    with pytest.raises(BadValue, match=message):
        probe.fit_moments(Moments.of(*features(20, 3), 4))


def test_stored_rows_that_are_all_zero_have_no_subspace(features: Features) -> None:
    rows, labels = features(80, 200)
    rows[labels == 2] = 0
    probe = MASC(0.9).fit_rows([TensorRows(rows, (labels == c).nonzero()[:, 0]) for c in range(4)])
    assert probe.dimensions_.tolist()[2] == 0
    assert probe.bases_[2].shape == (200, 0)
    assert probe.scores(rows)[:, 2].abs().max() == 0


def test_stored_rows_keep_to_the_room_for_directions(features: Features) -> None:
    """Directions have the rows' dtype, and are there twice while they are joined."""
    rows, labels = features(80, 200)
    parts = [TensorRows(rows.float(), (labels == c).nonzero()[:, 0]) for c in range(4)]
    probe = MASC(0.9).fit_rows(parts)
    assert probe.basis_.dtype == torch.float32
    size = probe.basis_.nbytes
    assert MASC(0.9).fit_rows(parts, room=2 * size).dimensions_.tolist() == probe.dimensions_.tolist()
    with pytest.raises(BadData, match=r"masc's directions take more than the .* that --memory leaves"):
        MASC(0.9).fit_rows(parts, room=2 * size - 1)


@pytest.mark.parametrize("variance", [0.5, 0.9])
def test_sketches_that_lose_nothing_give_the_same_probe(features: Features, variance: float) -> None:
    """Classes of fewer rows than a sketch holds are there as they are."""
    rows, labels = features(60, 40)
    rows = rows.float()
    seen = ClassSketches(40, 4, size=32)
    seen.add(rows, labels)
    probe = MASC(variance).fit_sketches(seen, labels.bincount())
    whole = MASC(variance).fit(rows, labels)
    assert probe.dimensions_.tolist() == whole.dimensions_.tolist()
    np.testing.assert_allclose(probe.scores(rows), whole.scores(rows), rtol=0, atol=1e-5)
    np.testing.assert_allclose(probe.shares_, whole.shares_, rtol=0, atol=1e-5)
    three = MASC(components=3).fit_sketches(seen, labels.bincount())
    assert three.dimensions_.tolist() == [3] * 4


def test_a_sketch_of_a_class_without_rows_has_no_directions(features: Features) -> None:
    rows, labels = features(60, 40)
    seen = ClassSketches(40, 5, size=32)
    seen.add(rows.float(), labels)
    probe = MASC().fit_sketches(seen, labels.bincount(minlength=5))
    assert probe.dimensions_.tolist()[4] == 0
    assert float(probe.shares_[4]) == 0


def test_answers_from_one_kernel_are_those_of_each_fit(features: Features) -> None:
    rows, labels = features(80, 400)
    sets = [labels, labels.roll(1) * 10 + 7]  # names need not be numbers from 0 on
    found = MASC(0.9).fit_and_answer(rows, sets)
    for (probe, said), names in zip(found, sets, strict=True):
        alone = MASC(0.9).fit(rows, names)
        np.testing.assert_allclose(probe.scores(rows), alone.scores(rows), rtol=0, atol=1e-6)
        assert probe.counts_.tolist() == alone.counts_.tolist()
        assert said.tolist() == alone.predict(rows).tolist()
