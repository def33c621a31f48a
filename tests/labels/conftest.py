"""Planted data: Gaussians around class means, and labels that went wrong on purpose."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

Blobs = Callable[..., tuple[Tensor, Tensor]]
Flipped = Callable[..., Tensor]


@pytest.fixture(scope="session")
def blobs() -> Blobs:
    """Make rows (N, D) float32 and their classes; `apart` is the spread of class means in standard deviations."""

    def make(
        sizes: Sequence[int], dim: int = 12, apart: float = 2.0, seed: int = 0, shift: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        draws = torch.Generator().manual_seed(seed)
        means = apart * torch.randn(len(sizes), dim, generator=draws) + shift
        true = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
        true = true[torch.randperm(len(true), generator=draws)]
        return means[true] + torch.randn(len(true), dim, generator=draws), true

    return make


@pytest.fixture(scope="session")
def flipped() -> Flipped:
    """Make labels of which a share is another class: the next one, or any other."""

    def make(true: Tensor, rate: float, classes: int, *, pairwise: bool = False, seed: int = 1) -> Tensor:
        draws = torch.Generator().manual_seed(seed)
        hit = torch.rand(len(true), generator=draws) < rate
        step = torch.ones_like(true) if pairwise else torch.randint(1, classes, true.shape, generator=draws)
        return torch.where(hit, (true + step) % classes, true)

    return make


@pytest.fixture(scope="session")
def few_samples() -> tuple[Tensor, Tensor, Tensor]:
    """Rows (300, 200) that tell ten classes by their widest ten columns, labels (a third drawn anew) and classes."""
    draws = torch.Generator().manual_seed(4)
    true = torch.arange(300) % 10
    size = torch.arange(1, 201) ** -0.25
    means = 0.9 * torch.randn(10, 200, generator=draws) * size * (torch.arange(200) < 10)
    rows = torch.randn(300, 200, generator=draws) * size + means[true]
    anew = torch.rand(300, generator=draws) < 1 / 3
    return rows, torch.where(anew, torch.randint(0, 10, (300,), generator=draws), true), true
