"""The suspected labels as pictures that a page can carry.

    for suspect in suspects(Path("runs/m40"), classes):
        suspect["given"], suspect["proposed"], suspect["score"], suspect["image"]     # data:image/png;base64,...

suspects.npz holds the thumbnails, uint8 of (H, W), (H, W, 1) or (H, W, 3): one array named after each sample's
number, or `sample` (N,) and `images` (N, ...) in the same order. Samples without a picture are shown by the column
`text` of suspects.parquet, where it has one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undertow.errors import BadData, BadFile
from undertow.pictures import png_address
from undertow.report.tables import plain
from undertow.stored.archives import BROKEN, check_archive
from undertow.stored.seals import seal_of
from undertow.stored.tables import SUSPECTS, read_frame

MOST = 120
"""Suspects on a page: the most suspicious, spread over the classes they were given."""
LARGEST, WIDEST = 200_000_000, 4096
"""Bytes of all thumbnails, and pixels of a side, that can be meant."""
WHAT, MARK = "thumbnails by sample", "table"
LONGEST = 400
"""Letters shown of a text."""


def suspects(folder: Path, classes: Sequence[str], owner: str = "") -> list[dict[str, Any]]:
    """The suspects of the run with the mark `owner`, with pictures or texts; none where there are neither."""
    table, pictures = folder / "suspects.parquet", folder / "suspects.npz"
    if not table.exists():
        return []
    rows: Any = read_frame(table, SUSPECTS, owner=owner)
    rows = rows.sort_values("score", ascending=False) if "score" in rows else rows
    images = _images(pictures, table, owner) if pictures.exists() else {}
    rows = rows[rows["sample"].notna()]
    records = [row for row in rows.to_dict("records") if int(row["sample"]) in images or "text" in row]
    return [_suspect(row, images.get(int(row["sample"])), classes) for row in _spread(records[:MOST])]


def _spread(records: list[dict[Any, Any]]) -> list[dict[Any, Any]]:
    """The most suspicious of each given class, then the second of each, and so on: no class fills the first screen."""
    turns: Counter[Any] = Counter()
    keyed: list[tuple[int, int, dict[Any, Any]]] = []
    for place, row in enumerate(records):
        keyed.append((turns[row.get("given")], place, row))
        turns[row.get("given")] += 1
    return [row for _, _, row in sorted(keyed, key=lambda own: own[:2])]


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
    if (
        label is None or label != label or label in (-1, float("inf"), float("-inf"))
    ):  # -1: none was given, or none stands out
        return "?"
    number = int(label) if not isinstance(label, str) else -1
    return classes[number] if 0 <= number < len(classes) else str(label)


def _images(path: Path, table: Path, owner: str) -> dict[int, NDArray[np.uint8]]:
    """Thumbnails by sample; none where they are of another search than the table."""
    check_archive(path, LARGEST, what=WHAT, next_step=SUSPECTS.again, owner=owner)
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {str(name): stored[name] for name in stored.files}
        mark = arrays.pop(MARK, None)
        if mark is not None and str(mark) != seal_of(table):
            raise BadFile(path, "", "it does not belong to the table beside it", SUSPECTS.again)
        if "images" in arrays:
            return {int(one): own for one, own in zip(arrays["sample"], arrays["images"], strict=True)}
        return {int(name): own for name, own in arrays.items()}
    except BadFile:
        raise
    except (*BROKEN, TypeError, AttributeError, MemoryError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise BadFile(path, "", f"wanted {WHAT}, but it cannot be read ({reason})", SUSPECTS.again) from error


def data_uri(image: NDArray[np.uint8]) -> str:
    """A PNG of the array, as an address that needs no file."""
    squeezed = image[..., 0] if image.ndim == 3 and image.shape[-1] == 1 else image
    usual = squeezed.dtype == np.uint8 and (
        squeezed.ndim == 2 or (squeezed.ndim == 3 and squeezed.shape[-1] == 3)
    )
    if not usual or not 0 < max(squeezed.shape[:2]) <= WIDEST or not squeezed.size:
        wanted = f"bytes of (H, W), (H, W, 1) or (H, W, 3), at most {WIDEST} wide and high"
        raise BadData(
            f"suspects.npz: wanted pictures as {wanted}, got {squeezed.dtype} of {tuple(image.shape)}."
        )
    return png_address(squeezed)
