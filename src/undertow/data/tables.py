"""Tables of images and labels, as the Hugging Face hub stores them, to tensors.

    read_parquet(files)                                     # one table from the shards of a split
    decode_tables({"train": table, "test": table}, place, where="mnist")     # -> Decoded

A table has a column of images (encoded bytes, or a struct of bytes and path) and one of whole-number
labels. Columns are found by name, or by the kind that the table's own notes give. Class names come
from those notes as well. Only pyarrow is needed, not the `datasets` library.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from undertow.data.cache import Decoded
from undertow.data.catalogue import Place
from undertow.data.decode import DECODER, decode_images
from undertow.data.samples import DataSet, Samples, number_classes
from undertow.data.subset import assemble
from undertow.errors import BadData, NotThere, unknown

IMAGE_COLUMNS = ("image", "img")
LABEL_COLUMNS = ("label", "fine_label", "labels")
TEST_SPLITS = ("test", "validation", "valid", "val")


def choose_splits(splits: Iterable[str], place: Place, where: str) -> dict[str, str]:
    """Which splits serve as "train" and "test"; the second is missing where the source has none."""
    there = list(splits)
    if place.train not in there:
        raise NotThere(f"{where}: wanted a split {place.train!r}, got {', '.join(there) or 'none'}.")
    if place.test and place.test not in there:
        raise unknown(f"split of {where}", place.test, there)
    test = place.test or next((name for name in TEST_SPLITS if name in there), "")
    return {"train": place.train, "test": test} if test else {"train": place.train}


def read_parquet(files: Sequence[Path]) -> pa.Table:
    """The rows of all files, in the order given."""
    return pa.concat_tables([_read_one(file) for file in files])


def decoding(place: Place) -> str:
    """What, besides the bytes, decides how tables decode: part of the cache key."""
    return f"tables {DECODER} {place.mode} {place.image} {place.label}"


def decode_tables(tables: Mapping[str, pa.Table], place: Place, where: str) -> Decoded:
    """Images and labels of the tables "train" and "test" as tensors, with the class names."""
    image, label = _find_columns(tables["train"], place, where)
    tensors: dict[str, Tensor] = {}
    blobs: list[bytes] = []
    names: list[str] = []
    for role, table in tables.items():
        _check_columns(table, (image, label), f"{where}/{role}")
        tensors[f"{role}_y"] = _labels(table, label, f"{where}/{role}")
        blobs += _image_bytes(table, image, f"{where}/{role}")
        names += [role] * len(table)

    # One call for both splits: whether the set is grey or coloured is a question to all images.
    def say(at: int) -> str:
        return f"{where}/{names[at]}, row {at - names.index(names[at])}"

    pixels = decode_images(blobs, say, place.mode)
    for role, x in zip(tables, pixels.split([len(table) for table in tables.values()]), strict=True):
        tensors[f"{role}_x"] = x.clone()  # safetensors wants tensors that share no memory
    return Decoded(tensors, {"classes": json.dumps(_class_names(tables["train"], label))})


def as_data_set(decoded: Decoded, name: str, *, seed: int, note: str = "") -> DataSet:
    """What was decoded, or found in the cache, as a DataSet."""
    tensors = decoded.tensors
    train = Samples.of(tensors["train_x"], tensors["train_y"])
    test = Samples.of(tensors["test_x"], tensors["test_y"]) if "test_x" in tensors else None
    classes = tuple(json.loads(decoded.notes["classes"])) or number_classes(train.y, f"{name}/train")
    return assemble(name, train, test, classes, seed=seed, note=note)


def _read_one(file: Path) -> pa.Table:
    try:
        return pq.read_table(file)
    except (OSError, pa.ArrowException) as error:
        raise BadData(f"{file}: wanted a parquet file, got {_first_line(error)}. Fetch it again.") from error


def _find_columns(table: pa.Table, place: Place, where: str) -> tuple[str, str]:
    image = place.image or _find_column(table, IMAGE_COLUMNS, "Image")
    label = place.label or _find_column(table, LABEL_COLUMNS, "ClassLabel")
    if not image or not label:
        missing = "images" if not image else "labels"
        raise BadData(
            f"{where}: wanted a column of {missing}, got columns {', '.join(table.column_names)}. "
            "Name both, for example hub:owner/name:image=picture,label=kind."
        )
    return image, label


def _find_column(table: pa.Table, usual: Sequence[str], kind: str) -> str:
    """The first usual name that the table has, else its only column of that kind, else nothing."""
    by_name = next((name for name in usual if name in table.column_names), "")
    by_kind = [name for name, notes in _features(table).items() if notes.get("_type") == kind]
    return by_name or (by_kind[0] if len(by_kind) == 1 else "")


def _check_columns(table: pa.Table, columns: Sequence[str], where: str) -> None:
    for column in columns:
        if column not in table.column_names:
            raise unknown(f"column of {where}", column, table.column_names)


def _features(table: pa.Table) -> dict[str, dict[str, Any]]:
    """The notes of the `datasets` library on each column; empty where it did not write the table."""
    notes = (table.schema.metadata or {}).get(b"huggingface", b"{}")
    found = json.loads(notes).get("info", {}).get("features", {})
    return {name: about for name, about in found.items() if isinstance(about, dict)}


def _class_names(table: pa.Table, label: str) -> list[str]:
    return list(_features(table).get(label, {}).get("names", []))


def _labels(table: pa.Table, label: str, where: str) -> Tensor:
    column = table[label]
    if not pa.types.is_integer(column.type):
        raise BadData(
            f"{where}, column {label}: wanted whole-number class labels, got {column.type}. "
            "Name another column with label=..."
        )
    if column.null_count:
        raise BadData(
            f"{where}, column {label}: wanted a label in each row, got none in row {_first_null(column)}."
        )
    return torch.from_numpy(column.cast(pa.int64()).to_numpy().copy())


def _image_bytes(table: pa.Table, image: str, where: str) -> list[bytes]:
    column = table[image]
    if pa.types.is_struct(column.type) and column.type.get_field_index("bytes") >= 0:
        parts = [part.field("bytes") for part in column.chunks]
        column = pa.chunked_array(parts, column.type.field("bytes").type)
    if not (pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)):
        raise BadData(
            f"{where}, column {image}: wanted encoded images, got {column.type}. Name another column."
        )
    if column.null_count:
        raise BadData(
            f"{where}, column {image}: wanted an image in each row, got none in row {_first_null(column)}."
        )
    return column.to_pylist()


def _first_null(column: pa.ChunkedArray) -> int:
    return column.is_null().index(True).as_py()


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]
