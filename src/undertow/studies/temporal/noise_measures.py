"""What the studies of noise measure: consistency on clean and corrupted pictures, and one-step SGD noise.

rows = consistency_samples(run, case="clean", seed=0, deep=300, first=200, corruptions=("gaussian_blur", "fog"))
rows = step_noise(run, case="mlp", seed=0, checkpoints="100,300")
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch

from undertow.data.corruptions import corrupt
from undertow.data.inputs import to_inputs
from undertow.data.samples import Samples
from undertow.session.checkpoints import choose
from undertow.studies.findings import row
from undertow.studies.task import Rows
from undertow.studies.temporal.composite_measures import pixels, some
from undertow.studies.temporal.isotropy import covariance_spectrum, isotropy_test
from undertow.studies.temporal.sgd_steps import sgd_noise
from undertow.temporal.consistency import pointwise_consistency
from undertow.temporal.matrix import composite_matrix
from undertow.training.prepare import objective_of, prepare_data
from undertow.training.run import Run
from undertow.training.seeds import stream

REJECTED = 0.001
"""The paper's p of isotropy; it takes a thousand draws or more to come below."""


def consistency_samples(
    run: Run,
    *,
    case: str,
    seed: int,
    deep: int,
    first: int,
    every: int = 1,
    samples: int = 10_000,
    corrupted: int = 10_000,
    corruptions: Sequence[str] = (),
    severity: int = 5,
) -> Rows:
    """Point-wise consistency on test pictures as they are and under each corruption, as counts of its values.

    It is a share of the window's checkpoints, so few values occur: how many pictures have each is all there is to know.

    Args:
        run: a trained run.
        case: the study's case (unused).
        seed: the case's seed; of resampling here.
        deep: the checkpoint of the deep part.
        first: the earliest checkpoint of the shallow part.
        every: only checkpoints so many epochs apart.
        samples: test pictures of the whole test set, however few training looked at.
        corrupted: pictures for each of `corruptions` but the first.
        corruptions: names.
        severity: of the corruption, 1 to 5.
    """
    times = [at for at in run.epochs if first <= at <= deep and (deep - at) % every == 0]
    test = pixels(some(whole_test(run), samples))
    rows: Rows = [row("accuracy", float(run.metrics["test_accuracy"].iloc[-1]), split="test")]
    rows += _consistency_rows(run, test, "test", times, seed)
    for place, name in enumerate(corruptions):
        part = test if place == 0 else some(test, corrupted)
        worse = Samples.of(corrupt(part.tensor, name, severity, seed=0), part.y, part.true)
        rows += _consistency_rows(run, worse, name, times, seed)
    return rows


def whole_test(run: Run) -> Samples:
    """All test samples of the run's data."""
    assert run.config is not None  # a study's run has one
    return prepare_data(replace(run.config, test_size=None)).test


def _consistency_rows(run: Run, samples: Samples, split: str, times: list[int], seed: int) -> Rows:
    """Mean and counts of point-wise consistency at every cut, with the deep part of the last of `times`."""
    deep, rows = times[-1], Rows()
    found = composite_matrix(run, samples, split=split, shallow=times, deep=[deep])
    for at, cut in enumerate(found.cuts):
        where = {
            "layer": cut,
            "split": split,
            "checkpoint": deep,
            "note": found.batch_norm[at],
            "n": found.count,
        }
        own = found.own_predictions[[found.models.index(one) for one in found.shallow]]
        seen = pointwise_consistency(
            found.predictions[at, :, 0], found.shallow, times[0], deep, own, seed=seed
        )
        rows.append(row("consistency", seen.mean.value, low=seen.mean.low, high=seen.mean.high, **where))
        values, counts = np.unique(seen.values, return_counts=True)
        rows += [
            row("pictures", int(count), position=float(value), **where)
            for value, count in zip(values, counts, strict=True)
        ]
    return rows


def step_noise(
    run: Run,
    *,
    case: str,
    seed: int,
    checkpoints: str = "last",
    batches: int = 256,
    inputs: int = 20,
    draws: int = 1999,
) -> Rows:
    """Spectrum and isotropy of Delta z over mini-batches, for several test inputs, at every cut.

    Args:
        run: a trained run.
        case: the study's case (unused).
        seed: the case's seed; of mini-batches and draws here.
        checkpoints: last, all, or epochs such as 100,300.
        batches: mini-batches, each one step.
        inputs: test samples whose features are followed.
        draws: of the bootstrap.
    """
    rows: Rows = []
    for at in choose(run, checkpoints):
        for cut, delta in noise_at(run, at, batches=batches, inputs=inputs, seed=seed):
            for place in range(delta.shape[1]):
                where = {"layer": cut, "checkpoint": at, "sample": place, "n": batches}
                rows += [{**one, **where} for one in _noise_rows(delta[:, place], draws, seed)]
    return rows


def noise_at(
    run: Run, at: int, *, batches: int, inputs: int, seed: int
) -> Iterator[tuple[str, torch.Tensor]]:
    """Each cut with Delta z (B, M, D) of one step on each of many mini-batches at a checkpoint."""
    data, config, model = run.data(), run.config, run.model(at)
    assert config is not None  # a study's run has one
    objective, probes = objective_of(config, data), some(data.test, inputs)
    for cut in model.cuts:  # pyright: ignore[reportGeneralTypeIssues]
        noise = sgd_noise(
            model, data.train.tensor, data.train.y, to_inputs(probes.tensor, data.scaling),
            cut=str(cut), batches=batches, batch_size=config.batch_size,
            lr=config.learning_rate(max(1, at)), loss=objective.loss,
            generator=stream(seed, "mini-batches", at), prepare=lambda x: to_inputs(x, data.scaling),
        )  # fmt: skip
        yield str(cut), noise.delta


def _noise_rows(delta: torch.Tensor, draws: int, seed: int) -> Rows:
    spectrum = covariance_spectrum(delta, seed=seed)
    test = isotropy_test(delta, draws=draws, seed=seed)
    rows = [
        row(name, value, position=place)
        for name, values in (("share", spectrum.shares), ("isotropic_share", spectrum.isotropic_shares))
        for place, value in enumerate(values.tolist(), start=1)
    ]
    return [
        *rows,
        row("isotropy_p", test.p),
        row("rejected", float(test.p < REJECTED)),
        row("isotropy_statistic", test.statistic, expected=test.expected),
    ]
