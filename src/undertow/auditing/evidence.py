"""An audit's rows asked the questions that a verdict needs.

    seen = Evidence(rows, context)
    seen.last, seen.broken                       # the last sound checkpoint; those that hold NaN
    seen.accuracy(60), seen.best                 # Sure(.692, .650, .731); the checkpoint with the best accuracy
    seen.latent_gap()                            # the best probe at the last checkpoint, beside the model
    seen.measures()                              # the numbers of audit.json by name, with _low and _high

Plain rows and plain numbers: nothing here knows models, tensors or files.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from undertow.auditing.rows import OUTPUT, Row, find
from undertow.auditing.settings import SITUATIONS
from undertow.auditing.shares import Number, Sure, difference, wilson

FRUGAL = ("velpic", "mean")
"""Probes of one vector for each class: they cannot learn single labels by heart."""


@dataclass(frozen=True)
class Context:
    """What rows do not say."""

    name: str
    unit: str  # epoch or step
    situation: str
    classes: int  # 0 where there are no labels
    wrong_labels: tuple[int, int] | None  # of how many training labels; None where nobody knows


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
    """Rows of one audit."""

    rows: list[Row]
    context: Context

    @cached_property
    def labels(self) -> str | None:
        """What rows call the held-out labels; None where there are none."""
        named = {SITUATIONS["clean"]: "true", SITUATIONS["noisy"]: "given"}
        return named.get(self.context.situation)

    @cached_property
    def broken(self) -> list[int]:
        """Checkpoints that give no numbers."""
        return sorted({one["checkpoint"] for one in self.rows if one["note"].startswith("broken")})

    @cached_property
    def numbers(self) -> list[int]:
        """Sound checkpoints."""
        return sorted({one["checkpoint"] for one in find(self.rows, "model", "answered")})

    @property
    def last(self) -> int:
        """The last sound checkpoint."""
        return self.numbers[-1]

    def only(self, lens: str, measure: str, **where: Any) -> Row | None:
        """The one row of these coordinates."""
        found = find(self.rows, lens, measure, **where)
        return found[0] if found else None

    def accuracy(self, at: int, split: str = "test", tries: int = 1) -> Sure | None:
        """Of the model; on training samples against the labels that it was trained with."""
        wanted = self.labels if split == "test" else "given"
        found = self.only("model", "accuracy", checkpoint=at, split=split, labels=wanted)
        return None if found is None else wilson(found["value"], found["n"], tries)

    @cached_property
    def best(self) -> int | None:
        """The first checkpoint of the best test accuracy."""
        found = {at: self.accuracy(at) for at in self.numbers}
        known = {at: one.value for at, one in found.items() if one is not None}
        return max(known, key=lambda at: (known[at], -at)) if known else None

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

    def memorised(self, at: int) -> Sure | None:
        """The share of wrong labels that the model repeats."""
        found = self.only("model", "memorised", checkpoint=at)
        return None if found is None else wilson(found["value"], found["n"])

    def latent_gap(self) -> Gap | None:
        """The best probe of any layer at the last checkpoint, fitted with the labels of training."""
        found = [
            one
            for one in find(
                self.rows, "latent", "accuracy", checkpoint=self.last, fit="given", split="test", labels=self.labels
            )
            if one["layer"] != "input"
        ]  # fmt: skip
        model = self.accuracy(self.last, tries=len(found))
        if not found or model is None:
            return None
        best = max(found, key=lambda one: one["value"])
        probed = wilson(best["value"], best["n"], len(found))
        return Gap(best["layer"], best["probe"], probed, model, difference(probed, model), len(found))

    def last_layer_fit(self) -> Sure | None:
        """How well VeLPIC fits the training labels from the last probed layer at the last checkpoint."""
        found = find(
            self.rows, "latent", "accuracy", checkpoint=self.last, fit="given", split="train", labels="given",
            probe=FRUGAL[0],
        )  # fmt: skip
        return wilson(found[-1]["value"], found[-1]["n"]) if found else None

    def repairs(self) -> dict[str, Row]:
        """Differences by kind: head, graft."""
        found = find(self.rows, "repair", "difference")
        return {one["note"].partition(":")[0]: one for one in found}

    def windows(self) -> dict[str, Row]:
        """The last checkpoint's windows by cut."""
        return {one["layer"]: one for one in find(self.rows, "temporal", "window", checkpoint=self.last)}

    def consistency(self) -> Number | None:
        """Mean over the second half of training at the worst cut; ends: the means of the ends."""
        found = find(self.rows, "temporal", "consistency", checkpoint=self.last)
        if not found:
            return None
        start = (min(one["shallow"] for one in found) + self.last) / 2
        by_cut: dict[str, list[Row]] = {}
        for one in found:
            if one["shallow"] >= start:
                by_cut.setdefault(one["layer"], []).append(one)
        means = [_mean(rows) for rows in by_cut.values()]
        return min(means)

    def noise(self) -> tuple[Number, str] | None:
        """The share of wrong labels and how it is known: measured, estimated or at most."""
        if self.context.wrong_labels is not None:
            wrong, count = self.context.wrong_labels
            return Number(wrong / count), "measured"
        probes = self._frugal()
        if not probes or self.context.classes < 2:
            return None
        best = max(probes, key=lambda one: one["value"])
        seen = wilson(best["value"], best["n"], len(probes))
        if self.labels == "given":
            return Number(1 - seen.value, 0.0, 1 - seen.low), "at most"
        place = {name: best[name] for name in ("checkpoint", "layer", "probe", "fit")}
        own = self.only("latent", "accuracy", split="train", labels="given", **place)
        if own is None:
            return None
        agreed = wilson(own["value"], own["n"])
        ends = (self._wrong(seen.low, agreed.high), self._wrong(seen.high, agreed.low))
        return Number(self._wrong(seen.value, agreed.value), min(ends), max(ends)), "estimated"

    def _frugal(self) -> list[Row]:
        for probe in FRUGAL:
            found = find(
                self.rows, "latent", "accuracy", fit="given", split="test", labels=self.labels, probe=probe
            )
            if found:
                return found
        return []

    def _wrong(self, right: float, agreed: float) -> float:
        """The share q of wrong labels from agreed = right (1 - q) + (1 - right) q / (C - 1); from 0."""
        chance = (1 - right) / (self.context.classes - 1)
        return max(0.0, (right - agreed) / (right - chance)) if right > chance else 0.0

    def measures(self) -> dict[str, float]:
        """By name, with _low and _high where the ends are known; names without a number are left out."""
        made: dict[str, float] = {"broken": float(len(self.broken))}
        for name, number in self._numbers() if self.numbers else ():
            if number is None:
                continue
            ends = {name: number.value, f"{name}_low": number.low, f"{name}_high": number.high}
            made |= {key: float(value) for key, value in ends.items() if value is not None}
        return made

    def _numbers(self) -> Iterable[tuple[str, Number | Sure | None]]:
        best = None if self.best is None else self.accuracy(self.best)
        yield "accuracy", self.accuracy(self.last)
        yield "accuracy_best", best
        yield "accuracy_drop", self.drop()
        yield "best_checkpoint", None if self.best is None else Number(self.best)
        yield "train_accuracy", self.accuracy(self.last, "train")
        yield "generalisation_gap", self.generalisation_gap()
        yield "memorised", self.memorised(self.last)
        noise = self.noise()
        yield "noise", None if noise is None else noise[0]
        gap = self.latent_gap()
        yield "latent_accuracy", None if gap is None else gap.probed
        yield "latent_gap", None if gap is None else gap.gap
        repairs = self.repairs()
        yield "head_gain", _number(repairs.get("head"))
        yield "graft_gain", _number(repairs.get("graft"))
        for name in ("d_lr", "initial_kernel_alignment", "effective_dimension", "nc1"):
            yield name, _number(self.only("richness", name, checkpoint=self.last))
        windows = self.windows().values()
        yield "window", min(map(_number, windows)) if windows else None  # pyright: ignore
        yield "consistency", self.consistency()
        yield (
            "drift",
            _number(self.only("temporal", "parameter_drift", checkpoint=self.numbers[0], layer="all")),
        )
        yield "answered", _number(self.only("model", "answered", checkpoint=self.last, layer=OUTPUT))


def _number(found: Row | None) -> Number | None:
    return None if found is None else Number(found["value"], found["low"], found["high"])


def _mean(rows: list[Row]) -> Number:
    value, low, high = (sum(one[name] for one in rows) / len(rows) for name in ("value", "low", "high"))
    return Number(value, low, high)
