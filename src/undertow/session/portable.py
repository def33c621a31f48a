"""A session in a form that can be sent to a worker, which opens it there.

    sent = Portable.of(session)
    there = sent.open(None, gpu=False)          # a session with the same samples, checkpoints and marks

What was found out once (hashes, the example, widths of layers) goes along. A worker writes nothing but
checkpoints that it was sent; the caller keeps what was measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

from undertow.session.cache import PassingCache
from undertow.session.samples import SessionSamples
from undertow.session.settings import SessionConfig
from undertow.training.checkpoint_files import Checkpoint
from undertow.training.run import Run

if TYPE_CHECKING:
    from undertow.session.session import Session

SCRATCH = "undertow-worker-"
"""How the folder of checkpoints that were sent is called."""


@dataclass(frozen=True, eq=False)
class Portable:
    """What a worker needs of a session."""

    run: Run
    samples: SessionSamples
    config: SessionConfig
    checkpoints: tuple[int, ...]
    found: Mapping[str, Any]  # attributes that are known already

    @classmethod
    def of(cls, session: Session) -> Portable:
        """With all that workers would find out again, each for itself."""
        _ = session.samples.fingerprint
        for at in {*session.checkpoints, session.example}:
            session.mark(at)
        found = {
            "example": session.example, "behaviour": session.behaviour, "_marks": session.marks,
            "broken": dict(session.broken),
        }  # fmt: skip
        own = SessionConfig(**session.config.shared())
        alone = replace(own, engine="local", address=None, cpus=None, gpus=None)
        return cls(session.run, session.samples, alone, session.checkpoints, found)

    @property
    def folder(self) -> Path:
        """Where the checkpoints lie."""
        return self.run.path.resolve()

    def files(self) -> dict[str, Path]:
        """The files of the checkpoints that are looked at, by number and name; others come along or from the hub."""
        wanted = {*self.checkpoints, self.found["example"]}
        found: dict[str, Path] = {}
        for one in self.run.checkpoints:
            if one.at in wanted and type(one) is Checkpoint:
                parts = (
                    [path for path in one.path.rglob("*") if path.is_file()]
                    if one.path.is_dir()
                    else [one.path]
                )
                found |= {f"{one.at}/{path.relative_to(one.path.parent)}": path for path in parts}
        return found

    def open(self, files: Mapping[str, bytes] | None, *, gpu: bool) -> Session:
        """A session on a worker; from the content of the checkpoints where their folder is not seen."""
        from undertow.session.session import Session

        run = self._resolved() if files is None else self._written(Path(mkdtemp(prefix=SCRATCH)), files)
        config = replace(self.config, device="cuda") if gpu and self.config.device is None else self.config
        session = Session(run, config=config)
        session.checkpoints, session.cache, session.away = self.checkpoints, PassingCache(run.path), True
        vars(session).update(self.found, samples=self.samples)
        return session

    def _resolved(self) -> Run:
        """The run with whole paths: a worker stands in another folder."""
        return self._placed({one.at: one.path.resolve() for one in self.run.checkpoints}, self.folder)

    def _written(self, place: Path, files: Mapping[str, bytes]) -> Run:
        for name, content in files.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(content)
        numbers = {name.partition("/")[0] for name in files}
        there = [one for one in self.run.checkpoints if str(one.at) in numbers]
        return self._placed({one.at: place / str(one.at) / one.path.name for one in there}, place)

    def _placed(self, paths: Mapping[int, Path], folder: Path) -> Run:
        kept = tuple(
            replace(one, path=paths[one.at]) if type(one) is Checkpoint and one.at in paths else one
            for one in self.run.checkpoints
        )
        return replace(self.run, path=folder, checkpoints=kept)
