"""Checkpoints that lie as revisions in one repository: the hub's, or a git repository on this machine.

    open_run("hub:EleutherAI/pythia-70m", revisions="step*")      # branches or tags step1000, step2000, ...
    open_run("hub:./clone", revisions="step*")                    # a git repository, with the same layout

A revision is fetched when its weights are asked for, and deleted when two others were since: two checkpoints at most
lie on this machine at a time, in a folder that is gone with the process. Configurations and tokenizers, which are
small, stay.
"""

from __future__ import annotations

import atexit
import re
import shutil
import subprocess
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, NamedTuple

from undertow.errors import BadValue, NotThere, RunProblem, unknown
from undertow.training.checkpoint_files import Checkpoint, PassedOver
from undertow.training.facts import RunFacts
from undertow.training.mistaken import is_pointer
from undertow.training.run_folder import RunFolder

KEPT = 2
"""Checkpoints on disk at a time."""
SMALL = ("*.json", "*.txt", "*.model")
WEIGHTS = ("*.safetensors", "*.safetensors.index.json", "pytorch_model*.bin", "*.bin.index.json")


class Revision(NamedTuple):
    """A branch or tag, and the commit that it stands for."""

    name: str
    commit: str


@dataclass(frozen=True)
class RemoteCheckpoint(Checkpoint):
    """A revision that is fetched when it is needed."""

    repo: str
    revision: Revision

    def local(self) -> Path:
        """The folder with its weights, fetched if it is not here."""
        return store_of(self.repo).weights(self.revision)

    def about(self) -> Path:
        """The folder with its configuration and tokenizer."""
        return store_of(self.repo).small_files(self.revision)

    def mark(self) -> str:
        """The commit: nothing needs to be fetched to know it."""
        return f"{self.repo}@{self.revision.commit}"


def open_revisions(repo: str, pattern: str) -> RunFolder:
    """The revisions of a repository whose names match `pattern`, by the number in them."""
    source = source_of(repo)
    named = source.revisions()
    matching = [one for one in named if fnmatchcase(one.name, pattern)]
    found: dict[int, Revision] = {}
    others: list[PassedOver] = []
    for one in matching:
        number = re.search(r"(\d+)(?!.*\d)", one.name)
        if number is None or int(number.group(1)) in found:
            why = (
                "no number in its name"
                if number is None
                else f"its number is that of {found[int(number.group(1))].name}"
            )
            others.append(PassedOver(one.name, why, expected=True))
        else:
            found[int(number.group(1))] = one
    if not found:
        hint = f"It has {', '.join(one.name for one in named[:8]) or 'none'}."
        raise BadValue(
            f"hub:{repo}", f"revisions like {pattern!r} with a number", f"{len(matching)} matching", hint
        )
    kept = Path(f"{Path(repo).name}-undertow")
    steps = [
        RemoteCheckpoint(at, "step", Path(f"hub:{repo}@{found[at].name}"), repo, found[at])
        for at in sorted(found)
    ]
    return RunFolder(kept, tuple(steps), RunFacts(), tuple(others))


@cache
def store_of(repo: str) -> Store:
    """The one store of a repository in this process: two runs of it share what was fetched."""
    return Store(source_of(repo))


def source_of(repo: str) -> GitRepository | HubRepository:
    """A folder on this machine that is a git repository, else a repository of the hub."""
    place = Path(repo).expanduser()
    if place.is_dir():
        return GitRepository(place)
    if repo.startswith((".", "/", "~")) or repo.count("/") != 1:
        raise NotThere(
            f"hub:{repo}: there is no such folder, and repositories of the hub are called owner/name."
        )
    return HubRepository(repo)


class Store:
    """The folders of a few revisions on disk."""

    def __init__(self, source: GitRepository | HubRepository) -> None:
        self.source = source
        self.folder = Path(mkdtemp(prefix="undertow-hub-"))
        self.here: list[str] = []
        """Commits whose weights are on disk, the one that was asked for last at the end."""
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)

    def weights(self, revision: Revision) -> Path:
        """The folder of a revision with its weights; the one that nobody asked for longest makes room for it."""
        place = self.folder / revision.commit
        if revision.commit in self.here:
            self.here.remove(revision.commit)
        else:
            while len(self.here) >= KEPT:
                shutil.rmtree(self.folder / self.here.pop(0), ignore_errors=True)
            try:
                self.source.fetch(revision, place, (*SMALL, *WEIGHTS))
            except BaseException:
                shutil.rmtree(place, ignore_errors=True)
                raise
        self.here.append(revision.commit)
        return place

    def small_files(self, revision: Revision) -> Path:
        """The folder of what is not weights."""
        place = self.folder / f"about-{revision.commit}"
        if not place.exists():
            self.source.fetch(revision, place, SMALL)
        return place


class GitRepository:
    """A clone or a bare repository on this machine."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def revisions(self) -> list[Revision]:
        """Branches and tags, remote branches too."""
        kinds = ("refs/heads", "refs/tags", "refs/remotes/origin")
        form = "%(objectname) %(*objectname) %(refname)"
        lines = self._git("for-each-ref", f"--format={form}", *kinds).decode().splitlines()
        found: dict[str, Revision] = {}
        for line in lines:
            own, *tagged, name = line.split()
            short = re.sub(r"^refs/(heads|tags|remotes/origin)/", "", name)
            found.setdefault(short, Revision(short, tagged[0] if tagged else own))
        return list(found.values())

    def fetch(self, revision: Revision, place: Path, patterns: tuple[str, ...]) -> None:
        """Write the files of a revision that match."""
        names = self._git("ls-tree", "--name-only", revision.commit).decode().splitlines()
        wanted = [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]
        place.mkdir(parents=True)
        for name in wanted:
            with (place / name).open("wb") as file:
                self._git("cat-file", "blob", f"{revision.commit}:{name}", into=file)
        self._refuse_pointers(revision, place)

    def _refuse_pointers(self, revision: Revision, place: Path) -> None:
        for path in place.iterdir():
            if is_pointer(path):
                raise RunProblem(
                    f"{self.place}, {revision.name}: {path.name} is a pointer of git-lfs, not the file. Run "
                    "`git lfs fetch --all` there, or take the repository from the hub."
                )

    def _git(self, *words: str, into: Any = subprocess.PIPE) -> bytes:
        command = ["git", "-C", str(self.place), *words]
        try:
            done = subprocess.run(command, stdout=into, stderr=subprocess.PIPE, check=True)
        except FileNotFoundError:
            raise NotThere(f"hub:{self.place}: git reads it and is not installed.") from None
        except subprocess.CalledProcessError as error:
            said = error.stderr.decode(errors="replace").strip().splitlines()
            raise RunProblem(f"hub:{self.place}: git says: {said[0] if said else 'nothing'}.") from error
        return done.stdout


class HubRepository:
    """A model of the Hugging Face hub."""

    def __init__(self, name: str) -> None:
        self.name = name

    def revisions(self) -> list[Revision]:
        """Branches and tags."""
        refs = self._asked(lambda hub: hub.HfApi().list_repo_refs(self.name))
        return [Revision(one.name, one.target_commit) for one in (*refs.branches, *refs.tags)]

    def fetch(self, revision: Revision, place: Path, patterns: tuple[str, ...]) -> None:
        """Download the files of a revision that match; safetensors alone where there are both kinds."""
        names = self._asked(lambda hub: hub.HfApi().list_repo_files(self.name, revision=revision.commit))
        safe = any(name.endswith(".safetensors") for name in names)
        chosen = [name for name in patterns if not (safe and ".bin" in name)]
        self._asked(
            lambda hub: hub.snapshot_download(
                self.name, revision=revision.commit, local_dir=place, allow_patterns=chosen, max_workers=2
            )
        )
        shutil.rmtree(place / ".cache", ignore_errors=True)

    def _asked(self, question: Any) -> Any:
        try:
            import huggingface_hub as hub
            from huggingface_hub.errors import RepositoryNotFoundError
        except ImportError as error:
            raise NotThere(
                f"hub:{self.name}: huggingface_hub fetches it and is not installed (pip install 'undertow[hub]')."
            ) from error
        try:
            return question(hub)
        except RepositoryNotFoundError as error:
            raise unknown(
                "repository on the hub", self.name, (), "Check owner/name, or sign in where it is private."
            ) from error
        except Exception as error:  # which type a dead network raises depends on the HTTP package of the day
            said = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
            raise NotThere(
                f"hub:{self.name} cannot be reached: {said}. A clone of it works, too: open_run('hub:./clone')."
            ) from error
