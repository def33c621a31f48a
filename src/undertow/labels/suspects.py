"""What `label_errors` found, as files: a table, pictures for the report, labels to train on.

write_table(found, Path("labels.parquet"))                # or .csv: one row per training sample
write_suspects(found, x, run.path, owner=run.facts.id)    # suspects.parquet and suspects.npz, for the report
write_facts(found, "y.csv", Path("found"))                # what the report of a folder without a run tells beside them
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from undertow._version import __version__
from undertow.errors import BadValue
from undertow.files import aside, together
from undertow.labels.exports import NOTHING, named_table, save_table
from undertow.labels.findings import LabelErrors
from undertow.labels.given_files import Shown
from undertow.labels.thumbnails import are_pictures, thumbnail, thumbnails
from undertow.outputs import check_outputs
from undertow.stored.archives import seal_archive
from undertow.stored.door import write_document
from undertow.stored.tables import write_part
from undertow.stored.tables import write_table as write_sealed

TABLE, PICTURES, FACTS = "suspects.parquet", "suspects.npz", "audit.json"
MOST_PICTURES = 120


def write_table(found: LabelErrors, path: Path, shown: Shown = NOTHING) -> None:
    """Write one row per training sample to a .parquet or .csv file; `review` 1 is the label to look at first."""
    if path.suffix not in (".parquet", ".csv"):
        raise BadValue("labels --out", "a .parquet or .csv file", str(path))
    check_outputs("labels", [("--out", path)])
    table, order = named_table(found, shown), found.review_order(len(found.given)).numpy()
    rank = pd.Series(np.arange(1, len(order) + 1), index=order)
    missing = len(order) < len(table)  # nothing is judged of a sample without a label
    table["review"] = rank.reindex(table.index, fill_value=None).astype("Int64") if missing else rank
    save_table(table, path)


def write_suspects(
    found: LabelErrors,
    x: Any,
    folder: Path,
    *,
    shown: Shown = NOTHING,
    most: int = MOST_PICTURES,
    owner: str = "",
) -> list[Path]:
    """Write the most suspicious samples for the report; pictures where `x` or `shown` has some.

    `owner` is the mark of the run that was searched.
    """
    listed = named_table(found, shown, found.suspects(most))
    rows = listed["sample"].to_numpy()
    pictures = _pictures(x, shown, rows)
    # Two searches at once must not leave the table of one beside the pictures of the other.
    with together(folder):
        if pictures is None:
            write_sealed(folder / TABLE, listed, owner)
            (folder / PICTURES).unlink(missing_ok=True)  # of an earlier search
            return [folder / TABLE]
        with aside(folder / PICTURES) as part, aside(folder / TABLE) as table:
            pictures["table"] = np.array(write_part(table, listed, owner))
            with part.open("wb") as stream:
                np.savez_compressed(stream, **pictures)
            seal_archive(part, owner)
    return [folder / TABLE, folder / PICTURES]


def write_facts(found: LabelErrors, name: str, folder: Path) -> Path:
    """Write what a report tells of a search without a run: the answer, the classes, and which sections there are."""
    facts = {
        "format": 1, "made": datetime.now(UTC).isoformat(timespec="seconds"), "undertow": __version__,
        "headline": f"{found.rate}.".capitalize(), "sections": ["labels", "facts"],
        "data": {"name": name, "samples": len(found.given), "classes": list(found.classes)},
        "measures": {"flagged": int(found.flagged.sum())}, "notes": list(found.notes),
    }  # fmt: skip
    write_document(folder / FACTS, facts)
    return folder / FACTS


def _pictures(x: Any, shown: Shown, rows: NDArray[np.int64]) -> dict[str, Any] | None:
    """What the gallery reads; None where samples are no pictures."""
    if shown.files is not None:
        return {str(row): thumbnail(shown.files[row]) for row in rows}
    pixels = x if shown.pixels is None else shown.pixels
    if not are_pictures(pixels):
        return None
    return {"sample": rows, "images": thumbnails(pixels, rows)}
