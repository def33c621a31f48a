"""VeLPIC: the first direction of each class, and whose mean fixes its sign."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from undertow.errors import UnknownName
from undertow.features.moments import Moments
from undertow.features.wide import TensorRows
from undertow.latent import MASC, VeLPIC

Features = Callable[..., tuple[Tensor, Tensor]]


def literal_vectors(rows: Tensor, labels: Tensor, sign: str) -> np.ndarray:
    """(C, D) by the definition: PCA of rows and negatives, sign by a mean projection."""
    vectors = []
    for c in labels.unique().tolist():
        part = rows[labels == c].numpy()
        _, _, right = np.linalg.svd(np.concatenate([part, -part]))
        vector = right[0]
        judges = part if sign == "own" else rows.numpy()
        vectors.append(-vector if (judges @ vector).mean() < 0 else vector)
    return np.stack(vectors)


@pytest.mark.parametrize("sign", ["own", "all"])
@pytest.mark.parametrize(("count", "dim", "shift"), [(200, 12, 0.0), (200, 12, -1.0), (80, 90, -0.5)])
def test_equals_the_definition(features: Features, sign: str, count: int, dim: int, shift: float) -> None:
    rows, labels = features(count, dim)
    rows = rows + shift  # signed features, on which the two rules differ
    probe = VeLPIC(sign).fit(rows, labels)
    exact = literal_vectors(rows, labels, sign)
    np.testing.assert_allclose(probe.vectors_, exact, rtol=0, atol=1e-9)
    np.testing.assert_array_equal(probe.predict(rows), (rows.numpy() @ exact.T).argmax(1))


def test_the_two_signs_differ_where_a_class_opposes_the_rest() -> None:
    """Fails if "own" and "all" are mixed up: the third class points away from the mean of all."""
    axis = torch.tensor([[1.0, 0.2], [1.0, -0.2], [-1.0, 0.0]]).double()
    labels = torch.tensor([0] * 40 + [1] * 40 + [2] * 10)
    rows = axis[labels] + 0.01 * torch.randn(90, 2, generator=torch.Generator().manual_seed(0)).double()
    own, everyone = VeLPIC("own").fit(rows, labels), VeLPIC("all").fit(rows, labels)
    assert own.vectors_[2, 0] < -0.99
    assert everyone.vectors_[2, 0] > 0.99
    assert own.score(rows, labels) == 1
    assert everyone.predict(rows[-10:]).tolist() != [2] * 10


def test_classes_count_by_their_rows_however_rows_are_read() -> None:
    """Fails if the mean of all is the mean of the classes: a small class would turn them all."""
    axis = torch.tensor([[1.0, 0.2], [1.0, -0.2], [-3.0, 0.0]]).double()
    labels = torch.tensor([0] * 40 + [1] * 40 + [2] * 10)
    parts = [TensorRows(axis[labels], (labels == c).nonzero()[:, 0]) for c in range(3)]
    vectors = VeLPIC("all").fit_rows(parts).vectors_
    assert (vectors[:, 0] > 0.9).all()
    np.testing.assert_allclose(vectors, VeLPIC("all").fit(axis[labels], labels).vectors_, atol=1e-6)


def test_after_a_relu_both_signs_agree(features: Features) -> None:
    rows, labels = features(200, 30)
    np.testing.assert_array_equal(
        VeLPIC("own").fit(rows, labels).vectors_, VeLPIC("all").fit(rows, labels).vectors_
    )


@pytest.mark.parametrize("sign", ["own", "all"])
def test_every_way_to_fit_gives_the_same_vectors(features: Features, sign: str) -> None:
    rows, labels = features(200, 60)
    rows = rows - 0.4
    whole = VeLPIC(sign).fit(rows, labels).vectors_
    moments = Moments.of(rows, labels, 4)
    masc = MASC(0.9).fit(rows, labels)
    parts = [TensorRows(rows, (labels == c).nonzero()[:, 0]) for c in range(4)]
    np.testing.assert_allclose(VeLPIC(sign).fit_moments(moments).vectors_, whole, atol=1e-9)
    by_bases = VeLPIC(sign).fit_bases(masc.bases_, moments.means, moments.counts, classes=list("abcd"))
    names = np.array(list("abcd"))[VeLPIC(sign).fit(rows, labels).predict(rows)]
    np.testing.assert_array_equal(by_bases.predict(rows), names)
    np.testing.assert_allclose(by_bases.vectors_, whole, atol=1e-9)
    np.testing.assert_allclose(VeLPIC(sign).fit_rows(parts).vectors_, whole, atol=1e-5)


def test_rotations_and_scales_change_no_prediction(features: Features) -> None:
    rows, labels = features(200, 16)
    turn = torch.linalg.qr(torch.randn(16, 16, generator=torch.Generator().manual_seed(5)).double())[0]
    plain = VeLPIC().fit(rows, labels)
    turned = VeLPIC().fit(rows @ turn, labels)
    np.testing.assert_allclose(turned.vectors_, plain.vectors_ @ turn, atol=1e-9)
    np.testing.assert_allclose(VeLPIC().fit(rows * 1e100, labels).vectors_, plain.vectors_, atol=1e-9)


def test_a_mean_at_a_right_angle_makes_the_largest_entry_positive() -> None:
    """Rows and their negatives: no mean can tell, and the answer must not depend on the solver."""
    half = torch.tensor([[-3.0, 1.0], [-3.0, 1.0]]).double()
    rows = torch.cat([half, -half, half[:, [1, 0]], -half[:, [1, 0]]])
    labels = torch.tensor([0] * 4 + [1] * 4)
    vectors = VeLPIC().fit(rows, labels).vectors_
    np.testing.assert_allclose(vectors, np.array([[3, -1], [-1, 3]]) / 10**0.5, atol=1e-12)


def test_a_class_of_zero_rows_has_the_zero_vector(features: Features) -> None:
    rows, labels = features(80, 6)
    rows[labels == 1] = 0
    assert VeLPIC().fit(rows, labels).vectors_[1].tolist() == [0.0] * 6


def test_a_class_without_rows_is_never_predicted(features: Features) -> None:
    rows, labels = features(80, 6)
    probe = VeLPIC().fit_moments(Moments.of(rows - 5, labels, 6))  # all scores may be negative
    assert set(probe.predict(-rows).tolist()) <= {0, 1, 2, 3}
    assert torch.isfinite(probe.vectors_).all()


def test_an_unknown_sign_is_answered_with_near_ones(features: Features) -> None:
    with pytest.raises(UnknownName, match=r"no sign for VeLPIC 'alll'. Did you mean 'all'"):
        VeLPIC("alll").fit(*features(20, 3))
