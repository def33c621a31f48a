"""What the studies of functions measure: a step on a line, a scalar target, features whose truth is known.

    heaviside(run, case=..., seed=0)              # spectra, and eigenfunctions as curves over [-1, 1]
    by_target(run, case=..., seed=0)              # the last layer against a scalar target or classes
    nystrom(None, case=..., seed=0, exponent=1.0) # nothing is trained: Gaussian features

An eigenfunction has no sign of its own: it is drawn so that it is not negative at the right end.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from undertow.data.samples import Samples
from undertow.latent.spectrum import eigh
from undertow.richness.eigenfunctions import Spectrum, feature_spectrum
from undertow.studies.findings import row
from undertow.studies.richness.last_layer_measures import (
    LayerSight,
    chosen,
    last_layer,
    look,
    richness_rows,
    sights,
    spectrum_rows,
)
from undertow.studies.task import Rows
from undertow.training.run import Run

# --------------------------------------------------------------------------------------------- a scalar target


def by_target(run: Run, *, case: str, seed: int, samples: int = 10_000) -> Rows:
    """The last layer's richness, and its spectrum against what the run was to learn: one number, or classes."""
    rows = last_layer(run, case=case, seed=seed, samples=samples, spectra=False, labels=False)
    train, test = sights(run.data(), run.model(run.epochs[-1]), samples).values()
    scalar = run.config is not None and run.config.target == "scalar"
    curves = spectrum_rows(train, test, test.labels.double() if scalar else None)
    return [*rows, *({"checkpoint": run.epochs[-1], **one} for one in curves)]


# ------------------------------------------------------------------------------------------------ a step function


def heaviside(
    run: Run, *, case: str, seed: int, checkpoints: str = "all", grid: int = 201, functions: int = 3
) -> Rows:
    """Spectra, the best single feature and the first eigenfunctions over [-1, 1], at checkpoints.

    Options:
        checkpoints: all, last, or epochs such as 0,10,100.
        grid: points at which the eigenfunctions are kept.
        functions: how many of them.
    """
    rows, data = list[dict[str, Any]](), run.data()
    for at in chosen(run, checkpoints):
        model = run.model(at)
        train, test = sights(data, model, 10_000).values()
        targets = test.labels.double()
        found = [{**one, "split": "test"} for one in richness_rows(test, None, model, labels=False)]
        found += spectrum_rows(train, test, targets)
        found += _best_feature(feature_spectrum(train.features, test.features, targets, test.outputs))
        found += _drawn(model, data.scaling, train, grid, functions)
        rows += [{"checkpoint": at, **one} for one in found]
    return rows


def _best_feature(seen: Spectrum) -> Rows:
    """The eigenfunction that expresses most of the target, and how much of the output it expresses."""
    best = int(seen.feature_quality.argmax())
    shares = {"quality": seen.feature_quality[best], "utilisation": seen.feature_utilisation[best]}
    return [
        row(f"best_feature_{name}", float(share), split="test", position=best + 1)
        for name, share in shares.items()
    ]


def _drawn(model: nn.Module, scaling: str, train: LayerSight, grid: int, functions: int) -> Rows:
    """The first eigenfunctions, the target and the learned function at points from -1 to 1."""
    x = torch.linspace(-1, 1, grid)[:, None]
    seen = look(model, Samples.of(x, (x[:, 0] > 0).long()), scaling)
    curves = {f"eigenfunction {k}": e for k, e in enumerate(eigenfunctions(train, seen, functions), start=1)}
    curves |= {"target": seen.labels.double(), "learned": seen.outputs[:, 0].double()}
    places = x[:, 0].tolist()
    return [
        row("curve", value, function=name, x=place)
        for name, curve in curves.items()
        for place, value in zip(places, curve.tolist(), strict=True)
    ]


def eigenfunctions(train: LayerSight, seen: LayerSight, count: int) -> list[Tensor]:
    """The first `count` eigenfunctions of the training features at the samples of `seen`, each (M,)."""
    rows = train.features.double()
    values, vectors = (part.flip(-1)[..., :count] for part in eigh(rows.T @ rows / len(rows)))
    drawn = seen.features.double() @ vectors / values.sqrt()
    return list((drawn * torch.where(drawn[-1] < 0, -1.0, 1.0)).T)


# --------------------------------------------------------------------------------------- features with a known truth


def nystrom(
    run: Run | None,
    *,
    case: str,
    seed: int,
    exponent: float,
    samples: int = 10_000,
    features: int = 1_000,
    draws: int = 3,
) -> Rows:
    """How well eigenvalues and eigenfunctions are found from samples of Gaussian features.

    Feature k has variance k^-exponent and is independent of the others: its eigenvalue and eigenfunction.

    Options:
        seed: draws the features.
        exponent: of the power law.
        samples: that the spectrum is found from.
        features: how many.
        draws: errors are means over so many sets of samples.
    """
    generator = torch.Generator().manual_seed(seed)
    truth = torch.arange(1, features + 1, dtype=torch.float64) ** -exponent
    errors = [spectrum_errors(_gaussian(samples, truth, generator), truth) for _ in range(draws)]
    names = ("eigenvalue_error", "eigenfunction_error", "span_error")
    rows = [
        row(name, value, position=place, n=samples)
        for name, parts in zip(names, zip(*errors, strict=True), strict=True)
        for place, value in enumerate(torch.stack(parts).mean(0).tolist(), start=1)
    ]
    return [*rows, *_projections(samples, truth, generator)]


def _gaussian(count: int, truth: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(count, len(truth), generator=generator, dtype=torch.float64) * truth.sqrt()


def spectrum_errors(rows: Tensor, truth: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of eigenvalues (the paper's eq. 67), eigenfunctions (68) and the span of the first k (74); each (P,)."""
    values, vectors = (part.flip(-1) for part in eigh(rows.T @ rows / len(rows)))
    overlap = vectors.square()  # (P, P): true function by found function
    shared = overlap.cumsum(0).cumsum(1).diagonal() / torch.arange(1, len(truth) + 1)
    return (values / truth - 1).square(), 1 - vectors.diagonal().abs(), 1 - shared


def _projections(samples: int, truth: Tensor, generator: torch.Generator) -> Rows:
    """Shares of ten expressible functions and of ten of pure noise, on many and on as few samples as features."""
    train = _gaussian(samples, truth, generator)
    mix = torch.randn(len(truth), 10, generator=generator, dtype=torch.float64)
    rows: Rows = []
    for count, qr in ((samples, True), (samples, False), (len(truth), True)):
        test = _gaussian(count, truth, generator)
        noise = torch.randn(count, 10, generator=generator, dtype=torch.float64)
        seen = feature_spectrum(train, test, test / truth.sqrt() @ mix, noise, qr=qr)
        way = {"qr": "with QR" if qr else "without QR", "n": count}
        for name, curve in (("expressed", seen.quality), ("noise_expressed", seen.utilisation)):
            rows += [row(name, value, position=k, **way) for k, value in enumerate(curve.tolist(), start=1)]
    return rows
