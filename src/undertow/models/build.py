"""Building a network from a short text and the shape of the data.

    build_model("mlp", (1, 28, 28), classes=10, seed=0)
    build_model("resnet18:width=16,pool", (3, 32, 32), classes=10, seed=0)
    build_model("transformer", (4,), classes=97, seed=0, vocabulary=99)

The same seed gives the same weights; the state of torch's own generators is left as it was. The
network is built on the CPU whatever the default device, so that all machines start alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod

import torch

from undertow.errors import BadValue
from undertow.models.attention import transformer, vit
from undertow.models.catalogue import parse_spec
from undertow.models.convnets import alexnet, cnn, lenet, stl10_cnn, svhn_cnn
from undertow.models.mlp import mlp, mlp2d
from undertow.models.network import Ends, Network
from undertow.models.resnet import resnet18, resnet_cifar
from undertow.models.vgg import vgg16
from undertow.room import check_room

BUILDERS: Mapping[str, Callable[..., Network]] = {
    "mlp": mlp,
    "mlp2d": mlp2d,
    "lenet": lenet,
    "cnn": cnn,
    "alexnet": alexnet,
    "svhn-cnn": svhn_cnn,
    "stl10-cnn": stl10_cnn,
    "resnet8": partial(resnet_cifar, repeats=1),
    "resnet20": partial(resnet_cifar, repeats=3),
    "resnet18": resnet18,
    "vgg16": partial(vgg16, norm=False),
    "vgg16bn": partial(vgg16, norm=True),
    "transformer": transformer,
    "vit": vit,
}
"""What builds each model of the catalogue; arguments are `Ends` and the model's options."""


LARGE = 10**8
"""Weights from which on a model is drawn up first, without memory, to see whether it fits."""


def build_model(
    spec: str, shape: tuple[int, ...], classes: int, *, seed: int, vocabulary: int | None = None
) -> Network:
    """The network that `spec` names, for samples of `shape` and `classes` outputs.

    Args:
        spec: a model with options, such as "resnet18:width=16"; `catalogue.MODELS` lists them.
        shape: the shape of one sample: (C, H, W), (D,) or, with a vocabulary, (L,).
        classes: the number of outputs; 1 for the regression of one number.
        seed: draws the weights.
        vocabulary: how many different tokens there are, when samples are rows of tokens.
    """
    parsed = parse_spec(spec)
    shape = tuple(shape)
    sizes = (*shape, classes, *([] if vocabulary is None else [vocabulary]))
    if not shape or min(sizes) < 1:
        got = f"shape {shape}, {classes} outputs, vocabulary {vocabulary}"
        raise BadValue(parsed.name, "sizes of at least 1", got, "Take them from the data set.")
    if not 0 <= seed < 2**63:
        raise BadValue(f"{parsed.name}: seed", "a whole number from 0 to 2^63 - 1", seed)
    ends = Ends(parsed.name, shape, classes, vocabulary)
    if _may_be_large(spec, sizes):
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            _check_size(BUILDERS[parsed.name](ends, **parsed.options), spec)
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        # torch.manual_seed would also seed the generators of all GPUs, which fork_rng does not restore here.
        torch.default_generator.manual_seed(seed)
        return BUILDERS[parsed.name](ends, **parsed.options)


def _may_be_large(spec: str, sizes: Sequence[int]) -> bool:
    """Whether the sizes that were asked for could make millions of weights; torch's dry run takes seconds to load."""
    told = [int(number) for number in re.findall(r"\d+", spec)]
    *shape, last = sizes
    widest = sorted([prod(shape), last, 1, *told])[-2:]
    return prod(widest) * (1 + len(told)) > LARGE


def _check_size(drawn: Network, spec: str) -> None:
    """Refuse what the memory cannot hold: the system would promise it, and kill the process that uses it."""
    size = sum(one.nbytes for one in (*drawn.parameters(), *drawn.buffers()))
    check_room(size, f"the weights of {spec[:60]!r}", "Take a smaller model, or smaller inputs.")
