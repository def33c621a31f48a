"""`undertow train`: from a line of settings to a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from undertow.cli.flags import FLAGS, BadUsage
from undertow.cli.progress import ProgressBar
from undertow.cli.screen import console
from undertow.cli.summary import ending, heading
from undertow.cli.training_watcher import TrainingWatcher
from undertow.errors import BadValue
from undertow.models.catalogue import parse_spec
from undertow.training.config import TrainConfig

if TYPE_CHECKING:
    from torch import nn

    from undertow.training.interventions import Intervention


def train(
    config: Annotated[TrainConfig, FLAGS] = TrainConfig(),  # noqa: B008  (frozen)
    *,
    out: Path | None = None,
    resume: bool = False,
    freeze_at: str | None = None,
    reinit_at: str | None = None,
    edit_at: int | None = None,
    with_control: bool = False,
    json: bool = False,
    quiet: bool = False,
) -> None:
    """Train a model and keep its checkpoints.

    Args:
        config: What to train and how.
        out: The run's folder; runs/DATA-MODEL-... when not given.
        resume: Go on with a run that was stopped; the numbers are as if it had not been.
        freeze_at: EPOCH:LAYER freezes that layer and all before it after the epoch.
        reinit_at: EPOCH:LAYER gives that layer and all after it fresh weights after the epoch.
        edit_at: EPOCH after which a VeLPIC probe of the head's inputs replaces the head's weights. The probe is fitted
            with the training labels.
        with_control: Also train the same run without the intervention, in OUT-control.
        json: Print one JSON object per epoch.
        quiet: Show no progress bar.
    """
    folder = out or Path("runs") / default_name(config)
    parse_spec(config.model)  # a misspelt model is answered before anything is said or loaded
    changes = [
        *_freeze(freeze_at),
        *_reinitialise(reinit_at, config, folder),
        *_edit(edit_at, config, folder),
    ]
    if with_control and not changes:
        raise BadUsage("--with-control needs an intervention to control for. Add one, such as --edit-at 40.")

    from undertow.crew.limits import keep_freed_memory
    from undertow.training.loop import train as run_training

    keep_freed_memory()
    screen = console()
    if not json:
        screen.print(heading(config))
    twin = [(folder.with_name(f"{folder.name}-control"), [])] if with_control else []
    for place, applied in [(folder, changes), *twin]:
        watch = TrainingWatcher(ProgressBar(quiet=json or quiet, stays=True), json=json)
        run = run_training(config, place, interventions=applied, resume=resume, watch=watch)
        if not json:
            screen.print(ending(run))


def default_name(config: TrainConfig) -> str:
    """A folder name that tells the run from its neighbours."""
    words = [config.data, config.model, *([] if config.noise == "0" else [f"noise{config.noise}"])]
    words += [] if config.labels is None else [f"labels={Path(config.labels).stem}"]
    words += [f"seed{config.seed}"] if config.seed else []
    return "-".join(
        "".join(letter if letter.isalnum() or letter in "._=" else "-" for letter in word) for word in words
    )


def _freeze(text: str | None) -> list[Intervention]:
    from undertow.training.interventions import FreezeAt

    return [] if text is None else [FreezeAt(*_moment("freeze-at", text))]


def _reinitialise(text: str | None, config: TrainConfig, folder: Path) -> list[Intervention]:
    if text is None:
        return []
    from undertow.training.interventions import ReinitialiseAt
    from undertow.training.prepare import prepare_data_of, prepare_model

    fresh = replace(config, seed_init=config.init_seed + 1)
    return [
        ReinitialiseAt(
            *_moment("reinit-at", text), lambda: prepare_model(fresh, prepare_data_of(fresh, folder))[0]
        )
    ]


def _edit(epoch: int | None, config: TrainConfig, folder: Path) -> list[Intervention]:
    """Writing VeLPIC into the head; what could never be edited is refused before anything is trained."""
    if epoch is None:
        return []
    if config.target == "scalar" or config.greedy:
        other = "--greedy, which trains layers one by one" if config.greedy else "--target scalar"
        raise BadUsage(
            f"--edit-at needs a head with one output per class that trains throughout. Leave out {other}."
        )
    from undertow.repairing import write_probe_into_head
    from undertow.training.interventions import EditAt
    from undertow.training.prepare import prepare_data_of

    def edit(model: nn.Module) -> None:
        write_probe_into_head(model, prepare_data_of(config, folder))

    return [EditAt(epoch, edit)]


def _moment(flag: str, text: str) -> tuple[int, str]:
    epoch, _, layer = text.partition(":")
    if not epoch.isdecimal() or not layer:
        raise BadValue(f"--{flag}", "EPOCH:LAYER such as 20:layer2", text)
    return int(epoch), layer
