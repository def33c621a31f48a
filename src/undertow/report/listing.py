"""The folders that can be shown: runs, and audits of anyone's checkpoints.

list_shown("runs")          # what `undertow runs` and `undertow serve` list
"""

from __future__ import annotations

import os
from pathlib import Path

SHOWN = {"run.json", "audit.json"}


def list_shown(folder: str | Path) -> list[Path]:
    """What `undertow runs` and `undertow serve` list: runs, and audits of anyone's checkpoints.

    A folder that goes away meanwhile, or that we may not read, is passed over.
    """
    return sorted(Path(place) for place, _, names in os.walk(folder) if not SHOWN.isdisjoint(names))
