"""One session: a run, samples, and everything that every verb needs of them, each computed once.

    session = Session(run)                                    # undertow's own runs know their data
    session = Session(run, train=(x, y), test=(x2, y2), checkpoints="every:5", memory="1GB")
    ut.audit(session); ut.label_errors(session); ut.repair(session)      # the passes are shared

    session.checkpoints, session.model(20), session.mark(20)  # numbers, modules, hashes of weights and behaviour
    session.samples.train, session.samples.classes            # samples as tensors, read once
    session.visit([gauge, ...]); session.value(gauge, 20)     # one pass over each split serves all gauges

Values are kept in `out` (the run's folder when not given) under a hash of weights, of what the model's code makes of
them, and of samples: a killed verb goes on, a new checkpoint or layer costs what is new. Checkpoints with NaN in them
are noted in `broken` and left out.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from undertow.data.entries import first_entry
from undertow.errors import BadData, BadValue, UndertowError
from undertow.features.compatibility import check_used, explained
from undertow.features.layers import resolve_layers
from undertow.session.behaviour import behaviour_of
from undertow.session.cache import Cache
from undertow.session.checkpoints import choose
from undertow.session.field_types import folder
from undertow.session.progress import NoProgress, Progress, asked_progress
from undertow.session.reader import Reader
from undertow.session.samples import TEST, TRAIN, SessionSamples, gather_samples
from undertow.session.settings import SessionConfig
from undertow.session.sight import TRIAL, first_bad_tensor
from undertow.session.splits import Split, take
from undertow.session.visiting import Visiting
from undertow.shares import Share
from undertow.training.objective import Objective
from undertow.training.prepare import find_device
from undertow.training.run import Opened, as_run
from undertow.training.seeds import global_stream, stream

T = TypeVar("T")
FRESH = -1
"""The number of the fresh model that stands in for a missing checkpoint 0."""
FOLDER = "cache"
TRIED = 256
"""Training samples that tell whether a checkpoint has learned anything."""
MANY = 100.0
"""Epochs of a model of which nobody knows how long it was trained: it may have memorised its labels."""


class Session(Visiting):
    """A run and its samples."""

    def __init__(
        self,
        run: Opened,
        train: Any = None,
        test: Any = None,
        *,
        config: SessionConfig | None = None,
        out: str | Path | None = None,
        progress: Progress | bool | None = None,
        **settings: Any,
    ) -> None:
        """Choose the checkpoints; samples are read and models run when they are first needed.

        Args:
            run: an opened run that can build its model, the path of one, or a model by itself.
            train: what it was trained on: Samples, (x, y), (x, y, true), a Dataset, a DataLoader, or the name of a
                data set; the run's own data when neither split is given. A DataSet stands for both splits. Models
                that take several inputs by name get x as a dict of tensors of one length, or a Dataset of dicts with
                the labels under label or labels.
            test: samples it was not trained on, likewise; bare inputs where no labels are known.
            config: which checkpoints and samples, and how models run; or give its fields as `settings`.
            out: the folder for what is kept; the run's own when not given.
            progress: is told how the work goes; True shows a bar.
            settings: fields of `SessionConfig`.
        """
        super().__init__()
        self.run = as_run(run, "session")
        self.config = SessionConfig.chosen(config, settings)
        self._given = (train, test)
        self.checkpoints = choose(self.run, self.config.checkpoints)
        self.out = folder(out, self.run.path)
        own = self.run.path / FOLDER
        self.cache = Cache(self.out / FOLDER, None if own == self.out / FOLDER else own)
        self.progress = asked_progress(progress)
        self._widths: dict[str, int] = {}
        self._marks: dict[int, str] = {}

    @cached_property
    def samples(self) -> SessionSamples:
        """The samples given, or the run's own: read once, when they are first asked for."""
        return gather_samples(self.run, *self._given, self.config)

    @property
    def scaling(self) -> str | None:
        """How samples that anyone hands over become inputs; None: they are fed as they are."""
        return self.config.scaling or (self.run.facts.data["scaling"] if self.run.facts.data else None)

    def over(self, samples: SessionSamples, place: Path) -> Session:
        """The same session over other samples: what was made or found of these is not there, nor told of."""
        made = copy.copy(self)
        Visiting.__init__(made)
        made.cache, made.progress = Cache(place), NoProgress()
        made.__dict__.update(samples=samples, behaviour=self.behaviour)
        return made

    # ------------------------------------------------------------------ models

    def fresh(self) -> nn.Module:
        """An untrained model in evaluation mode, the same each time."""
        # A user's factory may draw from the global generator: the same draws each time, and none lost.
        with global_stream(self.config.seed, "fresh model", 0, torch.device("cpu")):
            model = self.run.fresh().eval()
        return model if self.config.device is None else model.to(find_device(self.config.device))

    def model(self, at: int, into: nn.Module | None = None) -> nn.Module:
        """The model at a checkpoint in evaluation mode, built or loaded into one that was built before.

        A fresh model for FRESH.
        """
        model = self.fresh() if into is None else into
        return model if at == FRESH else self.run.load(model, at)

    @cached_property
    def initial(self) -> int | None:
        """The number of the model before training: checkpoint 0, or what undertow built; else nobody knows it.

        Lightning and timm call the first epoch 0 when it is done: their checkpoint 0 is a trained one.
        """
        if self.run.epochs[0] == 0 and (self.run.config is not None or not self._has_learned(0)):
            return 0
        return None if self.run.config is None else FRESH

    def _has_learned(self, at: int) -> bool:
        """Whether a checkpoint clearly knows labels better than the commonest one would; no without labels."""
        train = self.samples.train
        if train is None or train.labels is None:
            return False
        few = train.take((train.y >= 0).nonzero()[:TRIED, 0])  # some may lack a label
        if not len(few.y):
            return False
        said = self.reader(self.model(at)).answers(few.x)
        hits = int((said.reshape(len(said), -1).argmax(1) == few.y).sum())
        chance = float(few.y.bincount().max()) / len(few)
        return Share(hits, len(few)).sure().low > chance

    def epochs_trained(self, at: int) -> float:
        """How often a checkpoint had seen each label: its number, or its steps over those of an epoch."""
        if self.run.unit == "epoch":
            return float(at) + (self.run.epochs[0] == 0 and self.initial != 0)
        if self.run.single:
            return MANY
        trained, told = self.run.config, self.run.logs.steps_per_epoch
        batch = 64 if trained is None else trained.batch_size
        return at / told if told else at * batch / max(1, len(self.samples.split(TRAIN)))

    @cached_property
    def example(self) -> int:
        """The last checkpoint without NaN: on one with, everything would seem to fit."""
        whole = (at for at in reversed(self.checkpoints) if first_bad_tensor(self.model(at)) is None)
        return next(whole, self.checkpoints[-1])

    @cached_property
    def example_model(self) -> nn.Module:
        """Its model, to ask for names and widths of layers."""
        return self.model(self.example)

    @cached_property
    def example_reader(self) -> Reader:
        """Runs it; with its head, where it has one."""
        plain, some = self.reader(self.example_model), self.splits()[0]
        try:
            return plain.with_head(plain.inputs(take(some.x, torch.arange(min(TRIAL, len(some))))))
        except (BadValue, BadData):
            return plain

    def mark(self, at: int) -> str:
        """A hash of a checkpoint's file, or of a fresh model's weights, and of what the model's code makes of them."""
        if at not in self._marks:
            weights = self._fresh_mark() if at == FRESH else self.run.mark(at)
            self._marks[at] = f"{weights} {self.behaviour}"
        return self._marks[at]

    @cached_property
    def behaviour(self) -> str:
        """A hash of how the model answers for a few samples: the same weights in other code are another model.

        With the weights of the run's first checkpoint, whichever are chosen and however long the run grows.
        """
        return behaviour_of(self.reader(self._first_model()), self.splits()[0].trial())

    def _first_model(self) -> nn.Module:
        first = self.run.checkpoints[0]
        if first.path.exists():  # else it would have to be fetched first
            with suppress(UndertowError):
                model = self.model(first.at)
                if first_bad_tensor(model) is None:
                    return model
        return self.example_model

    def _fresh_mark(self) -> str:
        seen = hashlib.blake2b(digest_size=16)
        for value in self.model(FRESH).state_dict().values():
            seen.update(value.cpu().contiguous().flatten().view(torch.uint8).numpy())
        return seen.hexdigest()

    @property
    def marks(self) -> dict[int, str]:
        """The hashes that are known."""
        return dict(self._marks)

    def reader(self, model: nn.Module) -> Reader:
        """How a model is run over samples."""
        own = self.config
        return Reader(
            model, scaling=self.samples.scaling, batch_size=own.batch_size, conv=own.conv, tokens=own.tokens
        )

    def layers(self, names: str | Sequence[str]) -> tuple[str, ...]:
        """The layers that `names` ask for."""
        return resolve_layers(self.example_model, names)

    def widths(self, layers: Sequence[str]) -> dict[str, int]:
        """How wide layers are, from a few samples that show whether model and samples fit together."""
        new = [name for name in layers if name not in self._widths]
        if new:
            for split in self.splits():
                few = split.trial()
                batch = next(self.example_reader.stream(few, new))
                self._widths |= {name: part.shape[1] for name, part in batch.features.items()}
        return {name: self._widths[name] for name in layers}

    @cached_property
    def _few_outputs(self) -> Tensor:
        few = self.splits()[0].trial()
        return next(self.reader(self.example_model).stream(few, ["input"])).outputs

    @property
    def outputs(self) -> int:
        """How many numbers the model answers for a sample; 0 where they are not one row of numbers."""
        found = self._few_outputs
        return found.shape[1] if found.ndim == 2 else 0

    def splits(self) -> list[Split]:
        """The splits that there are, held-out samples first."""
        return [split for split in (self.samples.test, self.samples.train) if split is not None]

    def check_fit(self) -> None:
        """Refuse samples that the model cannot take, before anything is computed."""
        for name in (TEST, TRAIN):
            split = self.samples.test if name == TEST else self.samples.train
            if split is None:
                continue
            few = split.trial()
            with explained(self.example_model, few, f"{self.samples.name}/{name}"):
                check_used(self.example_model, few)
                for _ in self.reader(self.example_model).stream(few, ["input"]):
                    pass

    def objective(self, outputs: Tensor) -> Objective:
        """How outputs (N, C) are read as classes and judged."""
        trained = self.run.config
        if trained is None:
            return Objective("ce", outputs.shape[1])
        classes = len(self.samples.classes) or outputs.shape[1]
        return Objective(trained.loss, classes, trained.alpha, trained.target)

    @cached_property
    def unread(self) -> str:
        """Why the model's outputs name no classes; nothing where they do."""
        found = self._few_outputs.reshape(len(self._few_outputs), -1)
        return self.objective(found).unread(found)

    @property
    def tokens_by_name(self) -> bool:
        """Whether the inputs are entries by name of which the first holds tokens: no features, then."""
        x = self.splits()[0].trial()
        return not isinstance(x, Tensor) and not first_entry(x).is_floating_point()

    def some(self, split: str, most: int, purpose: str) -> Tensor:
        """(K,) numbers of at most `most` samples of a split, drawn at random and sorted."""
        total = len(self.samples.split(split))
        return torch.randperm(total, generator=stream(self.config.seed, purpose))[:most].sort().values


def session_of(
    run: Opened | Session,
    train: Any,
    test: Any,
    config: SessionConfig,
    *,
    out: str | Path | None = None,
    progress: Progress | bool | None = None,
) -> Session:
    """The session given, or a new one of these arguments; beside a session, samples and its settings are refused."""
    if not isinstance(run, Session):
        return Session(run, train, test, config=config, out=out, progress=progress)
    plain, own = SessionConfig().shared(), run.config.shared()
    beside = [name for name, part in {"train": train, "test": test}.items() if part is not None]
    beside += [name for name, value in config.shared().items() if value not in (plain[name], own[name])]
    if beside:
        raise BadValue(
            config.verb, "samples and shared settings in the session", f"{', '.join(beside)} beside it",
            "Give them to Session(...).",
        )  # fmt: skip
    run.progress = run.progress if progress is None else asked_progress(progress)
    return run


def count_of(split: Split | None) -> int:
    """How many samples there are; none without a split."""
    return 0 if split is None else len(split)
