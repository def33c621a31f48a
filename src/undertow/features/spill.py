"""Features on disk, sorted by class, read back in blocks; gone when the block ends.

    with FeatureStore(labels, classes=10, folder="scratch") as store:
        for rows, _, features in stream_features(model, x, ["layer1", "layer2"]):
            store.write(rows, features)
        store.gram("layer1", 3)                 # (n_3, n_3) float64
        store.project("layer1", 3, weights)     # (D, k) float64
        leading(store.rows("layer1", 3), share=0.99, generator=g)
        store.rows("layer1", 3, labels=true)    # other labels on the same features

Rows of one class lie side by side, so a class is read without touching the others. Files are mapped
only while a block is copied out: what has been read does not stay in memory. float16 halves the disk
at a rounding error of 5e-4 per number; numbers that it cannot hold are refused.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from undertow.errors import BadData, BadValue, RunProblem, unknown
from undertow.features.moments import check_labels, check_rows
from undertow.features.wide import gram, project
from undertow.sizes import show_size

_NUMPY = {torch.float32: np.float32, torch.float16: np.float16}


@dataclass(frozen=True, eq=False)
class StoredRows:
    """Some rows of a stored layer; `Rows` of wide.py."""

    source: _Layer
    places: NDArray[np.int64]  # where the rows lie in the file, ascending
    device: torch.device

    @property
    def shape(self) -> tuple[int, int]:
        """(n, D)."""
        return len(self.places), self.source.dim

    def read(self, start: int, stop: int) -> Tensor:
        """Rows `start` to `stop` as float32."""
        return self.source.read(self.places[start:stop]).to(self.device, torch.float32)


class FeatureStore:
    """Features of some layers for samples with known labels; a context manager that cleans up."""

    def __init__(
        self,
        labels: Tensor,
        classes: int,
        *,
        folder: str | Path | None = None,
        dtype: torch.dtype = torch.float32,
        in_memory: bool = False,
        device: torch.device | str = "cpu",
    ) -> None:
        """Nothing is written before the block is entered.

        Args:
            labels: class numbers (N,) of all samples; they decide the order on disk.
            classes: number of classes.
            folder: where a folder of files is made for the time of the block; None for the system's.
            dtype: float32 or float16.
            in_memory: keep the features in memory instead, where the budget allows.
            device: where rows are put when they are read, and products made.
        """
        if dtype not in _NUMPY:
            raise BadValue("FeatureStore(dtype=...)", "torch.float32 or torch.float16", dtype)
        check_labels(labels, len(labels), classes, "FeatureStore")
        self.labels, self.classes, self.dtype = labels.cpu(), classes, dtype
        self.folder, self.in_memory, self.device = folder, in_memory, torch.device(device)
        self._place = self.labels.argsort(stable=True).argsort().numpy()  # sample -> row in the file
        self._layers: dict[str, _Layer] = {}
        self._scratch: TemporaryDirectory[str] | None = None

    def __enter__(self) -> Self:
        try:
            self._scratch = TemporaryDirectory(prefix="undertow-features-", dir=self.folder)
        except OSError as error:
            raise RunProblem(
                f"Cannot make a folder in {self.folder}: {error.strerror}. Choose another."
            ) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._layers = {}
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None

    def write(self, rows: slice, features: Mapping[str, Tensor]) -> None:
        """Store the features (len, D) of the samples `rows`, layer by layer."""
        places = self._place[rows]
        for name, part in features.items():
            check_rows(part, f"layer {name!r}")
            if len(part) != len(places):
                raise BadData(f"layer {name!r}: wanted {len(places)} rows for {rows}, got {len(part)}.")
            if name not in self._layers:
                self._layers[name] = self._new_layer(name, part.shape[1])
            self._layers[name].write(places, part)

    def rows(self, layer: str, c: int, labels: Tensor | None = None) -> StoredRows:
        """The rows of class `c` in the order of the samples; by other labels, if given, in that of the file."""
        if layer not in self._layers:
            raise unknown("stored layer", layer, self._layers)
        labels = self.labels if labels is None else labels.cpu()
        check_labels(labels, len(self.labels), self.classes, "FeatureStore")
        source = self._layers[layer]
        places = np.sort(self._place[(labels == c).numpy()])
        missing = len(places) - int(source.written[places].sum())
        if missing:
            raise BadData(
                f"layer {layer!r}: {missing} of {len(places)} rows of class {c} were never written."
            )
        return StoredRows(source, places, self.device)

    def gram(self, layer: str, c: int, *, block: int | None = None, precise: bool = False) -> Tensor:
        """(n_c, n_c) float64 matrix of inner products of the rows of class `c`."""
        return gram(self.rows(layer, c), block=block, precise=precise)

    def project(
        self, layer: str, c: int, weights: Tensor, *, block: int | None = None, precise: bool = False
    ) -> Tensor:
        """(D, k) float64 combinations of the rows of class `c` by weights (n_c, k)."""
        return project(self.rows(layer, c), weights, block=block, precise=precise)

    def _new_layer(self, name: str, dim: int) -> _Layer:
        if self._scratch is None:
            raise BadValue(
                "FeatureStore", "a write inside its block", "one outside", "Write: with FeatureStore(...):"
            )
        if self.in_memory:
            return _Layer(name, len(self.labels), dim, self.dtype, None)
        folder = Path(self._scratch.name)
        needed, free = len(self.labels) * dim * self.dtype.itemsize, shutil.disk_usage(folder).free
        if needed > free:
            raise RunProblem(
                f"Layer {name!r} takes {show_size(needed)}, {folder.parent} has {show_size(free)} left. "
                "Choose another folder, float16 or fewer layers."
            )
        return _Layer(name, len(self.labels), dim, self.dtype, folder / f"{len(self._layers)}.bin")


class _Layer:
    """One layer's rows, in a file or in memory."""

    def __init__(self, name: str, count: int, dim: int, dtype: torch.dtype, path: Path | None) -> None:
        self.name, self.dim, self.dtype, self.path = name, dim, dtype, path
        self.written = np.zeros(count, dtype=bool)
        self._kept = torch.empty(count if path is None else 0, dim, dtype=dtype)
        if path is not None:
            path.touch()

    def write(self, places: NDArray[np.int64], rows: Tensor) -> None:
        if rows.shape[1] != self.dim:
            raise BadData(
                f"layer {self.name!r}: wanted rows of width {self.dim}, got {rows.shape[1]}. "
                "Pad all samples to one length, or do not flatten."
            )
        stored = rows.detach().to("cpu", self.dtype)
        if self.dtype == torch.float16:
            self._check_fits(stored)
        if self.path is None:
            self._kept[torch.from_numpy(places)] = stored
        else:
            self._write_file(self.path, places, stored.numpy())
        self.written[places] = True

    def read(self, places: NDArray[np.int64]) -> Tensor:
        """The rows at ascending places."""
        if self.path is None or not len(places):
            return self._kept[torch.from_numpy(places)]
        first, last = int(places[0]), int(places[-1])
        kind = np.dtype(_NUMPY[self.dtype])
        mapped = np.memmap(
            self.path, kind, "r", offset=first * self.dim * kind.itemsize, shape=(last - first + 1, self.dim)
        )
        # Both ways copy, so that the mapping and the pages it brought in end here.
        together = len(places) == len(mapped)
        return torch.from_numpy(np.array(mapped) if together else np.asarray(mapped[places - first]))

    def _write_file(self, path: Path, places: NDArray[np.int64], rows: NDArray[np.floating]) -> None:
        # Written, not mapped: a full disk then gives an error instead of killing the process.
        try:
            with path.open("r+b") as file:
                for i in np.argsort(places):
                    file.seek(int(places[i]) * rows[i].nbytes)
                    file.write(rows[i].tobytes())
        except OSError as error:
            raise RunProblem(
                f"Cannot store layer {self.name!r}: {error.strerror}. Choose another folder."
            ) from error

    def _check_fits(self, stored: Tensor) -> None:
        bad = int((~torch.isfinite(stored).all(1)).sum())
        if bad:
            raise BadData(
                f"layer {self.name!r}: {bad} of {len(stored)} rows have numbers beyond float16's 65504. "
                "Store them as float32."
            )
