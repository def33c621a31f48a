"""Samples and DataSet: what is refused, and that nothing else is."""

from __future__ import annotations

import re

import pytest
import torch

from undertow.data.samples import DataSet, Samples, check_samples, number_classes
from undertow.errors import BadData


def vectors(count: int = 6, classes: int = 2) -> Samples:
    x = torch.arange(count * 3, dtype=torch.float32).reshape(count, 3)
    return Samples.of(x, torch.arange(count) % classes)


def data_set(train: Samples | None = None, test: Samples | None = None) -> DataSet:
    return DataSet("mine", train or vectors(), test or vectors(4), ("a", "b"))


def test_take_keeps_the_row_in_the_source_through_two_cuts() -> None:
    """Fails if index is renumbered: labels could no longer be traced to the file."""
    part = vectors(10).take(torch.tensor([7, 3, 5])).take(torch.tensor([2, 0]))
    assert part.index.tolist() == [5, 7]
    assert torch.equal(part.x, vectors(10).x[[5, 7]])


def test_true_labels_survive_a_second_relabelling() -> None:
    """Fails if the second noise takes the first noise's labels for the true ones."""
    clean = vectors()
    twice = clean.relabelled(1 - clean.y).relabelled(torch.zeros(6, dtype=torch.int64))
    assert twice.true is not None
    assert torch.equal(twice.true, clean.y)
    assert twice.y.sum() == 0


@pytest.mark.parametrize(
    ("x", "kind"),
    [
        (torch.zeros(6, 1, 2, 2, dtype=torch.uint8), "image"),
        (torch.zeros(6, 3, 2, 2), "image"),
        (torch.zeros(6, 5), "vector"),
        (torch.zeros(6, 4, dtype=torch.int64), "tokens"),
    ],
)
def test_kind_follows_axes_and_dtype(x: torch.Tensor, kind: str) -> None:
    samples = Samples.of(x, torch.arange(6) % 2)
    data = DataSet("mine", samples, samples, ("a", "b"))
    assert data.kind == kind
    assert data.shape == tuple(x.shape[1:])


def test_fingerprint_sees_every_part_and_nothing_else() -> None:
    """Fails if a changed pixel, label, true label or split goes unnoticed, or if layout in memory counts."""
    base = data_set()
    other = vectors()
    other.x[5, 2] += 1e-3
    strided = Samples.of(vectors().x.T.contiguous().T, vectors().y)
    changed = [
        data_set(train=other),
        data_set(test=vectors(5)),
        data_set(train=vectors().relabelled(1 - vectors().y)),
        data_set(train=Samples.of(vectors().x, vectors().y, true=vectors().y)),
    ]
    prints = {data.fingerprint for data in (base, *changed)}
    assert len(prints) == 5
    assert data_set(train=strided).fingerprint == base.fingerprint == data_set().fingerprint


BAD = {
    "no sample": (Samples.of(torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64)), "at least one sample"),
    "labels missing": (Samples.of(torch.zeros(6, 3), torch.arange(5) % 2), "6 samples and 5 labels"),
    "float labels": (Samples.of(torch.zeros(6, 3), torch.zeros(6)), "whole-number labels"),
    "one-hot labels": (Samples.of(torch.zeros(6, 3), torch.zeros(6, 2).long()), "shape (6, 2)"),
    "label too large": (
        Samples.of(torch.zeros(6, 3), torch.tensor([0, 1, 0, 2, 1, 5])),
        "got 2 at index 3 (2 such",
    ),
    "label negative": (Samples.of(torch.zeros(6, 3), torch.tensor([0, 1, -1, 0, 0, 0])), "got -1 at index 2"),
    "three axes": (Samples.of(torch.zeros(6, 3, 3), torch.arange(6) % 2), "shape (6, 3, 3)"),
    "whole-number image": (
        Samples.of(torch.zeros(6, 1, 2, 2).long(), torch.arange(6) % 2),
        "pixels as uint8",
    ),
    "byte vector": (Samples.of(torch.zeros(6, 3).byte(), torch.arange(6) % 2), "tokens as int64"),
    "negative token": (
        Samples.of(torch.tensor([[0, 1], [2, 3], [4, -7]]).repeat(2, 1), torch.arange(6) % 2),
        "got -7 in the sample at index 2",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_samples_are_refused_with_their_index(what: str) -> None:
    samples, says = BAD[what]
    with pytest.raises(BadData, match=re.escape(says)):
        check_samples(samples, 2, "here")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_a_number_that_is_none_is_found(value: float, dtype: torch.dtype) -> None:
    x = torch.ones(8, 1, 3, 3, dtype=dtype)
    x[5, 0, 2, 1] = value
    with pytest.raises(BadData, match=r"NaN or infinity in the sample at index 5 \(1 such"):
        check_samples(Samples.of(x, torch.arange(8) % 2), 2, "here")


def test_opposite_infinities_do_not_cancel() -> None:
    x = torch.ones(4, 2)
    x[1, 0], x[2, 0] = float("inf"), -float("inf")
    with pytest.raises(BadData, match="at index 1"):
        check_samples(Samples.of(x, torch.arange(4) % 2), 2, "here")


def test_finite_numbers_whose_sum_overflows_are_fine() -> None:
    """Fails if the sum alone decides: then there is no bad index to name."""
    check_samples(Samples.of(torch.full((4, 2), 1e308, dtype=torch.float64), torch.arange(4) % 2), 2, "here")


def test_true_labels_are_checked_too() -> None:
    samples = Samples.of(torch.zeros(4, 2), torch.arange(4) % 2, true=torch.tensor([0, 1, 0, 9]))
    with pytest.raises(BadData, match=r"true labels: .* got 9 at index 3"):
        check_samples(samples, 2, "here")


def test_one_class_is_refused_by_name_list_and_by_labels() -> None:
    with pytest.raises(BadData, match="two classes or more, got 1"):
        DataSet("mine", vectors(), vectors(), ("a",))
    one = Samples.of(torch.zeros(4, 3), torch.ones(4, dtype=torch.int64))
    with pytest.raises(BadData, match=r"mine/train labels: .* only class 1"):
        data_set(train=one)
    data_set(test=one)  # a test split may have one


@pytest.mark.parametrize(
    ("test", "says"), [(torch.zeros(4, 2), r"\(3,\) .* \(2,\)"), (torch.zeros(4, 3).double(), "float64")]
)
def test_splits_must_look_alike(test: torch.Tensor, says: str) -> None:
    with pytest.raises(BadData, match=says):
        data_set(test=Samples.of(test, torch.arange(4) % 2))


def test_number_classes_takes_a_gap_for_a_mistake() -> None:
    assert number_classes(torch.tensor([2, 0, 1, 1]), "mine") == ("0", "1", "2")
    with pytest.raises(BadData, match="got 1 at index 0 and no 0"):
        number_classes(torch.tensor([1, 2, 3]), "mine")
    with pytest.raises(BadData, match="got 5 at index 2 and no 2"):
        number_classes(torch.tensor([0, 1, 5]), "mine")
    with pytest.raises(BadData, match="got -1 at index 1"):
        number_classes(torch.tensor([0, -1, 1]), "mine")
    with pytest.raises(BadData, match="two classes or more, got 1"):
        number_classes(torch.tensor([4, 4]), "mine")
    with pytest.raises(BadData, match="Number the classes"):
        number_classes(torch.tensor([0, 2**60]), "mine")
