"""The suspected labels as pictures that a page can carry.

    for suspect in suspects(Path("runs/m40"), classes):
        suspect["given"], suspect["proposed"], suspect["score"], suspect["image"]     # data:image/png;base64,...

suspects.npz holds the thumbnails, uint8 of (H, W), (H, W, 1) or (H, W, 3): one array named after each sample's
number, or `sample` (N,) and `images` (N, ...) in the same order. Samples without a picture are shown by the column
`text` of suspects.parquet, where it has one.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undertow.report.saved import read_table, unreadable
from undertow.report.tables import plain

MOST = 120
"""Suspects on a page, the most suspicious first."""
LONGEST = 400
"""Letters shown of a text."""


def suspects(folder: Path, classes: Sequence[str]) -> list[dict[str, Any]]:
    """The suspects with their pictures or texts; none where there are neither."""
    table, pictures = folder / "suspects.parquet", folder / "suspects.npz"
    if not table.is_file():
        return []
    rows = read_table(table)
    rows = rows.sort_values("score", ascending=False) if "score" in rows else rows
    images = _images(pictures) if pictures.is_file() else {}
    records = [row for row in rows.to_dict("records") if int(row["sample"]) in images or "text" in row]
    return [_suspect(row, images.get(int(row["sample"])), classes) for row in records[:MOST]]


def _suspect(row: dict[Any, Any], image: NDArray[np.uint8] | None, classes: Sequence[str]) -> dict[str, Any]:
    text = str(row.get("text") or "")
    return {
        "sample": int(row["sample"]), "image": None if image is None else data_uri(image),
        "text": text if len(text) <= LONGEST else f"{text[:LONGEST]}…", "given": _named(row.get("given"), classes),
        "proposed": _named(row.get("proposed"), classes), "true": _known(row.get("true"), classes),
        "score": plain(row.get("score")), "confidence": plain(row.get("confidence")),
    }  # fmt: skip


def _known(label: Any, classes: Sequence[str]) -> str | None:
    return None if label is None or label != label else _named(label, classes)


def _named(label: Any, classes: Sequence[str]) -> str:
    if label is None or label != label or label == -1:  # -1: none was given, or none stands out
        return "?"
    number = int(label) if not isinstance(label, str) else -1
    return classes[number] if 0 <= number < len(classes) else str(label)


def _images(path: Path) -> dict[int, NDArray[np.uint8]]:
    try:
        with np.load(path, allow_pickle=False) as stored:
            if "images" in stored:
                return dict(zip(map(int, stored["sample"]), stored["images"], strict=True))
            return {int(name): stored[name] for name in stored.files}
    except (OSError, ValueError, KeyError) as error:
        raise unreadable(path, "thumbnails by sample", error) from error


def data_uri(image: NDArray[np.uint8]) -> str:
    """A PNG of the array, as an address that needs no file."""
    from PIL import Image

    squeezed = image[..., 0] if image.ndim == 3 and image.shape[-1] == 1 else image
    written = io.BytesIO()
    Image.fromarray(np.asarray(squeezed, np.uint8)).save(written, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(written.getvalue()).decode()
