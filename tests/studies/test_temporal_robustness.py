"""Errors under corruption."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from undertow.data.corruptions import CORRUPTIONS, SEVERITIES, corrupt
from undertow.data.inputs import to_inputs
from undertow.data.samples import Samples
from undertow.errors import BadValue, UnknownName
from undertow.studies.temporal.robustness import corruption_error


class Brightness(nn.Module):
    """Calls an image bright (1) if its mean is above a threshold; has a mode, and drops out in training."""

    def __init__(self, threshold=0.0):
        super().__init__()
        self.threshold, self.drop = nn.Parameter(torch.tensor(threshold)), nn.Dropout(0.9)

    def forward(self, x):
        level = self.drop(x).mean((1, 2, 3)) - self.threshold
        return torch.stack([-level, level], 1)


def images(count=40, seed=0):
    g = torch.Generator().manual_seed(seed)
    base = torch.randint(90, 166, (count, 1, 1, 1), generator=g)
    x = (base + torch.randint(-40, 40, (count, 1, 28, 28), generator=g)).clamp(0, 255).to(torch.uint8)
    return Samples.of(x, (to_inputs(x, "half").mean((1, 2, 3)) > 0).long())


def test_every_cell_is_the_error_on_those_images():
    """Against a loop that corrupts, scales and compares; catches a wrong order of corruptions or severities."""
    data, model = images(6), Brightness()
    found = corruption_error(model, data, scaling="half")
    assert found.clean_error == 0
    model.eval()
    wanted = {}
    for name in CORRUPTIONS:
        for severity in SEVERITIES:
            right = 0
            for i in range(len(data)):
                x = corrupt(data.x[i : i + 1], name, severity, index=torch.tensor([i]))
                right += int(model(to_inputs(x, "half")).argmax(1)) == int(data.y[i])
            wanted[name, severity] = 1 - right / len(data)
    cells = found.wrong.mean(2)
    assert cells.ravel().tolist() == pytest.approx(list(wanted.values()))
    assert found.mce.value == pytest.approx(np.mean(list(wanted.values())))
    by = found.by_corruption.set_index("corruption")
    assert list(by.index) == list(CORRUPTIONS)
    assert by.error["fog"] == pytest.approx(np.mean([wanted["fog", s] for s in SEVERITIES]))
    assert (by.low <= by.error).all()
    assert (by.error <= by.high).all()


def test_the_interval_is_over_images():
    """75 versions of 40 images are 40 images: the interval must be as wide as that of 40 means."""
    found = corruption_error(Brightness(0.1), images(), scaling="half", corruptions=["fog", "snow"])
    means = found.wrong.mean((0, 1))
    error = means.std() / np.sqrt(len(means))
    assert found.mce.low < found.mce.value < found.mce.high
    assert found.mce.high - found.mce.low == pytest.approx(2 * 1.96 * error, rel=0.25)


def test_true_labels_count_and_modes_come_back():
    data, model = images(), Brightness().train()
    noisy = data.relabelled(1 - data.y)
    found = corruption_error(model, noisy, scaling="half", corruptions=["brightness"], severities=[1])
    assert found.clean_error == 0
    assert model.training
    assert model.drop.training


def test_bad_input_is_answered():
    data = images(8)
    with pytest.raises(UnknownName, match="Did you mean 'fog'"):
        corruption_error(Brightness(), data, scaling="half", corruptions=["fogg"])
    with pytest.raises(BadValue, match="severity from 1 to 5"):
        corruption_error(Brightness(), data, scaling="half", severities=[6])
    with pytest.raises(BadValue, match="at least one corruption"):
        corruption_error(Brightness(), data, scaling="half", corruptions=())
