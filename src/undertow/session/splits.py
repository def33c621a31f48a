"""Samples with the labels that are known of them, read from whatever people hand over.

train = read_split((x, y), "train")                  # tensors, arrays, dicts of tensors, Samples, Datasets
train.x, train.given, train.true, train.y            # y: the labels to work with
check_labels(train, 10, "train", every_class=True)
seen_before(train.x, held.x)                         # which held-out samples are training samples too
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, default_collate

from undertow.data.entries import SampleInputs, is_hub_dataset, read_entries, trial_rows
from undertow.data.items import count_items, read_item, read_items
from undertow.data.own import read_pair
from undertow.data.plain import all_tensors, as_array, check_finite, class_labels, plain_inputs
from undertow.data.samples import Samples
from undertow.data.streamed import SampleStream
from undertow.errors import BadData, BadValue, UndertowError
from undertow.features.stream import count_samples
from undertow.features.tap import Inputs


@dataclass(frozen=True, eq=False)
class Split:
    """Samples, with the labels that are known of them."""

    x: Inputs
    given: Tensor | None = None  # (N,) int64 on the CPU: the labels that training saw, or noisy ones
    true: Tensor | None = None  # (N,)

    def __len__(self) -> int:
        return count_samples(self.x)

    @property
    def y(self) -> Tensor:
        """The labels to work with: those given, or true ones where none were given."""
        found = self.true if self.given is None else self.given
        if found is None:
            raise BadData("samples: wanted labels, got none. Give (x, y).")
        return found

    @property
    def labels(self) -> Tensor | None:
        """The best labels known."""
        return self.given if self.true is None else self.true

    def label_sets(self) -> dict[str, Tensor]:
        """Known labels by name."""
        found = {"given": self.given, "true": self.true}
        return {name: labels for name, labels in found.items() if labels is not None}

    @property
    def streams(self) -> bool:
        """Whether the samples are read anew in each pass."""
        return isinstance(self.x, SampleStream)

    def trial(self) -> SampleInputs:
        """A few samples to try a model on."""
        return trial_rows(self.x.few if isinstance(self.x, SampleStream) else self.x)  # pyright: ignore[reportArgumentType]

    def take(self, rows: Tensor) -> Split:
        """The samples at `rows`."""
        labels = (None if part is None else part[rows] for part in (self.given, self.true))
        return Split(take(self.x, rows), *labels)


def read_split(source: Any, where: str, *, true: bool = False) -> Split:
    """`source` as samples with labels: Samples, (x, y) or a torch Dataset; `true` takes true labels if known."""
    if isinstance(source, Split):
        return source
    if isinstance(source, Samples):
        found = _checked(source.x, source.y, where)
        right = None if source.true is None else class_labels(source.true, f"{where} true labels")
        return Split(found.x, None if true and right is not None else found.given, right)
    if isinstance(source, Mapping) or is_hub_dataset(source):
        return _checked(*read_pair(source, where), where)
    if isinstance(source, Dataset):
        return _checked(*_collated(cast("Dataset[Any]", source), where), where)
    if isinstance(source, tuple | list) and len(cast("Sequence[Any]", source)) == 2:
        return _checked(source[0], source[1], where)
    raise BadValue(where, "(x, y), Samples, a DataSet or a torch Dataset", type(source).__name__)


def _collated(dataset: Dataset[Any], where: str) -> tuple[Any, Any]:
    if not count_items(dataset, where):
        raise BadData(f"{where}: wanted a Dataset with a length of at least 1, got {type(dataset).__name__}.")
    try:
        if isinstance(read_item(dataset, 0, where), Mapping):
            return read_pair(dataset, where)
        x, y = default_collate(list(read_items(dataset, where)))
    except UndertowError:
        raise
    except (RuntimeError, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise BadData(f"{where}: wanted pairs (x, y) of one shape, got others ({reason}).") from error
    return x, y


def _checked(x: Any, y: Any, where: str) -> Split:
    inputs, labels = read_inputs(x, where), class_labels(y, f"{where} labels")
    count = count_samples(inputs)
    if len(labels) != count:
        raise BadData(f"{where}: wanted one label per sample, got {count} samples and {len(labels)} labels.")
    return Split(inputs, labels)


def read_inputs(x: Any, where: str) -> Inputs:
    """Inputs in one tensor, by name, or by position: dense, finite numbers."""
    if isinstance(x, Mapping):
        return _named(cast("Mapping[str, Any]", x), where)
    if all_tensors(x):
        return tuple(_tensor(part, where) if isinstance(part, Tensor) else part for part in x)
    return _tensor(x if isinstance(x, Tensor) else _array(x, where), where)


def _tensor(x: Tensor, where: str) -> Tensor:
    found = plain_inputs(x, where)
    if not found.ndim:
        raise BadData(f"{where}: wanted samples, one for each row, got a single number.")
    if found.is_floating_point():
        check_finite(found, where)
    return found


def _named(x: Mapping[str, Any], where: str) -> Inputs:
    """Entries by name as tensors; what is no array, tensor or list, an option of forward, stays as it is."""
    arrays = {name: part for name, part in x.items() if isinstance(part, np.ndarray | list | Tensor)}
    return {**x, **read_entries(arrays, where)}


def _array(values: Any, where: str) -> Tensor:
    array = as_array(values, where)
    if array.dtype.kind not in "iufb":
        raise BadData(f"{where}: wanted numbers, got {array.dtype}.")
    kinds = {"f": np.float32, "b": np.bool_}
    kind = np.uint8 if array.dtype == np.uint8 else kinds.get(array.dtype.kind, np.int64)
    with np.errstate(over="ignore"):  # what is too large becomes infinity, and that is refused by its index
        return torch.from_numpy(np.array(array, kind, order="C"))


def check_labels(split: Split, classes: int, where: str, *, every_class: bool = False) -> None:
    """Refuse labels that `classes` outputs cannot have, and classes without a sample if each needs one."""
    low, high = int(split.y.min()), int(split.y.max())
    if low < 0 or high >= classes:
        raise BadData(
            f"{where} labels: wanted class numbers 0 to {classes - 1}, as the head has {classes} outputs, got "
            f"{low if low < 0 else high}. Number the classes as the model does."
        )
    empty = (split.y.bincount(minlength=classes) == 0).nonzero()[:, 0].tolist() if every_class else []
    if empty:
        raise BadData(
            f"{where}: wanted samples of each of the {classes} classes, got none of {len(empty)} (the first is class "
            f"{empty[0]}). A class without samples has no vector: give some, or a model for fewer classes."
        )


def take(x: Inputs, rows: Tensor) -> Inputs:
    """The inputs at `rows`; what is no tensor stays as it is. Those of a stream are read into memory."""
    if isinstance(x, SampleStream):
        return x.take(rows)
    if isinstance(x, Tensor):
        return x[rows.to(x.device)]
    if isinstance(x, Mapping):
        return {key: take(value, rows) if isinstance(value, Tensor) else value for key, value in x.items()}
    return tuple(take(value, rows) if isinstance(value, Tensor) else value for value in x)


def seen_before(train: Inputs, held: Inputs) -> Tensor:
    """Which held-out samples (N,) are training samples, bit for bit; positional inputs are not compared."""
    if isinstance(train, SampleStream) or isinstance(held, SampleStream):
        known, asked = ({bytes(one) for one in _digested(train)}, _digested(held))
        return torch.tensor([bytes(one) in known for one in asked])
    ours, theirs = _parts(train), _parts(held)
    if not ours or [part.dtype for part in ours] != [part.dtype for part in theirs]:
        return torch.zeros(count_samples(held), dtype=torch.bool)
    known = set(_digests(ours))
    return torch.tensor([digest in known for digest in _digests(theirs)])


def _digested(x: Inputs) -> Iterable[Any]:
    """A hash of each sample."""
    if isinstance(x, SampleStream):
        return x.digests
    parts = _parts(x)
    return _digests(parts) if parts else ()


def _parts(x: Inputs) -> list[Tensor]:
    """The tensors that make up a sample, in an order that does not depend on how they were given."""
    if isinstance(x, Tensor):
        return [x]
    if isinstance(x, Mapping):
        return [x[name] for name in sorted(x) if isinstance(x[name], Tensor)]
    return []


def _digests(parts: Sequence[Tensor]) -> Iterator[bytes]:
    rows = [
        part.detach().cpu().contiguous().reshape(len(part), -1).view(torch.uint8).numpy() for part in parts
    ]
    for row in zip(*rows, strict=True):
        seen = hashlib.blake2b(digest_size=16)
        for part in row:
            seen.update(part.data)
        yield seen.digest()
