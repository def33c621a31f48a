"""Fully connected networks.

    mlp(Ends("mlp", (1, 28, 28), 10), widths=(128, 512, 2048, 2048), init="default", dropout=0.0)
    mlp2d(Ends("mlp2d", (1, 28, 28), 10), width=100)

Blocks: flatten, layer1, layer2, ..., head. The output of a layer is taken after its ReLU.
"""

from __future__ import annotations

from torch import nn

from undertow.models.init import draw_weights
from undertow.models.network import Ends, Network, block, drop

_GAINS = {"he": 2.0, "lecun": 1.0}


def mlp(ends: Ends, widths: tuple[int, ...], init: str, dropout: float) -> Network:
    """ReLU layers of the given widths and a linear head."""
    sizes = (ends.flat(), *widths)
    hidden = {
        f"layer{depth}": block(
            linear=nn.Linear(sizes[depth - 1], sizes[depth]), relu=nn.ReLU(), dropout=drop(dropout)
        )
        for depth in range(1, len(sizes))
    }
    blocks = {"flatten": nn.Flatten(), **hidden, "head": nn.Linear(sizes[-1], ends.outputs)}
    net = Network(blocks, ("input", *hidden), tuple(hidden))
    if init in _GAINS:
        draw_weights(net, _GAINS[init])
    return net


def mlp2d(ends: Ends, width: int) -> Network:
    """A ReLU layer, then two units without activation: features that can be drawn on a plane."""
    blocks = {
        "flatten": nn.Flatten(),
        "layer1": block(linear=nn.Linear(ends.flat(), width), relu=nn.ReLU()),
        "layer2": nn.Linear(width, 2),
        "head": nn.Linear(2, ends.outputs),
    }
    return Network(blocks, ("input", "layer1", "layer2"), ("layer1", "layer2"))
