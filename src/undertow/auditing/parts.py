"""What an audit has found so far, checkpoint by checkpoint, so that a killed one goes on.

    parts = Parts(out / "audit-parts")
    part = parts.get("reading", 20, key)           # None: not there, or of other weights or samples
    parts.put("reading", 20, key, rows, {"name": array})

A part is one .npz file: its key (a hash of whatever would change a number), rows as JSON, and arrays. A file whose
key is another, or that cannot be read, is as good as none: parts can always be computed again.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undertow.auditing.rows import Row
from undertow.files import aside

VERSION = 1
"""Raised when a stored part would no longer be what would be computed now."""


@dataclass(frozen=True, eq=False)
class Part:
    """Rows and arrays of one stage at one checkpoint."""

    rows: list[Row]
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict[str, NDArray[Any]])
    about: dict[str, Any] = field(default_factory=dict[str, Any])

    def beside(self, other: Part) -> Part:
        """This part with what only the other has; rows are told apart by measure and layer."""
        own = {(one["measure"], one["layer"]) for one in self.rows}
        more = [one for one in other.rows if (one["measure"], one["layer"]) not in own]
        return Part(more + self.rows, other.arrays | self.arrays, other.about | self.about)


def key_of(*things: Any) -> str:
    """A hash of plain values."""
    text = json.dumps([VERSION, *things], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


@dataclass(frozen=True)
class Parts:
    """A folder of parts."""

    folder: Path

    def get(self, stage: str, at: int, key: str) -> Part | None:
        """The part, if it is there with this key."""
        try:
            # Opened here: of a torn file numpy would leave it open.
            with self._path(stage, at).open("rb") as file, np.load(file, allow_pickle=False) as stored:
                head = json.loads(str(stored["head"]))
                if head["key"] != key:
                    return None
                arrays = {name: stored[f"at{place}"] for place, name in enumerate(head["names"])}
                return Part(head["rows"], arrays, head["about"])
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return None

    def put(self, stage: str, at: int, key: str, part: Part) -> Part:
        """Keep a part, in place of what was there."""
        head = {"key": key, "rows": part.rows, "names": list(part.arrays), "about": part.about}
        arrays: Mapping[str, Any] = {f"at{place}": one for place, one in enumerate(part.arrays.values())}
        # Numbers that are none travel as None: JSON's NaN is no JSON.
        with aside(self._path(stage, at)) as path, path.open("wb") as file:
            np.savez(file, head=np.array(json.dumps(head, allow_nan=False)), **arrays)
        return part

    def _path(self, stage: str, at: int) -> Path:
        return self.folder / f"{stage}-{at:08d}.npz"
