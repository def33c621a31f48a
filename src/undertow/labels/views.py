"""What can be asked about a label: features of samples, and who may judge whom.

    View(rows=rows)                               # (N, D) features that never saw the labels: inputs, embeddings
    View("layer2", 4, rows=rows)                  # a layer of a network that learned these labels for 4 epochs
    plan = Plan.of(labels, classes=10, folds=5, seed=0)
    plan.judged                                   # (N,) bool: labelled, and of a class that has others to compare with
    plan.folds                                    # disjoint sample numbers; the last holds what is unlabelled

A label of -1 is missing: such a sample teaches nobody and is judged by all folds, so that a class can be proposed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from mmap import mmap

import torch
from torch import Tensor

from undertow.errors import BadData
from undertow.labels.shelf import slices

HONEST_EPOCHS = 2.0
"""A network that saw each label at most so often has memorised next to none."""
FEWEST = 3
"""Samples of a class from which its labels are judged: with fewer, too little is left to judge by."""


@dataclass(frozen=True)
class ViewSource:
    """Where features come from, and for how many epochs their maker had learned the labels that are judged."""

    name: str = "features"
    epoch: float = 0.0

    @property
    def untouched(self) -> bool:
        """Whether no label has gone into these features."""
        return self.epoch == 0

    @property
    def honest(self) -> bool:
        """Whether hardly any label can have been memorised."""
        return self.epoch <= HONEST_EPOCHS

    @property
    def title(self) -> str:
        """For people."""
        return self.name if self.untouched else f"{self.name} at epoch {self.epoch:.3g}"


@dataclass(frozen=True, eq=False)
class View(ViewSource):
    """Features of all samples."""

    rows: Tensor = field(kw_only=True)  # (N, D)
    file: mmap | None = field(
        kw_only=True, default=None
    )  # in which the rows lie, where they are not in memory

    @property
    def in_memory(self) -> int:
        """Bytes."""
        return 0 if self.file is not None else 4 * self.rows.numel()

    def check(self, count: int) -> None:
        """Refuse what is no table of numbers for so many samples."""
        if self.rows.ndim != 2 or len(self.rows) != count:
            raise BadData(
                f"{self.title}: wanted features of shape ({count}, D), one row for each label, "
                f"got {tuple(self.rows.shape)}."
            )
        parts = (self.rows[rows] for rows in slices(count, self.rows.shape[1]))
        bad = torch.cat([~torch.isfinite(part).all(1) for part in parts]).nonzero()
        if len(bad):
            raise BadData(
                f"{self.title}: wanted finite features, got NaN or infinity in {len(bad)} of {count} rows, first in "
                f"row {int(bad[0])}. Leave such samples out or fill the gaps."
            )


@dataclass(frozen=True, eq=False)
class Plan:
    """Who judges whom: no label is judged by what it has taught."""

    labels: Tensor  # (N,) int64; -1 where missing
    classes: int
    folds: tuple[Tensor, ...]  # sample numbers; the last one: unlabelled
    judged: Tensor  # (N,) bool

    @classmethod
    def of(cls, labels: Tensor, classes: int, folds: int, seed: int) -> Plan:
        """Stratified folds of the labelled samples."""
        labels = labels.detach().cpu().long()
        _check_labels(labels, classes)
        draws = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(labels), generator=draws)
        order = order[labels[order] >= 0]
        by_class = order[labels[order].argsort(stable=True)]
        parts = tuple(by_class[start::folds].sort().values for start in range(folds))
        missing = (labels < 0).nonzero()[:, 0]
        sizes = labels[labels >= 0].bincount(minlength=classes)
        judged = (labels >= 0) & (sizes[labels.clamp(min=0)] >= FEWEST)
        return cls(labels, classes, (*parts, missing), judged)

    @property
    def labelled(self) -> Tensor:
        """(N,) bool."""
        return self.labels >= 0

    @property
    def shares(self) -> Tensor:
        """(C,) float32: how often each class is given."""
        counts = self.labels[self.labelled].bincount(minlength=self.classes).float()
        return counts / counts.sum()

    def fold_of(self) -> Tensor:
        """(N,) int64: the fold of each sample; the number of folds for unlabelled ones."""
        places = torch.empty(len(self.labels), dtype=torch.int64)
        for at, fold in enumerate(self.folds):
            places[fold] = at
        return places


def _check_labels(labels: Tensor, classes: int) -> None:
    if labels.ndim != 1:
        raise BadData(f"labels: wanted one class number per sample, got shape {tuple(labels.shape)}.")
    if classes < 2:
        raise BadData(f"labels: wanted two classes or more, got {classes}. One class has no wrong label.")
    if len(labels) and (int(labels.min()) < -1 or int(labels.max()) >= classes):
        bad = ((labels < -1) | (labels >= classes)).nonzero()[0]
        raise BadData(
            f"labels: wanted 0 to {classes - 1}, or -1 where missing, got {int(labels[bad])} at {int(bad)}."
        )
    counts = labels[labels >= 0].unique(return_counts=True)[1].tolist()
    if len(counts) < 2:
        raise BadData("labels: wanted samples of two classes or more, got one: nothing can be told apart.")
    if max(counts) < FEWEST:
        raise BadData(
            f"labels: wanted a class of {FEWEST} samples or more, got {len(counts):,} of {max(counts)} at most: no "
            "label can be judged by others of its class. Are these numbers of samples?"
        )
