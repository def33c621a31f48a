"""A task: a function named by its place, plain arguments, rows as its answer.

    task = Task("undertow.studies.train_and_measure:train_and_measure", {"case": "clean", "seed": 0, ...})
    task.key                  # a hash of both and of undertow's version: equal tasks need to run once
    task.run(workspace)       # a list of rows; `workspace` is a folder that it may keep its runs in

Everything in a task is JSON, so that it can be hashed, stored and sent to another machine. Its answer
depends on its arguments alone, never on the workspace or on what ran before.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from undertow._version import __version__
from undertow.errors import BadValue

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Task:
    """One call that can run anywhere."""

    function: str  # "module:name"
    arguments: Mapping[str, Any]
    label: str = ""  # for people; not part of the key

    @cached_property
    def key(self) -> str:
        """The same for the same call, whatever the order of its arguments."""
        try:
            text = json.dumps([__version__, self.function, self.arguments], sort_keys=True)
        except (TypeError, ValueError) as error:
            raise BadValue(f"task {self.label}", "plain arguments", self.arguments, f"{error}.") from error
        return hashlib.sha256(text.encode()).hexdigest()[:20]

    def run(self, workspace: Path) -> Rows:
        """Call the function."""
        return resolve_name(self.function)(**self.arguments, workspace=workspace)

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {"function": self.function, "arguments": dict(self.arguments), "label": self.label}
