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

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor, nn

from undertow.errors import BadValue, NotThere, RunProblem
from undertow.training.foreign import load_weights, read_weights, unwrap_names
from undertow.training.labels_file import COPY, LabelsFile, inputs_mark
from undertow.training.prepare import build_from_facts, load_source, prepare_data_of
from undertow.training.run_folder import RunFolder, open_folder

if TYPE_CHECKING:
    from undertow.data.samples import DataSet

ModelFactory = Callable[[], nn.Module]


@dataclass(frozen=True, eq=False)
class Run(RunFolder):
    """Checkpoints in order, with what is known about how they were made, and their model."""

    factory: ModelFactory | None = None

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
    found = open_folder(path, pattern)
    facts = found.facts
    factory = _factory(model) if model is not None else build_from_facts(facts.model) if facts.model else None
    return Run(found.path, found.checkpoints, facts, factory)


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
