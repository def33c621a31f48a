"""What all measures of a network need, from one pass: moments of features and outputs, and of the classes.

    gatherer = Gatherer("layer 'head'", labels, groups=20)      # labels and groups as wanted
    for features, outputs in pairs:                             # (N, P), (N, C)
        gatherer.update(features, outputs)
    found = gatherer.compute()
    found.whole.moments, found.whole.pooled                     # of all samples
    found.without()                                             # of all but one group each, for intervals

Memory for each group (without groups there is one): a (P, P) matrix, and with labels another and the (C, P) class
means; beside them a batch, and for each group at most a block of rows that wait.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from undertow.errors import BadData
from undertow.features.moments import Moments, MomentsAccumulator
from undertow.richness.intervals import moments_without
from undertow.richness.pooled import Pooled, PooledAccumulator


@dataclass(frozen=True, eq=False)
class Gathered:
    """Of some samples: features with outputs, and with labels the classes."""

    moments: Moments
    pooled: Pooled | None

    def merge(self, other: Gathered) -> Gathered:
        """Of both sets of samples."""
        both = self.pooled is not None and other.pooled is not None
        pooled = self.pooled.merge(other.pooled) if both else None  # pyright: ignore
        return Gathered(self.moments.merge(other.moments), pooled)

    def without(self, part: Gathered) -> Gathered:
        """Of the rest."""
        both = self.pooled is not None and part.pooled is not None
        pooled = self.pooled.without(part.pooled) if both else None  # pyright: ignore
        return Gathered(moments_without(self.moments, part.moments), pooled)


@dataclass(frozen=True, eq=False)
class Groups:
    """All samples, and the groups that they were divided into."""

    whole: Gathered
    parts: list[Gathered]

    def without(self) -> Generator[Gathered]:
        """All samples but one group, in turn; one at a time, since each takes as much memory as the whole."""
        for part in self.parts:
            yield self.whole.without(part)


class _Group:
    """The accumulators of one group."""

    def __init__(self, rows: Tensor, outputs: Tensor, sizes: Tensor | None, where: str) -> None:
        dim, place = rows.shape[1], rows.device
        self.moments = MomentsAccumulator(dim, 1, outputs.shape[1], precise=True, device=place, where=where)
        self.pooled = (
            None if sizes is None else PooledAccumulator(dim, len(sizes), sizes, device=place, where=where)
        )

    def update(self, rows: Tensor, outputs: Tensor, labels: Tensor | None) -> None:
        self.moments.update(rows, torch.zeros(len(rows), dtype=torch.int64, device=rows.device), outputs)
        if self.pooled is not None and labels is not None:
            self.pooled.update(rows, labels)

    def compute(self) -> Gathered:
        return Gathered(self.moments.compute(), None if self.pooled is None else self.pooled.compute())


class Gatherer:
    """Divides rows among groups at random, each as large as the others give or take one."""

    def __init__(self, where: str, labels: Tensor | None, groups: int = 1) -> None:
        """Start without rows.

        Args:
            where: what messages call the features.
            labels: class numbers of all rows that will come, in their order.
            groups: how many.
        """
        self.where, self.labels, self.groups, self.count = where, labels, groups, 0
        # A class without samples is refused later, in words; until then any size will do.
        self._sizes = None if labels is None else labels.bincount().clamp(min=1)
        self._random = torch.Generator().manual_seed(0)
        self._groups: list[_Group] = []

    def update(self, rows: Tensor, outputs: Tensor) -> None:
        """Take in the next rows (N, P) and outputs (N, C); rows without a label only count."""
        start, self.count = self.count, self.count + len(rows)
        labels = None if self.labels is None else self.labels[start : self.count]
        if labels is not None and len(labels) < len(rows):
            return
        if not self._groups:
            self._groups = [_Group(rows, outputs, self._sizes, self.where) for _ in range(self.groups)]
        for group, own in zip(self._groups, self._divided(start, len(rows)), strict=True):
            if len(own):
                group.update(
                    rows[own], outputs[own], None if labels is None else labels[own.to(labels.device)]
                )

    def compute(self) -> Groups:
        """All that came; refuses labels that are not as many as the rows."""
        if not self._groups or (self.labels is not None and self.count != len(self.labels)):
            got = 0 if self.labels is None else len(self.labels)
            raise BadData(
                f"measure_richness: wanted {self.count} labels, one for each row that enters the layer and is no "
                f"padding, got {got}."
            )
        parts = [group.compute() for group in self._groups]
        return Groups(reduce(Gathered.merge, parts), parts)

    def _divided(self, start: int, count: int) -> list[Tensor]:
        """The rows of a batch for each group."""
        if self.groups == 1:
            return [torch.arange(count)]
        dealt = (torch.randperm(count, generator=self._random) + start) % self.groups
        return [(dealt == group).nonzero()[:, 0] for group in range(self.groups)]
