"""D_LR: the definition on n x n operators, its invariances, known values and hard cases; all in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from undertow.errors import BadData
from undertow.richness import DLR, cka, d_lr, low_rank

CLOSE = {"rel": 0, "abs": 1e-12}


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def orthogonal(size, seed=0):
    return torch.linalg.qr(draw(size, size, seed=seed)).Q


def by_definition(features, outputs):
    """1 - CKA of the n x n operators T and T_MP = a1 |1><1| + a2 P, in numpy and with nothing shared."""
    phi, f = np.asarray(features), np.asarray(outputs)
    n = len(phi)
    projection = f @ np.linalg.pinv(f)
    centre = np.eye(n) - np.full((n, n), 1 / n)
    t = centre @ (phi @ phi.T) @ centre
    t_mp = centre @ (3.0 * np.ones((n, n)) / n + 0.7 * projection) @ centre
    return 1 - np.trace(t @ t_mp) / (np.linalg.norm(t) * np.linalg.norm(t_mp))


def streamed(features, outputs, size=17, projection=True):
    """The result of batches."""
    metric = DLR(projection)
    for part, out in zip(features.split(size), outputs.split(size), strict=True):
        metric.update(part, out)
    return metric.compute()


def sample(n=60, p=7, c=3, offset=1.5, seed=0):
    features = draw(n, p, seed=seed) + offset
    outputs = features @ draw(p, c, seed=seed + 1) + 0.5 * draw(n, c, seed=seed + 2) + 2
    return features, outputs


@pytest.mark.parametrize("offset", [0.0, 1.5, 1e3])
@pytest.mark.parametrize("c", [1, 3, 6])
def test_features_moments_and_operators_agree(c, offset):
    """Fails if the projection is on centred outputs, or if a constant multiple a1 is not removed."""
    features, outputs = sample(c=c, offset=offset)
    wanted = by_definition(features, outputs)
    assert d_lr(features, outputs) == pytest.approx(wanted, rel=0, abs=1e-10)
    assert d_lr(features.numpy(), outputs.numpy()) == d_lr(features, outputs)
    for size in (60, 17):
        assert streamed(features, outputs, size).value == pytest.approx(d_lr(features, outputs), **CLOSE)


@pytest.mark.parametrize("size", [1e-25, 1.0, 1e25])
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_float32_rows_keep_their_digits(offset, size):
    """Fails for float32 sums (an offset of 1e3 costs all but three digits), and for squares out of range."""
    features, outputs = (part.float() for part in sample(n=3000, p=300, offset=offset))
    features *= size
    wanted = d_lr(features.double(), outputs.double())
    assert d_lr(features, outputs, precise=True) == pytest.approx(wanted, **CLOSE)
    assert d_lr(features, outputs) == pytest.approx(wanted, rel=0, abs=1e-7)


@pytest.mark.parametrize("size", [1e-120, 1e-9, 1e9, 1e120])
def test_float64_features_of_any_size(size):
    """Fails if squares of products overflow or vanish."""
    features, outputs = sample()
    assert d_lr(features * size, outputs) == pytest.approx(d_lr(features, outputs), **CLOSE)


def test_invariant_to_rotation_scale_and_shift_of_features():
    features, outputs = sample()
    turned = 1e-3 * features @ orthogonal(7, seed=5) + draw(7, seed=6)
    assert d_lr(turned, outputs) == pytest.approx(d_lr(features, outputs), **CLOSE)


def test_invariant_to_invertible_mixing_of_outputs_but_the_shortcut_is_not():
    """Fails if functions are weighted by their size."""
    features, outputs = sample()
    mixing = draw(3, 3, seed=4) @ torch.diag(torch.tensor([1e-7, 1.0, 1e5], dtype=torch.float64))
    assert d_lr(features, outputs @ mixing) == pytest.approx(d_lr(features, outputs), rel=0, abs=1e-9)
    shortcut = d_lr(features, outputs, projection=False)
    assert abs(d_lr(features, outputs @ mixing, projection=False) - shortcut) > 1e-2


def test_the_shortcut_is_cka_of_features_and_outputs():
    features, outputs = sample()
    wanted = pytest.approx(1 - cka(features, outputs), **CLOSE)
    assert d_lr(features, outputs, projection=False) == wanted
    assert streamed(features, outputs, projection=False).value == wanted


def test_zero_for_collapsed_features():
    """One-hot classes turned into 12 dimensions, and the functions that tell them apart."""
    onehot = torch.eye(4, dtype=torch.float64).repeat(10, 1)
    features = onehot @ orthogonal(12)[:4]
    value = d_lr(features, onehot @ draw(4, 4, seed=3))
    assert 0 <= value < 1e-12


def orthonormal_functions(n, k, seed=0):
    """(n, k) orthonormal columns of mean 0."""
    start = torch.cat([torch.ones(n, 1, dtype=torch.float64), draw(n, k, seed=seed)], 1)
    return torch.linalg.qr(start).Q[:, 1:]


@pytest.mark.parametrize(("c", "k"), [(2, 2), (2, 8), (1, 16), (3, 4)])
def test_known_value_of_equal_features(c, k):
    """K features of one strength of which c are used: CKA = c / (sqrt(k) sqrt(c))."""
    functions = orthonormal_functions(50, k)
    assert d_lr(functions, functions[:, :c]) == pytest.approx(1 - math.sqrt(c / k), **CLOSE)


def test_known_value_of_unequal_features():
    """Strengths l_i, the first c used: CKA = sum of l_i up to c / (sqrt(c) sqrt(sum of l_i^2))."""
    functions, strengths = orthonormal_functions(40, 5), torch.tensor([5.0, 2, 1, 1, 0.5]).double()
    wanted = 1 - 7 / (math.sqrt(2) * math.sqrt(25 + 4 + 1 + 1 + 0.25))
    assert d_lr(functions * strengths.sqrt(), functions[:, :2]) == pytest.approx(wanted, **CLOSE)


def test_order_of_orthonormalising_and_centring():
    """Outputs that sum to nearly 1: centring first gives full weight to what is left of the constant."""
    onehot = torch.eye(4, dtype=torch.float64).repeat(25, 1)
    outputs = onehot + 1e-3 * draw(100, 4, seed=2)
    features = onehot @ orthogonal(12)[:4]
    centred = outputs - outputs.mean(0)
    u = torch.linalg.qr(centred).Q  # the wrong order
    off = features - features.mean(0)
    wrong = 1 - float((off.T @ u).square().sum() / (torch.linalg.matrix_norm(off.T @ off) * 4**0.5))
    right = by_definition(features, outputs)
    assert d_lr(features, outputs) == pytest.approx(right, **CLOSE)
    assert right < 1e-5
    assert wrong > 0.1


def test_rank_deficient_outputs_project_on_their_span():
    """Fails if directions of rounding noise are orthonormalised: float32 outputs that sum to 0."""
    features, outputs = sample(n=200, c=3)
    more = torch.cat([outputs, outputs @ draw(3, 2, seed=8)], 1)
    found = low_rank(features, more.float())
    assert (found.rank, found.note) == (3, "the 5 outputs span 3 dimensions")
    assert found.value == pytest.approx(d_lr(features, outputs), rel=0, abs=1e-6)
    assert low_rank(features, torch.cat([outputs, torch.zeros(200, 1)], 1)).rank == 3


def test_outputs_far_from_zero_keep_their_digits():
    """Fails for eigenvalues of the raw F^T F: at an offset of 1e4 half the digits are gone."""
    features, outputs = sample(n=200)
    mixed = outputs - outputs.mean(0)
    flat = torch.cat([mixed, torch.ones(200, 1, dtype=torch.float64)], 1)
    assert d_lr(features, torch.cat([mixed + 1e4, flat[:, 3:]], 1)) == pytest.approx(
        d_lr(features, flat), rel=0, abs=1e-11
    )


def test_what_a_span_is_does_not_depend_on_how_many_outputs_say_it():
    """64 times one function, and one that differs from it by a millionth: rounding, beside so large a sum."""
    features, one, other = draw(50, 6), draw(50, 1, seed=1), draw(50, 1, seed=2)
    outputs = torch.cat([one.expand(50, 64), one + 1e-6 * one.norm() * other / other.norm()], 1)
    assert low_rank(features, outputs).rank == 1
    assert d_lr(features, outputs) == pytest.approx(d_lr(features, one), rel=0, abs=1e-9)


@pytest.mark.parametrize("count", [6, 7])
def test_as_many_samples_as_features_are_few(count, recwarn):
    """No more samples than features: each function of the samples is one of the features."""
    d_lr(draw(count, 6), draw(count, 2))
    assert len(recwarn) == (count == 6)
    assert bool(low_rank(draw(count, 6), draw(count, 2)).note) == (count == 6)


@pytest.mark.parametrize(("spread", "refused"), [(3e-7, True), (1e-5, False)])
def test_features_are_constant_up_to_a_millionth_of_their_size(spread, refused):
    features, outputs = 1 + spread * draw(50, 6), draw(50, 2, seed=1)
    if refused:
        with pytest.raises(BadData, match="features that differ between samples"):
            d_lr(features, outputs)
    else:
        assert 0 <= d_lr(features, outputs) <= 1


def test_two_samples_are_enough():
    assert 0 <= low_rank(draw(2, 3), draw(2, 1)).value <= 1


def test_few_samples_are_told_and_need_no_wide_matrix():
    """Fails if features wider than samples are multiplied the wrong way round, or pass unremarked."""
    features, outputs = sample(n=20, p=50)
    found = low_rank(features, outputs)
    assert found.note == "only 20 samples for 50 features: take more than 50"
    assert found.value == pytest.approx(by_definition(features, outputs), **CLOSE)
    with pytest.warns(UserWarning, match="only 20 samples for 50 features"):
        assert d_lr(features, outputs) == found.value == float(found)
    moments = streamed(features, outputs)
    assert (moments.note, moments.value) == (found.note, pytest.approx(found.value, **CLOSE))


@pytest.mark.parametrize("projection", [True, False])
@pytest.mark.parametrize(
    ("features", "outputs", "message"),
    [
        (draw(9, 2), torch.full((9, 3), 0.3), "got constant ones: no function"),
        (draw(9, 2), torch.zeros(9, 3), "got (zeros only|constant ones)"),
        (torch.zeros(9, 2), draw(9, 3), "got constant ones up to rounding"),
        (torch.full((9, 2), 0.1), draw(9, 3), "got constant ones up to rounding"),
        (draw(9, 2) * torch.nan, draw(9, 3), "NaN or infinity in 9 of 9 rows"),
        (draw(9, 2), draw(9, 3) / 0, "d_lr, outputs: wanted finite numbers"),
        (draw(9, 2), draw(8, 3), "got 9 and 8 rows"),
        (draw(1, 2), draw(1, 3), "at least 2 samples, got 1"),
        (draw(0, 2), draw(0, 3), "at least one row"),
        (draw(9), draw(9, 3), r"wanted float rows \(N, D\)"),
    ],
    ids=[
        "constant outputs",
        "zero outputs",
        "zero features",
        "constant features",
        "nan",
        "infinity",
        "counts",
        "one row",
        "no rows",
        "vector",
    ],
)
def test_degenerate_input_is_refused_in_words(features, outputs, message, projection):
    with pytest.raises(BadData, match=message):
        low_rank(features, outputs, projection)


def test_outputs_of_zeros_are_told_from_constant_ones():
    features = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    with pytest.raises(BadData, match="wanted outputs, got zeros only"):
        d_lr(features, torch.zeros(30, 3))
    with pytest.raises(BadData, match="got constant ones"):
        d_lr(features, torch.ones(30, 3))
