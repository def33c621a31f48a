"""Nodes of a Ray cluster: what one of them must have, and whether it sees our folder.

needs = Needs(cpus=2, gpus=1)
check_needs(needs)                          # refuses what no node can give
with marked(folder) as token:               # on a node: mark_of(folder, token).exists()
    ...
"""

from __future__ import annotations

import secrets
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from undertow.crew.ray_connection import load_ray
from undertow.errors import RunProblem
from undertow.sizes import show_size


@dataclass(frozen=True)
class Needs:
    """What one task takes of a node."""

    cpus: float = 1
    gpus: float = 0
    memory: int | None = None

    def fit(self, there: dict[str, float]) -> bool:
        """Whether a node with these resources could ever run the task."""
        wanted = {"CPU": self.cpus, "GPU": self.gpus, "memory": self.memory or 0}
        return all(there.get(name, 0) >= amount for name, amount in wanted.items())

    def times(self, there: dict[str, float]) -> int:
        """How many tasks a node with these resources runs at once."""
        wanted = {"CPU": self.cpus, "GPU": self.gpus, "memory": self.memory or 0}
        return min((int(there.get(name, 0) / amount) for name, amount in wanted.items() if amount), default=1)

    def __str__(self) -> str:
        memory = f" and {show_size(self.memory)}" if self.memory else ""
        return f"{self.cpus:g} CPU, {self.gpus:g} GPU{memory}"


def check_needs(needs: Needs) -> None:
    """Refuse what no node can give: Ray would wait for such a node for ever."""
    there: list[dict[str, float]] = [node["Resources"] for node in load_ray().nodes() if node["Alive"]]
    if not any(needs.fit(one) for one in there):
        largest = max(there, key=lambda one: (one.get("GPU", 0), one.get("CPU", 0)), default={})
        most = Needs(largest.get("CPU", 0), largest.get("GPU", 0), int(largest.get("memory", 0)))
        raise RunProblem(
            f"No Ray node is large enough: a task needs {needs}, the largest node has {most}. "
            "Ask for less or add a node."
        )


@contextmanager
def marked(folder: Path) -> Generator[str]:
    """A secret in the folder, by which a node can tell that it sees the same folder.

    Where nobody may write into it there is none: to all nodes it is as good as not there.
    """
    token = secrets.token_hex(8)
    mark = mark_of(folder, token)
    with suppress(PermissionError):
        folder.mkdir(parents=True, exist_ok=True)
        mark.touch()
    try:
        yield token
    finally:
        mark.unlink(missing_ok=True)


def mark_of(folder: Path, token: str) -> Path:
    """Where the secret lies."""
    return folder / f".shared-{token}"
