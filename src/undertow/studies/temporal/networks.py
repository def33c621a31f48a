"""The networks of paper 000 as it trained them, and small ones for a laptop.

    Study(cases=BOTH, changes=small_scales(smoke={"first": 3}, laptop={"first": 25}, minutes=3), ...)

All laptop studies train the same two networks, so that one folder of results trains them once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from undertow.studies.recipe import Case, ScaleChange
from undertow.training.config import TrainConfig

MLP_CASE, RESNET_CASE = "MLP on MNIST", "ResNet on CIFAR-10"

MLP = TrainConfig(
    model="mlp:256-256,dropout=0.2", data="mnist", optimiser="sgd", lr=0.01, momentum=0.9, weight_decay=1e-4,
    batch_size=200, epochs=300, checkpoints="every:1",
)  # fmt: skip
RESNET = TrainConfig(
    model="resnet20", data="cifar10", scaling="imagenet", augment="crop-flip", optimiser="sgd", lr=0.1,
    momentum=0.9, weight_decay=1e-4, batch_size=128, schedule="step", milestones=(100, 150), gamma=0.1,
    epochs=300, checkpoints="every:1",
)  # fmt: skip
BOTH = (Case(MLP_CASE, MLP), Case(RESNET_CASE, RESNET))

EPOCHS = 50
"""Epochs of every laptop run."""

LAPTOP_MLP: dict[str, Any] = {"train_size": 10_000, "test_size": 2000, "epochs": EPOCHS}
LAPTOP_RESNET: dict[str, Any] = {
    "model": "resnet8:width=8", "train_size": 3000, "test_size": 2000, "epochs": EPOCHS, "milestones": (15, 30),
    "augment": "none",
}  # fmt: skip
LAPTOP = {MLP_CASE: LAPTOP_MLP, RESNET_CASE: LAPTOP_RESNET}
LAPTOP_WORDS = (
    "a sixth of the epochs or less and fewer samples, so more drift between neighbouring checkpoints; the small "
    "ResNet, without augmentation, fits about four in five of its training pictures"
)

SMOKE_MLP: dict[str, Any] = {
    "data": "digits",
    "model": "mlp:16-16",
    "train_size": 300,
    "test_size": 100,
    "epochs": 6,
}
SMOKE_RESNET: dict[str, Any] = {
    "data": "digits", "model": "resnet8:width=2", "train_size": 200, "test_size": 100, "epochs": 6,
    "milestones": (4,), "scaling": None, "augment": "none",
}  # fmt: skip
SMOKE = {MLP_CASE: SMOKE_MLP, RESNET_CASE: SMOKE_RESNET}

Cases = Mapping[str, Mapping[str, Any]]


def small_scales(
    smoke: Mapping[str, Any],
    laptop: Mapping[str, Any],
    minutes: float,
    *,
    cases: tuple[Cases, Cases] = (SMOKE, LAPTOP),
    train: Mapping[str, Any] | None = None,
) -> dict[str, ScaleChange]:
    """The small scales of a study: its options there, the laptop's minutes, and what its cases train otherwise."""
    common: dict[str, Any] = {"train": train or {}}
    return {
        "smoke": ScaleChange(cases=cases[0], options=smoke, minutes=0.2, **common),
        "laptop": ScaleChange(
            cases=cases[1], options=laptop, because=LAPTOP_WORDS, minutes=minutes, **common
        ),
    }
