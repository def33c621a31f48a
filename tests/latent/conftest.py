"""Features as probes meet them: several classes after a random ReLU layer, in float64."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor


def relu_features(
    count: int, dim: int, classes: int = 4, seed: int = 0, latent: int = 12, spread: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Rows (count, dim) float64 with a decaying spectrum, and class numbers that overlap somewhat."""
    draw = torch.Generator().manual_seed(seed)
    centres = torch.randn(classes, latent, generator=draw, dtype=torch.float64)
    labels = torch.arange(count) % classes
    inputs = centres[labels] + spread * torch.randn(count, latent, generator=draw, dtype=torch.float64)
    weights = torch.randn(latent, dim, generator=draw, dtype=torch.float64) / latent**0.5
    return torch.relu(inputs @ weights + 0.2), labels


@pytest.fixture
def features() -> Callable[..., tuple[Tensor, Tensor]]:
    return relu_features
