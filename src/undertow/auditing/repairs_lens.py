"""What writing VeLPIC back would give: into the model's own head, and as a head on the best layer.

For each: accuracy_before, accuracy_after and difference, on held-out samples, with the paired bootstrap interval of
the difference. The best layer is chosen on one half of them and judged on the other. Noisy held-out labels give a
bound: the true difference is no smaller, if the noise is even.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from undertow.errors import BadData, BadValue
from undertow.features.layers import INPUT
from undertow.repairing.gate import Judgement, judge
from undertow.repairing.head_fits import HeadFitAt, HeadFitGauge, OutputsGauge, unseen_rows
from undertow.rows import Row
from undertow.session.answers import AnswersGauge
from undertow.session.gauge import Gauge
from undertow.session.reader import ENTERING
from undertow.session.samples import TEST
from undertow.session.session import Session
from undertow.training.seeds import stream

Kind = Literal["head", "graft"]
PROBE = "velpic"


@dataclass(frozen=True)
class RepairFound:
    """What one kind of repair gives; without a judgement, the reason why none can be made."""

    kind: Kind
    layer: str
    judgement: Judgement | None
    reason: str = ""


@dataclass(frozen=True)
class RepairsResult:
    """Both kinds of repair of one checkpoint."""

    checkpoint: int
    found: tuple[RepairFound, ...]
    test_labels: str

    def judged(self) -> dict[Kind, tuple[str, Judgement]]:
        """Layer and judgement by kind, of those that could be made and have numbers."""
        return {
            one.kind: (one.layer, one.judgement)
            for one in self.found
            if one.judgement is not None and one.judgement.gain is not None
        }

    def rows(self) -> Iterator[Row]:
        """Before, after and difference of each."""
        for one in self.found:
            yield from self._rows(one)

    def _rows(self, one: RepairFound) -> Iterator[Row]:
        at, own = self.checkpoint, one.judgement
        if own is None:
            note = f"{one.kind}: {one.reason}"
            yield Row("repair", "difference", at, one.layer, None, split=TEST, probe=PROBE, note=note)
            return
        for measure, value in {
            "accuracy_before": own.before, "accuracy_after": own.after, "difference": own.gain
        }.items():  # fmt: skip
            ends = (own.low, own.high) if measure == "difference" else (None, None)
            yield Row(
                "repair", measure, at, one.layer, value, low=ends[0], high=ends[1], n=own.count, split=TEST,
                labels=self.test_labels, probe=PROBE, fit="given", note=f"{one.kind}: {own.reason}",
            )  # fmt: skip


class RepairsLens:
    """Judges both kinds of repair at the last sound checkpoint."""

    name = "repair"

    def gauges(self, session: Session) -> Sequence[Gauge[Any]]:
        """A head on what enters the model's own, and on every layer; and what the model itself answers."""
        return [OutputsGauge(session.example), *self._fits(session)]

    def _fits(self, session: Session) -> list[HeadFitGauge]:
        if not session.samples.both_labelled:
            raise BadData("nothing can be written back without labels of both splits")
        return [HeadFitGauge(layer, session.example) for layer in (ENTERING, *_graftable(session))]

    def __call__(self, session: Session) -> RepairsResult:
        """What held-out samples say of each."""
        gauges = self._fits(session)
        session.visit([AnswersGauge(session.samples), *gauges], [session.example])
        fits = {one.layer: session.value(one, session.example) for one in gauges}
        known = {layer: fit for layer, fit in fits.items() if fit is not None}
        evidence = _Evidence(session)
        head = known.pop(ENTERING, None)
        found = (*([] if head is None else [evidence.head(head)]), evidence.graft(known))
        return RepairsResult(session.example, found, session.samples.test_labels)


def _graftable(session: Session) -> list[str]:
    """Layers that a head could be put on; none where the network does not say which."""
    try:
        return [name for name in session.layers("auto") if name != INPUT]
    except BadValue:
        return []


class _Evidence:
    """Held-out samples that are no training samples, and what the model says of them."""

    def __init__(self, session: Session) -> None:
        self.session, self.rows = session, unseen_rows(session)
        labels = session.samples.split(TEST).labels
        answers = session.value(AnswersGauge(session.samples), session.example)
        if labels is None or answers is None or not len(self.rows):
            raise BadData("no held-out sample is one that the model was not trained on")
        if answers.reason:
            raise BadData(f"no accuracy to compare with: {answers.reason}")
        self.labels, self.before = labels, torch.from_numpy(answers.said[TEST]).long()

    def head(self, fit: HeadFitAt) -> RepairFound:
        if fit.scores is None:
            return RepairFound("head", fit.head or "head", None, fit.reason)
        return RepairFound("head", fit.head, self._judged(fit, self.rows))

    def graft(self, fits: dict[str, HeadFitAt]) -> RepairFound:
        fitted = {layer: fit for layer, fit in fits.items() if fit.scores is not None}
        if not fitted:
            reason = next((fit.reason for fit in fits.values()), "no layer could be probed")
            return RepairFound("graft", "best", None, reason)
        order = torch.randperm(
            len(self.rows), generator=stream(self.session.config.seed, "halves of the evidence")
        )
        half = (len(order) + 1) // 2
        choosing, judging = self.rows[order[:half]], self.rows[order[half:]]
        shares = {layer: self._right(fit, choosing) for layer, fit in fitted.items()}
        best = max(shares, key=lambda layer: shares[layer])
        return RepairFound("graft", best, self._judged(fitted[best], judging))

    def _right(self, fit: HeadFitAt, rows: Tensor) -> float:
        return float((fit.said[rows] == self.labels[rows]).double().mean())

    def _judged(self, fit: HeadFitAt, rows: Tensor) -> Judgement:
        after, config = fit.said, self.session.config
        return judge(
            self.before[rows], after[rows], self.labels[rows], classes=max(2, self.session.outputs),
            noise=None if config.labels == "noisy" else 0.0, seed=config.seed,
        )  # fmt: skip
