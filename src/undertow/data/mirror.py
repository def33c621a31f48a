"""Where a local mirror has a set, told without torch, so that lists are fast.

find_mirror("mnist")        # (UNDERTOW_DATA/mnist, ""), or the subset that stands in and a note, or (None, "")
"""

from __future__ import annotations

import os
from pathlib import Path


def find_mirror(name: str) -> tuple[Path | None, str]:
    """The mirror's folder for `name`, or for the subset that stands in, and what to tell the user."""
    root = os.environ.get("UNDERTOW_DATA")
    if root and (Path(root) / name).is_dir():
        return Path(root) / name, ""
    if root and (Path(root) / f"{name}_subset").is_dir():
        return Path(root) / f"{name}_subset", f"{name}_subset stands in for {name}."
    return None, ""
