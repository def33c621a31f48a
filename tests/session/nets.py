"""A small network that counts by itself which samples pass through it, and a run of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn

import undertow as ut
from undertow.data.samples import Samples

TRAIN, TEST, CLASSES, DIM = 600, 300, 3, 16
FIRST_TEST = 10_000
"""Training samples are numbered from 0, held-out ones from here."""
EPOCHS = (0, 1, 2, 5)


class Counted(nn.Module):
    """Notes the number of each sample that enters it, which is the sample's first feature."""

    seen: ClassVar[Counter[tuple[int, int]]] = Counter()
    """(checkpoint, sample) -> how often."""

    def __init__(self, wide: int = 64) -> None:
        super().__init__()
        self.register_buffer("number", torch.tensor(-1))
        self.layer1 = nn.Sequential(nn.Linear(DIM, wide), nn.ReLU())
        self.layer2 = nn.Sequential(nn.Linear(wide, wide), nn.ReLU())
        self.layer3 = nn.Sequential(nn.Linear(wide, 8), nn.ReLU())
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        at = int(self.number)
        Counted.seen.update((at, round(one)) for one in (x[:, 0].double() * FIRST_TEST).tolist())
        return self.head(self.layer3(self.layer2(self.layer1(x))))


def samples(count: int, seed: int, first: int = 0) -> tuple[Tensor, Tensor]:
    """Classes that overlap; the first feature is the number of the sample."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % CLASSES
    x = torch.randn(count, DIM, generator=draw)
    x[torch.arange(count), 1 + labels] += 2.5
    x[:, 0] = (torch.arange(count) + first) / FIRST_TEST
    return x, labels


def train_samples() -> Samples:
    """With a fifth of the labels wrong."""
    x, true = samples(TRAIN, 0)
    given = torch.where(torch.arange(TRAIN) % 5 == 2, (true + 1) % CLASSES, true)
    return Samples.of(x, given, true)


def held_samples() -> Samples:
    return Samples.of(*samples(TEST, 1, FIRST_TEST))


def recorded(folder: Path) -> ut.Run:
    """Trained a little, with a checkpoint at each of EPOCHS."""
    data = train_samples()
    with torch.random.fork_rng(devices=[]), ut.Recorder(folder) as recorder:
        torch.manual_seed(0)
        model = Counted()
        optimiser = torch.optim.Adam(model.parameters(), 3e-3)
        for epoch in range(EPOCHS[-1] + 1):
            if epoch in EPOCHS:
                model.number.fill_(epoch)
                recorder.save(model, epoch)
            for rows in torch.randperm(TRAIN).split(50):
                nn.functional.cross_entropy(model(data.x[rows]), data.y[rows]).backward()
                optimiser.step()
                optimiser.zero_grad()
    return ut.open_run(folder, model=Counted)
