"""Balanced subsets and hold-outs."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from undertow.data.samples import Samples
from undertow.data.subset import balanced, hold_out
from undertow.errors import BadData, BadValue


def uneven(*counts: int) -> Samples:
    """`counts[c]` samples of class c, mixed, each a vector that holds its own number."""
    labels = torch.cat([torch.full((count,), c) for c, count in enumerate(counts)])
    labels = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))]
    return Samples.of(torch.arange(len(labels), dtype=torch.float32)[:, None], labels)


@settings(deadline=None, max_examples=60)
@given(
    counts=st.lists(st.integers(3, 12), min_size=2, max_size=6),
    seed=st.integers(0, 5),
    data=st.data(),
)
def test_balanced_is_even_nested_and_in_order(counts: list[int], seed: int, data: st.DataObject) -> None:
    """Fails if a class is more than one ahead, a sample doubles, or a larger subset drops a smaller one's."""
    samples = uneven(*counts)
    most = min(counts) * len(counts)
    large = data.draw(st.integers(len(counts), most))
    small = data.draw(st.integers(len(counts), large))
    chosen, fewer = balanced(samples, large, seed), balanced(samples, small, seed)

    per_class = chosen.y.bincount(minlength=len(counts))
    assert len(chosen) == large
    assert per_class.max() - per_class.min() <= 1
    assert chosen.index.tolist() == sorted(set(chosen.index.tolist()))
    assert set(fewer.index.tolist()) <= set(chosen.index.tolist())
    assert torch.equal(chosen.x[:, 0].long(), chosen.index)
    assert torch.equal(chosen.y, samples.y[chosen.index])


def test_the_seed_decides() -> None:
    samples = uneven(50, 50)
    assert torch.equal(balanced(samples, 20, 3).index, balanced(samples, 20, 3).index)
    assert not torch.equal(balanced(samples, 20, 3).index, balanced(samples, 20, 4).index)


def test_a_scarce_class_only_misses_the_extra_sample() -> None:
    """Classes of 2, 9 and 9: seven is 2 + 3 + 2 or 2 + 2 + 3, never 3 of the scarce class."""
    for seed in range(20):
        assert balanced(uneven(2, 9, 9), 8, seed).y.bincount().tolist() == [2, 3, 3]
    with pytest.raises(BadData, match=r"got only 2 of class 0\. Ask for at most 8"):
        balanced(uneven(2, 9, 9), 9, 0)


def test_classes_need_not_be_numbered_from_zero() -> None:
    samples = Samples.of(torch.zeros(8, 1), torch.tensor([3, 7] * 4))
    assert balanced(samples, 4, 0).y.sort().values.tolist() == [3, 3, 7, 7]


@pytest.mark.parametrize("count", [-1, 0, 1])
def test_fewer_than_one_of_each_class_is_refused(count: int) -> None:
    with pytest.raises(BadValue, match=f"each of 2 classes, got {count}"):
        balanced(uneven(5, 5), count, 0)


def test_hold_out_takes_the_same_share_of_each_class_and_loses_nothing() -> None:
    samples = uneven(100, 40, 10)
    train, test = hold_out(samples, 0.2, seed=0)
    assert test.y.bincount().tolist() == [20, 8, 2]
    assert sorted([*train.index.tolist(), *test.index.tolist()]) == list(range(150))
    assert not torch.equal(test.index, hold_out(samples, 0.2, seed=1)[1].index)


def test_hold_out_leaves_one_of_each_class() -> None:
    train, test = hold_out(uneven(1, 2, 9), 0.9, seed=0)
    assert train.y.bincount().tolist() == [1, 1, 1]
    assert test.y.bincount(minlength=3).tolist() == [0, 1, 8]


def test_hold_out_of_nothing_is_refused() -> None:
    with pytest.raises(BadData, match="4 samples in 2 classes, too few"):
        hold_out(uneven(2, 2), 0.2, seed=0)
    with pytest.raises(BadValue, match="between 0 and 1, got 1"):
        hold_out(uneven(20, 20), 1.0, seed=0)
