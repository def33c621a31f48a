"""Temperatures and calibration errors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from undertow.errors import BadData, BadValue
from undertow.repairing import calibration_error, fit_temperature
from undertow.repairing.calibrate import calibrate


def planted(temperature: float, count: int = 20_000, noise: float = 0.0) -> tuple[Tensor, Tensor]:
    """Scores (N, 5) whose labels follow softmax(scores / temperature), some of them replaced."""
    random = torch.Generator().manual_seed(0)
    scores = 3 * torch.randn(count, 5, generator=random, dtype=torch.float64)
    labels = torch.multinomial(scores.softmax(1), 1, generator=random)[:, 0]
    replaced = torch.rand(count, generator=random) < noise
    labels = torch.where(replaced, torch.randint(0, 5, (count,), generator=random), labels)
    return scores * temperature, labels


@pytest.mark.parametrize("temperature", [1e-3, 0.3, 1.0, 40.0])
@pytest.mark.parametrize("noise", [0.0, 0.4])
def test_the_planted_temperature_is_found(temperature, noise):
    """Fails if noise were not modelled: noisy labels look like a hotter softmax."""
    scores, labels = planted(temperature, noise=noise)
    assert fit_temperature(scores, labels, noise) == pytest.approx(temperature, rel=0.05)
    if noise:
        assert fit_temperature(scores, labels) > 1.3 * temperature


@pytest.mark.parametrize("noise", [0.0, 0.4])
def test_error_against_a_loop_over_bins(noise):
    scores, labels = planted(1.0, 4000, noise)
    sharp = scores * 3
    sure, said = sharp.softmax(1).max(1)
    sure = (sure * (1 - noise) + noise / 5).numpy()
    right = (said == labels).numpy()
    total = 0.0
    for low in np.arange(15) / 15:
        inside = (sure >= low) & (sure < low + 1 / 15 if low < 0.93 else sure >= low)
        if inside.any():
            total += inside.mean() * abs(right[inside].mean() - sure[inside].mean())
    assert calibration_error(sharp, labels, noise) == pytest.approx(total / (1 - noise), rel=1e-6)
    assert calibration_error(scores, labels, noise) < 0.05 < calibration_error(sharp, labels, noise)


def test_calibration_is_cross_fitted():
    scores, labels = planted(5.0, 4000)
    found = calibrate(scores / 5 * 10, scores, labels)
    assert found.temperature == pytest.approx(5, rel=0.1)
    assert found.after < 0.03 < found.raw
    assert found.before > 0.1


def test_degenerate_scores():
    assert fit_temperature(torch.ones(10, 3), torch.zeros(10, dtype=torch.int64)) == 1.0
    perfect = torch.eye(3).repeat(10, 1)
    sharpest = fit_temperature(perfect, torch.arange(3).repeat(10))
    assert 0 < sharpest < 1e-2
    with pytest.raises(BadData, match="finite"):
        fit_temperature(torch.full((2, 3), torch.nan), torch.tensor([0, 1]))
    with pytest.raises(BadData, match="scores"):
        calibration_error(torch.ones(4), torch.zeros(4, dtype=torch.int64))
    with pytest.raises(BadValue, match="share"):
        fit_temperature(perfect, torch.arange(3).repeat(10), noise=1.0)
