"""How many training labels are wrong, by what everything else says of their samples: `label_errors` as a lens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from undertow.labels.rate import RateAnswer
from undertow.labels.search import LabelSearch
from undertow.labels.settings import LabelConfig
from undertow.rows import OUTPUT, Row
from undertow.session.gauge import Gauge
from undertow.session.samples import TRAIN
from undertow.session.session import Session


@dataclass(frozen=True)
class LabelsResult:
    """The share of wrong labels, and how many are suspected."""

    checkpoint: int
    rate: RateAnswer
    suspected: int
    count: int

    def rows(self) -> Iterator[Row]:
        """The rate; without a value where it cannot be told, with the ends of what is possible."""
        rate = self.rate
        yield Row(
            "labels", "noise", self.checkpoint, OUTPUT, rate.value, low=rate.low, high=rate.high, n=self.count,
            split=TRAIN, labels="given", note=rate.reason,
        )  # fmt: skip


@dataclass(frozen=True)
class LabelsLens:
    """Judges the labels of training."""

    layers: tuple[str, ...]
    name = "labels"

    def search(self, session: Session) -> LabelSearch:
        """As `label_errors` does it."""
        return LabelSearch(session, LabelConfig(layers=self.layers))

    def gauges(self, session: Session) -> Sequence[Gauge[Any]]:
        """Votes of the layers, and the model's answers."""
        return self.search(session).gauges

    def __call__(self, session: Session) -> LabelsResult:
        """How many are wrong."""
        found = self.search(session).found()
        return LabelsResult(
            session.example, found.rate, int(found.flagged.sum()), int(found.found.judged.sum())
        )
