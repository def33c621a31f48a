"""Opening the run that a command was given, with what its user can do where that does not work.

opened = open_given(run, model=model)                  # its folder, or any folder of checkpoints
opened = open_given(run, model=model, data=data, needs=True)     # where model and data must be known, too
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from undertow.cli.factory import import_factory
from undertow.errors import NotThere, UndertowError

if TYPE_CHECKING:
    from undertow.training.run import Run

MODEL = "--model package.module:function (gives the untrained model)"
DATA = "--data NAME or PATH (what it was trained on)"


class NotSaid(UndertowError):
    """A folder of checkpoints that does not tell all that a command needs."""

    exit_code = 2


def open_given(path: Path, *, model: str | None = None, data: str | None = None, needs: bool = False) -> Run:
    """Open the run in `path`.

    Args:
        path: a run's folder, or any folder of checkpoints.
        model: the place of a function that gives its untrained model.
        data: what the user gave as its data.
        needs: whether model and data must be known; all that is missing is said at once.
    """
    from undertow.training.run import open_run

    _check_folder(path)
    opened = open_run(path, model=import_factory(model) if model else None)
    if needs:
        unsaid = {MODEL: opened.factory is None, DATA: data is None and opened.facts.data is None}
        if any(unsaid.values()):
            wanted = " and ".join(option for option, missing in unsaid.items() if missing)
            raise NotSaid(f"{path} does not say all about its checkpoints: give {wanted}.")
    return opened


def _check_folder(path: Path) -> None:
    """Refuse a folder that holds no checkpoint, and say what it holds."""
    from undertow.training.foreign import ENDINGS
    from undertow.training.run import is_run, list_runs

    if not path.is_dir() or is_run(path):
        return
    place = path / "checkpoints" if (path / "checkpoints").is_dir() else path
    files = sorted(one.name for one in place.iterdir() if one.suffix in ENDINGS and one.name[0] != ".")
    if not files:
        below = [] if place != path else list_runs(path)
        raise NotThere(_instead(path, below) or f"{place} holds no checkpoints ({', '.join(ENDINGS)}).")
    if not any(letter.isdigit() for name in files for letter in name.rpartition(".")[0]):
        raise NotThere(
            f"{place}: the names of its checkpoints carry no epoch and no step ({', '.join(files[:3])}). "
            f"Rename them, such as epoch-12{Path(files[0]).suffix}."
        )


def _instead(path: Path, below: list[Path]) -> str:
    """Which run was perhaps meant; nothing where there is none below."""
    if len(below) == 1:
        return f"{path} is no run itself but holds one: give {below[0]}."
    return f"{path} is no run itself but holds {len(below)}: `undertow runs {path}` lists them." * bool(below)
