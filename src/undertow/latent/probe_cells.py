"""What probes of one layer found at one checkpoint, and the labels they are fitted with.

found.cells[0].share("test", "true"); found.find("masc", "given"); cell.rows(20, "layer2", "true")
label_sets(session, ("given", "shuffled"))             # labels (N,) by name
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from undertow.errors import BadValue
from undertow.latent.masc import MASC
from undertow.latent.probe import Probe
from undertow.rows import Row, share_row
from undertow.session.answers import Accuracy
from undertow.session.samples import TEST, TRAIN
from undertow.session.session import Session
from undertow.shares import Share
from undertow.training.seeds import stream as random_stream


@dataclass(frozen=True)
class Dimensions:
    """Of MASC's subspaces, over the classes."""

    mean: float
    least: float
    most: float
    classes: int


@dataclass(frozen=True)
class ProbeCell:
    """One fitted probe, or why there is none."""

    probe: str
    fit: str
    judged: tuple[Accuracy, ...] = ()
    dimensions: Dimensions | None = None
    reason: str = ""
    note: str = ""  # what to know of its numbers

    def share(self, split: str, labels: str | None) -> Share | None:
        """The share of right answers."""
        return next((one.share for one in self.judged if (one.split, one.labels) == (split, labels)), None)

    def rows(self, at: int, layer: str, test_labels: str) -> Iterator[Row]:
        """As tidy rows of lens latent."""
        where: dict[str, Any] = {"probe": self.probe, "fit": self.fit}
        if self.reason:
            yield Row(
                "latent", "accuracy", at, layer, None, split=TEST, labels=test_labels, note=self.reason, **where
            )  # fmt: skip
        if self.dimensions is not None:
            own = self.dimensions
            yield Row(
                "latent", "dimension", at, layer, own.mean, low=own.least, high=own.most, n=own.classes, split=TRAIN,
                note="low, high: over classes", **where,
            )  # fmt: skip
        for one in self.judged:
            yield share_row(
                one.share,
                "latent",
                "accuracy",
                at,
                layer,
                split=one.split,
                labels=one.labels,
                note=self.note,
                **where,
            )


@dataclass(frozen=True)
class ProbesAt:
    """The cells of a layer."""

    cells: tuple[ProbeCell, ...]

    def find(self, probe: str, fit: str) -> ProbeCell | None:
        """The cell of a probe that was fitted with these labels."""
        return next((one for one in self.cells if (one.probe, one.fit) == (probe, fit)), None)


def dimensions_of(probe: Probe) -> Dimensions | None:
    """Of a MASC probe's subspaces; None for others."""
    if not isinstance(probe, MASC):
        return None
    sizes = torch.as_tensor(probe.dimensions_).double()
    return Dimensions(float(sizes.mean()), float(sizes.min()), float(sizes.max()), len(sizes))


def label_sets(session: Session, fits: Sequence[str]) -> dict[str, Tensor]:
    """Labels to fit with by name; true ones are left out where they are unknown or no different."""
    train, seed = session.samples.split(TRAIN), session.config.seed
    sets = {"given": train.y}
    if train.true is not None and not torch.equal(train.true, train.y):
        sets["true"] = train.true
    order = torch.randperm(len(train), generator=random_stream(seed, "shuffled labels"))
    sets["shuffled"] = train.y[order]
    chosen = {name: labels for name, labels in sets.items() if name in fits}
    if not chosen:
        raise BadValue("fits", "given or shuffled, as true labels are unknown or no different here", fits)
    return chosen
