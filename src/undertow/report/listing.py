"""The folders that can be shown: runs, and audits of anyone's checkpoints.

list_shown("runs")          # what `undertow runs` and `undertow serve` list
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from undertow.kept import BESIDE

SHOWN = {"run.json", "audit.json"}


def list_shown(folder: str | Path, unread: Callable[[OSError], object] | None = None) -> list[Path]:
    """What `undertow runs` and `undertow serve` list: runs, and audits of anyone's checkpoints.

    A folder that goes away meanwhile, or that we may not read, is passed over, and `unread` hears of it. What undertow
    keeps in a run's is passed over, too.
    """
    found: list[Path] = []
    for place, below, names in os.walk(folder, onerror=unread):
        if not SHOWN.isdisjoint(names):
            found.append(Path(place))
            below[:] = [name for name in below if name not in BESIDE]
    return sorted(found)
