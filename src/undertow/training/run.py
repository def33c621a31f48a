"""A run: the folder that training leaves behind, ours or anyone's.

    run = open_run("runs/m40")                        # made by `undertow train` or a Recorder
    run = open_run("lightning_logs/version_3", model=LitNet)     # anyone's checkpoints: docs/own-runs.md
    run = open_run("out")                             # transformers' Trainer: the model comes from its config.json
    run = open_run("model.pt", model=build_model)     # one checkpoint; a model itself goes to any verb
    run = open_run("hub:owner/name", revisions="step*")     # fetched one at a time
    run.epochs                                        # (0, 1, 2, 4, ...)
    run.weights(20); run.model(20)                    # a state dict; a module in evaluation mode
    run.metrics; run.labels; run.notes                # pandas tables; what was passed over
    run.data()                                        # the data it was trained on, noise included
    run.labels_file(rows, labels).write(path)         # what to train on next: undertow train --labels

Nothing here changes the folder, and nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import shutil
import weakref
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from undertow.errors import BadValue, NotThere, RunProblem, UndertowError
from undertow.training import huggingface
from undertow.training.checkpoint_files import Checkpoint, is_adapter
from undertow.training.facts import RunFacts
from undertow.training.foreign import (
    LacksWeights,
    averaged_in,
    check_built,
    load_weights,
    passed_over,
    read_weights,
    settings_in,
    unwrap_names,
)
from undertow.training.labels_file import COPY, LabelsFile, inputs_mark
from undertow.training.model_function import ModelFactory, ask_model, factory_of
from undertow.training.prepare import build_from_facts, load_source, prepare_data_of
from undertow.training.run_folder import RunFolder, open_folder
from undertow.training.seeds import global_stream

if TYPE_CHECKING:
    from undertow.data.samples import DataSet

HUB = "hub:"
Weights = Literal["own", "ema"]


@dataclass(frozen=True, eq=False, repr=False)
class Run(RunFolder):
    """Checkpoints in order, with what is known about how they were made, and their model."""

    factory: ModelFactory | None = None
    average: bool = False
    """Whether the moving average of the weights is taken, as timm and torchvision keep it beside them."""

    def weights(self, at: int) -> dict[str, Tensor]:
        """The state dict of a checkpoint on the CPU."""
        return unwrap_names(self._read(self.checkpoint(at)))

    def _read(self, one: Checkpoint) -> dict[str, Tensor]:
        if isinstance(one, ModelCheckpoint):
            return dict(one.weights)
        place = one.local()
        if is_adapter(place):
            return huggingface.merged_weights(place, self.factory)
        return read_weights(place, ema=self.average)

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
        return ask_model(self.factory, self.hyperparameters)

    def load(self, model: nn.Module, at: int) -> nn.Module:
        """Put the weights of a checkpoint into a model that was built for them."""
        one = self.checkpoint(at)
        weights = self._read(one)
        try:
            load_weights(model, weights, str(one.path))
        except LacksWeights:  # the names fit: transformers would drop the same
            raise
        except RunProblem:
            if (
                isinstance(one, ModelCheckpoint)
                or not one.local().is_dir()
                or not huggingface.is_transformer(model)
            ):
                raise
            load_weights(model, huggingface.weights_for(model, one.local()), str(one.path))
        return model

    def mark(self, at: int) -> str:
        """A hash of the weights of a checkpoint, as they are read."""
        found = self.checkpoint(at).mark()
        return f"{found}-ema" if self.average else found

    def model(self, at: int = -1) -> nn.Module:
        """The model as it was at a checkpoint, in evaluation mode."""
        return self.load(self.fresh(), self.checkpoint(at).at).eval()

    @cached_property
    def tokenizer(self) -> Any | None:
        """The tokenizer beside the last checkpoint or in the run's folder, to show texts; None without one."""
        places = [self.checkpoints[-1].about(), self.path]
        return next(
            (found for place in places if (found := huggingface.read_tokenizer(place)) is not None), None
        )

    @cached_property
    def class_names(self) -> tuple[str, ...]:
        """The classes in the order of the outputs, where the run names them."""
        if self.facts.data is not None:
            return tuple(self.facts.data["classes"])
        return huggingface.class_names(self.checkpoints[-1].about())

    @cached_property
    def scaling(self) -> str | None:
        """How inputs were scaled in training, where the run says so."""
        if self.facts.data is not None:
            return self.facts.data["scaling"]
        return huggingface.pixel_scaling(self.checkpoints[-1].about())

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What a user should know of how it was opened."""
        said = list(self.folder_notes)
        if not self.average and self.facts.config is None and self._has_average():
            said.append(
                "The checkpoints also hold averaged weights (EMA); these are the others. weights='ema' (--weights ema) "
                "takes the average."
            )
        if names := self._left_out():
            more = f" and {len(names) - 6} more" if len(names) > 6 else ""
            said.append(
                f"Passed over in the checkpoints: {', '.join(names[:6])}{more} (the model has no such part)."
            )
        return tuple(said)

    def _left_out(self) -> tuple[str, ...]:
        """What the model has no place for in the last checkpoint, where it lies here."""
        last = self.checkpoints[-1]
        try:
            if self.factory is None or type(last) is not Checkpoint or is_adapter(last.path):
                return ()
            # A factory may draw from the global generator.
            with global_stream(0, "notes", 0, torch.device("cpu")):
                model = self.fresh()
            return passed_over(model, self._read(last))
        except (UndertowError, OSError):
            return ()  # told by whoever loads it

    def _has_average(self) -> bool:
        last = self.checkpoints[-1].path
        return last.is_file() and averaged_in(last)

    def hyperparameters(self) -> dict[str, Any]:
        """What the model was trained with, as far as files beside the checkpoints or the last one itself tell."""
        told = super().hyperparameters()
        last = self.checkpoints[-1].path
        return told or (settings_in(last) if last.is_file() else {})

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


@dataclass(frozen=True)
class ModelCheckpoint(Checkpoint):
    """A model in memory."""

    weights: dict[str, Tensor]

    def mark(self) -> str:
        """A hash of the weights."""
        seen = hashlib.blake2b(digest_size=16)
        for name, value in sorted(self.weights.items()):
            seen.update(f"{name}{value.dtype}{tuple(value.shape)}".encode())
            seen.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
        return seen.hexdigest()


@dataclass(frozen=True, eq=False, repr=False)
class ModelRun(Run):
    """One model in memory."""

    title: str = ""

    @property
    def name(self) -> str:
        """Its class."""
        return self.title


Opened = Run | str | Path | nn.Module
"""What every verb takes for a run."""


def open_run(
    path: str | Path,
    *,
    model: ModelFactory | nn.Module | None = None,
    pattern: str | None = None,
    weights: Weights = "own",
    revisions: str | None = None,
) -> Run:
    """Open a run's folder, any folder of checkpoints, one checkpoint, or the revisions of a model on the hub.

    Args:
        path: a folder with run.json; one whose files or folders carry an epoch or step in their names (plain loops,
            Lightning, timm, transformers' Trainer); one checkpoint; or hub:owner/name, with `revisions`.
        model: gives an untrained model (or is one); not needed where undertow or transformers builds the model. A class
            gets the hyper-parameters that its checkpoints tell.
        pattern: a regular expression with one group, the number in a checkpoint's name.
        weights: own, or ema for the moving average that some trainers keep beside them.
        revisions: a pattern of branches or tags, such as step*, whose number is the step.
    """
    if weights not in ("own", "ema"):
        raise BadValue("open_run(weights=...)", "own or ema", weights)
    if str(path).startswith(HUB):
        from undertow.training.revisions import open_revisions

        found = open_revisions(str(path).removeprefix(HUB), revisions or "*")
    elif revisions is not None:
        raise BadValue("open_run(revisions=...)", "a repository, hub:owner/name", str(path))
    else:
        found = open_folder(path, pattern)
    return Run(
        found.path,
        found.checkpoints,
        found.facts,
        found.passed_over,
        _known_model(found, model),
        weights == "ema",
    )


def _known_model(found: RunFolder, model: ModelFactory | nn.Module | None) -> ModelFactory | None:
    """The model given, or the one that undertow or transformers can build."""
    if model is not None:
        return factory_of(model)
    if found.facts.model:
        return build_from_facts(found.facts.model)
    return huggingface.model_of(found.checkpoints[-1].about())


def as_run(source: Opened, who: str = "run") -> Run:
    """The run that anyone hands over: opened already, the path of one, or a model by itself."""
    if isinstance(source, Run):
        return source
    if isinstance(source, nn.Module):
        return run_of_model(source)
    if isinstance(source, str | Path):  # pyright: ignore[reportUnnecessaryIsInstance]
        return open_run(source)
    raise BadValue(
        who, "a run, the path of one, or a model", type(source).__name__, "open_run(path) opens one."
    )


def run_of_model(model: nn.Module) -> Run:
    """A run of one model as it is now; what is kept of it goes to a folder that is gone when the run is."""
    state = model.state_dict()
    check_built(state, type(model).__name__)
    weights = {name: value.detach().cpu().clone() for name, value in state.items()}
    place = Path(mkdtemp(prefix="undertow-"))
    one = ModelCheckpoint(1, "model", place, weights)
    made = ModelRun(place, (one,), RunFacts(), (), partial(deepcopy, model), title=type(model).__name__)
    weakref.finalize(made, shutil.rmtree, place, ignore_errors=True)
    return made
