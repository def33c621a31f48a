"""Handwritten digits with two wrong labels in five, and a network that memorises them in seconds."""

from __future__ import annotations

from functools import cache

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


@cache
def digits() -> tuple[tuple[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Training (x, given, true) and held-out (x, y)."""
    raw = load_digits()
    rng = torch.Generator().manual_seed(0)
    order = torch.randperm(len(raw.target), generator=rng)
    x, y = torch.tensor(raw.data / 16, dtype=torch.float32)[order], torch.tensor(raw.target)[order]
    given = y[:600].clone()
    wrong = torch.rand(600, generator=rng) < 0.4
    given[wrong] = (given[wrong] + torch.randint(1, 10, (int(wrong.sum()),), generator=rng)) % 10
    return (x[:600], given, y[:600]), (x[600:1000], y[600:1000])


def network() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))


def loader(batch: int = 50) -> DataLoader[tuple[Tensor, ...]]:
    x, given, _ = digits()[0]
    return DataLoader(
        TensorDataset(x, given), batch, shuffle=True, generator=torch.Generator().manual_seed(2)
    )
