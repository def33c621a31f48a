"""What commands were told of somebody's checkpoints, kept in their folder: the next command needs no flags.

    told = recall(run)                            # Told(model="mynet:build", data="/data/mine.npz", ...)
    remember(run, Told(model=..., data=...))      # opened.json, after weights and data have loaded

Flags that are given again count, and are remembered in their place. A model is code, so a folder that came from
elsewhere must not name one: the file carries a signature made with a key of this user (in undertow's cache folder), and
one without it, or with another's, is passed over.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from undertow.cli.flags import BadUsage
from undertow.errors import BadFile, RunProblem, UndertowError
from undertow.files import aside, cache_folder, write_text
from undertow.stored.door import decode, read_bytes, speakable

FILE, KEY, SIGNED = "opened.json", "key", "signed"
UNDO = {
    "model": "another --model", "data": "other --data", "scaling": "another --scaling", "weights": "--weights own",
    "revisions": "other --revisions",
}  # fmt: skip
"""What takes back a flag that is remembered."""
MOST = 1 << 20
"""Bytes of such a file that can be meant."""


@dataclass(frozen=True)
class Told:
    """Flags as they were given; paths are whole."""

    model: str | None = None
    data: str | None = None
    scaling: str | None = None
    weights: str | None = None
    revisions: str | None = None
    folder: str | None = None
    """Where the command was given: modules of --model are found from there."""


def recall(place: Path) -> Told:
    """What this user said of the checkpoints in `place`; nothing where nothing was said, or the file is no good."""
    try:
        stored = decode(read_bytes(place / FILE, MOST), FILE)
        told = msgspec.convert(stored, Told)
        signed, key = stored.get(SIGNED), _key(make=False)
    except (OSError, RunProblem, msgspec.ValidationError):
        return Told()
    known = key is not None and isinstance(signed, str) and hmac.compare_digest(_signature(told, key), signed)
    return told if known else Told()


def remember(place: Path, told: Told) -> None:
    """Keep what was said, unless it is known or the folder cannot be written to."""
    if told == recall(place):
        return
    try:
        place.mkdir(parents=True, exist_ok=True)
        told = Told(**speakable(asdict(told)))
        signed = {**asdict(told), SIGNED: _signature(told, _key(make=True) or b"")}
        write_text(place / FILE, msgspec.json.format(msgspec.json.encode(signed), indent=2).decode() + "\n")
    except (OSError, RunProblem):
        return  # a folder of others: the flags must be given again


@contextmanager
def undoable(place: Path, told: Told) -> Generator[None]:
    """Say of what fails by what an earlier command was told that it was told so, and how to undo it."""
    try:
        yield
    except BadFile:  # damage, which no flag does
        raise
    except UndertowError as error:
        flags = [f"--{name} {value}" for name in UNDO if (value := getattr(told, name))]
        if not flags:
            raise
        ways = " and ".join(UNDO[name] for name in UNDO if getattr(told, name))
        raise BadUsage(
            f"{error} An earlier command was told {' '.join(flags)}: give {ways}, or delete {place / FILE}."
        ) from error


def whole(source: str | None) -> str | None:
    """A path as it is found from anywhere; a name stays."""
    return str(Path(source).resolve()) if source and Path(source).exists() else source


def _signature(told: Told, key: bytes) -> str:
    text = msgspec.json.encode(speakable(asdict(told)), order="sorted")
    return hmac.new(key, text, hashlib.sha256).hexdigest()


def _key(*, make: bool) -> bytes | None:
    """The key of this user; None where there is none and none is to be made."""
    path = cache_folder() / KEY
    if path.is_file():
        return read_bytes(path, MOST)
    if not make:
        return None
    with aside(path) as part:
        part.write_bytes(secrets.token_bytes(32))
    path.chmod(0o600)
    return path.read_bytes()  # two commands at once: the key that stayed
