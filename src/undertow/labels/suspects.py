"""What `label_errors` found, as files: a table, pictures for the report, labels to train on.

write_table(found, Path("labels.parquet"))                # or .csv: one row per training sample
write_suspects(found, samples, run.path)                  # suspects.parquet and suspects.npz, for the report
write_facts(found, "y.csv", Path("found"))                # what the report of a folder without a run tells beside them
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from undertow._version import __version__
from undertow.errors import BadData, BadValue
from undertow.files import aside, together
from undertow.labels.exports import NOTHING, named_table, save_table
from undertow.labels.findings import LabelErrors
from undertow.labels.given_files import Shown
from undertow.stored.archives import seal_archive
from undertow.stored.door import write_document
from undertow.stored.tables import write_part

if TYPE_CHECKING:
    pass

TABLE, PICTURES, FACTS = "suspects.parquet", "suspects.npz", "audit.json"
MOST_PICTURES = 120
WIDEST_PICTURE = 96
"""Pixels of a thumbnail's side; larger pictures are thinned out to it."""


def write_table(found: LabelErrors, path: Path, shown: Shown = NOTHING) -> None:
    """Write one row per training sample to a .parquet or .csv file."""
    if path.suffix not in (".parquet", ".csv"):
        raise BadValue("labels --out", "a .parquet or .csv file", str(path))
    save_table(named_table(found, shown), path)


def write_suspects(
    found: LabelErrors, x: Any, folder: Path, *, shown: Shown = NOTHING, most: int = MOST_PICTURES
) -> list[Path]:
    """Write the most suspicious samples for the report; pictures where `x` or `shown` has some."""
    listed = named_table(found, shown, found.suspects(most))
    rows = listed["sample"].to_numpy()
    pictures = _pictures(x, shown, rows)
    # Two searches at once must not leave the table of one beside the pictures of the other.
    with together(folder):
        if pictures is None:
            save_table(listed, folder / TABLE)
            (folder / PICTURES).unlink(missing_ok=True)  # of an earlier search
            return [folder / TABLE]
        with aside(folder / PICTURES) as part, aside(folder / TABLE) as table:
            pictures["table"] = np.array(write_part(table, listed))
            with part.open("wb") as stream:
                np.savez_compressed(stream, **pictures)
            seal_archive(part)
    return [folder / TABLE, folder / PICTURES]


def write_facts(found: LabelErrors, name: str, folder: Path) -> Path:
    """Write what a report tells of a search without a run: the answer, the classes, and which sections there are."""
    facts = {
        "format": 1, "made": datetime.now(UTC).isoformat(timespec="seconds"), "undertow": __version__,
        "headline": f"{found.rate}.".capitalize(), "sections": ["labels", "facts"],
        "data": {"name": name, "samples": len(found.given), "classes": list(found.classes)},
        "measures": {"flagged": int(found.flagged.sum())},
    }  # fmt: skip
    write_document(folder / FACTS, facts)
    return folder / FACTS


def _pictures(x: Any, shown: Shown, rows: NDArray[np.int64]) -> dict[str, Any] | None:
    """What the gallery reads; None where samples are no pictures."""
    if shown.files is not None:
        return {str(row): _thumbnail(shown.files[row]) for row in rows}
    pixels = x if shown.pixels is None else torch.from_numpy(np.ascontiguousarray(shown.pixels))
    if not isinstance(pixels, Tensor) or pixels.ndim != 4 or pixels.shape[1] not in (1, 3):
        return None
    return {"sample": rows, "images": _thumbnails(pixels, torch.from_numpy(rows.copy()))}


def _thumbnail(path: Path) -> NDArray[np.uint8]:
    from PIL import Image

    try:
        with Image.open(path) as opened:
            small = opened.convert("RGB")
    except Exception as error:  # Pillow's readers raise whatever their format's code runs into; bombs too
        raise BadData(
            f"--images: {path} cannot be read as a picture. Mend it or leave --images out."
        ) from error
    small.thumbnail((WIDEST_PICTURE, WIDEST_PICTURE))
    return np.asarray(small, np.uint8)


def _thumbnails(x: Tensor, rows: Tensor) -> NDArray[np.uint8]:
    """(K, H, W, channels) in bytes; floats are stretched from the darkest to the brightest pixel of all samples."""
    step = max(1, -(-max(x.shape[2:]) // WIDEST_PICTURE))
    small = x[rows.to(x.device), :, ::step, ::step].permute(0, 2, 3, 1).cpu()
    if small.dtype == torch.uint8:
        return small.numpy()
    low, high = float(x.min()), float(x.max())
    return ((small.float() - low) * (255 / ((high - low) or 1.0))).round().to(torch.uint8).numpy()
