"""run.json: what made a run, in plain values that need no torch to read.

facts = RunFacts.of_this_machine(config=config.to_dict(), data={...}, model={...})
facts.write(path)                         # path/run.json, sealed
facts = RunFacts.read(path)
facts.config["lr"], facts.versions["torch"], facts.finished, facts.id
"""

from __future__ import annotations

import hashlib
import platform
import secrets
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec

from undertow._version import __version__
from undertow.errors import BadFile, UndertowError
from undertow.stored.documents import RunDocument
from undertow.stored.door import read_document, write_document
from undertow.training.config import TrainConfig

FORMAT = RunDocument.newest
"""Raised when an older undertow could no longer read the folder."""
FILE = "run.json"

_PACKAGES = ("torch", "numpy", "scikit-learn", "pandas", "safetensors")


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """Configuration, seeds, versions and data fingerprint of a run."""

    format: int = FORMAT
    undertow: str = __version__
    made: str = ""
    id: str = ""  # the run's own mark, also in its checkpoints; "" for one that no sealing undertow began
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
            made=now(), id=_mark(config, model, data, interventions), config=config, model=model, data=data,
            interventions=interventions or [], versions=versions, machine=machine,
        )  # fmt: skip

    def write(self, run: Path) -> None:
        """Write run.json into the folder `run`."""
        write_document(run / FILE, asdict(self))

    @classmethod
    def read(cls, run: Path) -> RunFacts:
        """The facts of the run in the folder `run`."""
        path = run / FILE
        stored = read_document(path, RunDocument)
        for name in ("format", *(f"data.{own}" for own in ("fingerprint",) if stored.get("data"))):
            if _inner(stored, name) is None:
                raise BadFile(path, name, "wanted a value, but there is none")
        if stored.get("config") is not None:
            try:
                TrainConfig.from_dict(stored["config"])
            except UndertowError as error:
                raise BadFile(path, "config", str(error).rstrip(".")) from error
        return cls(**stored)


def run_mark(run: Path) -> str:
    """The mark of the run in a folder; "" where there is no run, or one whose files need no seal."""
    path = run / FILE
    try:
        found = path.stat()
    except OSError:
        return ""
    return _mark_in(run, found.st_mtime_ns, found.st_size)


@lru_cache(256)
def _mark_in(run: Path, changed: int, size: int) -> str:  # the file's state is part of the key
    return str(read_document(run / FILE, RunDocument).get("id", ""))


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _mark(config: dict[str, Any] | None, *others: Any) -> str:
    """Of what is trained and on what, so that the same seeds give the same files; of nothing at all, a random one."""
    if config is None:
        return secrets.token_hex(16)
    lasting = {name: value for name, value in config.items() if name != "epochs"}  # more may be added
    text = msgspec.json.encode([lasting, *others], order="sorted")
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def _inner(stored: dict[str, Any], name: str) -> Any:
    outer, _, inner = name.partition(".")
    return stored.get(outer) if not inner else (stored.get(outer) or {}).get(inner)


def _installed() -> dict[str, str]:
    found: dict[str, str] = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
