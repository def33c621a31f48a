"""What a study is: a frozen recipe that declares everything and computes nothing.

    study = Study(
        name="richness/target-scale", title="Larger targets make training rich",
        source="paper 002, table 2", measure="undertow.studies.richness.last_layer_measures:last_layer",
        cases=(Case("alpha 0.2", TrainConfig(...)), ...),
        changes={"smoke": ScaleChange(train={"epochs": 2}), "laptop": ScaleChange(minutes=2)},
        published=(Published("alpha 0.2", "d_lr", 0.049, 0.013, "table 7"), ...),
        claims=(Claim("D_LR rises with alpha", rises),), figure=draw)
    study.at("laptop").tasks(seeds=3)        # pure tasks, for whoever runs them
    study.at("paper").keep(["MLP on MNIST"])  # one case of them
    study.differences("laptop")              # what that scale changes, in words

The cases are written at the paper's scale; a `ScaleChange` says what a smaller scale does differently, so that
nothing is cut down silently. Nothing here needs torch: measures are named by their place.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from undertow.errors import BadValue, unknown
from undertow.studies.claims import Claim
from undertow.studies.task import Task
from undertow.training.config import TrainConfig

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from undertow.studies.findings import Findings

Scale = Literal["smoke", "laptop", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)

MOST_SEEDS = 1_000
"""More are a slip of the keyboard: each is a task for every case."""
MEASURE = "undertow.studies.train_and_measure:train_and_measure"
"""The function of every task: train a case's model where there is one, then measure."""


@dataclass(frozen=True)
class Case:
    """One setting of a study: what is trained, what is done to it, and what only this case is measured with."""

    name: str
    train: TrainConfig | None = None  # None: nothing to train
    actions: tuple[str, ...] = ()  # "freeze 150 layer1", "reinitialise 200 layer3": see train_and_measure.py
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, kw_only=True)
class ScaleChange:
    """What a scale does otherwise than the paper."""

    train: Mapping[str, Any] = field(default_factory=dict[str, Any])  # settings of every case
    cases: Mapping[str, Mapping[str, Any]] = field(
        default_factory=dict[str, Mapping[str, Any]]
    )  # of one case
    actions: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    only: tuple[str, ...] = ()  # the cases kept; () keeps all
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])  # of the measure
    because: str = ""  # what a reader should know about it
    minutes: float | None = None  # on two cores, all cases, one seed; measured, or scaled up from some cases


@dataclass(frozen=True)
class Published:
    """A number of the paper."""

    case: str
    measure: str
    value: float
    within: float | None = None  # how far ours may be off; None: a fifth of the paper's value
    source: str = ""  # table or figure
    where: Mapping[str, Any] = field(default_factory=dict[str, Any])  # layer, checkpoint, split, ...
    reachable_at: tuple[Scale, ...] = SCALES  # the scales whose networks and data can give this number at all
    cause: str = ""  # why ours is off, where that is known

    @classmethod
    def row(
        cls, cases: Sequence[str], measure: str, values: Sequence[float], within: float | Sequence[float],
        source: str, where: Mapping[str, Any] | None = None, reachable_at: tuple[Scale, ...] = SCALES,
        cause: str = "",
    ) -> tuple[Published, ...]:  # fmt: skip
        """One measure of all cases, as a table prints it; `within` for all or for each."""
        near = [within] * len(cases) if isinstance(within, int | float) else within
        return tuple(
            cls(case, measure, value, most, source, where or {}, reachable_at, cause)
            for case, value, most in zip(cases, values, near, strict=True)
        )

    @property
    def tolerance(self) -> float:
        """How far ours may be off."""
        return abs(self.value) / 5 if self.within is None else self.within

    @property
    def place(self) -> str:
        """`split test, layer fc3`."""
        return ", ".join(f"{name} {value}" for name, value in self.where.items())

    def near(self, ours: float) -> bool:
        """Whether ours is near enough."""
        return abs(ours - self.value) <= self.tolerance


@dataclass(frozen=True, kw_only=True)
class Study:
    """A figure or table of a paper: what to train, what to measure, and what the paper found."""

    name: str
    title: str
    source: str
    cases: tuple[Case, ...]
    measure: str  # "module:function" of (run, *, case, seed, **options) -> rows
    claims: tuple[Claim, ...]
    figure: Callable[[Findings], Figure]
    published: tuple[Published, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    changes: Mapping[str, ScaleChange] = field(default_factory=dict[str, ScaleChange])
    notes: tuple[str, ...] = ()  # departures from the paper that hold at every scale
    seeds: int = 3  # beyond smoke, unless another number is asked for; five where a p value decides

    @property
    def data(self) -> tuple[str, ...]:
        """The data sets that its cases are trained on."""
        names = (case.train.data.partition(":")[0] for case in self.cases if case.train)
        return tuple(dict.fromkeys(names))

    def change(self, scale: str) -> ScaleChange:
        """What `scale` does otherwise than the paper."""
        if scale not in SCALES:
            raise unknown("scale", scale, SCALES)
        return ScaleChange() if scale == "paper" else self.changes[scale]

    def at(self, scale: str) -> Study:
        """The study at that scale."""
        change = self.change(scale)
        for name in (*change.only, *change.cases, *change.actions):
            self.case(name)
        kept = [case for case in self.cases if not change.only or case.name in change.only]
        return replace(
            self,
            cases=tuple(_changed(case, change) for case in kept),
            options={**self.options, **change.options},
        )

    def keep(self, names: Sequence[str]) -> Study:
        """The study with these cases alone; no names keep all."""
        return replace(self, cases=tuple(map(self.case, dict.fromkeys(names)))) if names else self

    def case(self, name: str) -> Case:
        """The case called `name`."""
        for case in self.cases:
            if case.name == name:
                return case
        raise unknown(f"case of {self.name}", name, [case.name for case in self.cases])

    def seeds_at(self, scale: str, asked: int | range | None = None) -> range:
        """The seeds that were asked for; when none were, one for smoke and the study's own number beyond."""
        if asked is None:
            asked = 1 if scale == "smoke" else self.seeds
        wanted = asked if isinstance(asked, range) else range(asked)
        if wanted and (wanted[-1] - wanted[0]) // wanted.step >= MOST_SEEDS:
            raise BadValue("seeds", f"at most {MOST_SEEDS:,}", asked, "Begin with --first-seed for more.")
        return wanted

    def tasks(self, seeds: int | range) -> list[Task]:
        """One pure task for each case and seed: so many from 0 on, or those of a range."""
        wanted = seeds if isinstance(seeds, range) else range(seeds)
        if not wanted or wanted[0] < 0:
            raise BadValue("seeds", "at least 1, from 0 on", seeds)
        return [self._task(case, seed) for case in self.cases for seed in wanted]

    @property
    def mark(self) -> str:
        """The same as long as the same is trained and measured, whatever is then made of it."""
        plain = replace(self, cases=tuple(_every_epoch_tested(case) for case in self.cases))
        text = json.dumps([task.to_dict() for task in plain.tasks(1)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def _task(self, case: Case, seed: int) -> Task:
        config = None if case.train is None else replace(case.train, seed=case.train.seed + seed).changes()
        return Task(
            MEASURE,
            {
                "case": case.name, "seed": seed, "config": config, "actions": list(case.actions),
                "measure": self.measure, "options": {**self.options, **case.options},
            },
            label=f"{self.name}, {case.name}, seed {seed}",
        )  # fmt: skip

    def differences(self, scale: str) -> list[str]:
        """What `scale` changes, one phrase each; nothing for the paper's own."""
        small, change = self.at(scale), self.change(scale)
        left_out = [case.name for case in self.cases if case.name not in {kept.name for kept in small.cases}]
        lines = [f"without {_listed(left_out)}"] if left_out else []
        lines += _setting_changes([(self.case(case.name), case) for case in small.cases])
        lines += [
            f"{name.replace('_', ' ')} {_words(self.options.get(name))} → {_words(value)}"
            for name, value in change.options.items()
            if value != self.options.get(name)
        ]
        return [*lines, *([change.because] if change.because else [])]


def _every_epoch_tested(case: Case) -> Case:
    """The same case to a mark: how often test samples are looked at in training changes no row."""
    return case if case.train is None else replace(case, train=replace(case.train, test_at="epochs"))


def _changed(case: Case, change: ScaleChange) -> Case:
    actions = change.actions.get(case.name, case.actions)
    if case.train is None:
        return replace(case, actions=actions, options={**case.options, **change.cases.get(case.name, {})})
    settings = {**change.train, **change.cases.get(case.name, {})}
    known = {one.name for one in fields(TrainConfig)}
    own = {name: value for name, value in settings.items() if name not in known}
    trained = {name: value for name, value in settings.items() if name in known}
    return replace(
        case, train=replace(case.train, **trained), actions=actions, options={**case.options, **own}
    )


def _setting_changes(pairs: list[tuple[Case, Case]]) -> list[str]:
    """`epochs 200 → 30`, with the cases named where not all change alike."""
    found: dict[str, list[str]] = {}
    for paper, ours in pairs:
        before, after = (_settings(case) for case in (paper, ours))
        for name in after:
            if before.get(name) != after[name]:
                text = f"{name.replace('_', ' ')} {_words(before.get(name))} → {_words(after[name])}"
                found.setdefault(text, []).append(ours.name)
    return [
        text if len(names) == len(pairs) else f"{text} ({_listed(names)})" for text, names in found.items()
    ]


def _listed(names: list[str]) -> str:
    """`MLP-MNIST 0 / 0.2 / 1, untrained`: names that differ in their last word are said once."""
    alike: dict[str, list[str]] = {}
    for name in names:
        begin, space, end = name.rpartition(" ")
        alike.setdefault(begin + space or name, []).append(end if space else "")
    return ", ".join(begin + " / ".join(ends) for begin, ends in alike.items())


def _settings(case: Case) -> dict[str, Any]:
    trained = {} if case.train is None else case.train.to_dict()
    return {**trained, **case.options, "actions": case.actions}


def _words(value: Any) -> str:
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value)) or "none"  # pyright: ignore[reportUnknownArgumentType]
    return "all" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
