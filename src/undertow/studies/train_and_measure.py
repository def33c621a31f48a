"""The work of a study's task: train what the case says, then measure it.

    rows = train_and_measure(case="alpha 0.2", seed=0, config={...}, actions=[], measure="module:function",
                             options={"samples": 2000}, workspace=Path("out"))

A run lies in workspace/runs under a hash of its settings, so that studies with the same training share it,
a killed one goes on where it stopped, and two processes never train the same run at once.

Actions change a model after an epoch, as a text of three words:
    freeze 150 layer1            layer1 and all before it stand still
    reinitialise 200 layer3      layer3 and all behind it get fresh weights
    edit 40 velpic               that probe of the last features is written into the head
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from filelock import FileLock
from torch import nn

from undertow.data.samples import DataSet
from undertow.errors import BadValue, RunProblem
from undertow.studies.findings import row
from undertow.studies.task import Rows
from undertow.training.config import TrainConfig
from undertow.training.facts import RunFacts
from undertow.training.interventions import EditAt, FreezeAt, Intervention, ReinitialiseAt
from undertow.training.loop import train
from undertow.training.prepare import prepare_data, prepare_model
from undertow.training.run import Run, open_run
from undertow.training.run_folder import is_run


def train_and_measure(
    *,
    case: str,
    seed: int,
    config: dict[str, Any] | None,
    actions: Sequence[str],
    measure: str,
    options: dict[str, Any],
    workspace: Path,
) -> Rows:
    """The rows of one case and seed."""
    run = None if config is None else trained(TrainConfig.from_dict(config), actions, workspace)
    rows = resolve_name(measure)(run, case=case, seed=seed, **options)
    return [{"case": case, "seed": seed, **one} for one in [*rows, *([] if run is None else fits(run))]]


def fits(run: Run) -> Rows:
    """How much of its training labels the run learned, and of the wrong ones: what claims may presuppose."""
    metrics = run.metrics
    ended = str(run.facts.ended)
    return [
        row(measure, float(known.iloc[-1]), split="train", note=ended)
        for measure in ("train_fit", "train_wrong_fit")
        if measure in metrics and len(known := metrics[measure].dropna())
    ]


def trained(config: TrainConfig, actions: Sequence[str], workspace: Path) -> Run:
    """The finished run of these settings: found, taken up again, or trained."""
    folder = workspace / "runs" / run_name(config, actions)
    with _alone(folder):
        # Its facts alone: a run that was killed before its first checkpoint cannot be opened yet, only trained on.
        if is_run(folder) and RunFacts.read(folder).finished:
            return open_run(folder)
        return train(
            config, folder, interventions=[_action(text, config) for text in actions], resume=is_run(folder)
        )


@contextmanager
def _alone(folder: Path) -> Generator[None]:
    """One process at a time trains the run in this folder; another that wants it waits."""
    lock = FileLock(f"{folder}.lock")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except OSError as error:
        where = error.filename or lock.lock_file
        raise RunProblem(
            f"Cannot write {where}: {error.strerror or error}. Remove what is in its place, or choose another --out."
        ) from error
    try:
        yield
    finally:
        lock.release()


def run_name(config: TrainConfig, actions: Sequence[str]) -> str:
    """A folder name that people can tell apart and that no other settings have."""
    text = json.dumps([config.changes(), list(actions)], sort_keys=True)
    start = (
        f"{config.data}-{config.model}".replace(":", "-").replace("/", "-").replace("=", "").replace(",", "-")
    )
    return f"{start}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _action(text: str, config: TrainConfig) -> Intervention:
    kind, epoch, target = text.split()
    match kind:
        case "freeze":
            return FreezeAt(int(epoch), target)
        case "reinitialise":
            fresh = replace(config, seed_init=config.init_seed + 1)
            return ReinitialiseAt(int(epoch), target, lambda: prepare_model(fresh, prepare_data(fresh))[0])
        case "edit":
            data = prepare_data(config)
            return EditAt(int(epoch), lambda model: _write(model, data, target))
        case _:
            raise BadValue("action", "freeze, reinitialise or edit, an epoch and what", text)


def _write(model: nn.Module, data: DataSet, probe: str) -> None:
    # Here, not above: it loads scikit-learn, which takes two seconds that few tasks need.
    from undertow.repairing.transfer import write_probe_into_head

    write_probe_into_head(model, data, probe=probe)
