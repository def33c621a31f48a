"""Datasets that fail in the middle, lie about their length, or are none: every verb names the sample and the cause."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import undertow as ut
from undertow.errors import BadData, UndertowError

Y = torch.arange(90) % 3
X = torch.randn(90, 6, generator=torch.Generator().manual_seed(0)) + 3 * nn.functional.one_hot(Y, 6)
BAD = 57


class Broken(Dataset[Any]):
    """Raises at one sample."""

    def __init__(self, error: BaseException | None, length: int = 90) -> None:
        self.error, self.length = error, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, at: int) -> tuple[Tensor, Tensor]:
        if at == BAD and self.error is not None:
            raise self.error
        return X[at], Y[at]


class Running(IterableDataset[Any]):
    """Ends badly."""

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for at in range(90):
            if at == BAD:
                raise KeyError("cat.png")
            yield X[at], Y[at]


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


WAYS: dict[str, Callable[..., Any]] = {
    "labels": lambda odd, **more: ut.label_errors(model(), odd, progress=False, **more),
    "audit": lambda odd, **more: ut.audit(model(), odd, (X + 0.1, Y), lenses=["richness"], progress=False, **more),
    "audit of test samples": lambda odd, **more: ut.audit(
        model(), test=odd, lenses=["richness"], progress=False, **more
    ),
}  # fmt: skip
ways = pytest.mark.parametrize("way", WAYS)
ERRORS = [
    ValueError("bad jpeg"),
    KeyError("cat"),
    IndexError("none there"),
    StopIteration(),
    OSError("gone"),
    SystemExit(0),
]


@ways
@pytest.mark.parametrize("memory", ["2GB", "1kB"])
@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_a_sample_that_cannot_be_read_is_named(way: str, error: BaseException, memory: str):
    """Fails if a verb lets through what the Dataset raises, or one tells it in other words; held or as a stream."""
    if memory == "1kB" and way == "audit of test samples":
        memory = "10kB"
    with pytest.raises(BadData, match=rf"sample {BAD} cannot be read \({type(error).__name__}") as told:
        WAYS[way](Broken(error), memory=memory)
    assert told.value.__cause__ is error


@ways
def test_a_source_that_ends_badly_is_told_with_the_place(way: str):
    with pytest.raises(BadData, match=rf"Running: sample {BAD} cannot be read \(KeyError: 'cat.png'\)"):
        WAYS[way](Running())
    with pytest.raises(BadData, match=r"cannot be read \(KeyError: 'cat.png'\)"):
        WAYS[way](DataLoader(Running(), 10))


@ways
@pytest.mark.parametrize(
    ("length", "words"), [(120, r"sample 90 cannot be read \(IndexError.*Is its length right"), (-3, "__len__ fails")]
)  # fmt: skip
def test_a_length_that_lies_is_told(way: str, length: int, words: str):
    with pytest.raises(BadData, match=words):
        WAYS[way](Broken(None, length))


@ways
def test_a_collate_function_that_fails_is_named(way: str):
    def my_collate(items: list[Any]) -> Any:
        raise ValueError("rows of several lengths")

    with pytest.raises(
        BadData, match=r"my_collate makes no batch of them \(ValueError: rows of several lengths\)"
    ):
        WAYS[way](DataLoader(TensorDataset(X, Y), 10, collate_fn=my_collate))


@ways
def test_generators_are_refused_in_words(way: str):
    """Fails with `len() of unsized object`."""
    for odd in ((x for x in X), (X, (int(y) for y in Y)), ((x for x in X), Y)):
        with pytest.raises(UndertowError, match=r"generator|wanted \(x, y\)"):
            WAYS[way](odd)


@ways
def test_lists_are_pairs_too(way: str):
    """Fails if a list [x, y] is taken for samples with a list of labels."""
    WAYS[way]([X, Y])
    WAYS[way]((X.tolist(), Y.tolist()))


@ways
def test_float8_is_read(way: str):
    WAYS[way]((X.to(torch.float8_e4m3fn), Y))
