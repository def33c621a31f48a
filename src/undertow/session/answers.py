"""The model's own answers at a checkpoint: accuracy, loss, and how many wrong labels it repeats.

    gauge = AnswersGauge()
    session.visit([gauge]); found = session.value(gauge, 20)
    found.accuracy("test", "true"), found.memorised        # Share(hits=345, count=500), ...
    found.said["train"]                                    # (N,) the classes it answers

Measures, as rows of lens "model" and layer "output": accuracy and loss on both splits, against given and true labels
where known; memorised, the share of the wrong training labels that the model repeats (where true labels are known);
answered, how many classes it answers on the test samples: 1 is a collapsed model. One output alone names no class
unless the run says how it was trained: then there are no answers, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from undertow.features.stream import Batch
from undertow.rows import OUTPUT, Row, share_row
from undertow.session.adding import Round
from undertow.session.gauge import Gauge, Needs
from undertow.session.samples import TEST, TRAIN, SessionSamples
from undertow.session.sight import Sight
from undertow.session.splits import Split
from undertow.shares import Share

if TYPE_CHECKING:
    from undertow.session.session import Session


@dataclass(frozen=True)
class Accuracy:
    """How many answers of a model or a probe on a split are right by some labels."""

    split: str
    labels: str
    share: Share


@dataclass(frozen=True)
class Loss:
    """The mean loss on a split by some labels; its ends are 1.96 standard errors away."""

    split: str
    labels: str
    kind: str
    value: float | None
    low: float | None = None
    high: float | None = None
    count: int = 0
    reason: str = ""


@dataclass(frozen=True, eq=False)
class AnswersAt:
    """What a model answers."""

    answered: int | None  # None where outputs name no classes
    count: int
    accuracies: tuple[Accuracy, ...]
    losses: tuple[Loss, ...]
    memorised: Share | None
    said: dict[str, np.ndarray]  # split -> (N,) int32
    reason: str = ""
    """Why outputs name no classes; then there are no accuracies."""

    @classmethod
    def unread(cls, count: int, reason: str) -> AnswersAt:
        """Of a model whose outputs name no classes."""
        return cls(None, count, (), (), None, {}, reason)

    def accuracy(self, split: str, labels: str | None) -> Share | None:
        """The share of right answers."""
        return next(
            (one.share for one in self.accuracies if (one.split, one.labels) == (split, labels)), None
        )

    def rows(self, at: int) -> Iterator[Row]:
        """As tidy rows."""
        yield Row("model", "answered", at, OUTPUT, self.answered, n=self.count, split=TEST, note=self.reason)
        for one, loss in zip(self.accuracies, self.losses, strict=True):
            yield share_row(one.share, "model", "accuracy", at, OUTPUT, split=one.split, labels=one.labels)
            note = loss.reason or (loss.kind if loss.low is None else "low, high: 1.96 standard errors")
            yield Row(
                "model", "loss", at, OUTPUT, loss.value, low=loss.low, high=loss.high, n=loss.count, note=note,
                split=loss.split, labels=loss.labels,
            )  # fmt: skip
        if self.memorised is not None:
            yield share_row(
                self.memorised, "model", "memorised", at, OUTPUT, split=TRAIN, labels="given",
                note="of the wrong labels",
            )  # fmt: skip


class AnswersGauge(Gauge[AnswersAt]):
    """Reads the answers to all samples."""

    name = "answers"
    kind = AnswersAt

    def __init__(self, samples: SessionSamples) -> None:
        self._splits = [name for name in (TEST, TRAIN) if getattr(samples, name) is not None]

    def needs(self) -> Needs:
        """Answers to both splits, as far as there are any."""
        return dict.fromkeys(self._splits, ())

    def disk(self, session: Session) -> int:
        """A number for each sample."""
        return 4 * sum(len(session.samples.split(name)) for name in self._splits)

    def begin(self, sight: Sight) -> Round:
        """Hits and losses add up."""
        return Round(
            self.needs(), AnswersTally(), lambda seen: seen.found(sight.session.samples, self._splits)
        )

    def measure(self, sight: Sight, kept: AnswersAt | None) -> AnswersAt:
        """Compare the answers with all labels that are known."""
        accuracies: list[Accuracy] = []
        losses: list[Loss] = []
        said: dict[str, Tensor] = {}
        for name in self._splits:
            outputs, split = sight.outputs(name), sight.session.samples.split(name)
            objective = sight.session.objective(outputs)
            if reason := objective.unread(outputs):
                return AnswersAt.unread(len(outputs), reason)
            said[name] = objective.predict(outputs)
            for which, labels in split.label_sets().items():
                hits = int((said[name] == labels).sum())
                accuracies.append(Accuracy(name, which, Share(hits, len(labels))))
                losses.append(_loss(sight, outputs, labels, name, which))
        first = said[self._splits[0]]
        return AnswersAt(
            len(first.unique()), len(first), tuple(accuracies), tuple(losses),
            _memorised(sight.session.samples.train, said.get(TRAIN)),
            {name: one.to(torch.int32).numpy() for name, one in said.items()},
        )  # fmt: skip


class AnswersTally:
    """Answers to some samples, by their numbers, and the spread of their losses."""

    def __init__(self) -> None:
        self.said: dict[str, list[np.ndarray]] = {}
        self.losses: dict[tuple[str, str], Spread] = {}
        self.kinds: dict[tuple[str, str], str] = {}
        self.reason = ""

    def take(self, session: Session, split: str, batch: Batch) -> None:
        """Take in a batch."""
        outputs = batch.outputs.reshape(len(batch.outputs), -1).cpu()
        objective = session.objective(outputs)
        self.reason = objective.unread(outputs)
        self.said.setdefault(split, []).append(objective.predict(outputs).to(torch.int32).numpy())
        for which, labels in session.samples.split(split).label_sets().items():
            own, where = labels[batch.rows], (split, which)
            seen = self.losses.get(where, Spread())
            if objective.kind != "ce":
                self.kinds[where] = "squared error"
                mean = float(objective.loss(outputs.double(), own))
                self.losses[where] = seen.merge(Spread(len(own), mean, 0.0))
            elif int(labels.max()) < outputs.shape[1]:
                self.kinds[where] = "cross-entropy"
                each = functional.cross_entropy(outputs.double(), own, reduction="none")
                self.losses[where] = seen.merge(Spread.of(each))

    def merge(self, other: AnswersTally) -> None:
        """Take in the samples that come next."""
        for split, parts in other.said.items():
            self.said.setdefault(split, []).extend(parts)
        for where, seen in other.losses.items():
            self.losses[where] = self.losses.get(where, Spread()).merge(seen)
        self.kinds |= other.kinds
        self.reason = self.reason or other.reason

    def found(self, samples: SessionSamples, splits: Sequence[str]) -> AnswersAt:
        """What follows once all samples were seen."""
        said = {name: np.concatenate(self.said[name]) for name in splits}
        if self.reason:
            return AnswersAt.unread(len(said[splits[0]]), self.reason)
        accuracies: list[Accuracy] = []
        losses: list[Loss] = []
        for name in splits:
            for which, labels in samples.split(name).label_sets().items():
                hits = int((said[name] == labels.numpy()).sum())
                accuracies.append(Accuracy(name, which, Share(hits, len(labels))))
                losses.append(self._loss(name, which))
        first = said[splits[0]]
        memorised = _memorised(samples.train, torch.from_numpy(said[TRAIN]) if TRAIN in said else None)
        return AnswersAt(
            len(np.unique(first)), len(first), tuple(accuracies), tuple(losses), memorised, said
        )  # fmt: skip

    def _loss(self, split: str, which: str) -> Loss:
        seen, kind = self.losses.get((split, which)), self.kinds.get((split, which), "cross-entropy")
        if seen is None:
            return Loss(split, which, kind, None, reason="fewer outputs than classes")
        if kind != "cross-entropy":
            return Loss(split, which, kind, seen.mean, count=seen.count)
        reach = 1.96 * (seen.squares / (seen.count - 1)) ** 0.5 / seen.count**0.5 if seen.count > 1 else 0.0
        return Loss(split, which, kind, seen.mean, seen.mean - reach, seen.mean + reach, seen.count)


@dataclass(frozen=True)
class Spread:
    """Count, mean and squares around it, of numbers that come in parts."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    @classmethod
    def of(cls, numbers: Tensor) -> Spread:
        """Of all of them at once."""
        mean = numbers.mean()
        return cls(len(numbers), float(mean), float((numbers - mean).square().sum()))

    def merge(self, other: Spread) -> Spread:
        """Both parts as one (Chan, Golub and LeVeque's update)."""
        count, gap = self.count + other.count, other.mean - self.mean
        share = other.count / max(count, 1)
        squares = self.squares + other.squares + gap**2 * self.count * share
        return Spread(count, self.mean + gap * share, squares)


def _memorised(split: Split | None, said: Tensor | None) -> Share | None:
    if split is None or said is None or split.given is None or split.true is None:
        return None
    wrong = split.given != split.true
    if not bool(wrong.any()):
        return None
    return Share(int((said == split.given)[wrong].sum()), int(wrong.sum()))


def _loss(sight: Sight, outputs: Tensor, labels: Tensor, split: str, which: str) -> Loss:
    objective = sight.session.objective(outputs)
    if objective.kind != "ce":
        value = float(objective.loss(outputs.double(), labels))
        return Loss(split, which, "squared error", value, count=len(labels))
    if int(labels.max()) >= outputs.shape[1]:
        return Loss(split, which, "cross-entropy", None, reason="fewer outputs than classes")
    each = functional.cross_entropy(outputs.double(), labels, reduction="none")
    mean = float(each.mean())
    reach = 1.96 * float(each.std()) / len(each) ** 0.5 if len(each) > 1 else 0.0
    return Loss(split, which, "cross-entropy", mean, mean - reach, mean + reach, len(each))
