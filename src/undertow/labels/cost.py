"""What a search for wrong labels will take, before it begins.

    cost = SearchCost(samples=1_280_000, classes=1000, widths=(512,), asked=1, room=10**9)
    cost.seconds, cost.memory, cost.disk, cost.kept       # one core; bytes
    print(cost)

Products are counted and divided by the speed of one that is run now; work on tables is counted in cells, at what it
took when it was measured. It is an estimate: a busy machine takes longer.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property

import torch

from undertow.labels.neighbours import DRAWN, MOST_REFERENCES
from undertow.labels.neighbours import WIDEST as WIDEST_NEAR
from undertow.labels.shelf import BLOCK_CELLS, TABLES, Shelf
from undertow.labels.voters import LEADING, WIDEST
from undertow.room import in_all, whole
from undertow.sizes import show_size, show_time

TRIAL = 1024
CELL_OF_VOTER, CELL_AT_LAST, FEATURE, REFERENCE = 20e-9, 80e-9, 20e-9, 1.5e-9
"""Seconds: to fold in a vote for a class, to conclude on it, to find class vectors, to compare with a neighbour."""
COUNTED = 40_000
"""Samples at most on which a median of all votes is taken."""


@dataclass(frozen=True, kw_only=True)
class SearchCost:
    """Sizes of a search, and what follows from them."""

    samples: int
    classes: int
    widths: tuple[int, ...]  # of each view
    room: int  # bytes for tables of samples x classes
    asked: int = 1  # views whose neighbours are asked
    others: int = 0  # voters that come as they are: answers of checkpoints, probabilities
    features: int = 0  # bytes of features that lie in memory at once
    filed: int = 0  # bytes of features that lie in a file at once
    passes: float = 0.0  # seconds for passes through the network
    keeps: bool = False  # whether votes are kept on disk, so that a killed search goes on

    @property
    def on_disk(self) -> bool:
        """Whether tables of votes lie on disk."""
        return Shelf.of(self.samples, self.classes, self.room).on_disk

    @property
    def _cells(self) -> int:
        return self.samples * self.classes

    @property
    def memory(self) -> int:
        """Bytes of the process at its peak, with Python, its libraries, model and samples."""
        return whole(self.work)

    @property
    def work(self) -> int:
        """Bytes for features, votes and tables."""
        blocks = 10 * 4 * min(BLOCK_CELLS, self._cells) + 4 * 4 * min(COUNTED, self.samples) * self.classes
        own = 0 if self.on_disk else TABLES * 4 * self._cells
        return self.features + blocks + own

    @property
    def disk(self) -> int:
        """Bytes in the folder for temporary files, as long as it works."""
        turned = 4 * self.samples * LEADING if self.filed else 0  # beside those of a wide view
        return self.filed + turned + (TABLES * 4 * self._cells if self.on_disk else 0)

    @property
    def kept(self) -> int:
        """Bytes of votes that stay."""
        return (2 * len(self.widths) + self.asked + self.others) * 4 * self._cells if self.keeps else 0

    @cached_property
    def seconds(self) -> float:
        """On one core."""
        voters = 2 * len(self.widths) + self.asked + self.others
        products = sum(map(self._products, self.widths)) + self.asked * self._near(
            max(self.widths, default=0)
        )
        counted = CELL_OF_VOTER * voters * self._cells + CELL_AT_LAST * self._cells
        near = REFERENCE * self.asked * self.samples * min(self.samples, MOST_REFERENCES)
        return self.passes + counted + near + FEATURE * self.samples * sum(self.widths) + products / _speed()

    def _products(self, width: int) -> float:
        """Operations of the probes on one view: it is turned if wide, its covariance, and two votes."""
        narrow = LEADING if width > WIDEST else width
        turned = 10.0 * self.samples * width * narrow if width > WIDEST else 0.0
        return turned + 2.0 * self.samples * narrow * (narrow + 2 * self.classes)

    def _near(self, width: int) -> float:
        drawn = DRAWN if width > WIDEST_NEAR else width
        return 2.0 * self.samples * min(self.samples, MOST_REFERENCES) * drawn

    def facts(self) -> dict[str, float]:
        """Plain values: seconds and bytes."""
        found = {"seconds": self.seconds, "memory": self.memory, "disk": self.disk, "kept": self.kept}
        return {"samples": self.samples, "classes": self.classes, "views": len(self.widths), **found}

    def __str__(self) -> str:
        views = f"{len(self.widths):,} view" + "s" * (len(self.widths) != 1)
        words = f"{self.samples:,} samples, {self.classes:,} classes, {views}: about {show_time(self.seconds)} on one "
        words += f"core, {in_all(self.work)}"
        if self.disk:
            words += f", {show_size(self.disk)} of disk while it works"
        if self.kept:
            words += f", {show_size(self.kept)} of disk for votes that are kept"
        return f"{words}."


def _speed() -> float:
    """Operations a second of a product in float32, in processor time: others' work does not count."""
    one = torch.ones(TRIAL, TRIAL)
    torch.mm(one, one)
    begun = time.process_time()
    for _ in range(3):
        torch.mm(one, one)
    return 3 * 2 * TRIAL**3 / max(time.process_time() - begun, 1e-3)
