"""What the studies of noise measure: consistency on clean and corrupted pictures, and one-step SGD noise.

rows = consistency_samples(run, case="clean", seed=0, deep=300, first=200, corruptions=("fog", "pixelate"))
rows = step_noise(run, case="mlp", seed=0, checkpoints="100,300")
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from undertow.data.corruptions import corrupt
from undertow.data.inputs import to_inputs
from undertow.data.samples import Samples
from undertow.studies.findings import row
from undertow.studies.richness.last_layer_measures import chosen
from undertow.studies.task import Rows
from undertow.studies.temporal.composite_measures import pixels, some
from undertow.studies.temporal.isotropy import covariance_spectrum, isotropy_test
from undertow.studies.temporal.sgd_steps import sgd_noise
from undertow.temporal.consistency import pointwise_consistency
from undertow.temporal.matrix import composite_matrix
from undertow.training.prepare import objective_of
from undertow.training.run import Run
from undertow.training.seeds import stream


def consistency_samples(
    run: Run,
    *,
    case: str,
    seed: int,
    deep: int,
    first: int,
    samples: int = 2000,
    corruptions: Sequence[str] = (),
    severity: int = 3,
) -> Rows:
    """Point-wise consistency of every sample, on test pictures as they are and corrupted.

    Args:
        run: a trained run.
        case: the study's case (unused).
        seed: the case's seed; of resampling here.
        deep: the checkpoint of the deep part.
        first: the earliest checkpoint of the shallow part.
        samples: test pictures.
        corruptions: names; each sample gets one of them in turn.
        severity: of the corruption, 1 to 5.
    """
    data, times = run.data(), [at for at in run.epochs if first <= at <= deep]
    clean = pixels(some(data.test, samples))
    sets = {"test": clean, **({"corrupted": _corrupted(clean, corruptions, severity)} if corruptions else {})}
    rows: Rows = [row("accuracy", float(run.metrics["test_accuracy"].iloc[-1]), split="test")]
    for split, part in sets.items():
        found = composite_matrix(run, part, split=split, shallow=times, deep=[deep])
        for at, cut in enumerate(found.cuts):
            where = {"layer": cut, "split": split, "checkpoint": deep, "note": found.batch_norm[at]}
            own = found.own_predictions[[found.models.index(one) for one in found.shallow]]
            seen = pointwise_consistency(
                found.predictions[at, :, 0], found.shallow, times[0], deep, own, seed=seed
            )
            rows.append(row("consistency", seen.mean.value, low=seen.mean.low, high=seen.mean.high, **where))
            rows += [
                row("pointwise", value, position=place, **where) for place, value in enumerate(seen.values)
            ]
    return rows


def _corrupted(samples: Samples, names: Sequence[str], severity: int) -> Samples:
    """Every picture corrupted once, the kinds in turn."""
    x = samples.tensor.clone()
    for place, name in enumerate(names):
        rows = torch.arange(place, len(x), len(names))
        x[rows] = corrupt(samples.tensor[rows], name, severity, seed=0)
    return Samples.of(x, samples.y, samples.true)


def step_noise(
    run: Run,
    *,
    case: str,
    seed: int,
    checkpoints: str = "last",
    batches: int = 256,
    inputs: int = 20,
    draws: int = 999,
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
    data, config = run.data(), run.config
    assert config is not None  # a study's run has one
    objective, probes = objective_of(config, data), some(data.test, inputs)
    rows: Rows = []
    for at in chosen(run, checkpoints):
        model = run.model(at)
        for cut in model.cuts:  # pyright: ignore[reportGeneralTypeIssues]
            noise = sgd_noise(
                model, data.train.tensor, data.train.y, to_inputs(probes.tensor, data.scaling),
                cut=str(cut), batches=batches, batch_size=config.batch_size,
                lr=config.learning_rate(max(1, at)), loss=objective.loss,
                generator=stream(seed, "mini-batches", at), prepare=lambda x: to_inputs(x, data.scaling),
            )  # fmt: skip
            for place in range(len(probes)):
                where = {"layer": str(cut), "checkpoint": at, "sample": place, "n": batches}
                rows += [{**one, **where} for one in _noise_rows(noise.delta[:, place], draws, seed)]
    return rows


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
        row("isotropy_statistic", test.statistic, expected=test.expected),
    ]
