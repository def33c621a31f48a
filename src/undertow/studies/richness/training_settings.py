"""Training settings that several recipes start from, at the paper's scale, and how a laptop trains them.

replace(CIFAR10, lr=0.2)                       # the paper's ResNet-18; CIFAR100, MNIST likewise
ScaleChange(train=LAPTOP, because=NARROW)           # a narrow net on few pictures, which it fits
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from undertow.training.config import TrainConfig

CIFAR10 = TrainConfig(
    model="resnet18:preact,closed", data="cifar10", scaling="cifar", augment="crop-flip", loss="mse", alpha=1 / 3,
    optimiser="sgd", lr=5e-2, momentum=0.9, weight_decay=5e-5, batch_size=128, epochs=200, schedule="step",
    milestones=(60, 120, 180), gamma=0.2, test_at="checkpoints", checkpoints="every:1000",
)  # fmt: skip
CIFAR100 = replace(
    CIFAR10, data="cifar100", alpha=1 / 10, epochs=400, milestones=(60, 120, 180, 240, 300, 360)
)
MNIST = replace(CIFAR10, data="mnist", scaling="unit", augment="none")
"""The paper gives no settings of its own for MNIST with this network."""

LAPTOP: Mapping[str, Any] = {
    "model": "resnet18:preact,closed,width=8,pool", "train_size": 2000, "test_size": 2000, "augment": "none",
    "epochs": 20, "milestones": (12, 17),
}  # fmt: skip
COLLAPSED: Mapping[str, Any] = {**LAPTOP, "batch_size": 32, "lr": 0.1, "epochs": 40, "milestones": (24, 34)}
"""The same network until its features have nearly collapsed: eight times the updates, twice the rate."""

LAPTOP_VGG: Mapping[str, Any] = {
    "model": "vgg16bn:width=8,dropout=0", "data": "cifar10", "alpha": 1 / 3, "augment": "none", "train_size": 1000,
    "test_size": 1000, "lr": 3e-2, "batch_size": 32, "epochs": 80, "schedule": "cosine", "milestones": (),
}  # fmt: skip
LAPTOP_PLAIN_VGG: Mapping[str, Any] = {**LAPTOP_VGG, "model": "vgg16:width=8,dropout=0"}
"""Both alike, as the paper's; the studies with VGG-16 share these networks."""

NARROW = (
    "an eighth of the width with a pool behind the stem, 2,000 pictures without augmentation, 20 epochs: "
    "the network fits them, but knows too little to reach the paper's test accuracy"
)
LONGER = (
    "an eighth of the width with a pool behind the stem, 2,000 pictures without augmentation, 2,520 updates at twice "
    "the rate: features collapse long after the pictures are fitted"
)
NARROW_VGG = (
    "VGG-16 an eighth as wide fits 1,000 pictures in 80 epochs, with and without batch norm: no dropout, a larger rate "
    "that falls"
)
RESNET_LAYERS: Mapping[str, Any] = {"layers": "layer1,layer2,layer3,avg_pool"}
POOLED = "maps are averaged down to few pixels, so that there are more samples than features"

SMOKE: Mapping[str, Any] = {
    "model": "resnet18:preact,closed,width=4", "data": "digits", "scaling": "half", "train_size": 200, "test_size": 200,
    "augment": "none", "epochs": 2, "milestones": (1,),
}  # fmt: skip


def vgg(base: TrainConfig, *, norm: bool = True) -> TrainConfig:
    """VGG-16 on the same data: a constant rate of 1e-2 and less decay, as the paper's figure 3."""
    return replace(
        base,
        model="vgg16bn" if norm else "vgg16",
        lr=1e-2,
        weight_decay=1e-5,
        schedule="constant",
        milestones=(),
    )
