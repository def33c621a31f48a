"""One layer's features on disk, read back in blocks by class; gone when the store is closed.

    store = FeatureStore("layer1", labels, classes=10)
    for batch in stream_features(model, x, ["layer1"]):
        store.write(batch.rows, batch.features["layer1"])
    store.rows(3)                      # the rows of class 3, for gram() and project()
    store.rows(3, labels=true)         # other labels on the same features
    store.close()

Rows of one class lie side by side, so a class is read without touching the others. The file is read, not mapped: mapped
pages would count as memory of the process.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from undertow.errors import BadData, RunProblem
from undertow.features.moments import check_labels, check_rows
from undertow.sizes import show_size


@dataclass(frozen=True, eq=False)
class StoredRows:
    """Some rows of a stored layer; `Rows` of wide.py."""

    path: Path
    dim: int
    places: NDArray[np.int64]  # where the rows lie in the file, ascending

    @property
    def device(self) -> torch.device:
        """Where blocks are put."""
        return torch.device("cpu")

    @property
    def shape(self) -> tuple[int, int]:
        """(n, D)."""
        return len(self.places), self.dim

    def read(self, start: int, stop: int) -> Tensor:
        """Rows `start` to `stop` as float32."""
        places = self.places[start:stop]
        if not len(places):
            return torch.empty(0, self.dim)
        found = np.empty((len(places), self.dim), np.float32)
        gaps = (np.flatnonzero(np.diff(places) != 1) + 1).tolist()
        with self.path.open("rb") as file:
            for first, last in pairwise([0, *gaps, len(places)]):  # rows that lie side by side
                file.seek(int(places[first]) * self.dim * 4)
                if file.readinto(found[first:last].data) < found[first:last].nbytes:
                    raise RunProblem(f"The features in {self.path} became shorter while they were read.")
        return torch.from_numpy(found)


class FeatureStore:
    """Features of one layer for samples with known labels, in a file of its own in the system's folder for such.

    Args:
        name: of the layer, for messages.
        labels: class numbers (N,) of all samples; they decide the order on disk.
        classes: number of classes.
    """

    def __init__(self, name: str, labels: Tensor, classes: int) -> None:
        self._where = f"layer {name!r}"
        check_labels(labels, len(labels), classes, self._where)
        self.labels, self.classes = labels.cpu(), classes
        self._place = self.labels.argsort(stable=True).argsort().numpy()  # sample -> row in the file
        self._written = np.zeros(len(labels), dtype=bool)
        self._dim: int | None = None
        try:
            self._scratch = TemporaryDirectory(prefix="undertow-features-")
        except OSError as error:
            raise RunProblem(f"Cannot make a folder for features: {error}. Set TMPDIR to another.") from error
        self._path = Path(self._scratch.name) / "rows.bin"
        self._path.touch()

    def close(self) -> None:
        """Remove the file."""
        self._scratch.cleanup()

    def write(self, rows: slice, features: Tensor) -> None:
        """Store the features (len, D) of the samples `rows`."""
        places = self._place[rows]
        check_rows(features, self._where)
        if self._dim is None:
            self._dim = features.shape[1]
            self._check_disk(len(self.labels) * self._dim * 4)
        if features.shape != (len(places), self._dim):
            raise BadData(
                f"{self._where}: wanted {len(places)} rows of width {self._dim}, got {tuple(features.shape)}. "
                "Pad all samples to one length, or do not flatten."
            )
        self._write_file(places, features.detach().to("cpu", torch.float32).numpy())
        self._written[places] = True

    def rows(self, c: int, labels: Tensor | None = None) -> StoredRows:
        """The rows of class `c` in the order of the samples; by other labels, if given, in that of the file."""
        labels = self.labels if labels is None else labels.cpu()
        check_labels(labels, len(self.labels), self.classes, self._where)
        places = np.sort(self._place[(labels == c).numpy()])
        missing = len(places) - int(self._written[places].sum())
        if missing:
            raise BadData(f"{self._where}: {missing} of {len(places)} rows of class {c} were never written.")
        return StoredRows(self._path, self._dim or 0, places)

    def _check_disk(self, needed: int) -> None:
        free = shutil.disk_usage(self._path.parent).free
        if needed > free:
            raise RunProblem(
                f"The features of {self._where} take {show_size(needed)}, {self._path.parent.parent} has "
                f"{show_size(free)} left. Set TMPDIR to another folder, or choose fewer samples."
            )

    def _write_file(self, places: NDArray[np.int64], rows: NDArray[np.floating]) -> None:
        # Written, not mapped: a full disk then gives an error instead of killing the process.
        try:
            with self._path.open("r+b") as file:
                for i in np.argsort(places):
                    file.seek(int(places[i]) * rows[i].nbytes)
                    file.write(rows[i].tobytes())
        except OSError as error:
            raise RunProblem(
                f"Cannot store {self._where}: {error.strerror}. Set TMPDIR to another folder."
            ) from error
