"""The folders that can be shown: runs, and audits of anyone's checkpoints.

list_shown("runs")          # what `undertow runs` and `undertow serve` list
"""

from __future__ import annotations

from pathlib import Path


def list_shown(folder: str | Path) -> list[Path]:
    """What `undertow runs` and `undertow serve` list: runs, and audits of anyone's checkpoints."""
    return sorted({found.parent for name in ("run.json", "audit.json") for found in Path(folder).rglob(name)})
