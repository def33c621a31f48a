"""Your own data: arrays in files or in memory, torch Datasets; image folders are in `folder`.

    load_path(Path("mine.npz"), seed=0)         # x, y or x_train, y_train, x_test, y_test (and classes, true_train)
    load_path(Path("x.npy"), seed=0)            # y.npy beside it; or x_train.npy and its three companions
    load_path(Path("pets"), seed=0)             # one sub-folder of pictures for each class
    load_arrays((x, y), seed=0)                 # or ((x, y), (x_test, y_test))
    load_dataset(dataset, seed=0)               # any torch Dataset of (x, y), read once
    load_arrays(({"input_ids": ids, "attention_mask": mask}, y), seed=0)    # entries by name: see entries.py

Entries by name may also be one dict, a Hugging Face Dataset or a torch Dataset of dicts, with the labels under
`label` or `labels`; in an .npz the names of the arrays (y, or y_train and y_test, hold the labels); and a folder that
Dataset.save_to_disk wrote.
How shapes are read: (N, D) floats are vectors, (N, L) whole numbers are tokens, (N, H, W) is grey images;
four axes are (N, C, H, W) unless only the last one is 4 or shorter: then (N, H, W, C).
Pixels are uint8, or whole numbers 0 to 255, or floats from 0 to 1; floats beyond that are taken as
scaled already. Without a test split a fifth of each class is held out. Nothing is ever unpickled.
Arrays are copied: later changes to them do not reach the data set.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from undertow.data.catalogue import Place
from undertow.data.entries import (
    SampleInputs,
    count,
    hub_columns,
    is_hub_dataset,
    read_entries,
    split_labels,
    stack_items,
)
from undertow.data.folder import load_folder
from undertow.data.items import read_items
from undertow.data.label_names import number_names
from undertow.data.numpy_files import read_npys, read_npz, reason_words
from undertow.data.plain import as_array, class_labels
from undertow.data.samples import DataSet, Samples, number_classes
from undertow.data.subset import assemble
from undertow.data.tables import choose_splits
from undertow.errors import BadData, NotThere

Array = NDArray[Any]
FEW = 4  # channels that an axis may stand for
SAVED = ("dataset_dict.json", "state.json")  # what Hugging Face's save_to_disk leaves in a folder


def load_path(path: Path, seed: int) -> DataSet:
    """The data set at `path`: an .npz file, one of a set of .npy files, or a folder."""
    if not path.exists():
        raise NotThere(
            f"{path}: there is no such file or folder. Give an .npz, an x.npy, or a folder of pictures."
        )
    if path.is_dir() and any((path / name).is_file() for name in SAVED):
        return _load_saved(path, seed)
    if path.is_dir():
        held = next((path / name for name in ("x.npy", "x_train.npy") if (path / name).is_file()), None)
        return load_path(held, seed) if held else load_folder(path, seed)
    if path.suffix in (".npz", ".npy"):
        whole = path.suffix == ".npz"
        parts, order = number_names(read_npz(path) if whole else read_npys(path))
        found = _from_parts(path.name if whole else path.parent.name or path.name, parts, seed)
        return replace(found, note=f"{found.note} {order}".strip())
    raise BadData(f"{path}: wanted an .npz or .npy file or a folder, got {path.suffix or 'no ending'}.")


def load_arrays(
    source: tuple[Any, Any], seed: int, name: str = "arrays", classes: tuple[str, ...] | None = None
) -> DataSet:
    """The data set in `(x, y)` or `((x, y), (x_test, y_test))`; each split may also be a torch Dataset.

    Of `classes` that are known, some may have no sample.
    """
    first, second = source
    if is_split(first) and is_split(second):
        train, test = _split(first, f"{name}/train"), _split(second, f"{name}/test")
        return _assemble(name, train, test, classes, seed)
    return _assemble(name, _split(source, name), None, classes, seed)


def load_dataset(dataset: object, seed: int) -> DataSet:
    """The data set in a Dataset or a dict, read once: random transforms are drawn once and stay."""
    name = type(dataset).__name__
    return _assemble(name, _split(dataset, name), None, None, seed)


def load_splits(splits: Mapping[str, Any], name: str, seed: int) -> DataSet:
    """The data set in a Hugging Face DatasetDict."""
    chosen = choose_splits(splits, Place(repo=name), name)
    found = {role: _split(splits[part], f"{name}/{part}") for role, part in chosen.items()}
    return _assemble(name, found["train"], found.get("test"), None, seed)


def is_split(source: object) -> bool:
    """Whether this holds samples with their labels."""
    return (
        isinstance(source, Samples | Dataset | Mapping)
        or is_hub_dataset(source)
        or (isinstance(source, tuple) and len(cast(tuple[Any, ...], source)) == 2)
    )


def read_pair(source: Any, where: str) -> tuple[Any, Any]:
    """Inputs and labels of one split, as they were given."""
    if is_hub_dataset(source):
        source = hub_columns(source)
    if isinstance(source, Mapping):
        return split_labels(cast(Mapping[str, Any], source), where)
    return _read_dataset(cast("Dataset[Any]", source), where) if isinstance(source, Dataset) else source


def read_samples(x: Any, y: Any, true: Any = None, *, where: str) -> Samples:
    """Inputs with given and, where known, true labels."""
    found = _samples(x, y, where)
    return found if true is None else _with_true(found, true, f"{where}, true labels")


def _split(source: Any, where: str) -> Samples:
    return source if isinstance(source, Samples) else _samples(*read_pair(source, where), where)


def _samples(x: Any, y: Any, where: str) -> Samples:
    inputs: SampleInputs = (
        read_entries(cast(Mapping[str, Any], x), where) if isinstance(x, Mapping) else _inputs(x, where)
    )
    labels = class_labels(y, f"{where} labels")
    if count(inputs) != len(labels):
        raise BadData(
            f"{where}: wanted one label per sample, got {count(inputs)} samples and {len(labels)} labels."
        )
    if not count(inputs):
        raise BadData(f"{where}: wanted at least one sample, got none. Give samples or leave the split out.")
    return Samples.of(inputs, labels)


def _assemble(
    name: str, train: Samples, test: Samples | None, classes: tuple[str, ...] | None, seed: int
) -> DataSet:
    classes = classes or number_classes(train.y, f"{name}/train" if test else name)
    scaling, note = _scaling(train.x, name)
    if test and scaling == "half" and _scaling(test.x, f"{name}/test")[0] != "half":
        raise BadData(
            f"{name}: wanted both splits in one range, got test pixels beyond 0 to 1. Scale them alike."
        )
    return assemble(name, train, test, classes, seed=seed, scaling=scaling, note=note)


def _scaling(x: SampleInputs, name: str) -> tuple[str, str]:
    if not isinstance(x, Tensor) or x.ndim != 4:
        return "none", ""
    if x.dtype == torch.uint8:
        return "half", ""
    if not bool(torch.isfinite(x.sum(dtype=torch.float64))):
        return "none", ""  # refused when the splits are put together, with the sample's index
    low, high = float(x.min()), float(x.max())
    if low >= 0 and high <= 1:
        return "half", ""
    if low >= 0 and 1 < high <= 255 and bool((x == x.round()).all()):
        raise BadData(
            f"{name}: wanted pixels as uint8 or as floats from 0 to 1, got whole floats up to {high:g}. "
            "Convert them to uint8 or divide them by 255."
        )
    return "none", f"Pixels from {low:.3g} to {high:.3g} are taken as scaled already."


# -- what arrays hold


def _inputs(x: Any, where: str) -> Tensor:
    rows = _numbers(x, where)
    if rows.ndim == 2:
        return _vectors(rows, where)
    if rows.ndim == 3:
        rows = rows[:, None]
    elif rows.ndim != 4:
        raise BadData(
            f"{where}: wanted samples (N, D), (N, H, W), (N, C, H, W) or (N, H, W, C), got {rows.shape}."
        )
    elif rows.shape[1] > FEW >= rows.shape[3]:
        rows = rows.transpose(0, 3, 1, 2)
    return _as_float32(rows) if rows.dtype.kind == "f" else _as_bytes(rows, where)


def _vectors(rows: Array, where: str) -> Tensor:
    if rows.dtype == np.uint8:
        raise BadData(
            f"{where}: wanted vectors as floats or tokens as int64, got uint8 of shape {rows.shape}. "
            "Reshape pixels to (N, H, W), or convert them to float."
        )
    if rows.dtype.kind == "f":
        return _as_float32(rows)
    return torch.from_numpy(np.array(rows, np.int64, order="C"))


def _as_bytes(pixels: Array, where: str) -> Tensor:
    if pixels.dtype != np.uint8:
        beyond = ((pixels < 0) | (pixels > 255)).any(axis=(1, 2, 3))
        if beyond.any():
            at = int(beyond.argmax())
            raise BadData(f"{where}: wanted pixels from 0 to 255, got others in the sample at index {at}.")
    return torch.from_numpy(np.array(pixels, np.uint8, order="C"))


def _as_float32(rows: Array) -> Tensor:
    with np.errstate(over="ignore"):  # what is too large becomes infinity, and that is refused by its index
        return torch.from_numpy(np.array(rows, np.float32, order="C"))


def _numbers(x: Any, where: str) -> Array:
    rows = as_array(x, where)
    if rows.dtype.kind not in "iufb":
        ragged = (
            " Samples of several sizes make such an array: resize them." if rows.dtype.kind == "O" else ""
        )
        raise BadData(f"{where}: wanted numbers, got dtype {rows.dtype}.{ragged}")
    return rows.astype(np.float32) if rows.dtype.kind == "b" else rows


# -- torch Datasets


def _read_dataset(dataset: Dataset[Any], where: str) -> tuple[Any, Any]:
    items = read_items(dataset, where)
    first = next(items, None)
    if isinstance(first, Mapping):
        return split_labels(stack_items(_dicts(chain([first], items), where), where), where)
    xs: list[Any] = []
    ys: list[Array] = []
    for index, item in enumerate(() if first is None else chain([first], items)):
        if not isinstance(item, tuple | list) or len(cast(tuple[Any, ...], item)) != 2:
            raise BadData(f"{where}: wanted pairs (x, y), got {type(item).__name__} at index {index}.")
        x, y = cast(tuple[Any, Any], item)
        x, y = x if isinstance(x, Mapping) else as_array(x, where), as_array(y, where)
        if xs and not isinstance(x, Mapping) and x.shape != xs[0].shape:
            raise BadData(
                f"{where}: wanted samples of shape {xs[0].shape} as at index 0, got {x.shape} at index {index}."
                " Resize all samples to one shape."
            )
        if y.ndim or y.dtype.kind not in "iub":
            raise BadData(
                f"{where}: wanted a whole number as label, got {y.dtype} of shape {y.shape} at index "
                f"{index}. Labels are class numbers."
            )
        xs.append(x)
        ys.append(y)
    if not xs:
        raise BadData(f"{where}: wanted at least one sample, got none.")
    if isinstance(xs[0], Mapping):
        return stack_items(_dicts(xs, where), where), np.stack(ys)
    return np.stack(xs), np.stack(ys)


def _dicts(items: Iterable[Any], where: str) -> Iterator[Mapping[str, Any]]:
    """The items, as long as they are entries by name as the first one is."""
    for index, item in enumerate(items):
        if not isinstance(item, Mapping):
            raise BadData(
                f"{where}: wanted entries by name as at index 0, got {type(item).__name__} at index {index}."
            )
        yield cast(Mapping[str, Any], item)


# -- files of arrays


def _load_saved(path: Path, seed: int) -> DataSet:
    """What Dataset.save_to_disk or DatasetDict.save_to_disk wrote."""
    try:
        from datasets import load_from_disk
    except ImportError as error:
        raise NotThere(
            f"{path}: the package `datasets` reads such folders and is not installed (pip install 'undertow[hub]')."
        ) from error
    try:
        found: Any = load_from_disk(str(path))
    except Exception as error:  # arrow, JSON and file errors have no common type
        raise BadData(f"{path}: wanted a saved Dataset, got {reason_words(error)}") from error
    return load_splits(found, path.name, seed) if isinstance(found, Mapping) else load_dataset(found, seed)


def _from_parts(name: str, parts: Mapping[str, Array], seed: int) -> DataSet:
    """A data set from arrays called x, y or x_train, y_train and maybe x_test, y_test, classes.

    Without any called x, what is beside y are entries by name.
    """
    if not any(key in parts for key in ("x", "x_train", "x_test")) and ("y" in parts or "y_train" in parts):
        return _from_named_parts(name, parts, seed)
    end = "" if "x" in parts else "_train"
    wanted = [f"x{end}", f"y{end}", *(["x_test", "y_test"] if {"x_test", "y_test"} & set(parts) else [])]
    missing = [key for key in wanted if key not in parts]
    if missing:
        raise BadData(
            f"{name}: wanted arrays x and y, or x_train, y_train, x_test and y_test, got "
            f"{', '.join(sorted(parts)) or 'none'}. Add {' and '.join(missing)}."
        )
    strange = sorted(set(parts) - {*wanted, f"true{end}", "classes"})
    if strange:
        raise BadData(
            f"{name}: wanted arrays called {', '.join(wanted)} and maybe true{end} (true labels) and classes, got also "
            f"{', '.join(strange)}. Rename or leave them out."
        )
    train = _samples(parts[f"x{end}"], parts[f"y{end}"], f"{name}/train" if len(wanted) > 2 else name)
    if f"true{end}" in parts:
        train = _with_true(train, parts[f"true{end}"], f"{name}, true{end}")
    test = _samples(parts["x_test"], parts["y_test"], f"{name}/test") if len(wanted) > 2 else None
    classes = tuple(map(str, parts["classes"].tolist())) if "classes" in parts else None
    return _assemble(name, train, test, classes, seed)


def _with_true(samples: Samples, true: Any, where: str) -> Samples:
    labels = class_labels(true, where)
    if len(labels) != len(samples):
        raise BadData(
            f"{where}: wanted one true label per sample, got {len(labels)} for {len(samples)} samples."
        )
    return replace(samples, true=labels)


def _from_named_parts(name: str, parts: Mapping[str, Array], seed: int) -> DataSet:
    """A data set from arrays such as input_ids_train, attention_mask_train, y_train and the same with _test."""
    classes = tuple(map(str, parts["classes"].tolist())) if "classes" in parts else None
    arrays = {key: values for key, values in parts.items() if key != "classes"}
    if "y" in arrays:
        labels = arrays.pop("y")
        return _assemble(name, _samples(arrays, labels, name), None, classes, seed)
    found: dict[str, Samples] = {}
    for role in ("train", "test"):
        own = {
            key.removesuffix(f"_{role}"): arrays.pop(key) for key in list(arrays) if key.endswith(f"_{role}")
        }
        if own:
            if "y" not in own:
                raise BadData(f"{name}: wanted labels y_{role} beside {', '.join(own)}, got none. Add them.")
            labels = own.pop("y")
            found[role] = _samples(own, labels, f"{name}/{role}")
    if arrays:
        raise BadData(
            f"{name}: wanted names that end in _train or _test, got {', '.join(arrays)}. Rename them."
        )
    return _assemble(name, found["train"], found.get("test"), classes, seed)
