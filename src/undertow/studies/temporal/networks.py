"""The networks of paper 000 as it trained them (its table 2), and small ones for a laptop.

    Study(cases=ALL, changes=small_scales(smoke={"first": 3}, laptop={"first": 30}, minutes=3), ...)

All laptop studies train the same networks for the same epochs, so that one folder of results trains them once. Their
epochs are the paper's by five: rates drop at 20 and 30 (100 and 150), memory ends at 60 (300), transfer at 100 (500).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from undertow.studies.recipe import Case, ScaleChange
from undertow.training.config import TrainConfig

MLP_CASE, RESNET_CASE, HUNDRED_CASE = "MLP on MNIST", "ResNet on CIFAR-10", "ResNet on CIFAR-100"
SVHN_CASE, STL_CASE = "conv net on SVHN", "conv net on STL-10"

# The paper's table 2 has no rate drops; "see the URL": both sources drop the rate twice by ten.
MLP = TrainConfig(
    model="mlp:256-256,dropout=0.2", data="mnist", scaling="0.1307/0.3081", optimiser="sgd", lr=0.01,
    momentum=0.9, weight_decay=1e-4, batch_size=200, schedule="step", milestones=(80, 120), gamma=0.1, epochs=300,
    checkpoints="every:1",
)  # fmt: skip
RESNET = TrainConfig(
    model="resnet20", data="cifar10", scaling="imagenet", augment="crop-flip", optimiser="sgd", lr=0.1,
    momentum=0.9, weight_decay=1e-4, batch_size=128, schedule="step", milestones=(100, 150), gamma=0.1,
    epochs=300, checkpoints="every:1",
)  # fmt: skip
HUNDRED = replace(RESNET, data="cifar100")
SVHN = TrainConfig(
    model="svhn-cnn", data="svhn", optimiser="adam", lr=1e-3, weight_decay=0.0, batch_size=200, schedule="step",
    milestones=(80, 120), gamma=0.1, epochs=300, checkpoints="every:1",
)  # fmt: skip
STL = replace(SVHN, model="stl10-cnn", data="stl10", weight_decay=1e-3)

NETWORKS: Mapping[str, TrainConfig] = {
    MLP_CASE: MLP, RESNET_CASE: RESNET, HUNDRED_CASE: HUNDRED, SVHN_CASE: SVHN, STL_CASE: STL,
}  # fmt: skip


def cases_of(
    epochs: int = 300, checkpoints: str = "every:1", names: tuple[str, ...] = ()
) -> tuple[Case, ...]:
    """The networks of these names (all by default), trained for so long."""
    return tuple(
        Case(name, replace(config, epochs=epochs, checkpoints=checkpoints))
        for name, config in NETWORKS.items()
        if not names or name in names
    )


ALL = cases_of()
BOTH = cases_of(names=(MLP_CASE, RESNET_CASE))

EPOCHS = 100
"""Epochs of every laptop run."""
GAMMA = 0.5
"""What a laptop's rates fall by. With the paper's tenth its few pictures leave weights that hardly move (.5 % from
epoch 30 to 60, the paper's 7 % from 150 to 300): composites of networks that stand still tell nothing."""

_SMALL_RESNET: dict[str, Any] = {
    "model": "resnet8:width=16", "train_size": 600, "test_size": 500, "epochs": EPOCHS, "milestones": (20, 30),
    "gamma": GAMMA, "augment": "none", "batch_size": 10, "lr": 0.02,
}  # fmt: skip
LAPTOP: Mapping[str, Mapping[str, Any]] = {
    MLP_CASE: {
        "train_size": 2000, "test_size": 500, "epochs": EPOCHS, "milestones": (16, 24), "gamma": GAMMA,
        "batch_size": 20,
    },
    RESNET_CASE: _SMALL_RESNET,
    HUNDRED_CASE: _SMALL_RESNET,
    SVHN_CASE: {
        "model": "svhn-cnn:width=8,dropout=0", "epochs": EPOCHS, "milestones": (16, 24), "gamma": GAMMA,
        "batch_size": 20,
    },
}  # fmt: skip
# STL-10 has no subset that could stand in for it.
LAPTOP_WORDS = (
    "a fifth of the epochs, so that the windows begin after the last rate drop as in the paper; rates drop to halves, "
    "so that weights go on moving as the paper's do; fewer pictures, smaller batches and no augmentation, so that the "
    "small networks fit their pictures"
)

_SMOKE_IMAGES: dict[str, Any] = {
    "data": "digits", "model": "resnet8:width=2", "train_size": 200, "test_size": 100, "epochs": 6,
    "milestones": (2, 3), "scaling": None, "augment": "none",
}  # fmt: skip
SMOKE: Mapping[str, Mapping[str, Any]] = {
    MLP_CASE: {
        "data": "digits", "model": "mlp:16-16", "train_size": 300, "test_size": 100, "epochs": 6, "milestones": (2, 3),
    },
    **dict.fromkeys((RESNET_CASE, HUNDRED_CASE, SVHN_CASE, STL_CASE), _SMOKE_IMAGES),
}  # fmt: skip

Cases = Mapping[str, Mapping[str, Any]]


def small_scales(
    smoke: Mapping[str, Any],
    laptop: Mapping[str, Any],
    minutes: float,
    *,
    cases: tuple[Cases, Cases] = (SMOKE, LAPTOP),
    names: tuple[str, ...] = (MLP_CASE, RESNET_CASE),
    without: tuple[str, ...] = (),
    train: Mapping[str, Any] | None = None,
) -> dict[str, ScaleChange]:
    """The small scales of a study: its options there, the laptop's minutes, and what its cases train otherwise.

    Args:
        smoke: options at smoke scale.
        laptop: options at laptop scale.
        minutes: on two cores at laptop scale.
        cases: what the cases train otherwise, at smoke and at laptop scale.
        names: the study's cases; those without a laptop setting are left out there.
        without: others that are left out there.
        train: settings of every case at both scales.
    """
    common: dict[str, Any] = {"train": train or {}}
    small = {name: cases[0][name] for name in names}
    large = {name: cases[1][name] for name in names if name in cases[1] and name not in without}
    kept = tuple(large) if len(large) < len(names) else ()
    return {
        "smoke": ScaleChange(cases=small, options=smoke, minutes=0.2, **common),
        "laptop": ScaleChange(
            cases=large, options=laptop, because=LAPTOP_WORDS, minutes=minutes, only=kept, **common
        ),
    }
