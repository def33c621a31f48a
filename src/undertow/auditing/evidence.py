"""An audit's results asked the questions that a verdict needs.

    seen = Evidence(context, answers, latent=..., richness=..., composites=..., repairs=...)
    seen.last, seen.broken                       # the last sound checkpoint; those that hold NaN
    seen.accuracy(60), seen.best                 # Sure(.692, .650, .731); the checkpoint with the best accuracy
    seen.latent_gap()                            # the best probe at the last checkpoint, beside the model
    seen.measures()                              # the numbers of audit.json by name, with _low and _high

Typed results and plain numbers: nothing here knows models, tensors or files, and nothing reads text.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from undertow.auditing.answers_lens import AnswersResult
from undertow.auditing.composites_lens import CompositesResult, CutResult
from undertow.auditing.drift_lens import ALL, DriftResult
from undertow.auditing.labels_lens import LabelsResult
from undertow.auditing.latent_lens import LatentResult
from undertow.auditing.lens import Result, measures_of
from undertow.auditing.repairs_lens import RepairsResult
from undertow.auditing.settings import SITUATIONS
from undertow.features.layers import INPUT
from undertow.repairing.gate import Judgement
from undertow.richness.head_richness import Measured
from undertow.richness.run_richness import RichnessAt, RichnessResult
from undertow.rows import Row
from undertow.session.settings import Labels
from undertow.shares import Number, Share, Sure, difference

FRUGAL = "velpic"
"""A probe of one vector for each class: it cannot memorise single labels."""


@dataclass(frozen=True)
class Context:
    """What results do not say."""

    name: str
    unit: str  # epoch or step
    labels: Labels  # what the held-out labels are
    classes: int  # 0 where there are no labels
    test_classes: int  # among the held-out labels; 0 where there are none
    wrong_labels: tuple[int, int] | None  # of how many training labels; None where nobody knows

    @property
    def situation(self) -> str:
        """Which labels are known, in words."""
        return SITUATIONS[self.labels]


class Gap(NamedTuple):
    """What the best probe finds beyond the model."""

    layer: str
    probe: str
    probed: Sure
    model: Sure
    gap: Sure
    tries: int


@dataclass(frozen=True, eq=False)
class Evidence:
    """Results of one audit."""

    context: Context
    answers: AnswersResult
    latent: LatentResult | None = None
    richness: RichnessResult | None = None
    drift: DriftResult | None = None
    composites: CompositesResult | None = None
    repairs: RepairsResult | None = None
    wrong: LabelsResult | None = None
    others: tuple[Result, ...] = ()  # of anyone's own lenses

    def rows(self) -> list[Row]:
        """The rows of all results."""
        own = (
            self.answers,
            self.richness,
            self.latent,
            self.drift,
            self.composites,
            self.repairs,
            *self.others,
        )
        return [row for result in own if result is not None for row in result.rows()]

    @cached_property
    def labels(self) -> str | None:
        """What the held-out labels are called; None where there are none."""
        return {"clean": "true", "noisy": "given"}.get(self.context.labels)

    @cached_property
    def broken(self) -> list[int]:
        """Checkpoints that give no numbers."""
        return sorted(self.answers.broken)

    @cached_property
    def numbers(self) -> list[int]:
        """Sound checkpoints."""
        return sorted(self.answers.at)

    @property
    def last(self) -> int:
        """The last sound checkpoint."""
        return self.numbers[-1]

    def accuracy(self, at: int, split: str = "test", tries: int = 1) -> Sure | None:
        """Of the model; on training samples against the labels that it was trained with."""
        found = self.answers.at[at].accuracy(split, self.labels if split == "test" else "given")
        return None if found is None else found.sure(tries)

    @cached_property
    def best(self) -> int | None:
        """The first checkpoint of the best test accuracy."""
        found = {at: self.accuracy(at) for at in self.numbers}
        known = {at: one.value for at, one in found.items() if one is not None}
        return max(known, key=lambda at: (known[at], -at)) if known else None

    def why_no_accuracy(self) -> str:
        """Why the last checkpoint has no test accuracy."""
        return self.answers.at[self.last].reason or "there are no labels"

    def drop(self) -> Sure | None:
        """From the best to the last checkpoint; as sure as the best of so many can be."""
        if self.best is None:
            return None
        tries = len(self.numbers)
        best, last = self.accuracy(self.best, tries=tries), self.accuracy(self.last, tries=tries)
        return None if best is None or last is None else difference(best, last)

    def generalisation_gap(self) -> Sure | None:
        """Training accuracy minus test accuracy at the last checkpoint."""
        train, test = self.accuracy(self.last, "train"), self.accuracy(self.last)
        return None if train is None or test is None else difference(train, test)

    def memorised(self, at: int) -> Share | None:
        """How many of the wrong labels the model repeats."""
        return self.answers.at[at].memorised

    def latent_gap(self) -> Gap | None:
        """The best probe of any layer at the last checkpoint, fitted with the labels of training."""
        found = [
            (layer, cell.probe, share)
            for layer, cell in ([] if self.latent is None else self.latent.cells(self.last, "given"))
            if layer != INPUT and (share := cell.share("test", self.labels)) is not None
        ]
        model = self.accuracy(self.last, tries=len(found)) if found else None
        if model is None:
            return None
        layer, probe, best = max(found, key=lambda one: one[2].value)
        probed = best.sure(len(found))
        return Gap(layer, probe, probed, model, difference(probed, model), len(found))

    def last_layer_fit(self) -> Sure | None:
        """How well VeLPIC fits the training labels from the last probed layer at the last checkpoint."""
        cells = [] if self.latent is None else self.latent.cells(self.last, "given")
        found = [cell.share("train", "given") for _, cell in cells if cell.probe == FRUGAL]
        known = [share for share in found if share is not None]
        return known[-1].sure() if known else None

    def repaired(self) -> dict[str, tuple[str, Judgement]]:
        """Layer and judgement by kind: head, graft."""
        return {} if self.repairs is None else {**self.repairs.judged()}

    def worthwhile_repairs(self) -> dict[str, tuple[str, Judgement]]:
        """Those of them that the gate takes."""
        return {kind: (layer, one) for kind, (layer, one) in self.repaired().items() if one.accepted}

    def ahead_of_repair(self) -> int | None:
        """The best checkpoint, where it clearly beats the last and, as it is, does better than any repair of that."""
        drop = self.drop()
        top = None if self.best is None else self.accuracy(self.best)
        after = [one.after or 0.0 for _, one in self.worthwhile_repairs().values()]
        if drop is None or drop.low <= 0 or top is None or top.value <= max(after, default=0.0):
            return None
        return self.best

    def cuts(self) -> dict[str, CutResult]:
        """Composites by cut, as far as they reach the last checkpoint."""
        return {} if self.composites is None else self.composites.cuts

    def windows(self) -> dict[str, tuple[float, float, float, bool]]:
        """The last checkpoint's windows by cut: value, ends, and whether they reach the first checkpoint."""
        return {cut: one.window(self.last) for cut, one in self.cuts().items() if self.last in one.numbers}

    def consistency(self) -> Number | None:
        """Mean over the second half of training at the worst cut; ends: the means of the ends."""
        means = [_late_mean(one) for one in self.cuts().values()]
        return min(means) if means else None

    def rich(self) -> RichnessAt | None:
        """Richness at the last checkpoint."""
        return None if self.richness is None else self.richness.at.get(self.last)

    def rich_number(self, name: str) -> Measured | None:
        """One measure of richness at the last checkpoint, if it has a value."""
        found = self.rich()
        one = None if found is None or found.found is None else getattr(found.found, name)
        return one if one is not None and one.value is not None else None

    def noise(self) -> tuple[Number, str] | None:
        """The share of wrong labels and how it is known: measured, estimated, or only what is possible."""
        if self.context.wrong_labels is not None:
            wrong, count = self.context.wrong_labels
            return Number(wrong / count), "measured"
        if self.wrong is None:
            return None
        rate = self.wrong.rate
        if rate.value is None:
            return Number((rate.low + rate.high) / 2, rate.low, rate.high), "possible"
        return Number(rate.value, rate.low, rate.high), "estimated"

    def measures(self) -> dict[str, float]:
        """By name, with _low and _high where the ends are known; names without a number are left out."""
        made: dict[str, float] = {"broken": float(len(self.broken))}
        for name, number in self._numbers() if self.numbers else ():
            if number is None or number.value is None:
                continue
            ends = {name: number.value, f"{name}_low": number.low, f"{name}_high": number.high}
            made |= {key: float(value) for key, value in ends.items() if value is not None}
        return made

    def _numbers(self) -> Iterable[tuple[str, Number | Sure | Measured | None]]:
        yield "accuracy", self.accuracy(self.last)
        yield "accuracy_best", None if self.best is None else self.accuracy(self.best)
        yield "accuracy_drop", self.drop()
        yield "best_checkpoint", None if self.best is None else Number(self.best)
        yield "train_accuracy", self.accuracy(self.last, "train")
        yield "generalisation_gap", self.generalisation_gap()
        memorised, noise, gap = self.memorised(self.last), self.noise(), self.latent_gap()
        yield "memorised", None if memorised is None else memorised.sure()
        yield "noise", None if noise is None or noise[1] == "possible" else noise[0]
        yield "latent_accuracy", None if gap is None else gap.probed
        yield "latent_gap", None if gap is None else gap.gap
        for kind, (_, one) in self.repaired().items():
            yield f"{kind}_gain", Number(one.gain or 0.0, one.low, one.high)
        for name in ("d_lr", "initial_kernel_alignment", "effective_dimension", "nc1"):
            yield name, self.rich_number(name)
        windows = [Number(*one[:3]) for one in self.windows().values()]
        yield "window", min(windows) if windows else None
        yield "consistency", self.consistency()
        first = None if self.drift is None else self.drift.weights.get(self.numbers[0])
        moved = None if first is None else first.values[ALL]
        yield "drift", None if moved is None else Number(moved)
        answered = self.answers.at[self.last].answered
        yield "answered", None if answered is None else Number(answered)
        for other in self.others:
            yield from measures_of(other).items()


def _late_mean(one: CutResult) -> Number:
    """Over the shallow checkpoints of the second half of training, with the last deep part."""
    start = (one.numbers[0] + one.numbers[-1]) / 2
    late = [place for place, at in enumerate(one.numbers) if at >= start]
    own = one.consistency
    shares = [Share(round(float(own.values[place, -1]) * own.count), own.count).sure() for place in late]
    return Number(*(sum(ends) / len(ends) for ends in zip(*shares, strict=True)))
