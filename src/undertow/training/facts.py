"""run.json: what made a run, in plain values that need no torch to read.

facts = RunFacts.of_this_machine(config=config.to_dict(), data={...}, model={...})
write_text(path / "run.json", facts.to_json())
facts = RunFacts.read(path)
facts.config["lr"], facts.versions["torch"], facts.finished
"""

from __future__ import annotations

import json
import platform
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from undertow._version import __version__
from undertow.errors import RunProblem

FORMAT = 1
"""Raised when an older undertow could no longer read the folder."""

_PACKAGES = ("torch", "numpy", "scikit-learn", "pandas", "safetensors")


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """Configuration, seeds, versions and data fingerprint of a run."""

    format: int = FORMAT
    undertow: str = __version__
    made: str = ""
    config: dict[str, Any] | None = None  # TrainConfig.to_dict(); None for a loop that is not ours
    model: dict[str, Any] | None = None  # spec, shape, outputs, vocabulary: enough to build it again
    data: dict[str, Any] | None = None  # name, fingerprint, classes, sizes, note
    interventions: list[str] = field(default_factory=list[str])
    versions: dict[str, str] = field(default_factory=dict[str, str])
    machine: str = ""
    finished: str | None = None  # when, and why in `ended`
    ended: str = ""

    @classmethod
    def of_this_machine(
        cls,
        *,
        config: dict[str, Any] | None = None,
        model: dict[str, Any] | None = None,
        data: dict[str, Any] | None = None,
        interventions: list[str] | None = None,
    ) -> RunFacts:
        """Facts with this machine's versions and the time of now."""
        versions = {"python": platform.python_version(), **_installed()}
        machine = f"{platform.system()} {platform.machine()}"
        return cls(
            made=now(), config=config, model=model, data=data, interventions=interventions or [],
            versions=versions, machine=machine,
        )  # fmt: skip

    def to_json(self) -> str:
        """Indented JSON."""
        return json.dumps(asdict(self), indent=2) + "\n"

    @classmethod
    def read(cls, run: Path) -> RunFacts:
        """The facts of the run in the folder `run`."""
        path = run / "run.json"
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            given = int(stored["format"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunProblem(
                f"{path}: wanted undertow's run.json, but it cannot be read ({error})."
            ) from error
        if given > FORMAT:
            raise RunProblem(
                f"{path}: wanted format {FORMAT} or older, got {given} (undertow {stored.get('undertow')}). "
                "Update undertow to read it."
            )
        known = {own.name for own in fields(cls)}
        return cls(**{name: value for name, value in stored.items() if name in known})


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _installed() -> dict[str, str]:
    found: dict[str, str] = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
