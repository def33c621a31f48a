"""VGG-16 for 32x32 images, with and without batch norm.

    vgg16(Ends("vgg16", (3, 32, 32), 100), width=64, dropout=0.5, pad=0, norm=False)

Blocks: block1, ..., block5 (each ends with its pool), flatten, fc1, fc2, head. At 32x32 the
convolutions end in 1x1 maps, so the first fully connected layer reads 512 features, not the
7 x 7 x 512 of large images. Smaller images are padded: `pad=2` makes 32x32 of MNIST's 28x28.
"""

from __future__ import annotations

from torch import nn

from undertow.models.init import zero_bias
from undertow.models.network import Ends, Network, block, drop

FULL_WIDTH = 64
"""Channels of the first stage of the network that everyone calls VGG-16."""
_STAGES = ((1, 2), (2, 2), (4, 3), (8, 3), (8, 3))  # width over the first width, convolutions


def vgg16(ends: Ends, width: int, dropout: float, pad: int, norm: bool) -> Network:
    """Thirteen convolutions in five blocks and two hidden fully connected layers."""
    inner, *sides = ends.image(least=max(1, 32 - 2 * pad))
    height, breadth = (side + 2 * pad for side in sides)
    convolutions: dict[str, nn.Module] = {}
    for stage, (factor, count) in enumerate(_STAGES, start=1):
        convolutions[f"block{stage}"] = _stage(inner, factor * width, count, norm)
        inner = factor * width
    flat, units = inner * (height // 32) * (breadth // 32), 64 * width
    blocks: dict[str, nn.Module] = {
        **({"pad": nn.ZeroPad2d(pad)} if pad else {}),
        **convolutions,
        "flatten": nn.Flatten(),
        "fc1": block(linear=nn.Linear(flat, units), relu=nn.ReLU(), dropout=drop(dropout)),
        "fc2": block(linear=nn.Linear(units, units), relu=nn.ReLU(), dropout=drop(dropout)),
        "head": nn.Linear(units, ends.outputs),
    }
    net = Network(blocks, (*convolutions, "fc2"), (*convolutions, "fc1", "fc2"))
    _draw(net, width)
    return net


def _stage(inner: int, outer: int, count: int, norm: bool) -> nn.Sequential:
    parts: dict[str, nn.Module | None] = {}
    for at in range(1, count + 1):
        parts[f"conv{at}"] = nn.Conv2d(inner if at == 1 else outer, outer, 3, padding=1)
        parts[f"norm{at}"] = nn.BatchNorm2d(outer) if norm else None
        parts[f"relu{at}"] = nn.ReLU()
    return block(**parts, pool=nn.MaxPool2d(2))


def _draw(net: Network, width: int) -> None:
    """He's weights by fan-out for convolutions, N(0, 0.01^2) for linear ones, biases 0.

    PyTorch's own VGG starts so; its default for layers would let the signal of thirteen
    convolutions without batch norm fade out. Linear weights of a narrower network are larger, so that
    a signal keeps as much of its size as at full width.
    """
    linear = 0.01 * (FULL_WIDTH / width) ** 0.5
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            zero_bias(module)
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=linear)
            zero_bias(module)
