"""Everything that decides how a run is trained, as one frozen value that needs no torch.

    config = TrainConfig(model="mlp:256-256-256", data="digits", noise="0.4", epochs=60)
    config.checkpoints                   # "paper": epochs 0, 1, 2, 4, ..., 20, 25, 30, ...
    config.to_dict()                     # plain values, as stored in run.json
    TrainConfig.from_dict(stored)        # unknown keys are refused with near names

The command line's flags are these fields. Settings are checked here, before any data is read.
Three seeds, never global state: initialisation, batches (order, augmentation, dropout) and label noise.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, asdict, dataclass, fields
from functools import cache
from typing import Any, Literal, get_type_hints

import msgspec

from undertow.errors import BadValue, unknown
from undertow.sizes import EXACT
from undertow.training.schedule import CheckpointSchedule

Optimiser = Literal["sgd", "adam", "adamw"]
Loss = Literal["ce", "mse"]
Target = Literal["classes", "scalar"]
RateSchedule = Literal["constant", "step", "cosine"]

MOST_EPOCHS = 10**8
"""A schedule lists its epochs: more than these are a slip of the keyboard."""


@dataclass(frozen=True)
class TrainConfig:
    """What to train, on what, how, and when to keep a checkpoint."""

    model: str = "mlp"
    """A model spec such as mlp:128-512-2048-2048 or resnet18:width=16."""
    _: KW_ONLY
    data: str = "digits"
    """A named set, hub:owner/name, or the path of your own data."""
    noise: str = "0"
    """Label noise: a share (uniform) or kind:share, for example pairwise:0.3."""
    labels: str | None = None
    """A file of labels to train on: columns sample, label, others are left out; or a label for each sample in order.
    FILE:COLUMN takes another column than label."""
    train_size: int | None = None
    """Train on a balanced subset of so many samples."""
    test_size: int | None = None
    """Test on a balanced subset of so many samples."""
    encode_labels: bool = False
    """Write the label into the first pixels: the true one in training, a random one in the test set."""

    epochs: int = 60
    """Passes over the training samples."""
    batch_size: int = 64
    """Samples in a batch."""
    optimiser: Optimiser = "adam"
    """The optimiser."""
    lr: float = 1e-3
    """Learning rate."""
    momentum: float = 0.9
    """Momentum of SGD."""
    beta2: float = 0.999
    """Second beta of Adam and AdamW."""
    weight_decay: float = 0.0
    """Weight decay (L2 for SGD and Adam, decoupled for AdamW)."""
    schedule: RateSchedule = "constant"
    """How the learning rate changes over epochs."""
    milestones: tuple[int, ...] = ()
    """Epochs after which a step schedule multiplies the rate by gamma."""
    gamma: float = 0.1
    """Factor of a step schedule."""
    restart: int | None = None
    """Begin the schedule anew after so many epochs: for what is trained again from there."""
    clip: float | None = None
    """Largest norm of the gradient."""
    loss: Loss = "ce"
    """Cross-entropy, or mean squared error against one-hot/alpha."""
    alpha: float = 1.0
    """The squared error's targets are divided by this: small alpha, large targets."""
    target: Target = "classes"
    """One output per class, or one scalar output that should equal the label (squared error)."""
    stop_at: float | None = None
    """Stop when this training accuracy is reached."""
    shuffle: bool = True
    """A new order each epoch."""
    augment: Literal["none", "crop-flip"] = "none"
    """Random crop (padding 4) and horizontal flip."""
    scaling: str | None = None
    """How pixels become inputs: half, unit, cifar, imagenet or none; the data's own when not given."""

    last_layer_only: bool = False
    """Train only the last linear layer."""
    freeze: str | None = None
    """Keep everything up to and including this layer as initialised."""
    greedy: bool = False
    """Train layer by layer, each under a head of its own, and freeze it."""

    test_at: Literal["epochs", "checkpoints"] = "epochs"
    """When to look at the test samples: after every epoch, or with checkpoints only."""
    checkpoints: str = "paper"
    """When to keep weights: paper, every:5, log:20 or 0,1,5,10; by step: every:100steps, ..."""
    seed: int = 0
    """The seed of whatever has no seed of its own below."""
    seed_init: int = -1
    """Seed of the initial weights; -1 takes `seed`."""
    seed_batches: int = -1
    """Seed of batch order, augmentation and dropout; -1 takes `seed`."""
    seed_noise: int = -1
    """Seed of label noise and subsets; -1 takes `seed`."""

    device: str = "auto"
    """cpu, cuda, cuda:1, mps; auto takes a CUDA GPU if there is one."""
    amp: bool = False
    """bfloat16 autocast (GPU only)."""
    compile: bool = False
    """torch.compile (GPU only)."""

    def __post_init__(self) -> None:
        _check_range("seed", self.seed, 0)
        for name in ("seed_init", "seed_batches", "seed_noise"):
            _check_range(name.replace("_", "-"), getattr(self, name), -1)
        _check_range("epochs", self.epochs, 0, MOST_EPOCHS)
        _check_range("batch-size", self.batch_size, 1)
        _check_range("lr", self.lr, 0.0)
        _check_range("momentum", self.momentum, 0.0, 1.0)
        _check_range("beta2", self.beta2, 0.0, 1.0)
        _check_range("weight-decay", self.weight_decay, 0.0)
        _check_range("gamma", self.gamma, 0.0)
        if not 0 < self.alpha < math.inf:
            raise BadValue("alpha", "a number above 0", self.alpha)
        if self.clip is not None and not 0 < self.clip < math.inf:
            raise BadValue("clip", "a norm above 0", self.clip)
        for milestone in self.milestones:
            _check_range("milestones", milestone, 0)
        if self.stop_at is not None:
            _check_range("stop-at", self.stop_at, 0.0, 1.0)
        for name in ("train_size", "test_size"):
            if getattr(self, name) is not None:
                _check_range(name.replace("_", "-"), getattr(self, name), 1)
        self._check_combinations()
        CheckpointSchedule.parse(self.checkpoints)

    def _check_combinations(self) -> None:
        if self.labels is not None and self.noise != "0":
            raise BadValue(
                "labels", "no label noise besides the file's labels", self.noise, "Leave --noise out."
            )
        if self.target == "scalar" and self.loss != "mse":
            raise BadValue("target", "classes with cross-entropy", "scalar", "Add --loss mse.")
        if self.alpha != 1.0 and self.loss != "mse":
            raise BadValue("alpha", "1 with cross-entropy", self.alpha, "Add --loss mse.")
        if self.milestones and self.schedule != "step":
            raise BadValue("milestones", "none unless --schedule step", self.milestones)
        if self.restart is not None:
            _check_range("restart", self.restart, 1)
        if self.restart is not None and self.schedule == "constant":
            raise BadValue("restart", "none unless --schedule step or cosine", self.restart)
        if self.schedule == "step" and not self.milestones:
            raise BadValue("schedule step", "at least one --milestones epoch", "none")
        chosen = [self.last_layer_only, self.freeze is not None, self.greedy]
        if sum(chosen) > 1:
            raise BadValue("train", "one of last-layer-only, freeze and greedy", f"{sum(chosen)} of them")

    @property
    def init_seed(self) -> int:
        """The seed of the initial weights."""
        return self.seed if self.seed_init == -1 else self.seed_init

    @property
    def batch_seed(self) -> int:
        """The seed of order, augmentation and dropout."""
        return self.seed if self.seed_batches == -1 else self.seed_batches

    @property
    def noise_seed(self) -> int:
        """The seed of label noise and subsets."""
        return self.seed if self.seed_noise == -1 else self.seed_noise

    def learning_rate(self, epoch: int) -> float:
        """The rate during `epoch` (1 is the first): a pure function, so nothing needs to be restored."""
        length = self.restart or max(1, self.epochs)
        epoch = (epoch - 1) % length + 1 if self.restart else epoch
        match self.schedule:
            case "constant":
                return self.lr
            case "step":
                return self.lr * self.gamma ** sum(epoch > milestone for milestone in self.milestones)
            case "cosine":
                return self.lr * 0.5 * (1 + math.cos(math.pi * (epoch - 1) / length))

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    def changes(self) -> dict[str, Any]:
        """The settings that differ from the defaults: the same text however many settings there are one day."""
        usual = TrainConfig().to_dict()
        return {name: value for name, value in self.to_dict().items() if value != usual[name]}

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> TrainConfig:
        """The configuration that `to_dict` gave."""
        known = {field.name for field in fields(cls)}
        for name in stored:
            if name not in known:
                raise unknown("training setting", name, known)
        return cls(**{name: _typed(name, value) for name, value in stored.items()})


LARGEST = EXACT
"""Whole numbers above this are no counts and no seeds."""
WORDS = {"int": "a whole number", "float": "a number", "str": "a text", "bool": "yes or no (true, false)"}


def _typed(name: str, value: Any) -> Any:
    """The value, if it is of the kind that the setting takes."""
    plain = value.item() if hasattr(value, "item") and getattr(value, "size", 0) == 1 else value
    try:
        return msgspec.convert(plain, _kinds()[name])
    except (msgspec.ValidationError, RecursionError, OverflowError):
        kinds = str(TrainConfig.__annotations__[name]).split(" | ")
        wanted = " or ".join(
            WORDS.get(kind, kind.removeprefix("Literal")) for kind in kinds if kind != "None"
        )
        raise BadValue(name.replace("_", "-"), _CHOICES.get(name) or wanted, value) from None


_CHOICES = {
    "optimiser": "sgd, adam or adamw", "loss": "ce or mse", "target": "classes or scalar",
    "schedule": "constant, step or cosine", "augment": "none or crop-flip", "milestones": "whole numbers",
}  # fmt: skip


@cache
def _kinds() -> dict[str, Any]:
    return get_type_hints(TrainConfig)


def _check_range(name: str, value: float, low: float, high: float = LARGEST) -> None:
    # Written so that NaN fails too; the end that nobody reaches is told to who reached it.
    if not low <= value <= high:
        unspoken = high in (LARGEST, MOST_EPOCHS) and not value > high
        wanted = f"a number of at least {low}" if unspoken else f"a number from {low} to {high}"
        raise BadValue(name, wanted, value)
