"""One door to all data.

    load_data("digits")                                     # embedded: see catalogue.DATA
    load_data("blobs:classes=4,n=500", seed=3)
    load_data("mnist", train_size=5000, test_size=1000)     # balanced subsets
    load_data("hub:owner/name")                             # any image set of the Hugging Face hub
    load_data("pictures/"), load_data("mine.npz")           # own files
    load_data((x, y)), load_data(dataset)                   # arrays, a torch Dataset
    load_data(({"input_ids": ids, "attention_mask": mask}, y))      # entries by name; also Hugging Face Datasets

A word that the catalogue knows is that set, even where a file has the same name: write ./mnist for the
file. The seed decides all that is drawn here: generated samples, hold-outs and subsets.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset

from undertow.data.catalogue import DATA, Place
from undertow.data.embedded import make_embedded
from undertow.data.entries import LABELS, is_hub_dataset
from undertow.data.named import HUB, load_named, read_mirror
from undertow.data.own import load_arrays, load_dataset, load_path, load_splits
from undertow.data.samples import DataSet
from undertow.data.subset import balanced
from undertow.data.tables import as_data_set
from undertow.errors import BadValue, unknown

Source = str | os.PathLike[str] | DataSet | Dataset[Any] | Mapping[str, Any] | tuple[Any, Any]


def load_data(
    source: Source, *, train_size: int | None = None, test_size: int | None = None, seed: int = 0
) -> DataSet:
    """The data set that `source` names or is, checked, and cut to balanced subsets if sizes are given.

    Raises:
        UnknownName: no data set or option has that name; the message has near ones.
        NotThere: a file is missing, or a public set has neither a mirror nor a way to the hub.
        BadData: the samples cannot be trained on; the message names the file or the index.
    """
    if seed < 0:
        raise BadValue("load_data seed", "a whole number from 0 on", seed)
    data = _load(source, seed)
    if train_size is not None:
        data = replace(data, train=balanced(data.train, train_size, seed))
    if test_size is not None:
        data = replace(data, test=balanced(data.test, test_size, seed))
    return data


def _load(source: Source, seed: int) -> DataSet:
    match source:
        case DataSet():
            return source
        case str() if _is_known(source):
            name = source.partition(":")[0]
            return (
                load_named(source, seed) if name == "hub" or DATA[name].hub else make_embedded(source, seed)
            )
        case str() | os.PathLike():
            return _load_path(source, seed)
        case Mapping() if source and all(map(is_hub_dataset, source.values())):
            return load_splits(source, "given", seed)
        case Mapping() if any(name in source for name in LABELS):
            return load_dataset(source, seed)
        case Dataset():
            return load_dataset(source, seed)
        case tuple() if len(source) == 2:
            return load_arrays(source, seed)
        case _:
            if is_hub_dataset(source):
                return load_dataset(source, seed)
            raise BadValue(
                "load_data",
                "a name, a path, (x, y), ((x, y), (x, y)), a Dataset or a dict of entries with labels",
                type(source).__name__,
            )


def _is_known(source: str) -> bool:
    return source.startswith(HUB) or source.partition(":")[0] in DATA


def _load_path(source: str | os.PathLike[str], seed: int) -> DataSet:
    path = Path(source).expanduser()
    if isinstance(source, str) and not path.exists() and not _looks_like_path(source):
        known = f"Known: {', '.join(DATA)}. Also hub:owner/name, a path, or arrays."
        raise unknown("data set", source.partition(":")[0], DATA, known)
    if path.is_dir() and any((*path.glob("*.parquet"), *path.glob("*/*.parquet"))):
        return as_data_set(read_mirror(path, Place(repo=str(path))), path.name, seed=seed)
    return load_path(path, seed)


def _looks_like_path(text: str) -> bool:
    return "/" in text or os.sep in text or text.startswith(("~", ".")) or text.endswith((".npz", ".npy"))
