"""Errors under corruption: the mean over fifteen corruptions at five severities (mCE), not normalised.

    found = corruption_error(model, data.test, scaling=data.scaling, n=2000)
    found.mce, found.low, found.high         # mean of (1 - accuracy), with a bootstrap interval over images
    found.by_corruption                      # a row per corruption: error, low, high
    found.table                              # a row per corruption and severity
    both = corruption_errors({"whole": a, "retrained": b}, data.test, scaling=...)     # same corrupted images
    paired_difference(both["retrained"], both["whole"])

Published mCE figures divide by the errors of a reference network; these do not. Intervals resample images, each
with all its corrupted versions: these are of one image, not so many independent ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from undertow.data.corruptions import CORRUPTIONS, SEVERITIES, check_corruption, corrupt_samples
from undertow.data.inputs import to_inputs
from undertow.data.samples import Samples
from undertow.errors import BadData, BadValue
from undertow.features.tap import device_of, main_tensor
from undertow.temporal.intervals import (
    CONFIDENCE,
    RESAMPLES,
    Interval,
    bootstrap_mean,
    edges,
    resampled_means,
)

Predict = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class CorruptionError:
    """What a model got wrong under each corruption, image by image."""

    wrong: NDArray[np.bool_]  # (corruptions, severities, N)
    clean: NDArray[np.bool_]  # (N,), on the images as they are
    corruptions: tuple[str, ...]
    severities: tuple[int, ...]
    confidence: float
    resamples: int
    seed: int

    @property
    def mce(self) -> float:
        """Mean error over corruptions and severities."""
        return float(self.wrong.mean())

    @property
    def clean_error(self) -> float:
        """The error without corruption, on the same images."""
        return float(self.clean.mean())

    @property
    def low(self) -> float:
        """Lower end of the interval of `mce`."""
        return self.interval().low

    @property
    def high(self) -> float:
        """Upper end of the interval of `mce`."""
        return self.interval().high

    def interval(self) -> Interval:
        """The mean error with its bootstrap interval over images."""
        low, high = self._edges(self.wrong.mean((0, 1))[None])
        return Interval(self.mce, float(low[0]), float(high[0]))

    @property
    def by_corruption(self) -> pd.DataFrame:
        """A row per corruption: its mean error over severities."""
        images = self.wrong.mean(1)  # (corruptions, N)
        low, high = self._edges(images)
        return pd.DataFrame(
            {"corruption": self.corruptions, "error": images.mean(1), "low": low, "high": high}
        )

    @property
    def table(self) -> pd.DataFrame:
        """A row per corruption and severity."""
        names = pd.MultiIndex.from_product(
            [self.corruptions, self.severities], names=["corruption", "severity"]
        )
        return pd.DataFrame({"error": self.wrong.mean(2).ravel()}, index=names).reset_index()

    def _edges(self, rows: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return edges(resampled_means(rows, resamples=self.resamples, seed=self.seed), self.confidence)


def corruption_error(model: nn.Module, samples: Samples, *, scaling: str, **options: Any) -> CorruptionError:
    """The errors of one model; further options are those of `corruption_errors`."""
    return corruption_errors({"model": model}, samples, scaling=scaling, **options)["model"]


def corruption_errors(
    models: Mapping[str, nn.Module],
    samples: Samples,
    *,
    scaling: str,
    n: int | None = None,
    corruptions: Sequence[str] = CORRUPTIONS,
    severities: Sequence[int] = SEVERITIES,
    folder: Path | None = None,
    predict: Predict | None = None,
    batch_size: int = 512,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> dict[str, CorruptionError]:
    """The errors of several models on the same corrupted images, which are made once for all of them.

    Args:
        models: by name; they run in evaluation mode, each where its parameters lie.
        samples: test images (uint8) with labels; the true ones count, where they are known.
        scaling: how pixels become inputs, as in training.
        n: take so many images, drawn at random with `seed`; all by default.
        corruptions: names, all fifteen by default.
        severities: 1 to 5.
        folder: of the published CIFAR-10-C; without it corruptions are computed.
        predict: class numbers of a batch's outputs; argmax by default.
        batch_size: images per forward pass.
        confidence: of the intervals.
        resamples: of the bootstrap.
        seed: of the draw of images, the corruptions and the bootstrap.
    """
    kinds = [(name, severity) for name in corruptions for severity in severities]
    if not models or not kinds:
        raise BadValue("corruption_errors", "at least one model, corruption and severity", "none")
    for name, severity in kinds:
        check_corruption(name, severity)
    chosen = _some(samples, n, seed)
    labels = (chosen.y if chosen.true is None else chosen.true).cpu()
    answer = predict or (lambda outputs: outputs.argmax(1))
    seen: dict[str, list[NDArray[np.bool_]]] = {name: [] for name in models}
    for kind in [None, *kinds]:  # None: the images as they are
        images = corrupt_samples(chosen, *kind, seed=seed, folder=folder).tensor if kind else chosen.tensor
        for name, model in models.items():
            predicted = _predictions(model, images, scaling, answer, batch_size)
            seen[name].append((predicted != labels).numpy())
    shape = (len(corruptions), len(severities), len(chosen))
    return {
        name: CorruptionError(
            np.stack(worse).reshape(shape), clean, tuple(corruptions), tuple(severities),
            confidence, resamples, seed,
        )
        for name, (clean, *worse) in seen.items()
    }  # fmt: skip


def paired_difference(one: CorruptionError, other: CorruptionError) -> Interval:
    """How much larger the mCE of `one` is than that of `other`, both measured on the same corrupted images."""
    if one.wrong.shape != other.wrong.shape or one.seed != other.seed:
        raise BadData(
            "paired_difference: wanted errors on the same corrupted images, got "
            f"{one.wrong.shape} with seed {one.seed} and {other.wrong.shape} with seed {other.seed}."
        )
    images = one.wrong.mean((0, 1)) - other.wrong.mean((0, 1))  # (N,)
    return bootstrap_mean(images, confidence=one.confidence, resamples=one.resamples, seed=one.seed)


@torch.no_grad()
def _predictions(
    model: nn.Module, images: Tensor, scaling: str, answer: Predict, batch_size: int
) -> Tensor:  # (N,)
    """Class numbers in evaluation mode; every module's own mode is put back after."""
    modes, device = [(module, module.training) for module in model.modules()], device_of(model)
    model.eval()
    try:
        outputs = [
            main_tensor(model(to_inputs(part.to(device), scaling))) for part in images.split(batch_size)
        ]
        return torch.cat([answer(part).cpu() for part in outputs])
    finally:
        for module, mode in modes:
            module.training = mode


def _some(samples: Samples, n: int | None, seed: int) -> Samples:
    if n is None or n == len(samples):
        return samples
    if not 1 <= n < len(samples):
        raise BadValue("corruption_errors, n", f"1 to {len(samples)}, the number of images", n)
    drawn = torch.randperm(len(samples), generator=torch.Generator().manual_seed(seed))[:n]
    return samples.take(drawn.sort().values)
