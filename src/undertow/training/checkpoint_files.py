"""Which files of a folder are checkpoints, by their names; what is passed over is said with its reason.

    found = find_checkpoints(Path("lightning_logs/version_3/checkpoints"))
    found.checkpoints                          # sorted by epoch or step
    found.passed_over                          # (PassedOver("last.ckpt", "its name carries no epoch and no step"),)
    found.checkpoints[0].local()               # where its weights are: a file, or a folder as transformers writes it

A checkpoint is a file (.pt .pth .ckpt .bin .safetensors .pth.tar, or what torch.save wrote under any other name) or a
folder with weights in it (checkpoint-500).
Nothing here needs torch.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from undertow.errors import BadValue, NotThere, RunProblem, UndertowError
from undertow.sizes import EXACT
from undertow.stored.door import MOST_JSON, read_bytes, unreadable
from undertow.training.schedule import Unit

ENDINGS = (".safetensors", ".pth.tar", ".pt.tar", ".pt", ".pth", ".ckpt", ".bin", ".tar")
KINDS = f"{', '.join(ENDINGS)}, what torch.save wrote, or folders with weights in them"
FOREIGN = (".h5", ".keras", ".msgpack", ".onnx", ".pkl", ".pickle", ".joblib", ".distcp")
"""Weights that others write and undertow does not read."""
INDICES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
ADAPTERS = ("adapter_model.safetensors", "adapter_model.bin")
STANDARD = ("model.safetensors", INDICES[0], "pytorch_model.bin", INDICES[1], *ADAPTERS)
"""What transformers and peft call the weights in a folder, the one that counts first."""
_KEPT = "-undertow"
_BESIDE = re.compile(r"(optimi[sz]er|scheduler|rng_state|random_states|training_args|scaler|sampler)", re.I)
_SHARD = re.compile(r"-\d{5}-of-\d{5}$")
_COPIES = re.compile(
    r"(model|checkpoint|ckpt)?[_\-.]?(last|best|latest|final|current)([_\-.].*)?|model", re.I
)
"""Names that usually stand for a copy of another checkpoint."""

_BARE = r"(?<![\d.])(?<!-v)\d+(?!\d|\.\d)"
"""A whole number: no part of a score (0.72), not the version that Lightning adds to a name it has used (-v1)."""

# In the order of trust: words, then the last whole number, the first, any last digits. A bare e or s counts only where
# no word does, and never inside a number like 1e-4.
_WORDS: tuple[tuple[str, Unit], ...] = (
    (r"epochs?[=_\-. ]?(\d+)", "epoch"),
    (r"(?:^|[^a-z])ep[=_\-. ]?(\d+)", "epoch"),
    (r"(?:steps?|iterations?|iter)[=_\-. ]?(\d+)", "step"),
    (r"(?:^|[^a-z0-9])e[=_\-]?(\d+)", "epoch"),
    (r"(?:^|[^a-z0-9])(?:s|it)[=_\-]?(\d+)", "step"),
)
_PATTERNS: tuple[tuple[str, Unit], ...] = (
    *_WORDS,
    (rf"({_BARE})(?!.*{_BARE})", "epoch"),
    (rf"^.*?({_BARE})", "epoch"),
    (r"(\d+)(?!.*\d)", "epoch"),
)
_FOLDERS = re.compile(r"^checkpoint[-_](\d+)$")
"""How transformers' Trainer calls the folder of a checkpoint: by its step."""


class PassedOver(NamedTuple):
    """A file that could have been a checkpoint and is none, and why."""

    name: str
    why: str
    expected: bool = False
    """Whether such a file usually lies there: a copy called last or best, the optimiser's state."""


@dataclass(frozen=True)
class Checkpoint:
    """Weights and the moment of training they belong to."""

    at: int
    unit: Unit
    path: Path

    def local(self) -> Path:
        """The file or folder that holds the weights."""
        return self.path

    def about(self) -> Path:
        """Where the small files beside the weights are: config.json, a tokenizer."""
        return self.path

    def mark(self) -> str:
        """A hash of the files of its weights."""
        seen = hashlib.blake2b(digest_size=16)
        for path in weight_files(self.local()):
            try:
                with path.open("rb") as file:
                    hashlib.file_digest(file, lambda: seen)
            except OSError as error:
                raise unreadable(path, error) from error
        return seen.hexdigest()


class Found(NamedTuple):
    """What a folder holds."""

    checkpoints: tuple[Checkpoint, ...]
    passed_over: tuple[PassedOver, ...]


def find_checkpoints(folder: Path, pattern: str | None = None) -> Found:
    """The checkpoints in `folder`, sorted; `pattern` is a regular expression whose group is the number.

    Without a pattern the name's epoch counts, then its step, then its last number: the first of these that gives half
    of the names or more a number of their own.
    """
    places, others = _candidates(folder)
    chosen = _by_names(places) if pattern is None else _numbered(places, _compiled(pattern), "epoch")
    if not chosen:
        if pattern is not None and places:
            raise NotThere(
                f"{folder}: none of its {len(places)} checkpoints, such as {places[0].name}, matches the "
                f"pattern {pattern!r}. Correct it, or leave it out."
            )
        if not places:
            raise NotThere(f"{folder}: wanted checkpoints ({KINDS}), got none.")
        names = ", ".join(path.name for path in places[:3])
        raise NotThere(
            f"{folder}: the names of its checkpoints carry no epoch and no step ({names}). Rename them, for example to "
            f"epoch-12{ending_of(places[0])}, give a pattern with a group, or open one of them by its own path."
        )
    _refuse_strange(chosen)
    taken = {one.path for one in chosen}
    how = "does not match the pattern" if pattern else f"carries no {chosen[0].unit} as the others' do"
    others += [
        PassedOver(path.name, f"its name {how}", _COPIES.fullmatch(stem(path)) is not None)
        for path in places
        if path not in taken
    ]
    return Found(tuple(sorted(chosen, key=lambda one: one.at)), tuple(others))


def number_in(path: Path) -> tuple[int, Unit] | None:
    """The epoch or step that a name alone tells by a word; a bare number may be a model's (resnet50)."""
    for text, unit in _WORDS:
        found = _numbered([path], re.compile(text, re.IGNORECASE), unit)
        if found:
            _refuse_strange(found)
            return found[0].at, unit
    return None


def ending_of(path: Path) -> str:
    """The ending of a checkpoint file; "" for other files."""
    known = next((ending for ending in ENDINGS if path.name.endswith(ending)), "")
    return known or (path.suffix if path.suffix not in FOREIGN and _is_saved_by_torch(path) else "")


def _is_saved_by_torch(path: Path) -> bool:
    """Whether a file begins as torch.save begins one: a zip archive whose first entry is NAME/data.pkl."""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            head = file.read(30 + 512)
    except OSError:
        return False
    first = head[30 : 30 + int.from_bytes(head[26:28], "little")]
    return head.startswith(b"PK\x03\x04") and first.endswith(b"/data.pkl")


def stem(path: Path) -> str:
    """The name without a checkpoint's ending."""
    return path.name.removesuffix(ending_of(path))


def kept_beside(path: Path) -> Path:
    """The folder for what is found out of one checkpoint's file."""
    return path.with_name(f"{stem(path)}{_KEPT}")


def is_kept_beside(folder: Path) -> bool:
    """Whether a folder is such a one."""
    return folder.name.endswith(_KEPT)


def holds_weights(folder: Path) -> bool:
    """Whether a folder is one checkpoint, as transformers, peft and accelerate write it."""
    return any((folder / name).is_file() for name in STANDARD)


def is_adapter(folder: Path) -> bool:
    """Whether a folder holds a peft adapter, which needs its base model."""
    return (folder / "adapter_config.json").is_file() and any((folder / name).is_file() for name in ADAPTERS)


def weight_files(place: Path) -> list[Path]:
    """The files that make up a checkpoint: itself, or those of a folder."""
    if not place.is_dir():
        return [place]
    standard = next((place / name for name in STANDARD if (place / name).is_file()), None)
    if standard is None:
        return _own_files(place)
    if standard.name in INDICES:
        return [standard, *shards_of(standard)]
    beside = place / "adapter_config.json"
    return [standard, *([beside] if standard.name in ADAPTERS and beside.is_file() else [])]


def shards_of(index: Path) -> list[Path]:
    """The files that an index of weights names."""
    try:
        names = sorted(set(json.loads(read_bytes(index, MOST_JSON))["weight_map"].values()))
        missing = [name for name in names if not (index.parent / name).is_file()]
    except UndertowError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RunProblem(f"{index}: wanted an index of weights, but it cannot be read ({error}).") from error
    if outside := next(
        (name for name in names if ".." in Path(name).parts or Path(name).is_absolute()), None
    ):
        raise RunProblem(f"{index}: wanted parts of a checkpoint beside it, got {outside}.")
    if missing:
        raise NotThere(
            f"{index.parent}: wanted {len(names)} parts of a checkpoint, but {missing[0]} is not there."
        )
    return [index.parent / name for name in names]


def _own_files(folder: Path) -> list[Path]:
    """The one file of weights in a folder of somebody's own making; none where there are several."""
    files = [
        path
        for path in sorted(folder.iterdir())
        if path.is_file() and ending_of(path) and path.name[0] != "." and not _BESIDE.match(path.name)
    ]
    return files if len(files) == 1 else []


def _candidates(folder: Path) -> tuple[list[Path], list[PassedOver]]:
    """Files and folders that hold weights; and what looks like weights and is none."""
    places: list[Path] = []
    others: list[PassedOver] = []
    for path in sorted(folder.iterdir()):
        if path.name[0] == ".":
            continue
        if path.is_dir():
            if not (path / "run.json").exists() and (holds_weights(path) or _is_numbered_folder(path)):
                places.append(path)
        elif _BESIDE.match(path.name):
            others.append(PassedOver(path.name, "it holds no weights", expected=True))
        elif path.suffix in FOREIGN:
            others.append(PassedOver(path.name, f"undertow does not read {path.suffix} files"))
        elif ending_of(path) and _SHARD.search(stem(path)):
            others.append(PassedOver(path.name, "it is a part of the model in the folder", expected=True))
        elif ending_of(path):
            places.append(path)
    return places, others


def _is_numbered_folder(folder: Path) -> bool:
    return any(letter.isdigit() for letter in folder.name) and bool(_own_files(folder))


def _by_names(places: Sequence[Path]) -> list[Checkpoint]:
    folders = _numbered([path for path in places if path.is_dir()], _FOLDERS, "step")
    if folders and _all_differ(folders):
        return folders
    tried = [_numbered(places, re.compile(text, re.IGNORECASE), unit) for text, unit in _PATTERNS]
    # A word in a few names must not hide the others, which may carry bare numbers.
    most = len(tried[-1]) / 2
    if len(tried[-2]) >= most:
        tried.pop()  # digits of a score are no epochs where names carry whole numbers
    good = [one for one in tried if one and _all_differ(one)]
    enough = (one for one in good if len(one) >= most)
    return next(enough, None) or next(iter(good), None) or next(filter(None, tried), [])


def _compiled(pattern: str) -> re.Pattern[str]:
    if not isinstance(pattern, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BadValue("pattern", "a regular expression", pattern)
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise BadValue("pattern", "a regular expression", pattern, f"It says: {error}.") from None
    if compiled.groups != 1:
        raise BadValue("pattern", "exactly one group for the number", pattern, "For example 'ckpt_(\\d+)'.")
    return compiled


def _numbered(places: Iterable[Path], pattern: re.Pattern[str], unit: Unit) -> list[Checkpoint]:
    found = [(path, pattern.search(stem(path))) for path in places]
    numbers = [(path, match.group(1)) for path, match in found if match]
    for path, text in numbers:
        if text is None or not text.isdecimal():
            raise BadValue(
                "pattern", "a group that matches a number alone", pattern.pattern,
                f"In {path.name} it matches {'nothing' if text is None else repr(text)}. For example 'ckpt_(\\d+)'.",
            )  # fmt: skip
    return [Checkpoint(int(text), unit, path) for path, text in numbers]


def _all_differ(found: list[Checkpoint]) -> bool:
    return len({one.at for one in found}) == len(found)


def _refuse_strange(found: list[Checkpoint]) -> None:
    """Refuse numbers that no table can hold, and one number of two files."""
    seen: dict[int, Path] = {}
    for one in found:
        if one.at > EXACT:
            raise RunProblem(
                f"{one.path}: wanted {one.unit}s up to {EXACT:,}, got {one.at}. Rename the file, or give a pattern."
            )
        if one.at in seen:
            raise RunProblem(
                f"{one.path.parent}: wanted one file per {one.unit}, got {seen[one.at].name} and {one.path.name} "
                f"for {one.unit} {one.at}. Move one away or give a pattern that tells them apart."
            )
        seen[one.at] = one.path
