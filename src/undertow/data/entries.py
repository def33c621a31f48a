"""Inputs of several named entries, as the models of Hugging Face take them: input_ids, attention_mask, ...

    x = read_entries({"input_ids": ids, "attention_mask": mask}, "train")    # tensors of one length, checked
    x, y = split_labels(columns, "train")      # the labels stand under label or labels
    count(x), rows_of(x, rows), shown(x)       # the same for inputs in one tensor
    trial_rows(x)                              # a few samples, those with the largest and smallest tokens among them

A model is called with them by name: model(**x). Whole numbers become int64, floats float32, booleans stay; nothing is
scaled. Rows of tokens must be padded to one length; attention_mask says which tokens count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from undertow.data.plain import as_array
from undertow.errors import BadData

Entries: TypeAlias = Mapping[str, Tensor]
SampleInputs: TypeAlias = Tensor | Entries
"""One tensor (N, ...), or tensors (N, ...) by the names under which the model takes them."""

LABELS = ("label", "labels")
PADDING = "Pad them to one length, as with tokenizer(texts, padding='max_length')."


def count(x: SampleInputs) -> int:
    """How many samples there are."""
    return len(x) if isinstance(x, Tensor) else max((len(part) for part in x.values()), default=0)


def rows_of(x: SampleInputs, rows: Tensor | slice) -> SampleInputs:
    """Some of the samples, of each entry the same."""
    return x[rows] if isinstance(x, Tensor) else {name: part[rows] for name, part in x.items()}


def first_entry(x: SampleInputs) -> Tensor:
    """The tensor itself, or the entry that was named first."""
    return x if isinstance(x, Tensor) else next(iter(x.values()))


def shown(x: SampleInputs) -> str:
    """The shape of a sample, for messages: (1, 8, 8), or input_ids (12,) and attention_mask (12,)."""
    if isinstance(x, Tensor):
        return f"{tuple(x.shape[1:])}"
    return " and ".join(f"{name} {tuple(part.shape[1:])}" for name, part in x.items())


def trial_rows(x: SampleInputs) -> SampleInputs:
    """Two samples, and those with the extremes of whole numbers: a vocabulary that is too small shows there."""
    chosen = {0, min(1, count(x) - 1)}
    for part in [x] if isinstance(x, Tensor) else x.values():
        if part.dtype == torch.int64 and part.numel():
            width = part[0].numel()
            chosen |= {int(at) // width for at in (part.argmin(), part.argmax())}
    return rows_of(x, torch.tensor(sorted(chosen)))


def hash_inputs(seen: hashlib.blake2b, x: SampleInputs) -> None:
    """Feed the inputs to a hash: names, types, shapes and numbers of all entries."""
    for name, part in [("", x)] if isinstance(x, Tensor) else sorted(x.items()):
        seen.update(f"{name}{part.dtype}{tuple(part.shape)}".encode())
        plain = part.detach().contiguous().cpu()
        seen.update((plain.view(torch.int16) if plain.dtype == torch.bfloat16 else plain).numpy().data)


# -- what a user gives


def read_entries(given: Mapping[str, Any], where: str) -> dict[str, Tensor]:
    """Tensors or arrays by name as tensors of one length."""
    found = {str(name): _as_tensor(values, f"{where}, entry {name}") for name, values in given.items()}
    check_entries(found, where)
    return found


def check_entries(x: Entries, where: str) -> None:
    """Refuse entries that no model could be called with."""
    if not x:
        raise BadData(
            f"{where}: wanted inputs by name, such as input_ids, got an empty dict. Give one at least."
        )
    for name, part in x.items():
        if not isinstance(part, Tensor) or not part.ndim:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise BadData(
                f"{where}, entry {name}: wanted a tensor with a row for each sample, got "
                f"{'a single number' if isinstance(part, Tensor) else type(part).__name__}. Leave it out."  # pyright: ignore[reportUnnecessaryIsInstance]
            )
    if len({len(part) for part in x.values()}) > 1:
        lengths = ", ".join(f"{name} {len(part)}" for name, part in x.items())
        raise BadData(f"{where}: wanted entries of one length, a row for each sample, got {lengths}.")
    mask = x.get("attention_mask")
    if mask is not None and mask.ndim == 2 and bool((empty := ~(mask != 0).any(1)).any()):
        raise BadData(
            f"{where}, entry attention_mask: wanted a token to keep in each sample, got none in the sample at index "
            f"{int(empty.nonzero()[0])}. Leave such samples out."
        )
    for name, part in x.items():
        if part.is_floating_point() and not bool(torch.isfinite(part).all()):
            at = int(
                (~torch.isfinite(part.flatten(1) if part.ndim > 1 else part[:, None]).all(1)).nonzero()[0]
            )
            raise BadData(
                f"{where}, entry {name}: wanted finite numbers, got NaN or infinity in the sample at index {at}."
            )


def split_labels(columns: Mapping[str, Any], where: str) -> tuple[dict[str, Any], Any]:
    """The entries without the labels, and the labels."""
    there = [name for name in LABELS if name in columns]
    if len(there) != 1:
        got = "both" if there else f"only {', '.join(map(str, columns)) or 'an empty dict'}"
        raise BadData(
            f"{where}: wanted labels under {' or '.join(LABELS)}, got {got}. "
            "Name the column of class numbers so, or give (entries, labels)."
        )
    return {name: values for name, values in columns.items() if name not in there}, columns[there[0]]


def stack_items(items: Iterable[Mapping[str, Any]], where: str) -> dict[str, Any]:
    """Samples that are dicts with the same names, as one dict of arrays."""
    columns: dict[str, list[Any]] = {}
    for index, item in enumerate(items):
        if index and set(item) != set(columns):
            raise BadData(
                f"{where}: wanted the entries {', '.join(columns)} as at index 0, got {', '.join(item)} at index "
                f"{index}."
            )
        for name, value in item.items():
            columns.setdefault(name, []).append(as_array(value, f"{where}, entry {name}"))
    return {name: _stacked(values, f"{where}, entry {name}") for name, values in columns.items()}


def is_hub_dataset(source: object) -> bool:
    """Whether this is a Dataset of Hugging Face's library; it need not be imported to tell."""
    return type(source).__module__.startswith("datasets.") and hasattr(source, "column_names")


def hub_columns(source: Any) -> dict[str, Any]:
    """Its columns as arrays; of those that set_format chose, if it chose any."""
    source = without_texts(source)
    return dict(source.with_format("numpy", columns=source.format["columns"])[:])


def without_texts(source: Any) -> Any:
    """A Dataset of Hugging Face's library without the texts that its tokens were made of, as its Trainer drops them.

    Where there are only texts they stay, and are refused in words.
    """
    names = [name for name in source.column_names if name in LABELS or not _is_text(source.features[name])]
    inputs = [name for name in names if name not in LABELS]
    return source.select_columns(names) if inputs and len(names) < len(source.column_names) else source


def _is_text(feature: Any) -> bool:
    inner = getattr(feature, "feature", None)  # of a list
    return (
        _is_text(inner) if inner is not None else getattr(feature, "dtype", "") in ("string", "large_string")
    )


def _as_tensor(values: Any, where: str) -> Tensor:
    array = as_array(values, where)
    if array.dtype.kind == "O":
        if any(isinstance(value, Mapping) or not hasattr(value, "__len__") for value in values):
            raise BadData(f"{where}: wanted numbers, got other objects. Leave it out.")
        raise BadData(f"{where}: wanted rows of one length, got rows of several lengths. {PADDING}")
    if array.dtype.kind not in "iufb":
        raise BadData(
            f"{where}: wanted numbers, got {array.dtype}. Leave it out; a model takes tokens, not text."
        )
    kinds = {"f": np.float32, "b": np.bool_}
    return torch.from_numpy(np.array(array, kinds.get(array.dtype.kind, np.int64), order="C"))


def _stacked(values: list[NDArray[Any]], where: str) -> NDArray[Any]:
    shapes: Iterator[tuple[int, ...]] = (value.shape for value in values)
    first = next(shapes)
    other = next(((index, shape) for index, shape in enumerate(shapes, 1) if shape != first), None)
    if other is not None:
        raise BadData(
            f"{where}: wanted shape {first} as at index 0, got {other[1]} at index {other[0]}. {PADDING}"
        )
    return np.stack(cast("list[Any]", values))
