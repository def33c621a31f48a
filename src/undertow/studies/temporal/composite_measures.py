"""What the studies of composites measure: one column of the matrix, or all of it.

    rows = column(run, case="mlp", seed=0, deep=300, first=150, last=300, near=200)       # memory, transfer, forgetting
    rows = matrix(run, case="mlp", seed=0, checkpoints="every:10")              # the memory window

Composite(s, t) has the shallow layers of checkpoint s and the deep ones of t. In the rows `layer` is the cut,
`shallow` is s and `checkpoint` is t. Batch norm takes its own statistics, as each row's note says.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from undertow.data.samples import Samples
from undertow.data.subset import balanced
from undertow.studies.findings import row
from undertow.studies.task import Rows
from undertow.studies.temporal.forgetting import find_forgetting
from undertow.studies.temporal.memory_levels import memory_levels
from undertow.temporal.consistency import consistency_matrix, pointwise_consistency
from undertow.temporal.density import consistency_density
from undertow.temporal.drift import parameter_drift
from undertow.temporal.matrix import composite_matrix
from undertow.temporal.matrix_result import CompositeMatrix
from undertow.temporal.window import memory_window
from undertow.training.run import Run

FACTORS = (2.0, 3.0, 5.0, 10.0)


def column(
    run: Run,
    *,
    case: str,
    seed: int,
    deep: int,
    first: int,
    last: int,
    near: int,
    every: int = 1,
    samples: int = 10_000,
    splits: tuple[str, ...] = ("train", "test"),
) -> Rows:
    """One deep part with the shallow parts from `first` to `last`.

    Args:
        run: a trained run.
        case: the study's case (unused: all cases are measured alike).
        seed: the case's seed; of resampling here.
        deep: the checkpoint of the deep part.
        first: the earliest checkpoint of the shallow part.
        last: the latest one.
        near: the other end of the window of point-wise consistency, memory levels and densities.
        every: only shallow parts so many epochs apart, counted from `last`.
        samples: at most so many of each split.
        splits: of the run's own data.
    """
    times = [at for at in run.epochs if first <= at <= last and (last - at) % every == 0]
    data = run.data()
    moved = parameter_drift(run.weights(times[-1]), run.weights(times[0])).value
    rows: Rows = [row("window_drift", moved, layer="all", shallow=times[0], checkpoint=times[-1])]
    for split in splits:
        found = composite_matrix(
            run,
            some(getattr(data, split), samples),
            split=split,
            shallow=times,
            deep=[deep],
            sample_losses=True,
        )
        rows += [{"checkpoint": deep, "split": split, **one} for one in _column_rows(found, deep, near, seed)]
    return rows


def some(samples: Samples, count: int) -> Samples:
    """A part of at most `count` samples, the same every time, balanced where every class has enough."""
    if len(samples) <= count:
        return samples
    sizes = samples.y.bincount()
    each = count // len(sizes)
    if 0 < each <= int(sizes.min()):
        return balanced(samples, each * len(sizes), seed=0)
    order = torch.randperm(len(samples), generator=torch.Generator().manual_seed(0))
    return samples.take(order[:count].sort().values)


def pixels(samples: Samples) -> Samples:
    """The samples as bytes, which corruptions want; float pictures lie in [0, 1]."""
    if samples.tensor.dtype == torch.uint8:
        return samples
    return Samples.of((samples.tensor * 255).round().to(torch.uint8), samples.y, samples.true)


def _column_rows(found: CompositeMatrix, deep: int, near: int, seed: int) -> Iterable[dict[str, Any]]:
    labels = "true" if "true" in found.labels else "given"
    for cut in found.cuts:
        at = found.cut(cut)
        note: dict[str, Any] = {"layer": cut, "note": found.batch_norm[at], "n": found.count}
        for place, shallow in enumerate(found.shallow):
            where = {**note, "shallow": shallow}
            # As the point-wise definition has it: with the later of the two models.
            agree = found.predictions[at, place, 0] == found.own(max(shallow, deep))
            yield row("accuracy", found.accuracy(labels)[at, place, 0], **where)
            yield row("loss", found.losses[labels][at, place, 0], **where)
            yield row("consistency", float(agree.mean()), **where)
        yield from _window_rows(found, at, deep, near, labels, seed, note)
    for at, accuracy, loss in zip(
        found.models, found.own_accuracy(labels), found.own_losses[labels], strict=True
    ):
        yield row("accuracy", accuracy, layer="output", shallow=at, n=found.count)
        yield row("loss", loss, layer="output", shallow=at, n=found.count)


def _window_rows(
    found: CompositeMatrix, at: int, deep: int, near: int, labels: str, seed: int, note: dict[str, Any]
) -> Rows:
    """Of the whole window: point-wise consistency, its density, memory levels, and forgetting."""
    answers = found.predictions[at, :, 0]  # (S, N)
    own = np.stack([found.own(one) for one in found.shallow])
    seen = pointwise_consistency(answers, found.shallow, near, deep, own, seed=seed)
    rows = [row("pointwise", seen.mean.value, low=seen.mean.low, high=seen.mean.high, **note)]
    density = consistency_density(seen.values)
    if density.density is not None:
        rows += [
            row("density", value, position=float(point), **note)
            for point, value in zip(density.points, density.density, strict=True)
        ]
    if near < deep:
        rows += _memory_rows(answers, found, deep, near, note) + _forgetting_rows(
            found, at, deep, labels, seed, note
        )
    return rows


def _memory_rows(
    answers: np.ndarray, found: CompositeMatrix, deep: int, edge: int, note: dict[str, Any]
) -> Rows:  # pyright: ignore
    levels = memory_levels(answers, found.shallow, deep, deep - edge)
    relation = levels.relation(factors=FACTORS)
    rows = [row("memory_delta", levels.delta.value, low=levels.delta.low, high=levels.delta.high, **note)]
    rows += [row("memory_share", one.share, position=one.factor, **note) for one in relation.shares]
    return [*rows, row("theorem_2", None if relation.holds is None else float(relation.holds), **note)]


def _forgetting_rows(
    found: CompositeMatrix, at: int, deep: int, labels: str, seed: int, note: dict[str, Any]
) -> Rows:
    """loss(composite(s, t)) - loss(f(s)), and whether it is above 0 beyond doubt."""
    places = [found.models.index(one) for one in found.shallow]
    composite, models = found.sample_losses[labels][at, :, 0], found.own_sample_losses[labels][places]
    seen = find_forgetting(composite, found.shallow, at=deep, models=models, seed=seed)
    return [
        row("forgetting", value, shallow=shallow, low=float(low), high=float(high), verdict=verdict, **note)
        for shallow, value, low, high, verdict in zip(
            seen.shallow, seen.difference, seen.low, seen.high, seen.verdicts, strict=True
        )
    ]


def matrix(
    run: Run, *, case: str, seed: int, checkpoints: str = "all", samples: int = 10_000, threshold: float = 0.8,
    splits: tuple[str, ...] = ("train", "test"),
) -> Rows:  # fmt: skip
    """All pairs: consistency with both references, accuracy, and the window above a threshold."""
    data = run.data()
    rows: Rows = []
    for split in splits:
        found = composite_matrix(
            run, some(getattr(data, split), samples), split=split, checkpoints=checkpoints
        )
        for at, cut in enumerate(found.cuts):
            where = {"layer": cut, "split": split, "note": found.batch_norm[at], "n": found.count}
            rows += [{**one, **where} for one in _matrix_rows(found, at, threshold, seed)]
    return rows


def _matrix_rows(found: CompositeMatrix, at: int, threshold: float, seed: int) -> Rows:
    rows: Rows = []
    for reference in ("deep", "shallow"):
        seen = consistency_matrix(found.predictions[at], found.deep, reference)
        rows += [
            row(f"consistency_{reference}", seen.values[i, j], shallow=s, checkpoint=t)
            for i, s in enumerate(found.shallow)
            for j, t in enumerate(found.deep)
        ]
        window = memory_window(seen.values, seen.checkpoints, threshold)
        rows += [
            row(f"window_{reference}", span, checkpoint=t, open=bool(reaches))
            for t, span, reaches in zip(window.checkpoints, window.span, window.open, strict=True)
        ]
        trend = window.trend(seed=seed)
        rows += [
            row(f"window_tau_{reference}", trend.tau, reason=trend.note),
            row(f"window_p_{reference}", trend.p),
            row(f"window_widens_{reference}", None if trend.widens is None else float(trend.widens)),
        ]
    return rows
