"""A run: the folder that training leaves behind, ours or anyone's.

    run = open_run("runs/m40")                        # made by `undertow train` or a Recorder
    run = open_run("lightning_logs/v3/checkpoints", model=build_model)     # .pt .pth .ckpt .safetensors
    run.epochs                                        # (0, 1, 2, 4, ...)
    run.weights(20); run.model(20)                    # a state dict; a module in evaluation mode
    run.metrics; run.labels                           # pandas tables
    run.data()                                        # the data it was trained on, noise included
    run.labels_file(rows, labels).write(path)         # what to train on next: undertow train --labels

Nothing here changes the folder, and nothing is ever unpickled.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from undertow.errors import BadValue, NotThere, RunProblem, unknown
from undertow.training.config import TrainConfig
from undertow.training.facts import RunFacts
from undertow.training.foreign import (
    ENDINGS,
    Checkpoint,
    find_checkpoints,
    load_weights,
    read_weights,
    unwrap_names,
)
from undertow.training.labels_file import COPY, LabelsFile, inputs_mark
from undertow.training.prepare import build_from_facts, load_source, prepare_data_of
from undertow.training.record import read_table
from undertow.training.schedule import Unit

if TYPE_CHECKING:
    import pandas as pd

    from undertow.data.samples import DataSet

ModelFactory = Callable[[], nn.Module]


@dataclass(frozen=True, eq=False)
class Run:
    """Checkpoints in order, with what is known about how they were made."""

    path: Path
    checkpoints: tuple[Checkpoint, ...]
    facts: RunFacts
    factory: ModelFactory | None = None

    @property
    def unit(self) -> Unit:
        """What the checkpoints are numbered by."""
        return self.checkpoints[0].unit

    @property
    def epochs(self) -> tuple[int, ...]:
        """The numbers of the checkpoints (epochs, or steps where `unit` says so)."""
        return tuple(one.at for one in self.checkpoints)

    @property
    def config(self) -> TrainConfig | None:
        """How undertow trained it; None for a loop that is not ours."""
        return None if self.facts.config is None else TrainConfig.from_dict(self.facts.config)

    def checkpoint(self, at: int) -> Checkpoint:
        """The checkpoint numbered `at`; a negative number counts from the end."""
        by_number = {one.at: one for one in self.checkpoints}
        if not isinstance(at, int):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise BadValue(f"{self.path}", f"a number of a checkpoint ({self.unit})", at)
        if at < 0 and -at <= len(self.checkpoints):
            return self.checkpoints[at]
        if at not in by_number:
            near = sorted(by_number, key=lambda other: abs(other - at))[:3]
            raise BadValue(
                f"{self.path}",
                f"the {self.unit} of a kept checkpoint",
                at,
                f"The nearest are {', '.join(map(str, sorted(near)))}.",
            )
        return by_number[at]

    def weights(self, at: int) -> dict[str, Tensor]:
        """The state dict of a checkpoint on the CPU."""
        return unwrap_names(read_weights(self.checkpoint(at).path))

    def fresh(self) -> nn.Module:
        """An untrained model."""
        if self.factory is None:
            raise BadValue(
                f"{self.path}",
                "a way to build its model",
                None,
                "Open it with open_run(path, model=function) where function() gives an untrained model; "
                "on the command line, --model package.module:function.",
            )
        return _built(self.factory)

    def model(self, at: int = -1) -> nn.Module:
        """The model as it was at a checkpoint, in evaluation mode."""
        one = self.checkpoint(at)
        model = self.fresh()
        load_weights(model, read_weights(one.path), str(one.path))
        return model.eval()

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """One row per recorded epoch or step; what the table lacks is read from the checkpoints' headers."""
        import pandas as pd

        rows: dict[Any, dict[str, Any]] = {one.at: _header_metrics(one) for one in self.checkpoints}
        table = self.path / "metrics.parquet"
        if table.exists():
            rows |= {row[self.unit]: row for row in read_table(table) if self.unit in row}
        return pd.DataFrame([rows[at] for at in sorted(rows) if rows[at]])

    @cached_property
    def labels(self) -> pd.DataFrame | None:
        """Training labels: index, given and (where known) true; None if nobody stored them."""
        import pandas as pd

        table = self.path / "labels.parquet"
        return pd.read_parquet(table) if table.exists() else None

    def data(self) -> DataSet:
        """The data the run was trained on, with the same noisy labels; refused if it has changed since."""
        config = self.config
        if config is None or self.facts.data is None:
            raise NotThere(
                f"{self.path} does not say what it was trained on. Give the data (on the command line: --data)."
            )
        data = prepare_data_of(config, self.path)
        if data.fingerprint != self.facts.data["fingerprint"]:
            raise RunProblem(
                f"{self.path}: wanted the data it was trained on (fingerprint {self.facts.data['fingerprint'][:8]}), "
                f"got {data.name} with {data.fingerprint[:8]}. Use the same source, or give the data yourself."
            )
        return data

    def labels_file(self, rows: Tensor, labels: Tensor) -> LabelsFile:
        """What to train on next, for `undertow train --labels`: the samples `rows` of `data().train` with `labels`.

        Samples are numbered as the source has them, also where this run was itself trained on a part of them.
        """
        config = self.config
        if config is None or self.facts.data is None:
            return LabelsFile.of(rows, labels)
        numbers = rows if config.labels is None else LabelsFile.read(self.path / COPY).sample[rows]
        self.data()  # refuses a source that has changed since
        return LabelsFile.of(numbers, labels, inputs_mark(load_source(config).train))


def open_run(
    path: str | Path, *, model: ModelFactory | nn.Module | None = None, pattern: str | None = None
) -> Run:
    """Open a run's folder, or any folder of checkpoints.

    Args:
        path: a folder with run.json, or one whose files carry an epoch or step in their names.
        model: gives an untrained model (or is one); not needed where undertow built the model.
        pattern: a regular expression with one group, the number in a checkpoint's name.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise _no_run(folder)
    ours = (folder / "run.json").exists()
    facts = RunFacts.read(folder) if ours else RunFacts()
    inner = folder / "checkpoints"
    if not ours and not inner.is_dir() and (below := list_runs(folder)):
        raise NotThere(
            f"{folder} holds {len(below)} runs and is none itself. `undertow runs {folder}` lists them."
        )
    if ours and not inner.is_dir() and not any(path.suffix in ENDINGS for path in folder.iterdir()):
        raise NotThere(f"{folder} has no checkpoint yet. Train it on with --resume.")
    found = find_checkpoints(inner if inner.is_dir() else folder, pattern)
    factory = _factory(model) if model is not None else build_from_facts(facts.model) if facts.model else None
    return Run(folder, found, facts, factory)


def _factory(model: ModelFactory | nn.Module) -> ModelFactory:
    """A function that gives a fresh copy of the model each time, whatever the user gave."""
    if isinstance(model, nn.Module):
        return partial(deepcopy, model)
    if not callable(model):
        raise BadValue("open_run(model=...)", "a function that gives an untrained model, or a model", model)
    return model


def _built(factory: ModelFactory) -> nn.Module:
    try:
        model = factory()
    except TypeError as error:
        raise BadValue(
            "model function", "a function without arguments", factory, f"It says: {error}."
        ) from error
    if not isinstance(model, nn.Module):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BadValue("model function", "an nn.Module as its answer", type(model).__name__)
    return model


def is_run(folder: Path) -> bool:
    """Whether undertow wrote a run into `folder`."""
    return (folder / "run.json").exists()


def list_runs(folder: str | Path) -> list[Path]:
    """Run folders in `folder`, itself and its sub-folders to any depth."""
    return sorted(found.parent for found in Path(folder).rglob("run.json"))


def _no_run(folder: Path) -> Exception:
    if folder.exists():
        return RunProblem(f"{folder}: wanted a run's folder, got a file.")
    if folder.parent.is_dir():
        beside = [str(found) for found in folder.parent.iterdir() if is_run(found)]
        return unknown("run", str(folder), beside, "`undertow runs` lists what is there.")
    return NotThere(f"There is no run {folder}. `undertow runs` lists what is there.")


def _header_metrics(one: Checkpoint) -> dict[str, Any]:
    if one.path.suffix != ".safetensors":
        return {}
    try:
        with safe_open(one.path, framework="pt") as file:
            header = file.metadata() or {}
    except (SafetensorError, OSError):
        return {}  # said by whoever wants its weights
    return json.loads(header.get("metrics", "{}"))
