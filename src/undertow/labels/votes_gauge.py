"""Votes on the labels of training samples, from the pass that all verbs share.

    gauge = VotesGauge("layer2", plan, numbers=(1, 4, 20))       # of some checkpoints
    session.visit([gauge], (1, 4, 20)); session.value(gauge, 4)  # ViewVotes

The input's votes do not change while a model is trained and are taken once. Features that do not fit into the memory
are read from a file, convolutional maps averaged over places.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undertow.errors import BadData, RunProblem
from undertow.features.layers import INPUT
from undertow.labels.judge import ViewVotes, view_votes
from undertow.labels.shelf import IN_MEMORY, Shelf
from undertow.labels.views import Plan, ViewSource
from undertow.session.gauge import Gauge, Needs
from undertow.session.samples import TRAIN
from undertow.session.session import Session
from undertow.session.sight import Sight


class VotesGauge(Gauge[ViewVotes]):
    """Lets a layer of some checkpoints vote."""

    kind = ViewVotes
    stays_in_memory = False
    from_disk = True

    def __init__(
        self,
        layer: str,
        plan: Plan,
        folds: int,
        numbers: Sequence[int],
        ask_at: int | None,
        shelf: Shelf = IN_MEMORY,
    ) -> None:
        """Ask neighbours at the checkpoint `ask_at`, and always of the input."""
        self.layer, self._plan, self._folds = layer, plan, folds
        self._numbers, self._ask_at, self._shelf = set(numbers), ask_at, shelf
        self.name = f"votes {layer}"
        self.depends_on_weights = layer != INPUT

    def needs(self) -> Needs:
        """The layer on training samples."""
        return {TRAIN: (self.layer,)}

    def key(self, session: Session) -> Sequence[Any]:
        """Folds decide who judges whom, and memory which layers are averaged."""
        return (self._folds, self._ask_at if self.layer != INPUT else None, session.config.memory)

    def wanted_at(self, at: int) -> bool:
        """At a few checkpoints."""
        return at in self._numbers

    def disk(self, session: Session) -> int:
        """Two votes on each class of each sample."""
        return 2 * 4 * len(session.samples.split(TRAIN)) * len(session.samples.classes)

    def measure(self, sight: Sight, kept: ViewVotes | None) -> ViewVotes:
        """Out of fold."""
        rows = sight.features(TRAIN, self.layer) if sight.holds(self.needs()) else self._filed(sight)
        ask = self.layer == INPUT or sight.at == self._ask_at
        untouched = seen_at(sight.session, self.layer, sight.at).untouched
        seed = sight.session.config.seed
        return view_votes(rows, self._plan, seed, untouched=untouched, ask_neighbours=ask, shelf=self._shelf)

    def _filed(self, sight: Sight) -> Tensor:
        """A layer too wide to be held, averaged over places."""
        batches = sight.stream(TRAIN, [self.layer], "mean")
        return filed((one.features[self.layer] for one in batches), len(self._plan.labels), self._shelf)


def filed(parts: Iterable[Tensor], count: int, shelf: Shelf) -> Tensor:
    """(N, D) features of all samples in a file, from parts in their order.

    Raises:
        BadData: the disk has no room for them.
    """
    rows, at = torch.empty(0), 0
    for part in parts:
        if not at:
            try:
                rows = shelf.filed(count, part.shape[1])
            except RunProblem as error:
                raise BadData(f"its features do not fit into the memory. {error}") from error
        rows[at : at + len(part)] = part.cpu()
        at += len(part)
        shelf.rest()
    return rows


@dataclass(frozen=True, eq=False)
class TrainOutputsAt:
    """What the model answers on training samples."""

    outputs: np.ndarray  # (N, C) float32


class TrainOutputsGauge(Gauge[TrainOutputsAt]):
    """Keeps the answers to training samples at some checkpoints."""

    name, kind = "training outputs", TrainOutputsAt
    stays_in_memory = False

    def __init__(self, numbers: Sequence[int]) -> None:
        self._numbers = set(numbers)

    def needs(self) -> Needs:
        """Answers only."""
        return {TRAIN: ()}

    def wanted_at(self, at: int) -> bool:
        """At a few checkpoints."""
        return at in self._numbers

    def disk(self, session: Session) -> int:
        """A number for each class of each sample."""
        return 4 * len(session.samples.split(TRAIN)) * session.outputs

    def measure(self, sight: Sight, kept: TrainOutputsAt | None) -> TrainOutputsAt:
        """As they come."""
        return TrainOutputsAt(sight.outputs(TRAIN).float().numpy())


def seen_at(session: Session, layer: str, at: int) -> ViewSource:
    """Whose features these are, and for how many epochs it had learned the labels."""
    return ViewSource("inputs") if layer == INPUT else ViewSource(layer, epochs_at(session, at))


def epochs_at(session: Session, at: int) -> float:
    """How often a checkpoint had seen each label: its number, or its steps over those of an epoch."""
    return session.epochs_trained(at)
