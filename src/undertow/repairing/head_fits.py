"""VeLPIC heads of one checkpoint, fitted in the pass that all share: what they answer on held-out samples.

    gauge = HeadFitGauge("layer2", at=60)             # or ENTERING: the model's own head
    session.visit([gauge], [60]); found = session.value(gauge, 60)
    found.vectors, found.scores, found.reason         # (C, D), (N, C); why there are none

From these alone follows what a repair would give, without another pass.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from undertow.errors import BadData
from undertow.latent.arrays import as_tensor
from undertow.latent.velpic import VeLPIC
from undertow.session.gauge import Gauge, Needs
from undertow.session.reader import ENTERING
from undertow.session.samples import TEST, TRAIN
from undertow.session.session import Session
from undertow.session.sight import Sight
from undertow.session.splits import check_labels, seen_before

TOO_WIDE = "its features do not fit into the memory: give more --memory"


@dataclass(frozen=True, eq=False)
class HeadFitAt:
    """A head that was fitted with the labels of training, or why there is none."""

    head: str  # the model's own head, where there is one
    vectors: np.ndarray | None  # (C, D)
    scores: np.ndarray | None  # (N, C) on held-out samples
    reason: str = ""

    @property
    def said(self) -> Tensor:
        """(N,) classes on held-out samples."""
        assert self.scores is not None
        return torch.from_numpy(self.scores).argmax(1)

    def probe(self) -> VeLPIC:
        """The probe that was fitted."""
        assert self.vectors is not None
        vectors = torch.from_numpy(self.vectors)
        made = VeLPIC()
        made.vectors_, made.n_features_in_ = vectors, vectors.shape[1]
        made.classes_, made.counts_ = torch.arange(len(vectors)), torch.ones(len(vectors), dtype=torch.int64)
        return made


@dataclass(frozen=True, eq=False)
class OutputsAt:
    """What the model answers on held-out samples."""

    outputs: np.ndarray  # (N, C)


class HeadFitGauge(Gauge[HeadFitAt]):
    """Fits VeLPIC at a layer of one checkpoint."""

    kind = HeadFitAt

    def __init__(self, layer: str, at: int) -> None:
        self.layer, self._at, self.name = layer, at, f"head fit {layer}"

    def needs(self) -> Needs:
        """The layer on both splits."""
        return {TRAIN: (self.layer,), TEST: (self.layer,)}

    def wanted_at(self, at: int) -> bool:
        """At one checkpoint only."""
        return at == self._at

    def measure(self, sight: Sight, kept: HeadFitAt | None) -> HeadFitAt:
        """Fit on training samples, answer to held-out ones."""
        name = sight.head.name if sight.head is not None else ""
        reason = self._refusal(sight)
        if reason:
            return HeadFitAt(name, None, None, reason)
        probe = VeLPIC().fit(sight.features(TRAIN, self.layer), sight.session.samples.split(TRAIN).y)
        scores = as_tensor(probe.scores(sight.features(TEST, self.layer))).cpu()
        return HeadFitAt(name, as_tensor(probe.vectors_).cpu().numpy(), scores.numpy())

    def _refusal(self, sight: Sight) -> str:
        """Why no head can be fitted here."""
        if sight.head is None and (self.layer == ENTERING or sight.session.outputs < 2):
            return sight.why_no_head
        if not sight.holds(self.needs()):
            return TOO_WIDE
        train = sight.session.samples.split(TRAIN)
        try:
            classes = sight.session.outputs if sight.head is None else sight.head.classes
            check_labels(train, classes, TRAIN, every_class=True)
        except BadData as error:
            return str(error)
        return ""


class OutputsGauge(Gauge[OutputsAt]):
    """Keeps the model's answers on held-out samples at one checkpoint."""

    name, kind = "held-out outputs", OutputsAt

    def __init__(self, at: int) -> None:
        self._at = at

    def wanted_at(self, at: int) -> bool:
        """At one checkpoint only."""
        return at == self._at

    def measure(self, sight: Sight, kept: OutputsAt | None) -> OutputsAt:
        """As they come."""
        return OutputsAt(sight.outputs(TEST).numpy())


def unseen_rows(session: Session) -> Tensor:
    """(K,) numbers of held-out samples that are no training samples, bit for bit."""
    train, test = session.samples.train, session.samples.split(TEST)
    if train is None:
        return torch.arange(len(test))
    return (~seen_before(train.x, test.x)).nonzero()[:, 0]
