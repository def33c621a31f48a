"""Whether the run.json of a folder is that of the checkpoints beside it, from their headers alone.

check_facts(run, facts["id"])          # ChangedFile where run.json was exchanged
"""

from __future__ import annotations

from pathlib import Path

from undertow.errors import ChangedFile, UndertowError
from undertow.stored.tensors import read_header

FOLDER = "checkpoints"
RUN = "run"
"""What the mark of a checkpoint's run is called in its header."""


def check_facts(run: Path, mark: str) -> None:
    """Refuse a run.json where the first and the last checkpoint beside it say another mark than its own."""
    kept = sorted((run / FOLDER).glob("*.safetensors")) if mark else []
    told = {_told_run(path) for path in (kept[:1] + kept[-1:])}
    if told and "" not in told and mark not in told:
        raise ChangedFile(run / "run.json", "it belongs to another run than the checkpoints beside it")


def _told_run(path: Path) -> str:
    try:
        return read_header(path).words.get(RUN, "")
    except (UndertowError, OSError):
        return ""  # said by whoever wants its weights
