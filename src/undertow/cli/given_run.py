"""The run that a command was given, ours or anyone's, with its model and its data.

    opened = open_given(run, theirs)                       # model and data must be known
    check_outputs("audit", [("--csv", csv)], used=files_of(opened, theirs))
    data = load_given(opened, theirs, scaling)             # None where none was given: the run's own

A run of undertow says how its model is built, what it was trained on and how its inputs were scaled. Other
checkpoints do not; what --model and --data say of them is remembered (remembered.py) once the last checkpoint has
loaded with it. Own files of floats are fed as they are, bytes as pixels from 0 to 1, undertow's named sets as undertow
scales them. `--scaling` changes that, and the data's note says which it was.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Literal

from undertow.cli.flags import BadUsage
from undertow.cli.remembered import Told, recall, remember, undoable, whole
from undertow.data.catalogue import DATA
from undertow.errors import FOREIGN, BadValue, NotThere, unknown

if TYPE_CHECKING:
    from torch import nn

    from undertow.data.samples import DataSet
    from undertow.training.run import Run

NEEDED = {
    "model": "--model package.module:function (gives the untrained model)",
    "data": "--data NAME or PATH (what it was trained on)",
}
SCALINGS = {
    "none": "Inputs are fed as they are",
    "unit": "Pixels are fed as numbers from 0 to 1",
    "half": "Pixels are fed as numbers from -1 to 1",
    "cifar": "Pixels are fed after subtracting CIFAR's means and dividing by its deviations",
    "imagenet": "Pixels are fed after subtracting ImageNet's means and dividing by its deviations",
}


@dataclass(frozen=True, kw_only=True)
class Theirs:
    """What the checkpoints of another program do not say themselves."""

    model: str | None = None
    """package.module:function, or file.py:function, that gives an untrained model, for checkpoints that undertow
    did not write."""
    data: str | None = None
    """The data of such checkpoints: a name or a path."""
    weights: Literal["own", "ema"] | None = None
    """own, or ema for the moving average that some trainers keep beside them; own when not given."""
    revisions: str | None = None
    """Of hub:owner/name: a pattern of branches or tags, such as step*; all with a number when not given."""


def open_given(path: Path, theirs: Theirs) -> Run:
    """Open the run in `path`; whatever is missing of its model and data is said at once."""
    from undertow.training.run import HUB, open_run

    check_folder(path)
    opened = open_run(path, revisions=theirs.revisions)
    told = recall(opened.path)
    if told.revisions and not theirs.revisions and str(path).startswith(HUB):
        opened = open_run(path, revisions=told.revisions)
    if theirs.model is not None:
        opened = replace(opened, factory=import_factory(theirs.model))
    else:
        opened = _with_told_model(opened, told)
    opened = replace(opened, average=(theirs.weights or told.weights) == "ema")
    known = {"model": opened.factory, "data": theirs.data or told.data or opened.facts.data}
    if missing := [NEEDED[name] for name, found in known.items() if found is None]:
        raise BadUsage(f"{path} does not say enough about its checkpoints. Add {' and '.join(missing)}.")
    return opened


def _with_told_model(opened: Run, told: Told) -> Run:
    """The run with the model that an earlier command was told of; run.json knows better where it says how."""
    if told.model is None or opened.facts.model:
        return opened
    with undoable(opened.path, told):
        return replace(opened, factory=import_factory(told.model, told.folder))


def files_of(opened: Run, theirs: Theirs) -> list[Path]:
    """The files and folders that a command on a run reads: no output may take their place."""
    own = opened.config
    read = [theirs.data or recall(opened.path).data, own and own.data]
    there = [Path(one) for one in read if one and one.partition(":")[0] not in DATA and Path(one).exists()]
    return [*(one.path for one in opened.checkpoints), *there]


def check_folder(path: Path) -> None:
    """Refuse a folder that holds no checkpoint, and say what it holds."""
    with suppress(PermissionError):  # told by whoever opens it
        _check_folder(path)


def _check_folder(path: Path) -> None:
    from undertow.training.checkpoint_files import ending_of, holds_weights
    from undertow.training.run_folder import below_words, is_run, list_runs, theirs_below

    if not path.is_dir() or is_run(path) or holds_weights(path):
        return
    place = path / "checkpoints" if (path / "checkpoints").is_dir() else path
    files = sorted(one.name for one in place.iterdir() if ending_of(one) and one.name[0] != ".")
    if not files:
        below = [] if place != path else list_runs(path)
        if below or not any(one.is_dir() for one in place.iterdir()):
            raise NotThere(_instead(path, below) or _no_checkpoints(place))
        return
    if not any(letter.isdigit() for name in files for letter in name.rpartition(".")[0]):
        below = below_words(theirs_below(place))
        raise NotThere(
            f"{place}: the names of its checkpoints carry no epoch and no step ({', '.join(files[:3])}). "
            f"{below or f'Rename them, for example to epoch-12{Path(files[0]).suffix}, or give one of them alone.'}"
        )


def _no_checkpoints(place: Path) -> str:
    """What was looked for, and what lies there instead."""
    from undertow.cli.screen import counted
    from undertow.training.checkpoint_files import ENDINGS

    others = sorted(one.name for one in place.iterdir() if one.is_file() and one.name[0] != ".")
    beside = f", but {counted(len(others), 'other file')}, such as {others[0]}" if others else ""
    return f"{place} holds no checkpoints ({', '.join(ENDINGS)}, or what torch.save wrote){beside}."


def _instead(path: Path, below: list[Path]) -> str:
    """Which run was perhaps meant; nothing where there is none below."""
    if len(below) == 1:
        return f"{path} is not a run, but it holds one: {below[0]}."
    listed = f"`undertow runs {quote(str(path))}` lists them."
    return f"{path} is not a run, but it holds {len(below)}: {listed}" * bool(below)


def open_remembered(path: Path) -> Run:
    """The run in `path`, with the model that a command before was told of, if it does not say itself."""
    from undertow.training.run import open_run

    check_folder(path)
    opened = open_run(path)
    return opened if opened.factory is not None else _with_told_model(opened, recall(opened.path))


def is_given_run(source: str) -> bool:
    """Whether `source` is checkpoints rather than the name of a model: a folder, a checkpoint's file, the hub."""
    from undertow.training.checkpoint_files import ending_of

    path = Path(source)
    return path.is_dir() or source.startswith("hub:") or bool(path.is_file() and ending_of(path))


def import_factory(place: str, folder: str | None = None) -> Callable[[], nn.Module]:
    """The function that `place` names; modules in the current folder, or in `folder`, are found too."""
    module, _, name = place.partition(":")
    if not module or not name:
        raise BadValue("--model", "package.module:function or file.py:function", place)
    if module.endswith(".py"):
        module = _module_of(Path(folder or "", module))
    if "" not in sys.path:
        sys.path.insert(0, "")
    if folder is not None and folder not in sys.path:
        sys.path.append(folder)
    try:
        home = import_module(module)
    except FOREIGN as error:  # whatever a user's module does when it is loaded
        said = f"{error}" if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"
        raise BadUsage(f"--model: the module {module!r} cannot be imported. Python says: {said}.") from error
    found = getattr(home, name, None)
    if not callable(found):
        raise unknown(
            f"function in {module}", name, [one for one in vars(home) if callable(getattr(home, one))]
        )
    return found  # pyright: ignore[reportReturnType]


def _module_of(file: Path) -> str:
    """The name by which a file can be imported, once its folder is searched."""
    if not file.is_file():
        raise BadUsage(f"--model: there is no file {file}.")
    if (home := str(file.resolve().parent)) not in sys.path:
        sys.path.insert(0, home)
    return file.stem


def load_given(run: Run, theirs: Theirs, scaling: str | None) -> DataSet | None:
    """The data that was given, now or before, scaled for the model of `run`; None where the run has its own.

    What was given is remembered here, once the weights of the last checkpoint have loaded with it.
    """
    from undertow.data.inputs import find_scaling
    from undertow.data.load import load_data

    told, source, says_itself = recall(run.path), theirs.data, run.facts.data is not None
    if source is None and not says_itself:
        source, scaling = told.data, scaling or told.scaling
    if scaling is not None:
        find_scaling(scaling)
        _check_free(run, source)
    now = _told_now(run, told, theirs, None if says_itself else (source, scaling))
    with undoable(run.path, now) if theirs == Theirs() else nullcontext():
        data = None if source is None else load_data(source)
        if now == Told():
            return data
        model = run.model()
    remember(run.path, now)
    return data if data is None or says_itself else _scaled(run, model, data, str(source), scaling)


def _told_now(run: Run, told: Told, theirs: Theirs, data: tuple[str | None, str | None] | None) -> Told:
    """What was said of the run, with what is said now; where run.json builds the model it needs no other."""
    now = replace(told, weights=theirs.weights or told.weights, revisions=theirs.revisions or told.revisions)
    if run.facts.model:
        now = replace(now, model=None, folder=None)
    elif theirs.model:
        now = replace(now, model=theirs.model, folder=str(Path.cwd()))
    return now if data is None else replace(now, data=whole(data[0]), scaling=data[1])


def _scaled(run: Run, model: nn.Module, data: DataSet, source: str, scaling: str | None) -> DataSet:
    """The data with the scaling that was said, or else the likeliest; its note says which."""
    from undertow.session.scalings import likeliest_scaling

    scaling = scaling or run.scaling
    plain = data.scaling if source.partition(":")[0] in DATA else _plain(data)
    likely = None if scaling else likeliest_scaling(model, data.train.x, data.train.y, plain)
    chosen = scaling or (plain if likely is None else likely.name)
    why = "" if likely is None else likely.words or "if it was trained on others, say so with --scaling"
    hint = f": {why}" if why else ""
    note = f"{scaling_words(chosen)} (--scaling {chosen}){hint}."
    return replace(
        data, scaling=chosen, note=f"{note} {data.note}".strip() if data.kind == "image" else data.note
    )


def scaling_words(name: str) -> str:
    """How samples are fed, as a sentence."""
    mean, _, std = name.partition("/")
    return SCALINGS.get(name, f"Pixels are fed after subtracting {mean} and dividing by {std}")


def _check_free(run: Run, source: str | None) -> None:
    if run.facts.data is not None:
        known = run.facts.data["scaling"]
        raise BadUsage(f"{run.path} already says how its inputs were scaled ({known}). Leave --scaling out.")
    if source is None:
        raise BadUsage("--scaling has no data to scale. Add --data.")


def _plain(data: DataSet) -> str:
    """As little as can be done: bytes become numbers from 0 to 1, all else stays."""
    import torch
    from torch import Tensor

    return "unit" if isinstance(data.train.x, Tensor) and data.train.x.dtype == torch.uint8 else "none"
