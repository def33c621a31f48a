"""What `label_errors` found, as files: a table, pictures for the report, labels to train on.

write_table(found, Path("labels.parquet"))                # or .csv: one row per training sample
write_suspects(found, samples, run.path)                  # suspects.parquet and suspects.npz, for the report
cleaned_labels(found, run, "relabel").write(path)         # for `undertow train --labels`
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from undertow.errors import BadValue
from undertow.files import aside
from undertow.labels.findings import CleanWay, LabelErrors

if TYPE_CHECKING:
    import pandas as pd

    from undertow.training.labels_file import LabelsFile
    from undertow.training.run import Run

TABLE, PICTURES = "suspects.parquet", "suspects.npz"
MOST_PICTURES = 120
WIDEST_PICTURE = 96
"""Pixels of a thumbnail's side; larger pictures are thinned out to it."""


def write_table(found: LabelErrors, path: Path) -> None:
    """Write one row per training sample to a .parquet or .csv file."""
    write = {".parquet": _parquet, ".csv": _csv}.get(path.suffix)
    if write is None:
        raise BadValue("labels --out", "a .parquet or .csv file", str(path))
    with aside(path) as part:
        write(found.table, part)


def write_suspects(found: LabelErrors, x: Any, folder: Path, *, most: int = MOST_PICTURES) -> list[Path]:
    """Write the most suspicious samples for the report; pictures only where samples are pictures."""
    listed = found.suspects(most)
    with aside(folder / TABLE) as part:
        _parquet(listed, part)
    if not isinstance(x, Tensor) or x.ndim != 4 or x.shape[1] not in (1, 3):
        (folder / PICTURES).unlink(
            missing_ok=True
        )  # of an earlier search: they would not belong to this table
        return [folder / TABLE]
    rows = listed["sample"].to_numpy()
    with aside(folder / PICTURES) as part, part.open("wb") as stream:
        np.savez_compressed(stream, sample=rows, images=_thumbnails(x, torch.from_numpy(rows.copy())))
    return [folder / TABLE, folder / PICTURES]


def cleaned_labels(found: LabelErrors, run: Run, way: CleanWay, *, above: float | None = None) -> LabelsFile:
    """Labels to train on, with the numbers that the samples have in the training split as it is loaded."""
    table = found.clean(way, above=above)
    sample, label = (torch.from_numpy(table[name].to_numpy().copy()) for name in ("sample", "label"))
    return run.labels_file(sample, label)


def _thumbnails(x: Tensor, rows: Tensor) -> NDArray[np.uint8]:
    """(K, H, W, channels) in bytes; floats are stretched from the darkest to the brightest pixel of all samples."""
    step = max(1, -(-max(x.shape[2:]) // WIDEST_PICTURE))
    small = x[rows.to(x.device), :, ::step, ::step].permute(0, 2, 3, 1).cpu()
    if small.dtype == torch.uint8:
        return small.numpy()
    low, high = float(x.min()), float(x.max())
    return ((small.float() - low) * (255 / ((high - low) or 1.0))).round().to(torch.uint8).numpy()


def _parquet(table: pd.DataFrame, path: Path) -> None:
    table.to_parquet(path, index=False)


def _csv(table: pd.DataFrame, path: Path) -> None:
    table.to_csv(path, index=False)
