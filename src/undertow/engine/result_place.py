"""Where results lie: a folder, or a URL that fsspec can write to.

    place = open_place("studies/tasks")                # a folder: files are written aside and renamed
    place = open_place("s3://bucket/studies/tasks")    # whole objects; needs the s3fs package
    place.write("a.json", b"{}"); place.read("a.json"); place.exists("a.json"); place.names(); place.remove("a.json")
    work_folder("s3://bucket/studies")                 # where to train: always a folder of this machine
    with results_folder("s3://bucket/studies", "fig1/smoke") as folder:
        ...                                            # what is written into it is uploaded at the end

Both kinds of place write a file whole or not at all, so that a reader never sees half of one.
"""

from __future__ import annotations

import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from undertow._version import __version__
from undertow.errors import BadValue, RunProblem
from undertow.files import aside, is_unfinished
from undertow.stored.door import decode
from undertow.stored.study_folder import ANEW

FILE = "file://"


@dataclass(frozen=True)
class Folder:
    """A folder of this machine, or one that machines share."""

    path: Path

    def exists(self, name: str) -> bool:
        """Whether there is such a file."""
        return (self.path / name).exists()

    def names(self) -> set[str]:
        """The files directly in the folder; unfinished ones are passed over."""
        if not self.path.is_dir():
            return set()
        return {one.name for one in self.path.iterdir() if not is_unfinished(one)}

    def read(self, name: str) -> bytes:
        """The whole file."""
        return (self.path / name).read_bytes()

    def write(self, name: str, content: bytes) -> None:
        """Write aside, then rename."""
        with aside(self.path / name) as part:
            part.write_bytes(content)

    def remove(self, name: str) -> None:
        """Remove the file if it is there."""
        (self.path / name).unlink(missing_ok=True)


@dataclass(frozen=True)
class Remote:
    """A folder of a filesystem that fsspec knows; its files are whole objects."""

    system: Any  # fsspec.AbstractFileSystem
    root: str
    url: str  # for messages

    def exists(self, name: str) -> bool:
        """Whether there is such a file."""
        with self._spoken("read"):
            return self.system.exists(self._path(name))

    def names(self) -> set[str]:
        """The files directly in the folder, as they are now: fsspec would remember an older listing."""
        with self._spoken("list"):
            self.system.invalidate_cache()
            if not self.system.isdir(self.root):  # an object store has no empty folders
                return set()
            return {path.rsplit("/", 1)[-1] for path in self.system.ls(self.root, detail=False)}

    def read(self, name: str) -> bytes:
        """The whole file."""
        with self._spoken("read"):
            return self.system.cat_file(self._path(name))

    def write(self, name: str, content: bytes) -> None:
        """Write one object."""
        path = self._path(name)
        with self._spoken("write"):
            self.system.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
            self.system.pipe_file(path, content)

    def remove(self, name: str) -> None:
        """Remove the file if it is there."""
        with self._spoken("write"):
            if self.system.exists(self._path(name)):
                self.system.rm_file(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}"

    @contextmanager
    def _spoken(self, verb: str) -> Generator[None]:
        try:
            yield
        except Exception as error:  # each filesystem has errors of its own
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            raise RunProblem(
                f"Cannot {verb} {self.url} ({reason}). Check the address and your rights; what was saved is intact."
            ) from error


ResultPlace = Folder | Remote
"""A flat set of files by name; a name may hold slashes."""


def is_url(out: Path | str) -> bool:
    """Whether `out` is not a folder of this machine."""
    return "://" in str(out) and not str(out).startswith(FILE)


def open_place(out: Path | str, under: str = "") -> ResultPlace:
    """The place that `out` names, or the folder `under` in it."""
    text = str(out).rstrip("/")
    if not is_url(out):
        return Folder(Path(text.removeprefix(FILE) or "/") / under)
    url = f"{text}/{under}".rstrip("/")
    system, root = _filesystem(url)
    return Remote(system, root.rstrip("/"), url)


def _filesystem(url: str) -> tuple[Any, str]:
    import fsspec  # pyright: ignore[reportMissingTypeStubs]

    protocol = url.partition("://")[0]
    try:
        return fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise RunProblem(f"out: {protocol}:// needs a package that is not here ({error}).") from error
    except ValueError as error:
        wanted = "a folder or a URL of a kind that fsspec knows (s3://, gs://, memory://)"
        raise BadValue("out", wanted, url) from error


def work_folder(out: Path | str) -> Path:
    """Where runs are trained: `out` itself if it is a folder, else this machine's cache."""
    if is_url(out):
        from undertow.files import cache_folder

        return cache_folder() / "work"
    return Path(str(out).removeprefix(FILE))


@contextmanager
def results_folder(out: Path | str, name: str) -> Generator[Path]:
    """A folder to write to: OUT/NAME itself, or one whose files are uploaded there when the block ends well."""
    if not is_url(out):
        yield work_folder(out) / name
        return
    place = open_place(out, name)
    with tempfile.TemporaryDirectory() as scratch:
        yield Path(scratch)
        for path in sorted(Path(scratch).iterdir()):
            place.write(path.name, path.read_bytes())


def refuse_other_version(out: Path | str, name: str) -> None:
    """Stop before results of another undertow in OUT/NAME are overwritten."""
    place, where = open_place(out, name), f"{out}/{name}"
    if not place.exists("study.json"):
        return
    try:
        found = decode(place.read("study.json"), f"{where}/study.json")
        made_by = found.get("undertow") if isinstance(found, dict) else None  # pyright: ignore
    except RunProblem:
        made_by = None
    if not made_by:
        raise RunProblem(f"{where}/study.json holds results that cannot be read. {ANEW}")
    if made_by != __version__:
        raise RunProblem(
            f"{where} holds results of undertow {made_by}; undertow {__version__} does not overwrite them. "
            "Choose another --out."
        )
