"""The samples of a session, in one of three situations: the one place where they are read.

    held = gather_samples(run, None, None, config)               # undertow's own runs know their data
    held = gather_samples(run, (x, y), (x2, y2), config)         # anyone's; also Samples, Datasets, a DataSet
    held = gather_samples(run, None, x2, config)                 # no labels at all: a tensor, or a dict of entries
    held = gather_samples(run, (x, y), None, config)             # nothing held out
    held.train, held.test, held.classes, held.scaling, held.fingerprint

Held-out labels count as true, unless the configuration says that they are noisy or that there are none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from undertow.data.entries import LABELS, SampleInputs, count, hash_inputs, read_entries
from undertow.data.load import load_data
from undertow.data.samples import DataSet, Samples
from undertow.errors import BadData, BadValue
from undertow.features.tap import Inputs
from undertow.session.settings import Labels, SessionConfig
from undertow.session.splits import Split, read_split
from undertow.training.run import Run
from undertow.training.seeds import stream

TRAIN, TEST = "train", "test"
Taken = TypeVar("Taken", Samples, Split)


@dataclass(frozen=True, eq=False)
class SessionSamples:
    """Both splits of a session; either may be missing."""

    name: str
    classes: tuple[str, ...]  # empty where there are no labels
    train: Split | None
    test: Split | None
    scaling: str | None  # None: fed as they are
    labels: Labels
    note: str = ""
    source: DataSet | None = None  # as it came, for its fingerprint
    drawn: tuple[int | None, int] = (None, 0)  # how many samples at most, and the seed that drew them

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all samples and labels, and of how they are fed; content is hashed once, by the data itself."""
        seen = hashlib.blake2b(f"{self.scaling} {self.labels} {self.drawn}".encode(), digest_size=16)
        if self.source is not None:
            seen.update(self.source.fingerprint.encode())
            return seen.hexdigest()
        for split in (self.train, self.test):
            for part in () if split is None else (split.x, split.given, split.true):
                if part is not None:
                    hash_inputs(seen, _by_name(part))
        return seen.hexdigest()

    @property
    def test_labels(self) -> str:
        """What rows call the held-out labels."""
        return "given" if self.labels == "noisy" else "true"

    @property
    def both_labelled(self) -> bool:
        """Whether probes can be fitted on one split and judged on the other."""
        splits = (self.train, self.test)
        return all(split is not None and split.labels is not None for split in splits)

    def split(self, name: str) -> Split:
        """The split called train or test."""
        found = self.train if name == TRAIN else self.test
        if found is None:
            raise BadValue("session", f"a {name} split", "none", f"Give {name}=...")
        return found

    def wrong_labels(self) -> tuple[int, int] | None:
        """How many training labels are wrong, and of how many; None where nobody knows."""
        if self.train is None or self.train.given is None or self.train.true is None:
            return None
        return int((self.train.given != self.train.true).sum()), len(self.train)


def gather_samples(run: Run | None, train: Any, test: Any, config: SessionConfig) -> SessionSamples:
    """The samples given, or the run's own; see the module's docstring."""
    # A run that undertow trained says how its inputs were scaled; what else is handed over is fed as it is.
    told = run.facts.data["scaling"] if run is not None and run.facts.data else None
    scaling = config.scaling or told
    if train is None and test is None and run is not None:
        train = run.data()
    if isinstance(train, DataSet):
        data = train if test is None else replace(train, test=_samples(test, TEST))
        return _of_data(data, scaling or data.scaling, config)
    pair = train is not None and test is not None
    if pair and not any(_is_bare(one) or _is_positional(one) for one in (train, test)):
        data, own = _data_set(train, test)
        return _of_data(data, scaling or own, config)
    return _of_parts(train, test, scaling, config)


def _data_set(train: Any, test: Any) -> tuple[DataSet, str]:
    """Both splits as a DataSet, and how its samples are fed unless somebody says otherwise: as they are."""
    if not (isinstance(train, Samples) and isinstance(test, Samples)):
        return load_data((train, test)), "none"
    most = int(max(train.y.max(), test.y.max())) + 1
    return DataSet("given", train, test, tuple(map(str, range(most)))), "none"


def _of_data(data: DataSet, scaling: str, config: SessionConfig) -> SessionSamples:
    """Both splits with labels; what the configuration does not want to know is left out.

    The DataSet is kept as it came: it may know its fingerprint already.
    """
    note, drawn = data.note, (config.samples, config.seed if config.samples else 0)
    train, test = (_drawn(part, config) for part in (data.train, data.test))
    about: dict[str, Any] = {"note": note, "source": data, "drawn": drawn}
    if config.labels == "none":
        return SessionSamples(data.name, (), Split(train.x), Split(test.x), scaling, "none", **about)
    noisy = config.labels == "noisy"
    first = Split(train.x, train.y, None if noisy else train.true)
    right = test.y if test.true is None else test.true
    second = Split(test.x, test.y) if noisy else Split(test.x, None, right)
    return SessionSamples(data.name, data.classes, first, second, scaling, config.labels, **about)


def _of_parts(train: Any, test: Any, scaling: str | None, config: SessionConfig) -> SessionSamples:
    """One split alone, or two of which one has no labels or is called with several inputs by position."""
    first = None if train is None else _part(train, TRAIN, config)
    second = None if test is None else _part(test, TEST, config)
    if second is not None and config.labels != "noisy":
        second = Split(second.x, None, second.given)
    if config.labels == "none":
        first, second = (None if part is None else Split(part.x) for part in (first, second))
    known = [part.labels for part in (first, second) if part is not None and part.labels is not None]
    names = tuple(map(str, range(1 + max((int(one.max()) for one in known), default=-1))))
    labels: Labels = config.labels if second is not None and second.labels is not None else "none"
    return SessionSamples("given", names, first, second, scaling, labels)


def _part(source: Any, where: str, config: SessionConfig) -> Split:
    if _is_bare(source):
        found = Split(_bare(source, where))
    else:
        found = read_split(_samples(source, where) if isinstance(source, DataSet) else source, where)
    return _drawn(found, config)


def _samples(source: Any, where: str) -> Samples:
    if isinstance(source, Samples):
        return source
    if isinstance(source, DataSet):
        return source.test if where == TEST else source.train
    found = read_split(source, where)
    return Samples.of(found.x, found.y)  # pyright: ignore[reportArgumentType]


def _by_name(x: Inputs) -> SampleInputs:
    """Tensors by name; positional ones by their place."""
    if isinstance(x, Tensor):
        return x
    parts = x.items() if isinstance(x, Mapping) else ((str(at), part) for at, part in enumerate(x))
    return {name: part for name, part in parts if isinstance(part, Tensor)}


def _is_bare(source: Any) -> bool:
    """Whether these are inputs without labels."""
    if isinstance(source, Mapping):
        return not any(name in cast("Mapping[str, Any]", source) for name in LABELS)
    return isinstance(source, Tensor)


def _is_positional(source: Any) -> bool:
    """Whether these are several inputs with labels, ((a, b), y): tensors that no data set holds."""
    pair = cast("Sequence[Any]", source)
    return isinstance(source, tuple | list) and len(pair) == 2 and isinstance(pair[0], tuple | list) and all(
        isinstance(part, Tensor) for part in cast("Sequence[Any]", pair[0])
    )  # fmt: skip


def _bare(given: Any, where: str) -> Inputs:
    x = read_entries(cast("Mapping[str, Any]", given), where) if isinstance(given, Mapping) else given
    if not count(x):
        raise BadData(f"{where}: wanted samples, got none.")
    return x


def _drawn(samples: Taken, config: SessionConfig) -> Taken:
    most = config.samples
    if most is None or most >= len(samples):
        return samples
    order = torch.randperm(len(samples), generator=stream(config.seed, "audited samples"))
    return samples.take(order[:most].sort().values)
