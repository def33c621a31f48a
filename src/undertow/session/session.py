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

from undertow.data.entries import first_entry
from undertow.errors import BadData, BadValue
from undertow.features.compatibility import check_used, explained
from undertow.features.layers import resolve_layers
from undertow.session.adding import add_up
from undertow.session.cache import Cache, key_of
from undertow.session.checkpoints import choose
from undertow.session.gauge import Gauge
from undertow.session.look import Look, Seen
from undertow.session.progress import NoProgress, Progress
from undertow.session.reader import ENTERING, Reader
from undertow.session.samples import TEST, TRAIN, SessionSamples, gather_samples
from undertow.session.settings import SessionConfig
from undertow.session.sight import TRIAL, Broken, Sight, first_bad_tensor, pack
from undertow.session.splits import Split, take
from undertow.session.spreading import Spreading
from undertow.shares import Share
from undertow.sizes import parse_size, show_size
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
APART = "its layers do not fit into the memory together: give more --memory"


@dataclass(frozen=True)
class Soundness:
    """Why a checkpoint gives no numbers; nothing where it does."""

    reason: str


class Session(Spreading):
    """A run and its samples."""

    def __init__(
        self,
        run: Opened,
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
            run: an opened run that can build its model, the path of one, or a model by itself.
            train: what it was trained on: Samples, (x, y), (x, y, true), a Dataset, a DataLoader, or the name of a
                data set; the run's own data when neither split is given. A DataSet stands for both splits. Models
                that take several inputs by name get x as a dict of tensors of one length, or a Dataset of dicts with
                the labels under label or labels.
            test: samples it was not trained on, likewise; bare inputs where no labels are known.
            config: which checkpoints and samples, and how models run; or give its fields as `settings`.
            out: the folder for what is kept; the run's own when not given.
            progress: is told how the work goes.
            settings: fields of `SessionConfig`.
        """
        super().__init__()
        self.run = as_run(run, "session")
        self.config = config or SessionConfig.of(**settings)
        self._given = (train, test)
        self.checkpoints = choose(self.run, self.config.checkpoints)
        self.out = Path(out or self.run.path)
        own = self.run.path / FOLDER
        self.cache = Cache(self.out / FOLDER, None if own == self.out / FOLDER else own)
        self.progress = progress or NoProgress()
        self.broken: dict[int, str] = {}
        self.refused: dict[str, BadData | BadValue] = {}
        self.passed: Counter[tuple[int, str]] = Counter()
        self._widths: dict[str, int] = {}
        self._values: dict[tuple[str, int, str], Any] = {}
        self._sight: Sight | None = None
        self._marks: dict[int, str] = {}

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
        few = train.take(torch.arange(min(TRIED, len(train))))
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
        """A hash of the checkpoint's file, or of a fresh model's weights."""
        if at not in self._marks:
            self._marks[at] = self._fresh_mark() if at == FRESH else self.run.mark(at)
        return self._marks[at]

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
    def outputs(self) -> int:
        """How many numbers the model answers for a sample; 0 where they are not one row of numbers."""
        few = self.splits()[0].trial()
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

    @property
    def tokens_by_name(self) -> bool:
        """Whether the inputs are entries by name of which the first holds tokens: no features, then."""
        x = self.splits()[0].trial()
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
        numbers = self.checkpoints if checkpoints is None else checkpoints
        self.gauges = tuple(gauges)
        if self.samples.stream:
            self._add_up(numbers)
        looks = self._looks(numbers)
        todo = {one.at for one in looks}
        for at in numbers:
            if tell is not None and at not in todo:
                tell(at)
        for look, seen in self.spread(looks, self.gauges):
            if seen is not None:
                self._take_in(look, seen)
            if tell is not None:
                tell(look.at)
        # What no training changes was measured at one checkpoint; where that is broken, another one does.
        for at in numbers:
            fixed = [one for one in gauges if not one.depends_on_weights]
            if not self._is_broken(at):
                Look(at, self._places(at, fixed))(self)

    def _add_up(self, numbers: Sequence[int]) -> None:
        """What adds up over shards, one checkpoint after the other; the rest is left to looks."""
        for look in self._looks(numbers):
            gauges = self.gauges
            try:
                add_up(self, look.at, [gauges[place] for place in look.places])
            except Broken as reason:
                self._note_broken(look.at, str(reason))
            finally:
                self.gauges = gauges

    def _looks(self, numbers: Sequence[int]) -> list[Look]:
        """One for each checkpoint at which something is missing; what no training changes is missing at one."""
        sound = [at for at in numbers if not self._is_broken(at)]
        homes = {one.name: next((at for at in sound if one.wanted_at(at)), None) for one in self.gauges}
        found: list[Look] = []
        for at in sound:
            asked = [one for one in self.gauges if one.depends_on_weights or at == homes[one.name]]
            places = self._places(at, asked)
            if places:
                found.append(Look(at, places))
        return found

    def _places(self, at: int, asked: Sequence[Gauge[Any]]) -> tuple[int, ...]:
        return tuple(
            place
            for place, one in enumerate(self.gauges)
            if one in asked and one.wanted_at(at) and not self._is_done(one, at)
        )

    def _take_in(self, look: Look, seen: Seen) -> None:
        """Keep what a worker found."""
        for place, value in seen.values.items():
            self.keep(self.gauges[place], look.at, value)
        self.refused |= seen.refused
        self.passed.update(seen.passed)
        if seen.broken:
            self._note_broken(look.at, seen.broken)

    def look(self, at: int, gauges: Sequence[Gauge[Any]]) -> None:
        """Measure at one checkpoint, here; what is found is kept."""
        try:
            self._look(at, self._that_can(list(gauges)))
        except Broken as reason:
            self._note_broken(at, str(reason))

    def seen(self, at: int) -> Sight:
        """The model of a checkpoint over samples that stream; the last one is held."""
        if self._sight is None or self._sight.at != at:
            self._sight = Sight(self, at, [])
        return self._sight

    def count_passed(self, at: int, split: str, count: int) -> None:
        """Note how many samples of a split went through the model of a checkpoint."""
        self.passed[at, split] += count

    def _that_can(self, gauges: list[Gauge[Any]]) -> list[Gauge[Any]]:
        """Those for which what they need of streams can be held; the others are refused."""
        if not self.samples.stream:
            return gauges
        room = parse_size(self.config.memory) // 3
        for one in gauges:
            for split, layers in one.needs().items():
                widths = [self.outputs, *self.widths([name for name in layers if name != ENTERING]).values()]
                need = 4 * len(self.samples.split(split)) * max(widths)
                if need > room:
                    self.refused[one.name] = BadData(
                        f"it needs {show_size(need)} of the {split} samples at once, a third of the memory is "
                        f"{show_size(room)}. Give more --memory, or fewer --samples"
                    )
        return [one for one in gauges if one.name not in self.refused]

    def _note_broken(self, at: int, reason: str) -> None:
        self.broken[at] = reason
        self.cache.put("soundness", max(at, 0), self._key(at), Soundness(reason))

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
    run: Opened | Session,
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
    return 0 if split is None else len(split)
