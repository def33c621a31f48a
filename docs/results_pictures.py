"""The figures of the ledger: small enough to be kept beside it.

picture(saved_study, Path("docs"))      # "pictures/study-richness-qr.png", or "" where it cannot be made small
"""

from __future__ import annotations

import io
from pathlib import Path

from PIL import Image

from undertow.report.study import SavedStudy

MOST_BYTES = 17_000
WIDTHS = (900, 750, 640, 520)


def picture(own: SavedStudy, folder: Path) -> str:
    """The study's figure, small; where it lies, seen from the page, or nothing where it cannot be made small."""
    source = own.path / "figure.png"
    if not source.is_file():
        return ""
    whole = Image.open(source).convert("RGB")
    for width in WIDTHS:
        small = whole.resize((width, round(whole.height * width / whole.width)), Image.Resampling.LANCZOS)
        written = io.BytesIO()
        small.quantize(32, Image.Quantize.MAXCOVERAGE).save(written, "PNG", optimize=True)
        if written.tell() <= MOST_BYTES:
            scale = "" if own.scale == "laptop" else f"-{own.scale}"
            name = f"pictures/study-{own.name.replace('/', '-')}{scale}.png"
            (folder / "pictures").mkdir(exist_ok=True)
            (folder / name).write_bytes(written.getvalue())
            return name
    return ""
