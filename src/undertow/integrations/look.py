"""One look at a model in training: what it answers, what its layers know, how rich they are, which labels look wrong.

    looker = Looker(train=(x, y), test=(x2, y2), config=WatchConfig())
    look = looker.look(model, at=20)
    look.measures()          # {"test_accuracy": .94, "latent/layer1/masc": .91, "d_lr": .17, "label_noise": .02, ...}

Probes are fitted in closed form on a sample of the training split and judged on held-out samples; without a training
split on one half of the held-out sample, and judged on the other. D_LR and the beliefs about labels are of held-out
samples, whose labels the model never saw. What a model or its data does not allow is left out with a note.

Under torch.distributed every process must look: each runs the model on its part.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec
import torch
from torch import Tensor, nn

from undertow.errors import BadData, BadValue
from undertow.features.head import Head, find_head
from undertow.features.layers import INPUT, resolve_layers, unwrap
from undertow.integrations.processes import from_first, gathered, own_rows, same_buffers
from undertow.integrations.settings import WatchConfig
from undertow.labels.search import label_errors
from undertow.latent.discriminant import LDA
from undertow.latent.masc import MASC
from undertow.latent.nearest import NearestMean
from undertow.latent.probe import Probe
from undertow.latent.velpic import VeLPIC
from undertow.richness.alignment import low_rank
from undertow.session.reader import ENTERING, Reader
from undertow.session.samples import SessionSamples, gather_samples
from undertow.session.settings import SessionConfig
from undertow.session.splits import Split, take
from undertow.shares import Share
from undertow.training.objective import ONE_OUTPUT

PROBES: dict[str, Callable[[], Probe]] = {
    "masc": MASC, "velpic": VeLPIC, "mean": NearestMean, "lda": LDA,
}  # fmt: skip
LABEL_VIEWS = 3
"""At most so many layers, the last ones, vote on labels."""


@dataclass(frozen=True)
class Look:
    """What one look found, in plain values; None where there is nothing to say."""

    at: int
    test: Share | None = None  # held-out samples answered rightly
    fit: Share | None = None  # training samples answered as labelled
    wrong: Share | None = None  # training labels known to be wrong that the model repeats
    latent: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])
    d_lr: float | None = None
    noise: tuple[float | None, float, float] | None = None  # share of wrong held-out labels, and its ends
    suspects: int | None = None  # held-out labels to suspect
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    failed: bool = False  # nothing could be found; the note says why
    diverged: bool = False  # since there is NaN or infinity in the weights

    def measures(self) -> dict[str, float]:
        """Flat numbers by name, as trackers take them."""
        return dict(self._pairs())

    def _pairs(self) -> Iterator[tuple[str, float]]:
        if self.failed:
            yield "diverged" if self.diverged else "failed", 1.0
        for name, share in {
            "test_accuracy": self.test,
            "train_fit": self.fit,
            "train_wrong_fit": self.wrong,
        }.items():
            if share is not None:
                yield name, share.value
        for layer, own in self.latent.items():
            yield from ((f"latent/{layer}/{probe}", value) for probe, value in own.items())
        known = [value for own in self.latent.values() for value in own.values()]
        if known and self.test is not None:
            yield "latent_gap", max(known) - self.test.value
        if self.d_lr is not None:
            yield "d_lr", self.d_lr
        if self.noise is not None:
            named = zip(("label_noise", "label_noise_low", "label_noise_high"), self.noise, strict=True)
            yield from ((name, value) for name, value in named if value is not None)
        if self.suspects is not None:
            yield "label_suspects", float(self.suspects)
        yield "undertow_seconds", self.seconds

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return msgspec.to_builtins(self)

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> Look:
        """What `to_dict` gave."""
        return msgspec.convert(stored, cls)


@dataclass(frozen=True, eq=False)
class Seen:
    """A split as the model sees it now: answers (N, C) and features by layer, on the CPU."""

    split: Split
    outputs: Tensor
    features: dict[str, Tensor]

    @cached_property
    def answers(self) -> Tensor:
        """(N,) the classes that the model answers."""
        return self.outputs.argmax(1)

    def share(self, labels: Tensor | None, among: Tensor | None = None) -> Share | None:
        """How often the model answers as `labels` say, among some samples."""
        if labels is None or self.outputs.shape[1] == 1:  # one output alone names no class
            return None
        hits = (self.answers == labels)[slice(None) if among is None else among]
        return Share(int(hits.sum()), len(hits)) if len(hits) else None


class Looker:
    """Samples to look at a model with; they are read once."""

    def __init__(self, train: Any, test: Any, config: WatchConfig) -> None:
        """Read and draw the samples.

        Args:
            train: some of what the model is trained on, with the labels it is trained on; None for none.
            test: held-out samples with labels; None for none.
            config: how many, and how they are fed.
        """
        self.config = config
        self.samples: SessionSamples | None = None
        self._head: Head | str | None = None
        if train is not None or test is not None:
            told = SessionConfig(samples=config.samples, seed=config.seed, scaling=config.scaling)
            self.samples = gather_samples(None, train, test, told)

    def look(self, model: nn.Module, at: int) -> Look | None:
        """Look at the model as it is; None where there are no samples."""
        if self.samples is None:
            return None
        began, plain = time.perf_counter(), unwrap(model)
        self.samples = self.samples.fitted_to(lambda: plain)
        layers = [name for name in resolve_layers(plain, self.config.layers) if name != INPUT]
        with same_buffers(plain):
            train, test = (
                self._seen(plain, split, layers) for split in (self.samples.train, self.samples.test)
            )
        return from_first(lambda: self._judged(at, layers, train, test, began))

    def _seen(self, model: nn.Module, split: Split | None, layers: list[str]) -> Seen | None:
        if split is None:
            return None
        count, own, head = len(split), self.config, self._find_head(model, split)
        scaling = self.samples.scaling if self.samples is not None else None
        reader = Reader(model, head, scaling, own.batch_size, own.conv, own.tokens)
        wanted = [*layers, ENTERING] if head is not None else layers
        batches = list(reader.stream(take(split.x, own_rows(count)), wanted))
        outputs = gathered(torch.cat([batch.outputs for batch in batches]), count).cpu()
        if outputs.ndim != 2:
            raise BadData(
                f"UndertowCallback: wanted answers (N, classes) of the model, got {tuple(outputs.shape)}."
            )
        rows = {
            name: gathered(torch.cat([batch.features[name] for batch in batches]), count).cpu()
            for name in wanted
        }
        return Seen(split, outputs.float(), rows)

    def _find_head(self, model: nn.Module, split: Split) -> Head | None:
        """The last linear layer, found once; None for a model that ends otherwise."""
        if self._head is None:
            reader = Reader(model, None, self.samples.scaling if self.samples is not None else None)
            try:
                self._head = find_head(model, reader.inputs(take(split.x, torch.arange(min(8, len(split))))))
            except (BadValue, BadData) as reason:
                self._head = str(reason)
        return self._head if isinstance(self._head, Head) else None

    # ------------------------------------------------------------------ on the first process

    def _judged(
        self, at: int, layers: list[str], train: Seen | None, test: Seen | None, began: float
    ) -> Look:
        notes = [] if not isinstance(self._head, str) else [f"d_lr: {self._head}"]
        if any(seen is not None and seen.outputs.shape[1] == 1 for seen in (train, test)):
            notes.append(f"answers: {ONE_OUTPUT}")
        if train is not None and train.split.true is not None and train.split.given is not None:
            wrong = train.share(train.split.given, train.split.given != train.split.true)
        else:
            wrong = None
        noise, suspects = _or_note(notes, "labels", (None, None), lambda: self._labels(layers, test))
        return Look(
            at,
            test=None if test is None else test.share(test.split.labels),
            fit=None if train is None else train.share(train.split.given),
            wrong=wrong,
            latent=_or_note(notes, "probes", {}, lambda: self._latent(layers, train, test)),
            d_lr=_or_note(notes, "d_lr", None, lambda: _richness(test or train)),
            noise=noise,
            suspects=suspects,
            notes=tuple(notes),
            seconds=time.perf_counter() - began,
        )

    def _latent(
        self, layers: list[str], train: Seen | None, test: Seen | None
    ) -> dict[str, dict[str, float]]:
        """Accuracy of each probe at each layer, on held-out samples."""
        if test is None or test.split.labels is None:
            return {}
        learn, judge = _halves(test) if train is None or train.split.given is None else (train, test)
        found: dict[str, dict[str, float]] = {}
        for layer in layers:
            rows, labels = learn.features[layer], learn.split.y
            fitted = {name: PROBES[name]().fit(rows, labels) for name in self.config.probes}
            found[layer] = {
                name: probe.score(judge.features[layer], judge.split.y) for name, probe in fitted.items()
            }
        return found

    def _labels(
        self, layers: list[str], test: Seen | None
    ) -> tuple[tuple[float | None, float, float] | None, int | None]:
        """The share of wrong labels among held-out samples, and how many to suspect."""
        if not self.config.labels or test is None or test.split.labels is None or not layers:
            return None, None
        views = {name: test.features[name] for name in layers[-LABEL_VIEWS:]}
        found = label_errors(features=views, labels=test.split.labels, seed=self.config.seed)
        rate = found.rate
        return (rate.value if rate.told else None, rate.low, rate.high), int(found.flagged.sum())


def _richness(seen: Seen | None) -> float | None:
    return (
        None
        if seen is None or ENTERING not in seen.features
        else low_rank(seen.features[ENTERING], seen.outputs).value
    )


def _halves(seen: Seen) -> tuple[Seen, Seen]:
    """Even and odd rows."""

    def part(start: int) -> Seen:
        rows = torch.arange(start, len(seen.outputs), 2)
        return Seen(seen.split.take(rows), seen.outputs[rows], {k: v[rows] for k, v in seen.features.items()})

    return part(0), part(1)


def _or_note(notes: list[str], who: str, instead: Any, work: Callable[[], Any]) -> Any:
    """What `work` gives; where the model or its data does not allow it, a note."""
    try:
        return work()
    except (BadData, BadValue) as reason:
        notes.append(f"{who}: {reason}")
        return instead
