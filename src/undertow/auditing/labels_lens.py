"""How many training labels are wrong, by what everything else says of their samples: `label_errors` as a lens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from undertow.labels.rate import RateAnswer
from undertow.labels.search import LabelSearch
from undertow.labels.settings import LabelConfig
from undertow.rows import OUTPUT, Row
from undertow.session.answers import AnswersGauge
from undertow.session.gauge import Gauge
from undertow.session.samples import TRAIN
from undertow.session.session import Session
from undertow.shares import Share


@dataclass(frozen=True)
class LabelsResult:
    """The share of wrong labels, and how many are suspected."""

    checkpoint: int
    rate: RateAnswer
    suspected: int
    count: int
    repeated: Share | None = None
    """How many of the suspected labels the model repeats."""
    right: float = 0.0
    """The share of the suspected labels that are right after all, by what is believed."""

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
        flagged = found.flagged
        answers = session.value(AnswersGauge(session.samples), session.example)
        repeated, right = None, 0.0
        if answers is not None and not answers.reason and bool(flagged.any()):
            same = torch.from_numpy(answers.said[TRAIN]).long()[flagged] == found.given[flagged]
            repeated = Share(int(same.sum()), len(same))
            right = 1 - float(found.scores[flagged].double().mean())
        return LabelsResult(
            session.example, found.rate, int(flagged.sum()), int(found.found.judged.sum()), repeated, right
        )
