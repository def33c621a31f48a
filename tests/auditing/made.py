"""Results of lenses made by hand, for the edges of rules."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from undertow.auditing.answers_lens import AnswersResult
from undertow.auditing.composites_lens import CompositesResult, CutResult, Swap
from undertow.auditing.labels_lens import LabelsResult
from undertow.auditing.latent_lens import LatentResult
from undertow.auditing.repairs_lens import RepairFound, RepairsResult
from undertow.labels.rate import RateAnswer
from undertow.latent.grid import ProbeGrid
from undertow.latent.probes_gauge import ProbeCell, ProbesAt
from undertow.repairing.gate import Judgement
from undertow.richness.head_richness import HeadRichness, Measured
from undertow.richness.run_richness import RichnessAt, RichnessResult
from undertow.session.answers import Accuracy, AnswersAt
from undertow.shares import Share
from undertow.temporal.consistency import consistency_matrix
from undertow.temporal.density import consistency_density
from undertow.temporal.swap import swap_profile
from undertow.temporal.window import MemoryWindow

LAST = 10
SAMPLES = 1000


def share(value: float, n: int = SAMPLES) -> Share:
    return Share(round(value * n), n)


def story(
    *scores: tuple[int, float, float],
    n: int = SAMPLES,
    labels: str = "true",
    memorised: dict[int, float] | None = None,
) -> AnswersResult:
    """Checkpoints with their test and training accuracy; which of 400 wrong labels the models repeat."""
    at = {
        number: AnswersAt(
            answered=10,
            count=n,
            accuracies=(
                Accuracy("test", labels, share(test, n)),
                Accuracy("train", "given", share(train, n)),
            ),
            losses=(),
            memorised=None if memorised is None else share(memorised[number], 400),
            said={},
        )
        for number, test, train in scores
    }
    return AnswersResult(at, {})


class Probed(NamedTuple):
    """A probe at a layer of the last checkpoint."""

    layer: str
    cell: ProbeCell


def probe(
    value: float,
    layer: str = "layer1",
    *,
    fit: str = "given",
    split: str = "test",
    labels: str = "true",
    train: float | None = None,
    n: int = SAMPLES,
) -> Probed:
    judged = [Accuracy(split, labels, share(value, n))]
    if train is not None:
        judged.append(Accuracy("train", "given", share(train, n)))
    return Probed(layer, ProbeCell("velpic", fit, tuple(judged)))


def latent(*probes: Probed) -> LatentResult:
    layers: dict[str, list[ProbeCell]] = {}
    for layer, cell in probes:
        layers.setdefault(layer, []).append(cell)
    cells = {layer: ProbesAt(tuple(found)) for layer, found in layers.items()}
    return LatentResult(ProbeGrid({LAST: cells}, {}, "true"))


def richness(value: float, low: float | None, high: float | None, kept: float) -> RichnessResult:
    one = Measured(1.0)
    found = HeadRichness(
        500, 8, 3, Measured(value, low, high), one, one, one, initial_kernel_alignment=Measured(kept)
    )
    return RichnessResult({LAST: RichnessAt("head", 500, found)}, {})


def wrong(value: float | None, low: float, high: float, reason: str = "why") -> LabelsResult:
    """The share of wrong labels, or only what is possible."""
    return LabelsResult(LAST, RateAnswer(value, low, high, value is not None, reason), 100, SAMPLES)


def window(cut: str, value: int, low: int, high: int) -> CutResult:
    """Composites of checkpoints 0 and 10, with a window of the last that is given."""
    numbers = (0, LAST)
    answers = np.zeros((2, 2, 50), dtype=np.int64)

    def span(of: int) -> MemoryWindow:
        ends, reach = np.array([0, LAST - of]), np.array([False, False])
        return MemoryWindow(numbers, 0.8, ends, np.array([0, 0]), np.array([0, of]), reach)

    density = consistency_density(np.linspace(0, 1, 50), points=11)
    windows = (span(value), span(low), span(high))
    return CutResult(cut, numbers, consistency_matrix(answers, numbers), windows, density, 0, None, "true")


def composites(cuts: dict[str, CutResult] | None = None, swap: Swap | None = None) -> CompositesResult:
    return CompositesResult(cuts or {}, swap)


def right(value: float) -> np.ndarray:
    """The first so many answers right: worse models are wrong where better ones are right."""
    return np.arange(SAMPLES) < round(value * SAMPLES)


def swap(
    late_early: tuple[float, ...] = (0.93, 0.73, 0.70),
    early_late: tuple[float, ...] = (0.70, 0.90, 0.92),
    early: float = 0.94,
    late: float = 0.68,
    total: int = SAMPLES,
) -> Swap:
    """From epoch 8 to 60; as it stands, layer2 costs 20 of 26 points either way."""
    cuts = [f"layer{place + 1}" for place in range(len(late_early))]
    parts = (np.stack([right(one) for one in shares]) for shares in (early_late, late_early))
    return Swap(8, 60, swap_profile(*parts, right(early), right(late), cuts), total, "true")


def repairs(head: tuple[float, float, float], graft: tuple[float, float, float]) -> RepairsResult:
    """Gains with their ends."""

    def judged(gain: float, low: float, high: float) -> Judgement:
        # As the gate answers: an interval that reaches 0 is not worth it.
        return Judgement(
            "better" if low > 0 else "not worth it", "why", 500, 0.7, 0.7 + gain, gain, low, high
        )

    found = (
        RepairFound("head", "head", judged(*head)),
        RepairFound("graft", "layer1", judged(*graft)),
    )
    return RepairsResult(LAST, found, "true")
