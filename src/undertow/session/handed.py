"""Samples as people hand them over, turned into what a session reads.

    found = as_sources(train, test, names)        # DataLoaders, (x, y, true), names for labels, names or paths of data
    found.train, found.test                       # (x, y), Samples, a Dataset or a DataSet, as samples.py takes them
    found.classes, found.note                     # where labels are names: the classes, and how they are numbered

A DataLoader stands for its Dataset, in the Dataset's own order, whatever its shuffling; one with a collate function
of its own is asked for all samples in one batch. Labels that are names are numbered as the run names its classes,
else in the order of the alphabet, and that is said: a model may have numbered them otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    SubsetRandomSampler,
    default_collate,
)

from undertow.data.entries import LABELS, hub_columns, is_hub_dataset, split_labels
from undertow.data.items import Collate, count_items, counted, read_item, read_items
from undertow.data.label_names import order_words
from undertow.data.load import load_data
from undertow.data.own import read_samples
from undertow.data.plain import as_array
from undertow.data.samples import Samples
from undertow.errors import BadData, unknown


@dataclass(frozen=True, eq=False)
class Handed:
    """Both splits, and the names of the classes where labels came as names."""

    train: Any
    test: Any
    classes: tuple[str, ...] = ()
    note: str = ""


def as_sources(train: Any, test: Any, known: Sequence[str] = ()) -> Handed:
    """What was handed over, as samples.py reads it; `known` are the run's own names of the classes."""
    plain = [_plain(one, where) for one, where in ((train, "train"), (test, "test"))]
    named = [_names_in(one) for one in plain]
    if not any(one is not None for one in named):
        return Handed(_with_truth(plain[0], "train"), _with_truth(plain[1], "test"))
    there = {str(name) for one in named if one is not None for name in one}
    classes = tuple(known) if there <= set(known) else tuple(sorted(there))
    first, second = (
        _numbered(one, classes, where) for one, where in zip(plain, ("train", "test"), strict=True)
    )
    return Handed(first, second, classes, "" if there <= set(known) else order_words(classes))


def _plain(source: Any, where: str) -> Any:
    """Without a DataLoader around it; what a name or a path stands for."""
    if isinstance(source, str | os.PathLike):
        return load_data(cast("str | os.PathLike[str]", source))
    if isinstance(source, DataLoader):
        return _unloaded(cast("DataLoader[Any]", source), where)
    if is_hub_dataset(source):
        columns = hub_columns(source)
        return columns if any(_is_names(columns.get(name)) for name in LABELS) else source
    if isinstance(source, Dataset) and not isinstance(source, IterableDataset):
        return _named_pairs(cast("Dataset[Any]", source), where)
    return source


def _unloaded(loader: DataLoader[Any], where: str) -> Any:
    """The Dataset of a loader; one batch of all samples where the loader puts batches together in a way of its own."""
    dataset: Any = loader.dataset
    if isinstance(dataset, IterableDataset):
        return _batches(list(counted(loader, where, "batch")), where)
    if isinstance(loader.sampler, SubsetRandomSampler):
        dataset = Subset(dataset, sorted(int(at) for at in loader.sampler.indices))
    if loader.collate_fn is default_collate or loader.collate_fn is None:
        return _plain(dataset, where)
    if not count_items(dataset, where):
        raise BadData(f"{where}: wanted at least one sample, got a DataLoader of none.")
    return _batches([Collate(loader.collate_fn)(list(read_items(dataset, where)))], where)


def _batches(batches: list[Any], where: str) -> Any:
    """(x, y), or entries by name, of all batches."""
    if not batches:
        raise BadData(f"{where}: wanted at least one sample, got a DataLoader of none.")
    first = batches[0]
    if isinstance(first, Mapping):
        return {name: torch.cat([torch.as_tensor(one[name]) for one in batches]) for name in first}
    if isinstance(first, tuple | list):
        parts = [list(cast("Sequence[Any]", one)) for one in batches]
        return tuple(torch.cat([torch.as_tensor(one[at]) for one in parts]) for at in range(len(parts[0])))
    raise BadData(f"{where}: wanted batches (x, y) or of entries by name, got {type(first).__name__}.")


def _named_pairs(dataset: Dataset[Any], where: str) -> Any:
    """Pairs of a Dataset whose labels are names; any other Dataset stays as it is."""
    first = (
        read_item(dataset, 0, where) if hasattr(dataset, "__len__") and count_items(dataset, where) else None
    )
    if not (
        isinstance(first, tuple | list)
        and len(cast("Sequence[Any]", first)) == 2
        and isinstance(first[1], str)
    ):
        return dataset
    pairs = list(read_items(dataset, where))
    return np.stack([as_array(x) for x, _ in pairs]), [name for _, name in pairs]


# -- labels


def _is_names(labels: Any) -> bool:
    if labels is None or isinstance(labels, Tensor | str):
        return False
    if not hasattr(labels, "__len__"):
        return False
    kind = np.asarray(labels[:1] if hasattr(labels, "__getitem__") and len(labels) else labels).dtype.kind
    return kind in "US" or (kind == "O" and bool(len(labels)) and isinstance(next(iter(labels)), str))


def _is_tuple(source: Any, *lengths: int) -> bool:
    return isinstance(source, tuple | list) and len(cast("Sequence[Any]", source)) in lengths


def _names_in(source: Any) -> set[str] | None:
    """The names among the labels of a source; None where they are numbers."""
    if isinstance(source, Mapping):
        columns = cast("Mapping[str, Any]", source)
        found = [columns[name] for name in LABELS if name in columns]
    else:
        found = list(source[1:]) if _is_tuple(source, 2, 3) else []
    named = [labels for labels in found if _is_names(labels)]
    return {str(name) for labels in named for name in labels} if named else None


def _numbered(source: Any, classes: Sequence[str], where: str) -> Any:
    """Samples with class numbers for names."""
    if source is None or isinstance(source, Tensor):
        return source
    if isinstance(source, Mapping):
        source = split_labels(cast("Mapping[str, Any]", source), where)
    if not _is_tuple(source, 2, 3):
        return source
    x, *labels = cast("Sequence[Any]", source)
    return read_samples(x, *(_numbers(one, classes, where) for one in labels), where=where)


def _numbers(labels: Any, classes: Sequence[str], where: str) -> Any:
    if not _is_names(labels):
        return labels
    places = {name: at for at, name in enumerate(classes)}
    strange = next((str(name) for name in labels if str(name) not in places), None)
    if strange is not None:
        raise unknown(f"class ({where} labels)", strange, classes)
    return np.array([places[str(name)] for name in labels], np.int64)


def _with_truth(source: Any, where: str) -> Any | Samples:
    """(x, y, true) as samples that know both; all else stays."""
    return read_samples(*source, where=where) if _is_tuple(source, 3) else source
