"""The published CIFAR-10-C, where a user has it.

    folder = published_folder()                       # $UNDERTOW_DATA/CIFAR-10-C, or None
    foggy = published(folder, "fog", severity=3)      # Samples: 10,000 images with their labels
    corrupt_samples(data.test, "fog", 3, folder=folder)   # those rows; computed where folder is None

Fifteen files NAME.npy of 50,000 images (N, H, W, C), severity 1 first, and labels.npy with as many labels.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from undertow.data.corruptions.catalogue import SEVERITIES, check_corruption, corrupt
from undertow.data.samples import Samples
from undertow.errors import BadData, NotThere

FILE_NAMES = {"elastic": "elastic_transform", "jpeg": "jpeg_compression"}
"""Where the file is not named like the corruption."""


def published_folder() -> Path | None:
    """The folder CIFAR-10-C in the one that UNDERTOW_DATA names, if it is there."""
    root = os.environ.get("UNDERTOW_DATA")
    folder = Path(root) / "CIFAR-10-C" if root else None
    return folder if folder is not None and folder.is_dir() else None


def published(folder: Path, name: str, severity: int) -> Samples:
    """The published images of one corruption and severity, numbered as in CIFAR-10's test set."""
    check_corruption(name, severity)
    path = folder / f"{FILE_NAMES.get(name, name)}.npy"
    images, labels = _array(path), _array(folder / "labels.npy")
    count, rest = divmod(len(labels), len(SEVERITIES))
    if images.dtype != np.uint8 or images.ndim != 4 or len(images) != len(labels) or rest or not count:
        raise BadData(
            f"{path}: wanted uint8 images (N, H, W, C), N a multiple of 5 as in labels.npy, "
            f"got {images.dtype} of shape {images.shape} and {len(labels)} labels. Fetch CIFAR-10-C again."
        )
    rows = slice((severity - 1) * count, severity * count)
    x = torch.from_numpy(np.ascontiguousarray(images[rows].transpose(0, 3, 1, 2)))
    y = torch.from_numpy(labels[rows].astype(np.int64))
    return Samples.of(x, y, true=y)


def corrupt_samples(
    samples: Samples, name: str, severity: int, *, seed: int = 0, folder: Path | None = None
) -> Samples:
    """The samples with corrupted images: computed, or the published ones if `folder` is given.

    Both go by `samples.index`, so any part of the test set gets its own rows. Published labels that
    differ from the samples' are refused: the rows would be those of other images.
    """
    if folder is None:
        return replace(samples, x=corrupt(samples.tensor, name, severity, seed, index=samples.index))
    there, last = published(folder, name, severity), int(samples.index.max())
    if last >= len(there):
        raise BadData(f"{folder}: wanted a row for each sample, got {len(there)} rows for index {last}.")
    there = there.take(samples.index.cpu())
    known = samples.y if samples.true is None else samples.true
    other = samples.index[there.y.to(known.device) != known]
    if len(other):
        raise BadData(
            f"{folder}: wanted the labels of the samples, got another at index {int(other[0])} "
            f"({len(other)} such labels). These are not CIFAR-10's test images in their published order."
        )
    return replace(samples, x=there.tensor.to(samples.tensor.device))


def _array(path: Path) -> NDArray[Any]:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError as error:
        raise NotThere(
            f"There is no {path.name} in {path.parent}. "
            "Fetch the whole of CIFAR-10-C, or leave the folder out: then the corruption is computed."
        ) from error
    except ValueError as error:
        raise BadData(f"{path}: wanted a NumPy array, got: {error} Fetch CIFAR-10-C again.") from error
