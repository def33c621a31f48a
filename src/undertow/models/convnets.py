"""Plain convolutional networks: LeNet, the probing paper's CNN and AlexNet, and the SVHN and STL-10 nets.

    lenet(Ends("lenet", (1, 28, 28), 10), width=32, units=1024)
    cnn(Ends("cnn", (1, 28, 28), 10), width=16, units=250, dropout=0.0)
    alexnet(Ends("alexnet", (3, 64, 64), 200), width=64, dropout=0.0)
    svhn_cnn(Ends("svhn-cnn", (3, 32, 32), 10), width=32, dropout=0.3)
    stl10_cnn(Ends("stl10-cnn", (3, 96, 96), 10), width=32, dropout=0.0)

Convolution blocks end with their pool; fully connected ones with their ReLU.
"""

from __future__ import annotations

from torch import nn

from undertow.models.network import Ends, Network, block, drop


def lenet(ends: Ends, width: int, units: int) -> Network:
    """Two 5x5 convolutions, each with a pool, one fully connected layer and the head."""
    channels, height, breadth = ends.image(least=4)
    convolutions = {
        f"block{stage}": block(
            conv=nn.Conv2d(before, after, 5, padding=2), relu=nn.ReLU(), pool=nn.MaxPool2d(2)
        )
        for stage, (before, after) in enumerate(((channels, width), (width, 2 * width)), 1)
    }
    flat = 2 * width * (height // 4) * (breadth // 4)
    blocks = {
        **convolutions,
        "flatten": nn.Flatten(),
        "fc1": block(linear=nn.Linear(flat, units), relu=nn.ReLU()),
        "head": nn.Linear(units, ends.outputs),
    }
    return Network(blocks, ("input", "flatten", "fc1"), (*convolutions, "fc1"))


def cnn(ends: Ends, width: int, units: int, dropout: float) -> Network:
    """Three blocks of two convolutions and a pool, three fully connected layers, a head without bias."""
    channels, height, breadth = ends.image(least=8)
    stages = (channels, width, 2 * width, 4 * width)
    convolutions = {
        f"block{stage}": block(
            conv1=nn.Conv2d(stages[stage - 1], stages[stage], 3, padding=1),
            relu1=nn.ReLU(),
            conv2=nn.Conv2d(stages[stage], stages[stage], 3, padding=1),
            relu2=nn.ReLU(),
            pool=nn.MaxPool2d(2),
        )
        for stage in (1, 2, 3)
    }
    sizes = (stages[-1] * (height // 8) * (breadth // 8), units, units, units)
    connected = {
        f"fc{depth}": block(
            linear=nn.Linear(sizes[depth - 1], sizes[depth]), relu=nn.ReLU(), dropout=drop(dropout)
        )
        for depth in (1, 2, 3)
    }
    head = {"head": nn.Linear(units, ends.outputs, bias=False)}
    blocks = {**convolutions, "flatten": nn.Flatten(), **connected, **head}
    return Network(blocks, ("input", "flatten", *connected), (*convolutions, *connected))


def alexnet(ends: Ends, width: int, dropout: float) -> Network:
    """AlexNet with one column; at 64x64 its convolutions end in 1x1 maps, 256 features."""
    channels, height, breadth = ends.image(least=63)
    convolutions = {
        "conv1": block(
            conv=nn.Conv2d(channels, width, 11, stride=4, padding=2), relu=nn.ReLU(), pool=nn.MaxPool2d(3, 2)
        ),
        "conv2": block(
            conv=nn.Conv2d(width, 3 * width, 5, padding=2), relu=nn.ReLU(), pool=nn.MaxPool2d(3, 2)
        ),
        "conv3": block(conv=nn.Conv2d(3 * width, 6 * width, 3, padding=1), relu=nn.ReLU()),
        "conv4": block(conv=nn.Conv2d(6 * width, 4 * width, 3, padding=1), relu=nn.ReLU()),
        "conv5": block(
            conv=nn.Conv2d(4 * width, 4 * width, 3, padding=1), relu=nn.ReLU(), pool=nn.MaxPool2d(3, 2)
        ),
    }
    flat, units = 4 * width * _after_alexnet(height) * _after_alexnet(breadth), 64 * width
    blocks = {
        **convolutions,
        "flatten": nn.Flatten(),
        # Dropout comes first here, so that a layer's output is still what follows its ReLU.
        "fc1": block(dropout=drop(dropout), linear=nn.Linear(flat, units), relu=nn.ReLU()),
        "fc2": block(dropout=drop(dropout), linear=nn.Linear(units, units), relu=nn.ReLU()),
        "head": nn.Linear(units, ends.outputs),
    }
    return Network(blocks, ("flatten", "fc1", "fc2"), (*convolutions, "fc1", "fc2"))


def _after_alexnet(side: int) -> int:
    side = (side + 2 * 2 - 11) // 4 + 1
    for _ in range(3):
        side = (side - 3) // 2 + 1
    return side


def svhn_cnn(ends: Ends, width: int, dropout: float) -> Network:
    """Pairs of convolutions at three scales, then one without padding."""
    channels, height, breadth = ends.image(least=32)
    blocks = {
        "block1": _normed((channels, width, width), dropout),
        "block2": _normed((width, 2 * width, 2 * width), dropout),
        "block3": _normed((2 * width, 4 * width, 4 * width), dropout),
        "block4": _normed((4 * width, 8 * width), dropout, padding=0),
    }
    sides = ((height // 8 - 2) // 2) * ((breadth // 8 - 2) // 2)
    return _headed(blocks, 8 * width * sides, ends.outputs)


def stl10_cnn(ends: Ends, width: int, dropout: float) -> Network:
    """One convolution at each of four scales, then two without padding."""
    channels, height, breadth = ends.image(least=96)
    blocks = {
        "block1": _normed((channels, width), dropout),
        "block2": _normed((width, 2 * width), dropout),
        "block3": _normed((2 * width, 4 * width), dropout),
        "block4": _normed((4 * width, 4 * width), dropout),
        "block5": _normed((4 * width, 8 * width, 8 * width), dropout, padding=0),
    }
    sides = ((height // 16 - 4) // 2) * ((breadth // 16 - 4) // 2)
    return _headed(blocks, 8 * width * sides, ends.outputs)


def _normed(channels: tuple[int, ...], dropout: float, padding: int = 1) -> nn.Sequential:
    """Convolutions through the given channels, each with batch norm and ReLU, and one pool."""
    parts: dict[str, nn.Module | None] = {}
    for at in range(1, len(channels)):
        parts[f"conv{at}"] = nn.Conv2d(channels[at - 1], channels[at], 3, padding=padding)
        parts[f"norm{at}"] = nn.BatchNorm2d(channels[at], affine=False)
        parts[f"relu{at}"] = nn.ReLU()
        parts[f"dropout{at}"] = drop(dropout)
    return block(**parts, pool=nn.MaxPool2d(2))


def _headed(convolutions: dict[str, nn.Sequential], features: int, outputs: int) -> Network:
    blocks = {**convolutions, "flatten": nn.Flatten(), "head": nn.Linear(features, outputs)}
    return Network(blocks, (*list(convolutions)[:-1], "flatten"), ("block1", "block2", "block3"))
