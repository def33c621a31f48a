"""`undertow train`: from a line of settings to a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from undertow.cli.progress import watcher
from undertow.cli.screen import console
from undertow.cli.summary import ending, heading
from undertow.errors import BadValue
from undertow.models.catalogue import parse_spec
from undertow.train.config import TrainConfig

if TYPE_CHECKING:
    from undertow.train.interventions import Intervention


def train(
    config: Annotated[TrainConfig, Parameter(name="*")] = TrainConfig(),  # noqa: B008  (frozen)
    *,
    out: Path | None = None,
    resume: bool = False,
    freeze_at: str | None = None,
    reinit_at: str | None = None,
    json: bool = False,
    quiet: bool = False,
) -> None:
    """Train a model and keep its checkpoints.

    Args:
        config: what to train and how.
        out: the run's folder; runs/DATA-MODEL-... when not given.
        resume: go on with a run that was stopped; it ends as if it had not been.
        freeze_at: EPOCH:LAYER, from then on that layer and all before it stand still.
        reinit_at: EPOCH:LAYER, that layer and all behind it get fresh weights then.
        json: one JSON object per epoch on standard output.
        quiet: no progress bar.
    """
    folder = out or Path("runs") / default_name(config)
    parse_spec(config.model)  # a misspelt model is answered before anything is said or loaded
    changes = [*_freeze(freeze_at), *_reinitialise(reinit_at, config)]

    from undertow.train.loop import train as run_training

    screen = console()
    if not json:
        screen.print(heading(config))
    run = run_training(
        config, folder, interventions=changes, resume=resume, watch=watcher(json=json, quiet=quiet)
    )
    if not json:
        screen.print(ending(run))


def default_name(config: TrainConfig) -> str:
    """A folder name that tells the run from its neighbours."""
    words = [config.data, config.model, *([] if config.noise == "0" else [f"noise{config.noise}"])]
    words += [f"seed{config.seed}"] if config.seed else []
    return "-".join(
        "".join(letter if letter.isalnum() or letter in "._=" else "-" for letter in word) for word in words
    )


def _freeze(text: str | None) -> list[Intervention]:
    from undertow.train.interventions import FreezeAt

    return [] if text is None else [FreezeAt(*_moment("freeze-at", text))]


def _reinitialise(text: str | None, config: TrainConfig) -> list[Intervention]:
    if text is None:
        return []
    from undertow.train.interventions import ReinitialiseAt
    from undertow.train.prepare import prepare_data, prepare_model

    fresh = replace(config, seed_init=config.init_seed + 1)
    return [ReinitialiseAt(*_moment("reinit-at", text), lambda: prepare_model(fresh, prepare_data(fresh))[0])]


def _moment(flag: str, text: str) -> tuple[int, str]:
    epoch, _, layer = text.partition(":")
    if not epoch.isdecimal() or not layer:
        raise BadValue(f"--{flag}", "EPOCH:LAYER such as 20:layer2", text)
    return int(epoch), layer
