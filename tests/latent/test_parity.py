"""The authors' published accuracies on raw pixels, to within two test points out of 10,000.

Probes on pixels need no network, so this tests label noise, PCA rule, projection and sign together.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from undertow.data import load_data
from undertow.latent import MASC, VeLPIC

DEGREES = (0.0, 0.2, 0.4, 0.6, 0.8)
CHANGED = (0.0, 0.17963, 0.35893, 0.53838, 0.72127)
PUBLISHED = {
    "MASC": (0.8234, 0.8321, 0.8255, 0.8027, 0.7108),
    "VeLPIC": (0.8163, 0.8135, 0.8081, 0.7936, 0.7722),
}
PROBES: dict[str, Callable[[], MASC | VeLPIC]] = {"MASC": MASC, "VeLPIC": lambda: VeLPIC(sign="all")}

Pixels = tuple[Tensor, Tensor, Tensor, Tensor]


def pixels(name: str) -> Pixels:
    """Training and test pixels from -1 to 1, and labels."""
    data = load_data(name)
    train, test = (part.x.flatten(1).float() / 127.5 - 1 for part in (data.train, data.test))
    return train, data.train.y, test, data.test.y


@pytest.fixture(scope="module")
def mnist(real_data: Path) -> Pixels:
    assert real_data
    return pixels("mnist")


def authors_draw(labels: Tensor, degree: float) -> Tensor:
    """Labels as the authors drew them, written here apart from `undertow.data.noise`."""
    draw = np.random.RandomState(42)
    replaced = draw.rand(len(labels)) <= degree
    noisy = labels.numpy().copy()
    noisy[replaced] = draw.randint(0, 10, replaced.sum())
    return torch.from_numpy(noisy)


@pytest.mark.realdata
@pytest.mark.parametrize("probe", PROBES)
@pytest.mark.parametrize("at", range(5), ids=[str(degree) for degree in DEGREES])
def test_mnist(mnist: Pixels, probe: str, at: int) -> None:
    train, labels, test, truth = mnist
    noisy = labels if DEGREES[at] == 0 else authors_draw(labels, DEGREES[at])
    assert float((noisy != labels).double().mean()) == pytest.approx(CHANGED[at], abs=5e-6)
    accuracy = PROBES[probe]().fit(train, noisy).score(test, truth)
    assert accuracy == pytest.approx(PUBLISHED[probe][at], abs=2.01e-4)


@pytest.mark.realdata
def test_fashion_mnist(real_data: Path) -> None:
    assert real_data
    train, labels, test, truth = pixels("fashion_mnist")
    accuracy = MASC().fit(train, authors_draw(labels, 0.4)).score(test, truth)
    assert accuracy == pytest.approx(0.6875, abs=2.01e-4)
