"""Moments against float64 numpy, and the laws that let them be gathered anywhere in any order."""

from __future__ import annotations

import pickle
from functools import reduce
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from undertow.errors import BadData, BadValue
from undertow.features.moments import BLOCK, Moments, MomentsAccumulator

# Products of float32 rows: the bound in products.py is 3e-5, rounding here stayed below 1e-6. Half precision
# at a large offset leaves few different numbers, whose rounding errors add up instead of cancelling: 3e-6.
FLOAT32, HALF = 2e-6, 3e-5
CLASSES, DIM, OUT = 4, 5, 3


def sample(n, seed=0, offset=0.0, dtype=torch.float32, classes=CLASSES):
    g = torch.Generator().manual_seed(seed)
    mixing = torch.randn(DIM, DIM, generator=g)
    features = (torch.randn(n, DIM, generator=g) @ mixing + offset).to(dtype)
    labels = torch.randint(classes, (n,), generator=g)
    outputs = torch.randn(n, OUT, generator=g) + features[:, :OUT].float() - offset
    return features, labels, outputs


def numpy_scatter(features, labels, c):
    rows = features.double().numpy()[labels.numpy() == c]
    if not len(rows):
        return np.zeros((features.shape[1],) * 2)
    off = rows - rows.mean(0)
    return off.T @ off


def assert_scatter(moments, features, labels, tolerance):
    """Entries are compared at the scale of the diagonal: a covariance near zero has no digits of its own."""
    for c in range(moments.classes):
        exact = numpy_scatter(features, labels, c)
        scale = np.sqrt(np.outer(exact.diagonal(), exact.diagonal())) + 1e-300
        got = moments.scatter(c).numpy()
        assert np.all(np.abs(got - exact) <= tolerance * scale + 1e-300), (
            c,
            np.abs((got - exact) / scale).max(),
        )


def assert_same(a: Moments, b: Moments, tolerance=1e-12):
    assert torch.equal(a.counts, b.counts)
    torch.testing.assert_close(a.means, b.means, rtol=tolerance, atol=tolerance)
    scale = float(b.upper.abs().max()) or 1.0
    for c in range(a.classes):
        torch.testing.assert_close(a.scatter(c), b.scatter(c), rtol=0, atol=tolerance * scale)
    assert (a.joint is None) == (b.joint is None)
    if a.joint is not None and b.joint is not None:
        assert a.joint.count == b.joint.count
        for name in ("feature_mean", "output_mean", "cross", "output_scatter"):
            one, other = getattr(a.joint, name), getattr(b.joint, name)
            scale = float(other.abs().max()) or 1.0
            torch.testing.assert_close(one, other, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("offset", [0.0, 1e4])
@pytest.mark.parametrize(
    ("dtype", "precise", "tolerance"),
    [
        (torch.float64, False, 1e-11),
        (torch.float32, False, FLOAT32),
        (torch.float32, True, 1e-11),
        (torch.float16, False, HALF),
        (torch.bfloat16, False, HALF),
    ],
    ids=str,
)
def test_scatter_against_float64_numpy(dtype, precise, tolerance, offset):
    """Fails for sums of squares (offset 1e4), and for arithmetic in the rows' own half precision.

    float16 and bfloat16 round the rows at that offset; the reference is made from the rounded ones.
    """
    features, labels, _ = sample(3000, offset=offset, dtype=dtype)
    moments = Moments.of(features, labels, CLASSES, precise=precise)
    assert_scatter(moments, features, labels, tolerance)
    for c in range(CLASSES):
        mean = features.double()[labels == c].mean(0)
        torch.testing.assert_close(moments.means[c], mean, rtol=1e-13, atol=1e-12)
    assert moments.resolution < (1e-15 if tolerance == 1e-11 else 1e-7)


def test_second_moment_is_not_centred():
    features, labels, _ = sample(500, offset=3.0, dtype=torch.float64)
    moments = Moments.of(features, labels, CLASSES)
    rows = features[labels == 2]
    torch.testing.assert_close(moments.second_moment(2), rows.T @ rows, rtol=1e-12, atol=1e-9)


def test_matrices_wider_than_one_panel_are_whole_and_symmetric():
    """Fails if a panel above the diagonal is left out, or the lower triangle is stale."""
    g = torch.Generator().manual_seed(0)
    features, labels = torch.randn(90, 1100, generator=g, dtype=torch.float64), torch.arange(90) % 2
    moments = Moments.of(features, labels, 2)
    for c in range(2):
        got = moments.scatter(c)
        np.testing.assert_allclose(got, numpy_scatter(features, labels, c), rtol=0, atol=1e-10)
        assert torch.equal(got, got.T)


def test_total_is_within_plus_between():
    features, labels, _ = sample(700, offset=100.0, dtype=torch.float64)
    total = Moments.of(features, labels, CLASSES).total()
    np.testing.assert_allclose(
        total.covariance, np.cov(features.numpy(), rowvar=False, bias=True), rtol=0, atol=1e-10
    )
    torch.testing.assert_close(total.mean, features.mean(0))
    assert total.count == 700


def test_balanced_covariances_weigh_classes_not_rows():
    features, _, _ = sample(110, dtype=torch.float64)
    labels = torch.tensor([0] * 100 + [2] * 10)  # class 1 has no rows and counts nowhere
    moments = Moments.of(features, labels, 3)
    parts = [features[labels == c] for c in (0, 2)]
    covariances = [np.cov(part.numpy(), rowvar=False, bias=True) for part in parts]
    means = torch.stack([part.mean(0) for part in parts])
    off = means - means.mean(0)
    np.testing.assert_allclose(moments.within(balanced=True), sum(covariances) / 2, atol=1e-12)
    np.testing.assert_allclose(moments.between(balanced=True), off.T @ off / 2, atol=1e-12)
    weighted = (covariances[0] * 100 + covariances[1] * 10) / 110
    np.testing.assert_allclose(moments.within(), weighted, atol=1e-12)


def test_a_class_of_one_row_weighs_as_much_as_any_other():
    """Fails if a class counts only from its second row on."""
    features, _, _ = sample(11, dtype=torch.float64)
    moments = Moments.of(features, torch.tensor([0] * 10 + [1]), 2)
    off = torch.stack([features[:10].mean(0), features[10]])
    off = off - off.mean(0)
    np.testing.assert_allclose(moments.between(balanced=True), off.T @ off / 2, atol=1e-12)


def test_joint_moments_against_numpy():
    features, labels, outputs = sample(900, offset=50.0, dtype=torch.float64)
    outputs = outputs.double()
    joint = Moments.of(features, labels, CLASSES, outputs).joint
    assert joint is not None
    x, f = features - features.mean(0), outputs - outputs.mean(0)
    torch.testing.assert_close(joint.cross, x.T @ f, rtol=1e-12, atol=1e-8)
    torch.testing.assert_close(joint.output_scatter, f.T @ f, rtol=1e-12, atol=1e-8)


# ---- laws ------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(
    n=st.integers(0, 60),
    cuts=st.lists(st.integers(0, 60), max_size=5).map(sorted),
    order=st.randoms(use_true_random=False),
    offset=st.sampled_from([0.0, 1e4, -1e4]),
    seed=st.integers(0, 1000),
    with_outputs=st.booleans(),
)
def test_any_split_in_any_order_gives_the_same(n, cuts, order, offset, seed, with_outputs):
    """Fails for sums of squares (offset), if empty parts count, or if a class that is missing in a part does."""
    features, labels, outputs = sample(n, seed, offset, torch.float64)
    extra = outputs if with_outputs else None
    width = OUT if with_outputs else 0
    edges = [0, *[min(cut, n) for cut in cuts], n]
    parts = [
        Moments.of(features[a:b], labels[a:b], CLASSES, None if extra is None else extra[a:b])
        for a, b in pairwise(edges)
    ]
    whole = Moments.of(features, labels, CLASSES, extra)
    order.shuffle(parts)
    merged = reduce(Moments.merge, parts, Moments.empty(DIM, CLASSES, width))
    # float64 scatter of sixty rows; the gaps between parts of mean 1e4 carry 1e4 * 1e-16 each
    assert_same(merged, whole, tolerance=1e-9)


@settings(deadline=None, max_examples=40)
@given(
    sizes=st.tuples(*[st.integers(0, 25)] * 3), seed=st.integers(0, 1000), offset=st.sampled_from([0.0, 1e4])
)
def test_merging_is_associative_and_commutative(sizes, seed, offset):
    a, b, c = (
        Moments.of(*sample(n, seed + i, offset, torch.float64)[:2], CLASSES) for i, n in enumerate(sizes)
    )
    assert_same(a.merge(b).merge(c), a.merge(b.merge(c)), tolerance=1e-9)
    assert_same(a.merge(b), b.merge(a), tolerance=1e-9)


@settings(deadline=None, max_examples=25)
@given(n=st.integers(0, 40), seed=st.integers(0, 1000))
def test_empty_is_the_identity_to_the_last_bit(n, seed):
    features, labels, outputs = sample(n, seed, 1e4)
    some, none = Moments.of(features, labels, CLASSES, outputs), Moments.empty(DIM, CLASSES, OUT)
    for merged in (some.merge(none), none.merge(some)):
        assert torch.equal(merged.means, some.means)
        assert all(torch.equal(merged.scatter(c), some.scatter(c)) for c in range(CLASSES))
        assert merged.joint is not None
        assert some.joint is not None
        assert torch.equal(merged.joint.cross, some.joint.cross)
        assert merged.resolution == some.resolution


@settings(deadline=None, max_examples=30)
@given(
    batches=st.lists(st.integers(0, 700), min_size=1, max_size=6),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.float16, torch.bfloat16]),
    offset=st.sampled_from([0.0, 1e3]),
)
def test_streamed_batches_equal_the_whole(batches, dtype, offset):
    """Fails if rows that wait for a full block are lost, counted twice or centred by a wrong mean."""
    n = sum(batches)
    features, labels, outputs = sample(n, 1, offset, dtype, classes=2)
    seen = MomentsAccumulator(DIM, CLASSES, OUT)
    for rows, marks, outs in zip(
        features.split(batches), labels.split(batches), outputs.split(batches), strict=True
    ):
        seen.update(rows, marks, outs)
    moments = seen.compute()
    assert moments.counts.tolist() == torch.bincount(labels, minlength=CLASSES).tolist()
    assert_scatter(moments, features, labels, {torch.float64: 1e-11, torch.float32: FLOAT32}.get(dtype, HALF))


# ---- the accumulator -------------------------------------------------------------------------


def test_a_value_handed_out_does_not_change_with_later_rows():
    """Fails if compute() lends the scatters and updates go on writing in them."""
    features, labels, _ = sample(4 * BLOCK, dtype=torch.float64)
    seen = MomentsAccumulator(DIM, CLASSES)
    seen.update(features[:100], labels[:100])
    early = seen.compute()
    kept = [early.scatter(c).clone() for c in range(CLASSES)]
    seen.update(features[100:], labels[100:])
    late = seen.compute()
    assert all(torch.equal(early.scatter(c), kept[c]) for c in range(CLASSES))
    assert early.count == 100
    assert_same(seen.compute(), late)
    assert_scatter(late, features, labels, 1e-11)


def test_rows_that_wait_do_not_see_the_batch_change():
    """Fails if the accumulator keeps views of the caller's tensor."""
    features, labels, _ = sample(50, dtype=torch.float64)
    reused = features.clone()
    seen = MomentsAccumulator(DIM, CLASSES)
    seen.update(reused, labels)
    reused.fill_(7.0)
    assert_scatter(seen.compute(), features, labels, 1e-11)


def test_a_drifting_class_keeps_its_precision():
    """Fails if rows are shifted by the first block's mean: float32 products at offset 1e4 lose everything."""
    g = torch.Generator().manual_seed(0)
    far = torch.randn(BLOCK, DIM, generator=g) + 1e4
    near = torch.randn(20 * BLOCK, DIM, generator=g)
    features, labels = torch.cat([far, near]), torch.zeros(21 * BLOCK, dtype=torch.int64)
    seen = MomentsAccumulator(DIM, 1)
    for rows, marks in zip(features.split(BLOCK), labels.split(BLOCK), strict=True):
        seen.update(rows, marks)
    assert_scatter(seen.compute(), features, labels, FLOAT32)
    only_near = MomentsAccumulator(DIM, 1)
    only_near.update(near, labels[BLOCK:])
    assert_scatter(only_near.compute(), near, labels[BLOCK:], FLOAT32)


@pytest.mark.parametrize("size", [1e-30, 1e-20, 1e18, 1e25])
def test_squares_neither_vanish_nor_overflow(size):
    """Fails for float32 products without scaling: (1e-30)^2 is 0 there and (1e25)^2 infinite."""
    features, labels, _ = sample(400)
    features = features * size
    assert_scatter(Moments.of(features, labels, CLASSES), features, labels, FLOAT32)


def test_one_sample_and_a_missing_class():
    moments = Moments.of(torch.tensor([[1.0, 2.0]]), torch.tensor([1]), 3)
    assert moments.counts.tolist() == [0, 1, 0]
    assert moments.means[1].tolist() == [1.0, 2.0]
    assert not moments.upper.any()
    assert moments.second_moment(1).tolist() == [[1.0, 2.0], [2.0, 4.0]]
    assert not moments.second_moment(0).any()
    assert torch.isfinite(moments.merge(Moments.empty(2, 3)).means).all()
    assert not moments.total().covariance.any()


def test_gradients_and_autocast_stay_outside():
    """Fails if products follow autocast into bfloat16, or the state drags a graph along."""
    features, labels, _ = sample(600)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        moments = Moments.of(features.requires_grad_(), labels, CLASSES)
    assert not moments.upper.requires_grad
    assert_scatter(moments, features.detach(), labels, FLOAT32)


def test_shortened_products_are_not_followed():
    features, labels, _ = sample(600)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        moments = Moments.of(features, labels, CLASSES)
    finally:
        torch.set_float32_matmul_precision(before)
    assert_scatter(moments, features, labels, 1e-11)
    assert moments.resolution < 1e-15


def test_moments_travel_between_processes():
    moments = Moments.of(*sample(60)[:2], CLASSES, sample(60)[2])
    assert_same(pickle.loads(pickle.dumps(moments)), moments, tolerance=0)


# ---- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_are_not_finite_are_refused_with_layer_and_count(bad):
    features, labels, _ = sample(20)
    features[[3, 7, 7], [0, 1, 2]] = bad
    with pytest.raises(BadData, match=r"layer 'fc1': .* 2 of 20 rows \(the first is row 3\)"):
        Moments.of(features, labels, CLASSES, where="layer 'fc1'")


def test_infinities_that_cancel_are_found():
    """Fails for a check by the plain sum of absolute signs: inf - inf must be met too."""
    features, labels, _ = sample(4)
    features[0, 0], features[1, 0] = float("inf"), float("-inf")
    with pytest.raises(BadData, match="2 of 4 rows"):
        Moments.of(features, labels, CLASSES)


def test_large_finite_numbers_pass_and_hopeless_ones_do_not():
    labels = torch.zeros(3, dtype=torch.int64)
    assert torch.isfinite(Moments.of(torch.full((3, 2), 3e38), labels, 1).second_moment(0)).all()
    with pytest.raises(BadData, match="too large to square"):
        Moments.of(torch.full((3, 2), 1e200, dtype=torch.float64), labels, 1)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.tensor([0, 1, 4]), "got 4 at row 2"),
        (torch.tensor([0, -1, 1]), "got -1 at row 1"),
        (torch.tensor([0.0, 1.0, 1.0]), "whole-number labels, got torch.float32"),
        (torch.tensor([0, 1]), r"wanted 3 whole-number labels, got torch.int64 of shape \(2,\)"),
        (torch.tensor([True, False, True]), "whole-number"),
    ],
    ids=["beyond", "negative", "float", "short", "bool"],
)
def test_bad_labels_are_refused(labels, message):
    with pytest.raises(BadData, match=message):
        Moments.of(torch.zeros(3, 2), labels, CLASSES)


def test_shapes_that_do_not_fit_are_refused():
    labels = torch.zeros(3, dtype=torch.int64)
    with pytest.raises(BadData, match=r"float rows \(N, D\), got torch.float32 of shape \(3, 2, 2\)"):
        Moments.of(torch.zeros(3, 2, 2), labels, 1)
    with pytest.raises(BadData, match="rows of width 5, got 2"):
        MomentsAccumulator(5, 1).update(torch.zeros(3, 2), labels)
    with pytest.raises(BadData, match="outputs of width 4 with each update, got None"):
        MomentsAccumulator(2, 1, outputs=4).update(torch.zeros(3, 2), labels)
    with pytest.raises(BadData, match="3 rows and 2 outputs"):
        MomentsAccumulator(2, 1, outputs=4).update(torch.zeros(3, 2), labels, torch.zeros(2, 4))
    with pytest.raises(BadValue, match="the same"):
        Moments.empty(2, 3).merge(Moments.empty(2, 4))
    with pytest.raises(BadValue, match="1 or more"):
        Moments.empty(0, 3)


def test_no_rows_have_no_covariance():
    """Fails where zeros are invented for no data."""
    with pytest.raises(BadData, match="got none"):
        Moments.empty(2, 3).total()
