"""One session: a run, samples, and everything that every verb needs of them, each computed once.

    session = Session(run)                                    # undertow's own runs know their data
    session = Session(run, train=(x, y), test=(x2, y2), checkpoints="every:5", memory="1GB")
    ut.audit(session); ut.label_errors(session); ut.repair(session)      # the passes are shared

    session.checkpoints, session.model(20), session.mark(20)  # numbers, modules, hashes of weights
    session.samples.train, session.samples.classes            # samples as tensors, read once
    session.visit([gauge, ...]); session.value(gauge, 20)     # one pass over each split serves all gauges

Values are kept in `out` (the run's folder when not given) under a hash of weights and samples: a killed verb goes on,
a new checkpoint or layer costs what is new. Checkpoints with NaN in them are noted in `broken` and left out.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from undertow.data.entries import count, first_entry, trial_rows
from undertow.errors import BadData, BadValue
from undertow.features.compatibility import check_used, explained
from undertow.features.layers import resolve_layers
from undertow.session.cache import Cache, key_of
from undertow.session.checkpoints import choose
from undertow.session.gauge import Gauge
from undertow.session.progress import NoProgress, Progress
from undertow.session.reader import Reader
from undertow.session.samples import TEST, TRAIN, SessionSamples, gather_samples
from undertow.session.settings import SessionConfig
from undertow.session.sight import Broken, Sight, first_bad_tensor, pack
from undertow.session.splits import Split
from undertow.sizes import parse_size, show_size
from undertow.training.foreign import load_weights, read_weights
from undertow.training.objective import Objective
from undertow.training.prepare import find_device
from undertow.training.run import Run
from undertow.training.seeds import global_stream, stream

T = TypeVar("T")
FRESH = -1
"""The number of the fresh model that stands in for a missing checkpoint 0."""
FOLDER = "cache"
APART = "its layers do not fit into the memory together: give more --memory"


@dataclass(frozen=True)
class Soundness:
    """Why a checkpoint gives no numbers; nothing where it does."""

    reason: str


class Session:
    """A run and its samples."""

    def __init__(
        self,
        run: Run,
        train: Any = None,
        test: Any = None,
        *,
        config: SessionConfig | None = None,
        out: str | Path | None = None,
        progress: Progress | None = None,
        **settings: Any,
    ) -> None:
        """Choose the checkpoints; samples are read and models run when they are first needed.

        Args:
            run: an opened run that can build its model.
            train: what it was trained on: Samples, (x, y) or a Dataset; the run's own data when neither split is
                given. A DataSet stands for both splits. Models that take several inputs by name get x as a dict of
                tensors of one length, or a Dataset of dicts with the labels under label or labels.
            test: samples it was not trained on, likewise; bare inputs where no labels are known.
            config: which checkpoints and samples, and how models run; or give its fields as `settings`.
            out: the folder for what is kept; the run's own when not given.
            progress: is told how the work goes.
            settings: fields of `SessionConfig`.
        """
        self.run = run
        self.config = config or SessionConfig.of(**settings)
        self._given = (train, test)
        self.checkpoints = choose(run, self.config.checkpoints)
        self.out = Path(out or run.path)
        self.cache = Cache(self.out / FOLDER)
        self.progress = progress or NoProgress()
        self.broken: dict[int, str] = {}
        self.refused: dict[str, BadData | BadValue] = {}
        self.passed: Counter[tuple[int, str]] = Counter()
        self._marks: dict[int, str] = {}
        self._widths: dict[str, int] = {}
        self._values: dict[tuple[str, int, str], Any] = {}

    @cached_property
    def samples(self) -> SessionSamples:
        """The samples given, or the run's own: read once, when they are first asked for."""
        return gather_samples(self.run, *self._given, self.config)

    @property
    def scaling(self) -> str | None:
        """How samples that anyone hands over become inputs; None: they are fed as they are."""
        return self.config.scaling or (self.run.facts.data["scaling"] if self.run.facts.data else None)

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
        if at != FRESH:
            one = self.run.checkpoint(at)
            load_weights(model, read_weights(one.path), str(one.path))
        return model

    @cached_property
    def initial(self) -> int | None:
        """The number of the model before training: checkpoint 0, or what undertow built; else nobody knows it."""
        if self.run.epochs[0] == 0:
            return 0
        return None if self.run.config is None else FRESH

    @cached_property
    def example(self) -> int:
        """The last checkpoint without NaN: on one with, everything would seem to fit."""
        whole = (at for at in reversed(self.checkpoints) if first_bad_tensor(self.model(at)) is None)
        return next(whole, self.checkpoints[-1])

    @cached_property
    def example_model(self) -> nn.Module:
        """Its model, to ask for names and widths of layers."""
        return self.model(self.example)

    def mark(self, at: int) -> str:
        """A hash of the checkpoint's file, or of a fresh model's weights."""
        if at not in self._marks:
            seen = hashlib.blake2b(digest_size=16)
            if at == FRESH:
                for value in self.model(at).state_dict().values():
                    seen.update(value.cpu().contiguous().flatten().view(torch.uint8).numpy())
            else:
                with self.run.checkpoint(at).path.open("rb") as file:
                    hashlib.file_digest(file, lambda: seen)
            self._marks[at] = seen.hexdigest()
        return self._marks[at]

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
                few = trial_rows(split.x)  # pyright: ignore[reportArgumentType]
                batch = next(self.reader(self.example_model).stream(few, new))
                self._widths |= {name: part.shape[1] for name, part in batch.features.items()}
        return {name: self._widths[name] for name in layers}

    @cached_property
    def outputs(self) -> int:
        """How many numbers the model answers for a sample; 0 where they are not one row of numbers."""
        few = trial_rows(self.splits()[0].x)  # pyright: ignore[reportArgumentType]
        found = next(self.reader(self.example_model).stream(few, ["input"])).outputs
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
            few = trial_rows(split.x)  # pyright: ignore[reportArgumentType]
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

    @property
    def tokens_by_name(self) -> bool:
        """Whether the inputs are entries by name of which the first holds tokens: no features, then."""
        x: Any = self.splits()[0].x
        return not isinstance(x, Tensor) and not first_entry(x).is_floating_point()

    def some(self, split: str, most: int, purpose: str) -> Tensor:
        """(K,) numbers of at most `most` samples of a split, drawn at random and sorted."""
        total = len(self.samples.split(split))
        return torch.randperm(total, generator=stream(self.config.seed, purpose))[:most].sort().values

    # ------------------------------------------------------------------ one pass for all

    @property
    def sound(self) -> tuple[int, ...]:
        """The chosen checkpoints that give numbers, as far as they were visited."""
        return tuple(at for at in self.checkpoints if at not in self.broken)

    def visit(
        self,
        gauges: Sequence[Gauge[Any]],
        checkpoints: Sequence[int] | None = None,
        tell: Callable[[int], None] | None = None,
    ) -> None:
        """Measure what is missing, in one pass over each split for a checkpoint while features fit into the memory.

        Args:
            gauges: what to measure.
            checkpoints: where; all chosen ones when not given. Those that others are compared with come first.
            tell: hears of each checkpoint that is done.
        """
        for at in self.checkpoints if checkpoints is None else checkpoints:
            asked = [] if self._is_broken(at) else [one for one in gauges if one.wanted_at(at)]
            missing = [one for one in asked if not self._is_done(one, at)]
            if missing:
                try:
                    self._look(at, missing)
                except Broken as reason:
                    self.broken[at] = str(reason)
                    self.cache.put("soundness", at, self._key(at), Soundness(str(reason)))
            if tell is not None:
                tell(at)

    def missing(self, gauges: Sequence[Gauge[Any]]) -> list[int]:
        """The checkpoints at which one of the gauges is still to be measured."""
        return [
            at
            for at in self.checkpoints
            if not self._is_broken(at)
            and any(one.wanted_at(at) and not self._is_done(one, at) for one in gauges)
        ]

    def memory_words(self, layers: Sequence[str]) -> str:
        """How the features of layers on both splits are held, in words."""
        count, widths = sum(map(len, self.splits())), self.widths(layers)
        sizes = {name: count * width * 4 for name, width in widths.items()}
        rounds = pack(sizes, parse_size(self.config.memory) // 3)
        held = [name for one in rounds for name in one]
        words = [f"{name}: too wide to be held, batch by batch" for name in sizes if name not in held]
        if held:
            often = "one pass" if len(rounds) == 1 else f"{len(rounds)} passes"
            total = show_size(sum(sizes[name] for name in held))
            words.insert(0, f"{', '.join(held)}: {total} of features held in memory, in {often}")
        return "; ".join(words)

    def value(self, gauge: Gauge[T], at: int) -> T | None:
        """What a gauge found at a checkpoint; None where the checkpoint is broken or the gauge refused."""
        return self._kept(gauge, at)

    def values(self, gauge: Gauge[T]) -> dict[int, T]:
        """What a gauge found, by checkpoint."""
        found = {at: self._kept(gauge, at) for at in self.checkpoints}
        return {at: one for at, one in found.items() if one is not None}

    def _look(self, at: int, missing: list[Gauge[Any]]) -> None:
        sight = Sight(self, at, [one.needs() for one in missing])
        for _ in sight.rounds():
            ready = [one for one in missing if sight.holds(one.needs()) or sight.never_holds(one.needs())]
            missing = [one for one in missing if one not in ready]
            for one in ready:
                self._measure(one, sight)
        self.refused |= {one.name: BadData(APART) for one in missing}

    def _measure(self, gauge: Gauge[Any], sight: Sight) -> None:
        try:
            value = gauge.measure(sight, self._kept(gauge, sight.at))
        except (BadData, BadValue) as reason:
            self.refused[gauge.name] = reason
            return
        self.keep(gauge, sight.at, value)

    def keep(self, gauge: Gauge[T], at: int, value: T) -> T:
        """Keep what a gauge found."""
        place, key = self._place(gauge, at)
        if gauge.stays_in_memory:
            self._values[gauge.name, place, key] = value
        return self.cache.put(gauge.name, max(place, 0), key, value)

    def _kept(self, gauge: Gauge[T], at: int) -> T | None:
        place, key = self._place(gauge, at)
        known = (gauge.name, place, key)
        if known not in self._values:
            found = self.cache.get(gauge.name, max(place, 0), key, gauge.kind)
            if found is None or not gauge.stays_in_memory:
                return found
            self._values[known] = found
        return cast("T", self._values[known])

    def _is_done(self, gauge: Gauge[Any], at: int) -> bool:
        if gauge.name in self.refused:
            return True
        if not gauge.stays_in_memory:
            place, key = self._place(gauge, at)
            return self.cache.has(gauge.name, max(place, 0), key)
        kept = self._kept(gauge, at)
        return kept is not None and gauge.complete(kept)

    def _place(self, gauge: Gauge[Any], at: int) -> tuple[int, str]:
        if not gauge.depends_on_weights:
            return 0, self._key(None, *gauge.key(self))
        return at, self._key(at, *gauge.key(self))

    def _key(self, at: int | None, *more: Any) -> str:
        own = self.config
        mark = None if at is None else self.mark(at)
        return key_of(self.samples.fingerprint, mark, own.conv, own.tokens, own.seed, *more)

    def _is_broken(self, at: int) -> bool:
        if at not in self.broken:
            kept = self.cache.get("soundness", max(at, 0), self._key(at), Soundness)
            if kept is not None:
                self.broken[at] = kept.reason
        return at in self.broken


def session_of(
    run: Run | Session,
    train: Any,
    test: Any,
    config: SessionConfig,
    *,
    out: str | Path | None = None,
    progress: Progress | None = None,
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
    run.progress = progress or run.progress
    return run


def count_of(split: Split | None) -> int:
    """How many samples there are; none without a split."""
    return 0 if split is None else count(split.x)  # pyright: ignore[reportArgumentType]
