"""Residual networks for small images.

    resnet18(Ends("resnet18", (3, 32, 32), 10), width=64, pool=False, preact=False, closed=False, dropout=0.0)
    resnet_cifar(Ends("resnet20", (3, 32, 32), 10), width=16, repeats=3)

Blocks: stem, layer1, layer2, ..., avg_pool, head. A layer is a run of residual blocks at one scale;
its output is taken after the last sum and ReLU (with `preact`, after the last sum: there the ReLU
belongs to the next block).
"""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from undertow.models.init import draw_weights
from undertow.models.network import Ends, Network, block, drop

MakeBlock = Callable[[int, int, int], nn.Module]
"""A residual block from its channels in, channels out and stride."""


class PaddedShortcut(nn.Module):
    """Option A of He et al.: every second pixel, and zeros for the channels that are new.

    The zeros are split between both ends of the channels, as in the public code that the paper on
    temporal consistency used.
    """

    def __init__(self, new_channels: int, stride: int) -> None:
        super().__init__()
        self.new_channels = new_channels
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        """From (N, C, H, W) to (N, C + new, H / stride, W / stride)."""
        before = self.new_channels // 2
        kept = x[:, :, :: self.stride, :: self.stride]
        return F.pad(kept, (0, 0, 0, 0, before, self.new_channels - before))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with batch norm around a shortcut; ReLU after the sum."""

    def __init__(self, inner: int, outer: int, stride: int, shortcut: nn.Module) -> None:
        super().__init__()
        self.conv1 = _conv3(inner, outer, stride)
        self.norm1 = nn.BatchNorm2d(outer)
        self.relu1 = nn.ReLU()
        self.conv2 = _conv3(outer, outer)
        self.norm2 = nn.BatchNorm2d(outer)
        self.shortcut = shortcut
        self.relu2 = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """From (N, C, H, W) to (N, outer, H / stride, W / stride)."""
        out = self.relu1(self.norm1(self.conv1(x)))
        out = self.norm2(self.conv2(out))
        return self.relu2(out + self.shortcut(x))


class PreActBlock(nn.Module):
    """Batch norm and ReLU before each of two 3x3 convolutions; nothing after the sum."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inner)
        self.relu1 = nn.ReLU()
        self.conv1 = _conv3(inner, outer, stride)
        self.norm2 = nn.BatchNorm2d(outer)
        self.relu2 = nn.ReLU()
        self.conv2 = _conv3(outer, outer)
        changes = stride != 1 or inner != outer
        self.projection = nn.Conv2d(inner, outer, 1, stride, bias=False) if changes else None

    def forward(self, x: Tensor) -> Tensor:
        """From (N, C, H, W) to (N, outer, H / stride, W / stride)."""
        active = self.relu1(self.norm1(x))
        # A projection reads the activated input; the identity does not.
        beside = x if self.projection is None else self.projection(active)
        return self.conv2(self.relu2(self.norm2(self.conv1(active)))) + beside


def resnet18(ends: Ends, width: int, pool: bool, preact: bool, closed: bool, dropout: float) -> Network:
    """Four scales of two residual blocks; `pool`, `preact` and `closed` are the variants of two papers.

    The probing paper puts a max pool after the stem. The richness paper took its network from the
    double-descent code, whose blocks are pre-activated and whose stem is one bare convolution. That code
    pools bare sums; the paper's features are activations, so batch norm and ReLU close its last block.
    """
    channels, _, _ = ends.image()
    stem = block(
        conv=_conv3(channels, width),
        norm=None if preact else nn.BatchNorm2d(width),
        relu=None if preact else nn.ReLU(),
        pool=nn.MaxPool2d(3, stride=2, padding=1) if pool else None,
    )
    widths = (width, 2 * width, 4 * width, 8 * width)
    layers = _layers(widths, 2, PreActBlock if preact else _projected)
    names = ("stem", *layers)
    tail = _tail(widths[-1], ends.outputs, drop(dropout), closed)
    return Network({"stem": stem, **layers, **tail}, (*names, "avg_pool"), names)


def resnet_cifar(ends: Ends, width: int, repeats: int) -> Network:
    """Three scales of `repeats` residual blocks: 6 * repeats + 2 layers, shortcuts without parameters.

    Weights start as He et al. draw them.
    """
    channels, _, _ = ends.image()
    stem = block(conv=_conv3(channels, width), norm=nn.BatchNorm2d(width), relu=nn.ReLU())
    widths = (width, 2 * width, 4 * width)
    layers = _layers(widths, repeats, _padded)
    blocks = {"stem": stem, **layers, **_tail(widths[-1], ends.outputs)}
    net = Network(blocks, ("stem", *layers, "avg_pool"), tuple(layers))
    draw_weights(net, gain=2.0)
    return net


def _layers(widths: tuple[int, ...], repeats: int, make: MakeBlock) -> dict[str, nn.Sequential]:
    """One run of blocks per width; all but the first halve the image."""
    layers: dict[str, nn.Sequential] = {}
    inner = widths[0]
    for depth, outer in enumerate(widths, start=1):
        first = make(inner, outer, 1 if depth == 1 else 2)
        layers[f"layer{depth}"] = nn.Sequential(first, *(make(outer, outer, 1) for _ in range(repeats - 1)))
        inner = outer
    return layers


def _tail(
    features: int, outputs: int, dropout: nn.Module | None = None, closed: bool = False
) -> dict[str, nn.Module]:
    activation = {"norm": nn.BatchNorm2d(features), "relu": nn.ReLU()} if closed else {}
    return {
        "avg_pool": block(**activation, pool=nn.AdaptiveAvgPool2d(1), flatten=nn.Flatten(), dropout=dropout),
        "head": nn.Linear(features, outputs),
    }


def _projected(inner: int, outer: int, stride: int) -> BasicBlock:
    shortcut: nn.Module = nn.Identity()
    if stride != 1 or inner != outer:
        shortcut = block(conv=nn.Conv2d(inner, outer, 1, stride, bias=False), norm=nn.BatchNorm2d(outer))
    return BasicBlock(inner, outer, stride, shortcut)


def _padded(inner: int, outer: int, stride: int) -> BasicBlock:
    same = stride == 1 and inner == outer
    return BasicBlock(inner, outer, stride, nn.Identity() if same else PaddedShortcut(outer - inner, stride))


def _conv3(inner: int, outer: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inner, outer, 3, stride, padding=1, bias=False)
