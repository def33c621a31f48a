"""One scatter for all classes: the same numbers as one for each, any split, merge and subtraction."""

from __future__ import annotations

import pytest
import torch

from undertow.errors import BadData, BadValue
from undertow.features import Moments
from undertow.richness import NeuralCollapse, neural_collapse
from undertow.richness.pooled import Pooled, PooledAccumulator


def sample(n=120, p=6, classes=4, offset=1e3):
    """Classes of very different sizes."""
    g = torch.Generator().manual_seed(0)
    labels = torch.multinomial(torch.tensor([8.0, 4, 2, 1])[:classes], n, replacement=True, generator=g)
    spread = torch.tensor([0.1, 1, 3, 5], dtype=torch.float64)[labels, None]
    rows = torch.randn(n, p, generator=g, dtype=torch.float64) * spread
    return rows + torch.randn(classes, p, generator=g, dtype=torch.float64)[labels] + offset, labels


def gathered(rows, labels, sizes=None, cuts=()):
    seen = PooledAccumulator(rows.shape[1], 4, sizes)
    for part, own in zip(rows.tensor_split(cuts), labels.tensor_split(cuts), strict=True):
        seen.update(part, own)
        seen.compute()  # what waits is taken in, as often as may be
    return seen.compute()


def agree(found: Pooled, wanted: Pooled):
    assert torch.equal(found.counts, wanted.counts)
    torch.testing.assert_close(found.means, wanted.means, rtol=0, atol=1e-10)
    torch.testing.assert_close(found.within(), wanted.within(), rtol=0, atol=1e-8)


@pytest.mark.parametrize("cuts", [[], [1], [40, 41], [3, 60, 119]], ids=str)
def test_any_split_gives_the_balanced_spread_of_the_classes(cuts):
    """Fails if a step of a class mean is lost, not weighted, or large classes count more."""
    rows, labels = sample()
    wanted = Moments.of(rows, labels, 4).within(balanced=True) * 4
    for factor in (1, 1e-3):  # counts or shares
        found = gathered(rows, labels, labels.bincount().double() * factor, cuts)
        assert found.exact
        torch.testing.assert_close(found.within(), wanted, rtol=0, atol=1e-8)


def test_merging_and_taking_apart():
    """Fails if means are moved the wrong way, or a class that only one side has is spoilt."""
    rows, labels = sample()
    labels[:50], labels[50:] = labels[:50].clamp(max=2), labels[50:].clamp(min=1)  # 0 in one, 3 in the other
    sizes = labels.bincount()
    whole = gathered(rows, labels, sizes)
    first, second = (gathered(rows[part], labels[part], sizes) for part in (slice(50), slice(50, None)))
    agree(first.merge(second), whole)
    agree(second.merge(first), whole)
    agree(whole.without(first), second)
    empty = PooledAccumulator(6, 4, sizes).compute()
    agree(empty.merge(whole), whole)
    agree(whole.merge(empty), whole)


def test_a_value_does_not_change_with_later_rows():
    rows, labels = sample()
    seen = PooledAccumulator(6, 4)
    seen.update(rows[:60], labels[:60])
    before = seen.compute()
    kept = before.within()
    seen.update(rows[60:], labels[60:])
    seen.compute()
    assert torch.equal(before.within(), kept)


def test_sizes_make_unequal_classes_count_the_same():
    """Fails if sizes are not used, or their absence passes unremarked."""
    rows, labels = sample(offset=0.0)
    wanted = neural_collapse(rows, labels)
    told, untold = NeuralCollapse(4, labels.bincount().numpy()), NeuralCollapse(4)
    for metric in (told, untold):
        metric.update(rows, labels)
    assert told.compute().nc1 == pytest.approx(wanted.nc1, rel=1e-9)
    assert told.compute().trace_within == pytest.approx(wanted.trace_within, rel=1e-9)
    assert "other shares" not in told.compute().note
    assert untold.compute().nc1 < 0.8 * wanted.nc1  # the small classes are the wide ones
    assert "classes came in other shares than told" in untold.compute().note


def test_collapsed_classes_keep_their_digits():
    """Fails if the spread within is what is left of the total: 1e-9 of it would be rounding."""
    rows, labels = sample(n=400, offset=0.0)
    means = 10 * torch.eye(4, 6, dtype=torch.float64)[labels]
    features = means + 1e-9 * rows
    metric = NeuralCollapse(4, labels.bincount())
    for part, own in zip(features.split(64), labels.split(64), strict=True):
        metric.update(part, own)
    assert metric.compute().nc1 == pytest.approx(neural_collapse(features, labels).nc1, rel=1e-5)


def test_state_is_one_matrix_and_the_means():
    """Fails for a matrix for each class: 100 of them."""
    metric, g = NeuralCollapse(100), torch.Generator().manual_seed(0)
    for _ in range(50):
        metric.update(torch.randn(200, 32, generator=g), torch.randint(100, (200,), generator=g))
    seen = metric._seen
    assert seen is not None
    held = sum(value.numel() for value in vars(seen).values() if isinstance(value, torch.Tensor))
    assert held == 32**2 + 100 * 32 + 2 * 100
    assert sum(len(rows) for rows, _ in seen._waiting) < 512


def test_what_does_not_fit_is_refused():
    rows, labels = sample()
    with pytest.raises(BadValue, match="one for each of 4 classes"):
        NeuralCollapse(4, torch.ones(3))
    with pytest.raises(BadValue, match="numbers above 0"):
        NeuralCollapse(4, torch.tensor([1, 2, 0, 3]))
    with pytest.raises(BadData, match="rows of width 6, got 5"):
        PooledAccumulator(6, 4).update(rows[:, :5], labels)
    with pytest.raises(BadData, match="labels from 0 to 3, got 7"):
        PooledAccumulator(6, 4).update(rows, labels + 4)
    with pytest.raises(BadData, match="got none"):
        PooledAccumulator(6, 4).compute().within()
    one, other = gathered(rows, labels), gathered(rows, labels, labels.bincount())
    with pytest.raises(BadValue, match="the same class sizes"):
        one.merge(other)
    with pytest.raises(BadValue, match=r"the same \(classes, dim\)"):
        one.merge(gathered(rows[:, :5], labels))
