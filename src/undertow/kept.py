"""What undertow keeps in the folders of runs and audits, by name.

    kept_words(Path("runs/m40/run.json"))             # "The run keeps its own run.json there."
    is_own(Path("ck/suspects.parquet"))               # a name that undertow gives by itself: no link is followed

A folder from elsewhere may hold links under such names, so that an audit of it would write over any file of the user's.
What people name themselves is followed; what undertow names is not.
"""

from __future__ import annotations

from pathlib import Path

CHECKPOINTS, CACHE = "checkpoints", "cache"
BESIDE = (CACHE, "audit-quick")
"""Folders in a run's that are no runs of their own."""
AUDIT = frozenset({"audit.json", "audit.parquet", "probes.parquet", "suspects.parquet", "suspects.npz"})
RUN = AUDIT | {
    "run.json", "metrics.parquet", "labels.parquet", "trained_labels.parquet", "state.pt", "opened.json"
}  # fmt: skip
PLAIN = ("labels.parquet", "report.html")
"""Names that people give their own files, too: these are undertow's only beside its other files."""


def kept_words(place: Path) -> str:
    """Why a file is not to be written over: a run keeps its own there; nothing where none does."""
    here = place.parent
    if place.name in (RUN if _is_run(here) else AUDIT if (here / "audit.json").exists() else ()):
        return f"The run keeps its own {place.name} there."
    for above in place.parents:
        if above.name in (CHECKPOINTS, CACHE) and _is_run(above.parent):
            return f"The run keeps its {above.name} there."
    return ""


def is_own(path: Path) -> bool:
    """Whether undertow itself gave this name."""
    if path.name in PLAIN:
        return any((path.parent / name).exists() for name in ("run.json", "audit.json"))
    return path.name in RUN or bool(kept_words(path))


def _is_run(folder: Path) -> bool:
    return (folder / "run.json").exists()
