"""What a study costs at each scale: minutes on two cores where they are known, else an estimate that says so.

    cost_words(study, "laptop")       # "2.5 min", on two cores
    cost_words(study, "paper")        # "≈ 3.1 GPU h"
    gpu_hours(study.at("paper"))      # 3.1; None where nothing is trained
    updates(config, epochs=30)        # 11730: of the weights, in thirty epochs

The estimate: three times the forward pass for every sample of every epoch, on a GPU that keeps up 10 TFLOP/s in
float32, but not less than two milliseconds for an update: small networks wait for their kernels to be launched. All
cases, one seed. Probing is not in it, and runs that may stop early count all their epochs. Expect it to be right
within a factor of three.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from undertow.data.catalogue import DATA
from undertow.studies.recipe import Study
from undertow.training.config import TrainConfig

SUSTAINED = 10e12
"""Operations a second that a recent GPU keeps up in float32."""
LEAST = 2e-3
"""Seconds that an update takes however small the network."""
PASSES = 3
"""Forward, and twice as much backward."""

MEGAFLOP: Mapping[tuple[str, str], float] = {
    ("alexnet", "tiny_imagenet"): 116.3, ("cnn", "cifar10"): 20.53, ("cnn", "fashion_mnist"): 15.22,
    ("cnn", "mnist"): 15.22, ("cnn:dropout=0.2", "cifar10"): 20.53, ("cnn:dropout=0.2", "fashion_mnist"): 15.22,
    ("cnn:dropout=0.2", "mnist"): 15.22, ("lenet", "mnist"): 27.77, ("mlp", "cifar10"): 11.44,
    ("mlp", "mnist"): 10.86, ("mlp2d", "mnist"): 0.1572, ("mlp:1000-1000-1000", "heaviside"): 4.006,
    ("mlp:1024-1024-1024,init=lecun", "mnist"): 5.82, ("mlp:128-128", "mnist"): 0.236,
    ("mlp:128-256-256-256", "digits"): 0.3492,
    ("mlp:32-32", "mnist"): 0.05286,
    ("mlp:128-256-256-256", "mnist1d"): 0.343, ("mlp:256-256,dropout=0.2", "mnist"): 0.5376,
    ("mlp:512-512-512,init=lecun", "cifar10"): 4.205, ("resnet18:pool", "cifar10"): 280.4,
    ("resnet18:pool,dropout=0.2", "cifar10"): 280.4, ("resnet18:preact,closed", "cifar10"): 1111,
    ("resnet18:preact,closed", "cifar100"): 1111, ("resnet18:preact,closed", "mnist"): 911.6,
    ("resnet20", "cifar10"): 81.1, ("resnet20", "cifar100"): 81.11,
    ("stl10-cnn", "stl10"): 242.4, ("svhn-cnn", "svhn"): 79.63,
    ("transformer", "mod-division"): 3.171, ("vgg16", "cifar100"): 665, ("vgg16bn", "cifar10"): 664.2,
    ("vgg16bn", "cifar100"): 665, ("vgg16bn:pad=2", "mnist"): 661.9,
    ("vit:patch=7,depth=4,width=64,heads=4", "mnist"): 6.786,
}  # fmt: skip
"""One sample forward, by model and data, in millions of operations; a test counts them anew with torch."""


def cost_words(study: Study, scale: str) -> str:
    """The cost of all cases with one seed."""
    if scale != "paper":
        minutes = study.change(scale).minutes
        return "not measured" if minutes is None else f"{minutes:g} min"
    if study.tasks(1) == study.at("laptop").tasks(1):
        return cost_words(study, "laptop")
    hours = gpu_hours(study)
    return "not measured" if hours is None else f"≈ {_rounded(hours)} GPU h"


def gpu_hours(study: Study) -> float | None:
    """An estimate for the study's trainings as they stand, each once; None where nothing is trained."""
    trainings = {(case.train, case.actions) for case in study.cases if case.train and case.train.epochs}
    return sum(_seconds(config) for config, _ in trainings) / 3600 if trainings else None


def updates(config: TrainConfig, epochs: int | None = None) -> int:
    """How often weights are updated in so many epochs; in all of them when not given."""
    return (config.epochs if epochs is None else epochs) * math.ceil(_samples(config) / config.batch_size)


def _samples(config: TrainConfig) -> int:
    name, _, options = config.data.partition(":")
    given = dict(part.split("=") for part in options.split(",") if "=" in part)
    return config.train_size or int(given.get("n", DATA[name].train))


def _seconds(config: TrainConfig) -> float:
    work = PASSES * MEGAFLOP[config.model, config.data.partition(":")[0]] * 1e6 * _samples(config)
    return max(config.epochs * work / SUSTAINED, updates(config) * LEAST)


def _rounded(hours: float) -> str:
    return f"{hours:.1g}" if hours < 1 else f"{hours:.2g}" if hours < 10 else f"{hours:.0f}"
