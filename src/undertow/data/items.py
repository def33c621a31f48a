"""Samples of anyone's Dataset one by one, with the number of the one that cannot be read.

    for item in read_items(dataset, "train"): ...    # BadData: train: sample 57 cannot be read (KeyError: 'cat').
    guarded(dataset)                                 # a Dataset that says so itself, for DataLoaders
    Collate(function)                                # a collate_fn that says who failed

What a user's Dataset raises is kept as the cause. Every reader goes through here, so that all verbs say the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from torch.utils.data import Dataset, IterableDataset

from undertow.errors import FOREIGN, BadData, UndertowError

OWN = (UndertowError, MemoryError)
"""What is passed on as it is."""


def count_items(dataset: Any, where: str) -> int:
    """How long a Dataset says it is."""
    length = getattr(dataset, "__len__", None)
    if length is None:
        raise BadData(f"{where}: wanted a Dataset with a length, got one without. Give it __len__.")
    try:
        count = len(dataset)
    except OWN:
        raise
    except FOREIGN as error:
        raise BadData(f"{where}: wanted a length from 0 on, but __len__ fails ({_said(error)}).") from error
    return count


def read_item(dataset: Any, at: int, where: str) -> Any:
    """The sample with this number."""
    try:
        return dataset[at]
    except OWN:
        raise
    except FOREIGN as error:
        raise _unread(error, at, where) from error


def read_items(dataset: Any, where: str) -> Iterator[Any]:
    """All samples in order."""
    if not isinstance(dataset, IterableDataset):
        count = count_items(dataset, where)
        return (read_item(dataset, at, where) for at in range(count))
    return counted(dataset, where)


def counted(source: Iterable[Any], where: str, what: str = "sample") -> Iterator[Any]:
    """What a source gives that can only be read from its beginning."""
    at = 0
    try:
        for item in source:
            yield item
            at += 1
    except (*OWN, GeneratorExit):
        raise
    except FOREIGN as error:
        raise _unread(error, at, where, what) from error


def _unread(error: BaseException, at: int, where: str, what: str = "sample") -> BadData:
    hint = " Is its length right?" if isinstance(error, IndexError) else ""
    return BadData(f"{where}: {what} {at} cannot be read ({_said(error)}).{hint}")


def _said(error: BaseException) -> str:
    said = (str(error).strip().splitlines() or [""])[0].rstrip(".")
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


class _Guarded(Dataset[Any]):
    """A Dataset whose errors name the sample."""

    def __init__(self, dataset: Any) -> None:
        self._dataset, self._who = dataset, type(dataset).__name__

    def __len__(self) -> int:
        return count_items(self._dataset, self._who)

    def __getitem__(self, at: int) -> Any:
        return read_item(self._dataset, at, self._who)


class _GuardedMany(_Guarded):
    """One that reads several at once."""

    def __getitems__(self, rows: Sequence[int]) -> Any:
        try:
            return self._dataset.__getitems__(list(rows))
        except OWN:
            raise
        except FOREIGN as error:
            for row in rows:  # one of them is the reason
                self[row]
            raise _unread(error, rows[0], self._who) from error


def guarded(dataset: Any) -> Dataset[Any]:
    """The Dataset, naming samples that cannot be read."""
    many = callable(getattr(dataset, "__getitems__", None))
    return _GuardedMany(dataset) if many else _Guarded(dataset)


class Collate:
    """A function that makes a batch of samples, and says so where it fails; it can be sent to other processes."""

    def __init__(self, collate: Callable[[list[Any]], Any], *, own: bool = False) -> None:
        """Take the function; undertow's `own` is not called by its name."""
        name = getattr(collate, "__name__", type(collate).__name__)
        self._collate = collate
        self._failed = "wanted all of one shape, got others" if own else f"{name} makes no batch of them"

    def __call__(self, items: list[Any]) -> Any:
        """One batch."""
        try:
            return self._collate(items)
        except OWN:
            raise
        except FOREIGN as error:
            hint = "Resize or pad them, or give a DataLoader with a collate_fn that does."
            raise BadData(f"samples: {self._failed} ({_said(error)}). {hint}") from error
