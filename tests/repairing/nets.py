"""Networks of other makers, small."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class TimmLike(nn.Module):
    """Residual maps, a pool, and a classifier that is defined before what runs before it."""

    def __init__(self, classes: int = 3, bias: bool = True) -> None:
        super().__init__()
        self.head = nn.ModuleDict({"fc": nn.Linear(8, classes, bias=bias)})
        self.stem = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.block = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU())
        self.late = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU())
        self.aux = nn.Linear(8, classes)  # the last linear layer by definition, and never called

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = x + self.block(x)
        return self.head["fc"](self.late(x).mean((2, 3)))


class LogSoftmax(nn.Module):
    """Answers with log-probabilities."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x).log_softmax(1)


class Reversed(LogSoftmax):
    """Goes on behind its head, and turns the order around."""

    def forward(self, x: Tensor) -> Tensor:
        return -self.inner(x)


def images(count: int = 90, classes: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Stripes of several widths in noise, in turn."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % classes
    wave = torch.sin(torch.arange(8)[None] * (labels[:, None] + 1.0))
    return wave[:, None, None, :] + 0.5 * torch.randn(count, 1, 8, 8, generator=random), labels


def seeded(factory, *args, **kwargs) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return factory(*args, **kwargs)
