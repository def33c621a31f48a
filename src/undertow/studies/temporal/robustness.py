"""Errors under corruption: the mean over fifteen corruptions at five severities (mCE), not normalised.

    found = corruption_error(model, data.test, scaling=data.scaling)
    found.mce                                # mean of (1 - accuracy): value, low, high by a bootstrap over images
    found.by_corruption                      # a row per corruption: error, low, high

Published mCE figures divide by the errors of a reference network; these do not. Intervals resample images, each
with all its corrupted versions: these are of one image, not so many independent ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from undertow.data.corruptions import CORRUPTIONS, SEVERITIES, check_corruption, corrupt_samples
from undertow.data.inputs import to_inputs
from undertow.data.samples import Samples
from undertow.errors import BadValue
from undertow.features.stopping import evaluating
from undertow.features.tap import device_of, main_tensor
from undertow.temporal.intervals import Interval, bootstrap_mean, edges, resampled_means

BATCH = 512
"""Images per forward pass."""


@dataclass(frozen=True, eq=False)
class CorruptionError:
    """What a model got wrong under each corruption, image by image."""

    wrong: NDArray[np.bool_]  # (corruptions, severities, N)
    clean: NDArray[np.bool_]  # (N,), on the images as they are
    corruptions: tuple[str, ...]
    seed: int

    @property
    def mce(self) -> Interval:
        """Mean error over corruptions and severities, with its bootstrap interval over images."""
        return bootstrap_mean(self.wrong.mean((0, 1)), seed=self.seed)

    @property
    def clean_error(self) -> float:
        """The error without corruption, on the same images."""
        return float(self.clean.mean())

    @property
    def by_corruption(self) -> pd.DataFrame:
        """A row per corruption: its mean error over severities."""
        images = self.wrong.mean(1)  # (corruptions, N)
        low, high = edges(resampled_means(images, seed=self.seed))
        return pd.DataFrame(
            {"corruption": self.corruptions, "error": images.mean(1), "low": low, "high": high}
        )


def corruption_error(
    model: nn.Module,
    samples: Samples,
    *,
    scaling: str,
    corruptions: Sequence[str] = CORRUPTIONS,
    severities: Sequence[int] = SEVERITIES,
    seed: int = 0,
) -> CorruptionError:
    """The errors of a model, in evaluation mode and where its parameters lie.

    Args:
        model: answers with one number per class.
        samples: test images (uint8) with labels; the true ones count, where they are known.
        scaling: how pixels become inputs, as in training.
        corruptions: names, all fifteen by default.
        severities: 1 to 5.
        seed: of the corruptions and the bootstrap.
    """
    kinds = [(name, severity) for name in corruptions for severity in severities]
    if not kinds:
        raise BadValue("corruption_error", "at least one corruption and severity", "none")
    for name, severity in kinds:
        check_corruption(name, severity)
    labels = (samples.y if samples.true is None else samples.true).cpu()

    def wrong(images: Tensor) -> NDArray[np.bool_]:
        return (_predictions(model, images, scaling) != labels).numpy()

    worse = np.stack([wrong(corrupt_samples(samples, *kind, seed=seed).tensor) for kind in kinds])
    shape = (len(corruptions), len(severities), len(samples))
    return CorruptionError(worse.reshape(shape), wrong(samples.tensor), tuple(corruptions), seed)


def _predictions(model: nn.Module, images: Tensor, scaling: str) -> Tensor:  # (N,)
    device = device_of(model)
    with evaluating(model), torch.no_grad():
        outputs = [main_tensor(model(to_inputs(part.to(device), scaling))) for part in images.split(BATCH)]
    return torch.cat(outputs).argmax(1).cpu()
