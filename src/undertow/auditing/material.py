"""The samples of an audit, in one of three situations.

    material = gather_material(run, None, None, config)          # undertow's own runs know their data
    material = gather_material(run, (x, y), (x2, y2), config)    # anyone's; also Samples, Datasets, a DataSet
    material = gather_material(run, None, x2, config)            # no labels at all: a tensor, or a dict of entries
    material.situation                                           # "clean test labels", "noisy labels only", "no labels"

Held-out labels count as true, unless the configuration says that they are noisy or that there are none. Where there
is no training split, or one without labels, nothing can be probed or repaired.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor

from undertow.auditing.settings import SITUATIONS, AuditConfig, Labels
from undertow.data.entries import LABELS, SampleInputs, count, hash_inputs, read_entries, rows_of
from undertow.data.inputs import scaled
from undertow.data.load import load_data
from undertow.data.samples import DataSet, Samples
from undertow.errors import BadData, BadValue
from undertow.session.reader import read_split
from undertow.training.run import Run
from undertow.training.seeds import stream


@dataclass(frozen=True, eq=False)
class Split:
    """Samples, with the labels that are known of them."""

    x: SampleInputs
    given: Tensor | None = None  # (N,) the labels that training saw, or noisy ones
    true: Tensor | None = None  # (N,)

    def __len__(self) -> int:
        return count(self.x)

    def label_sets(self) -> dict[str, Tensor]:
        """Known labels by name."""
        found = {"given": self.given, "true": self.true}
        return {name: labels for name, labels in found.items() if labels is not None}

    @property
    def labels(self) -> Tensor | None:
        """The best labels known."""
        return self.given if self.true is None else self.true

    def take(self, rows: Tensor) -> Split:
        """The samples at `rows`."""
        labels = (None if part is None else part[rows] for part in (self.given, self.true))
        return Split(rows_of(self.x, rows), *labels)


@dataclass(frozen=True, eq=False)
class Material:
    """What an audit is made of."""

    name: str
    classes: tuple[str, ...]  # empty where there are no labels
    train: Split | None
    test: Split
    scaling: str
    labels: Labels
    data: DataSet | None  # both splits with labels, for what needs them

    @property
    def situation(self) -> str:
        """Which labels are known, in words."""
        return SITUATIONS[self.labels]

    @property
    def test_labels(self) -> str:
        """What rows call the held-out labels."""
        return "given" if self.labels == "noisy" else "true"

    @property
    def fingerprint(self) -> str:
        """A hash of all samples and labels, and of how they are fed."""
        seen = hashlib.blake2b(f"{self.scaling} {self.labels}".encode(), digest_size=16)
        for split in (self.train, self.test):
            for part in () if split is None else (split.x, split.given, split.true):
                if part is not None:
                    hash_inputs(seen, part)
        return seen.hexdigest()

    def inputs(self, x: SampleInputs) -> SampleInputs:
        """Samples as the model takes them."""
        return scaled(x, self.scaling)

    @property
    def by_name(self) -> bool:
        """Whether the model takes several inputs by name."""
        return not isinstance(self.test.x, Tensor)

    def wrong_labels(self) -> tuple[int, int] | None:
        """How many training labels are wrong, and of how many; None where nobody knows."""
        if self.train is None or self.train.given is None or self.train.true is None:
            return None
        return int((self.train.given != self.train.true).sum()), len(self.train)

    def some_test(self, most: int, seed: int, purpose: str) -> Tensor:
        """(K,) numbers of at most `most` test samples, drawn at random and sorted."""
        drawn = torch.randperm(len(self.test), generator=stream(seed, purpose))[:most]
        return drawn.sort().values


def gather_material(run: Run, train: Any, test: Any, config: AuditConfig) -> Material:
    """The samples given, or the run's own; see the module's docstring."""
    # A run that undertow trained says how its inputs were scaled; what else is handed over is fed as it is.
    scaling = run.facts.data["scaling"] if run.facts.data else None
    if train is None and test is None:
        train = run.data()
    if isinstance(train, DataSet):
        data = train if test is None else replace(train, test=_samples(test, "test"))
        return _of_data(replace(data, scaling=scaling or data.scaling), config)
    if test is None:
        raise BadValue(
            "audit", "samples that the model was not trained on", "training samples only", "Give test=..., "
            "with labels (x, y) or without (x).",
        )  # fmt: skip
    if train is not None and not _is_bare(train) and not _is_bare(test):
        return _of_data(replace(_data_set(train, test), scaling=scaling or "none"), config)
    return _without_pair(train, test, scaling or "none", config)


def _data_set(train: Any, test: Any) -> DataSet:
    if not (isinstance(train, Samples) and isinstance(test, Samples)):
        return load_data((train, test))
    count = int(max(train.y.max(), test.y.max())) + 1
    return DataSet("given", train, test, tuple(map(str, range(count))))


def _samples(source: Any, where: str) -> Samples:
    return source if isinstance(source, Samples) else Samples.of(*read_split(source, where))  # pyright: ignore


def _of_data(data: DataSet, config: AuditConfig) -> Material:
    """Both splits with labels; what the configuration does not want to know is left out."""
    data = replace(data, train=_drawn(data.train, config), test=_drawn(data.test, config))
    if config.labels == "none":
        splits = Split(data.train.x), Split(data.test.x)
        return Material(data.name, (), *splits, data.scaling, "none", None)
    noisy = config.labels == "noisy"
    if noisy:  # what is not to be known is not handed on either
        data = replace(data, train=replace(data.train, true=None), test=replace(data.test, true=None))
    train = Split(data.train.x, data.train.y, data.train.true)
    right = data.test.y if data.test.true is None else data.test.true
    test = Split(data.test.x, data.test.y) if noisy else Split(data.test.x, None, right)
    return Material(data.name, data.classes, train, test, data.scaling, config.labels, data)


def _without_pair(train: Any, test: Any, scaling: str, config: AuditConfig) -> Material:
    """Test samples alone, or with training samples of which one split has no labels."""
    first = None if train is None else _bare(train, "train") if _is_bare(train) else _samples(train, "train")
    bare = _is_bare(test)
    second = _bare(test, "test") if bare else _samples(test, "test")
    kept = None if first is None else Split(_drawn(first, config).x)
    held = _drawn(second, config)
    if bare or config.labels == "none":
        return Material("given", (), kept, Split(held.x), scaling, "none", None)
    split = Split(held.x, held.y) if config.labels == "noisy" else Split(held.x, None, held.y)
    names = tuple(map(str, range(int(second.y.max()) + 1)))
    return Material("given", names, kept, split, scaling, config.labels, None)


def _is_bare(source: Any) -> bool:
    """Whether these are inputs without labels."""
    if isinstance(source, Mapping):
        return not any(name in cast("Mapping[str, Any]", source) for name in LABELS)
    return isinstance(source, Tensor)


def _bare(given: Any, where: str) -> Samples:
    x = read_entries(cast("Mapping[str, Any]", given), where) if isinstance(given, Mapping) else given
    if not count(x):
        raise BadData(f"audit, {where}: wanted samples, got none.")
    return Samples.of(x, torch.zeros(count(x), dtype=torch.int64))


def _drawn(samples: Samples, config: AuditConfig) -> Samples:
    most = config.most_samples
    if most is None or most >= len(samples):
        return samples
    order = torch.randperm(len(samples), generator=stream(config.seed, "audited samples"))
    return samples.take(order[:most].sort().values)
