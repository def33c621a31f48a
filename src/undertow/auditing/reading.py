"""One checkpoint read: the model's own answers, and how rich its features are, from one pass over each split.

    reader = CheckpointReader(material, config)
    rows = reader.rows(loader.model(60), at=60, initial=None, spectrum=True)     # lens "model" and "richness"

Measures of lens "model", layer "output":
    accuracy, loss      on both splits, against given and true labels where known
    memorised           share of the wrong training labels that the model repeats (where true labels are known)
    answered            how many classes it answers on the test samples: 1 is a collapsed model
Measures of lens "richness", on test samples at the last linear layer: d_lr with an interval, effective_dimension,
effective_dimension_rest, squared_parameter_norm,
initial_kernel_alignment, nc1, nc1_stabilised, trace_within, nc2_etf, nc3, nc4; and of some
checkpoints the spectrum: quality, utilisation, intensity by position.
A model whose weights or outputs are not all finite has one row, an accuracy without a value, that says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from undertow.auditing.loader import first_bad_tensor
from undertow.auditing.material import Material, Split
from undertow.auditing.rows import OUTPUT, Row, row, share_row
from undertow.auditing.settings import AuditConfig
from undertow.data.entries import SampleInputs, rows_of
from undertow.errors import BadData, BadValue
from undertow.features.head import Head, find_head, layer_called
from undertow.features.layers import INPUT
from undertow.features.stream import Batch
from undertow.richness.alignment import d_lr
from undertow.richness.collapse import neural_collapse
from undertow.richness.dimension import effective_dimension
from undertow.richness.eigenfunctions import Spectrum, feature_spectrum
from undertow.richness.intervals import GROUPS, d_lr_interval
from undertow.richness.similarity import initial_kernel_alignment, squared_parameter_norm
from undertow.session.reader import ENTERING, Reader
from undertow.sizes import parse_size
from undertow.training.config import TrainConfig
from undertow.training.objective import Objective

BROKEN = "broken"
"""How the note of a checkpoint begins that cannot be audited."""
POSITIONS = 100
COLLAPSE = ("nc1", "nc1_stabilised", "trace_within", "nc2_etf", "nc3", "nc4")


class Answers(NamedTuple):
    """What a model gave for the samples of a split, on the CPU."""

    outputs: Tensor  # (N, C)
    entering: Tensor | None  # (N, P), what entered the last linear layer; None where there is none such


class Broken(Exception):
    """A model that gives no numbers."""


@dataclass(frozen=True, eq=False)
class CheckpointReader:
    """Reads checkpoints of one run."""

    material: Material
    config: AuditConfig
    trained: TrainConfig | None  # how undertow trained it

    def rows(
        self, model: nn.Module, at: int, *, initial: Callable[[], Tensor | None], with_spectrum: bool
    ) -> list[Row]:
        """All rows of one checkpoint; `initial` gives what entered the head before training."""
        try:
            reader, note = self.reader(model)
            test = self.answers(reader, self.material.test)
            train = self._train_answers(reader, with_spectrum)
        except Broken as reason:
            return [row("model", "accuracy", at, OUTPUT, None, split="test", note=f"{BROKEN}: {reason}")]
        found = list(self._model_rows(at, test, train))
        if "richness" in self.config.lenses:
            found += self._richness_rows(model, reader.head, at, test, note, initial)
            if with_spectrum and reader.head is not None:
                found += self._spectrum_rows(reader.head, at, test, train)
        return found

    def reader(self, model: nn.Module) -> tuple[Reader, str]:
        """How the model is run, with its head where it has one, else why not.

        Raises:
            Broken: its weights or outputs are not finite.
        """
        bad = first_bad_tensor(model)
        if bad is not None:
            raise Broken(f"NaN or infinity in {bad}")
        plain = Reader(model, scaling=self.material.scaling, batch_size=self.config.batch_size)
        few = plain.inputs(rows_of(self.material.test.x, slice(0, 8)))
        try:
            return replace(plain, head=find_head(model, few)), ""
        except BadValue as reason:
            return plain, str(reason)
        except BadData as reason:
            raise Broken("its outputs are NaN or infinite") from reason

    def _train_answers(self, reader: Reader, with_spectrum: bool) -> Answers | None:
        """Of the training split; its features are many, and only a spectrum needs them."""
        split = self.material.train
        return None if split is None else self.answers(reader, split, features=with_spectrum)

    def answers(self, reader: Reader, split: Split, *, features: bool = True) -> Answers:
        """Outputs and, with `features`, what enters the head, from one pass."""
        layer = INPUT if reader.head is None else ENTERING
        outputs: list[Tensor] = []
        entering: list[Tensor] = []
        for batch in _streamed(reader, split.x, layer):
            outputs.append(batch.outputs.reshape(len(batch.outputs), -1).cpu())
            if reader.head is not None and features:
                entering.append(batch.features[ENTERING].cpu())
        joined = torch.cat(outputs)
        if not bool(torch.isfinite(joined).all()):
            raise Broken("its outputs are NaN or infinite")
        return Answers(joined, torch.cat(entering) if entering else None)

    def _model_rows(self, at: int, test: Answers, train: Answers | None) -> Iterator[Row]:
        said = self._predicted(test.outputs)
        count = len(said.unique())
        yield row("model", "answered", at, OUTPUT, count, n=len(said), split="test")
        yield from self._scores(at, "test", self.material.test, test.outputs, said)
        split = self.material.train
        if train is None or split is None or split.given is None:
            return
        said = self._predicted(train.outputs)
        yield from self._scores(at, "train", split, train.outputs, said)
        wrong = None if split.true is None else split.given != split.true
        if wrong is not None and bool(wrong.any()):
            hits = int((said == split.given)[wrong].sum())
            where: dict[str, Any] = {"split": "train", "labels": "given", "note": "of the wrong labels"}
            yield share_row("model", "memorised", at, OUTPUT, hits, int(wrong.sum()), **where)

    def _scores(self, at: int, split: str, samples: Split, outputs: Tensor, said: Tensor) -> Iterator[Row]:
        for name, labels in samples.label_sets().items():
            where: dict[str, Any] = {"split": split, "labels": name}
            yield share_row("model", "accuracy", at, OUTPUT, int((said == labels).sum()), len(said), **where)
            yield self._loss_row(at, outputs, labels, where)

    def _loss_row(self, at: int, outputs: Tensor, labels: Tensor, where: dict[str, Any]) -> Row:
        objective = self._objective(outputs)
        if objective.kind != "ce":
            value = float(objective.loss(outputs.double(), labels))
            return row("model", "loss", at, OUTPUT, value, n=len(labels), note="squared error", **where)
        if int(labels.max()) >= outputs.shape[1]:
            return row("model", "loss", at, OUTPUT, None, note="fewer outputs than classes", **where)
        each = functional.cross_entropy(outputs.double(), labels, reduction="none")
        mean = float(each.mean())
        reach = 1.96 * float(each.std()) / len(each) ** 0.5 if len(each) > 1 else 0.0
        note = "low, high: 1.96 standard errors"
        return row(
            "model", "loss", at, OUTPUT, mean, low=mean - reach, high=mean + reach, n=len(each), note=note, **where
        )  # fmt: skip

    def _objective(self, outputs: Tensor) -> Objective:
        if self.trained is None:
            return Objective("ce", outputs.shape[1])
        classes = len(self.material.classes) or outputs.shape[1]
        return Objective(self.trained.loss, classes, self.trained.alpha, self.trained.target)

    def _predicted(self, outputs: Tensor) -> Tensor:
        return self._objective(outputs).predict(outputs)

    def _richness_rows(
        self, model: nn.Module, head: Head | None, at: int, test: Answers, note: str,
        initial: Callable[[], Tensor | None],
    ) -> Iterator[Row]:  # fmt: skip
        if head is None or test.entering is None:
            yield row("richness", "d_lr", at, OUTPUT, None, split="test", note=note)
            return
        features, count = test.entering, len(test.entering)

        def one(measure: str, compute: Callable[[], float]) -> Row:
            try:
                return row("richness", measure, at, head.name, compute(), n=count, split="test")
            except BadData as reason:
                return row("richness", measure, at, head.name, None, split="test", note=str(reason))

        yield self._d_lr_row(head, at, features, test.outputs)
        yield one("effective_dimension", lambda: effective_dimension(features))
        yield one("effective_dimension_rest", lambda: effective_dimension(features, True))
        yield one("squared_parameter_norm", lambda: squared_parameter_norm(model))
        start = initial()
        if start is not None:
            yield one("initial_kernel_alignment", lambda: initial_kernel_alignment(start, features))
        yield from self._collapse_rows(layer_called(model, head.name), head, at, test)

    def _d_lr_row(self, head: Head, at: int, features: Tensor, outputs: Tensor) -> Row:
        where: dict[str, Any] = {"n": len(features), "split": "test"}
        room = parse_size(self.config.memory) // 2
        note = "no interval: its moments do not fit into the memory"
        if GROUPS * features.shape[1] ** 2 * 8 <= room:
            try:
                found = d_lr_interval(features, outputs, seed=self.config.seed)
                edges = {"low": found.low, "high": found.high}
                return row("richness", "d_lr", at, head.name, found.value, **edges, **where)
            except BadData as reason:
                note = str(reason)
        try:
            return row("richness", "d_lr", at, head.name, d_lr(features, outputs), note=note, **where)
        except BadData as reason:
            return row("richness", "d_lr", at, head.name, None, split="test", note=str(reason))

    def _collapse_rows(self, layer: nn.Module, head: Head, at: int, test: Answers) -> Iterator[Row]:
        labels = self.material.test.labels
        if labels is None or test.entering is None:
            return
        weight = layer.get_parameter("weight").detach().cpu()
        classes = len(self.material.classes)
        try:
            found = neural_collapse(
                test.entering, labels, weight if len(weight) == classes else None, classes, test.outputs
            )
        except BadData as reason:
            yield row("richness", "nc1", at, head.name, None, split="test", note=str(reason))
            return
        for measure in COLLAPSE:
            where: dict[str, Any] = {"n": found.count, "split": "test", "note": found.note}
            yield row("richness", measure, at, head.name, getattr(found, measure), **where)

    def _spectrum_rows(self, head: Head, at: int, test: Answers, train: Answers | None) -> Iterator[Row]:
        labels = self.material.test.labels
        if train is None or train.entering is None or test.entering is None:
            return
        # Without labels there is no target to express: the learned functions stand in, and quality is left out.
        targets = test.outputs if labels is None else labels
        fitted, seen = self._fitting(train.entering), self._fitting(test.entering)
        try:
            found = feature_spectrum(
                train.entering[fitted], test.entering[seen], targets[seen], test.outputs[seen]
            )
        except BadData as reason:
            yield row("richness", "intensity", at, head.name, None, split="test", note=str(reason))
            return
        measures = ["utilisation", "intensity"] if labels is None else ["quality", "utilisation", "intensity"]
        for measure in measures:
            yield from _positions(measure, found, at, head.name, len(seen))

    def _fitting(self, features: Tensor) -> Tensor:
        """Numbers of rows, evenly spread, whose float64 copies take a quarter of the memory at most."""
        most = parse_size(self.config.memory) // 4 // (2 * 8 * features.shape[1])
        count = max(1, min(len(features), most))
        return torch.linspace(0, len(features) - 1, count, dtype=torch.float64).round().long()


def _positions(measure: str, found: Spectrum, at: int, layer: str, count: int) -> Iterator[Row]:
    note = " ".join(found.warnings)
    for place, value in enumerate(getattr(found, measure)[:POSITIONS].tolist(), 1):
        yield row("richness", measure, at, layer, value, n=count, split="test", position=place, note=note)


def _streamed(reader: Reader, x: SampleInputs, layer: str) -> Iterator[Batch]:
    """The reader's batches; answers that are not the head's are those of a model that broke down."""
    try:
        yield from reader.stream(x, [layer])
    except BadData as reason:
        raise Broken(str(reason)) from reason
