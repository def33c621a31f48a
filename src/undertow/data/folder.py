"""A folder of pictures, one sub-folder for each class.

    load_folder(Path("pets"), seed=0)       # pets/cat/*.png, pets/dog/*.png: a part is held out
    load_folder(Path("pets"), seed=0)       # pets/train/cat/*.png, ..., pets/test/cat/*.png

The split for testing may be called test, val, valid or validation. Classes are the sub-folders of the
training split in alphabetical order. Hidden files and files that are not pictures by their ending
are passed over; pictures may lie deeper within a class. All have one size.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch

from undertow.data.cache import Decoded, cached, content_key
from undertow.data.decode import DECODER, decode_images
from undertow.data.samples import DataSet
from undertow.data.tables import TEST_SPLITS, as_data_set
from undertow.errors import BadData, unknown

ENDINGS = frozenset(
    {".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
)


def load_folder(folder: Path, seed: int) -> DataSet:
    """Decode the pictures below `folder`, or take them from the cache."""
    splits = _find_splits(folder)
    classes = _find_classes(splits["train"])
    pictures = {role: _find_pictures(split, classes) for role, split in splits.items()}
    order: list[str | Path] = []
    for role, found in pictures.items():
        for label, paths in enumerate(found):
            order += [f"{role} {label}", *paths]
    key = content_key(f"folder {DECODER}", json.dumps(classes), *order)
    return as_data_set(cached(key, lambda: _decode(pictures, classes)), folder.name, seed=seed)


def _find_splits(folder: Path) -> dict[str, Path]:
    if not (folder / "train").is_dir():
        return {"train": folder}
    test = next((folder / name for name in TEST_SPLITS if (folder / name).is_dir()), None)
    return {"train": folder / "train", "test": test} if test else {"train": folder / "train"}


def _find_classes(split: Path) -> list[str]:
    classes = _sub_folders(split)
    if len(classes) < 2:
        raise BadData(
            f"{split}: wanted a sub-folder of pictures for each of two classes or more, got "
            f"{' and '.join(classes) or 'none'}. For arrays give an .npz file."
        )
    for name in classes:
        if not _pictures_below(split / name):
            raise BadData(f"{split / name}: wanted pictures, got none. Add some or remove the class.")
    return classes


def _find_pictures(split: Path, classes: list[str]) -> list[list[Path]]:
    """The pictures of each class, in a fixed order; a test split may lack some classes, but not all."""
    for name in _sub_folders(split):
        if name not in classes:
            raise unknown(
                "class of the training pictures", name, classes, f"{split / name} has test pictures only."
            )
    found = [_pictures_below(split / name) for name in classes]
    if not any(found):
        raise BadData(f"{split}: wanted pictures in sub-folders named as the classes, got none.")
    return found


def _sub_folders(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir() if each.is_dir() and not each.name.startswith("."))


def _pictures_below(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in ENDINGS
        and path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )


def _decode(pictures: dict[str, list[list[Path]]], classes: list[str]) -> Decoded:
    paths = [path for found in pictures.values() for some in found for path in some]
    pixels = decode_images(paths, lambda row: str(paths[row]))
    tensors: dict[str, torch.Tensor] = {}
    start = 0
    for role, found in pictures.items():
        counts = torch.tensor([len(some) for some in found])
        tensors[f"{role}_y"] = torch.arange(len(found)).repeat_interleave(counts)
        tensors[f"{role}_x"] = pixels[start : start + int(counts.sum())].clone()
        start += int(counts.sum())
    return Decoded(tensors, {"classes": json.dumps(classes)})
