"""What every network here is: a chain of named blocks, and what it connects.

    net = Network({"layer1": ..., "layer2": ..., "head": ...}, ("input", "layer1", "layer2"), ("layer1",))
    net(x)                       # head(layer2(layer1(x)))
    net.layer1, net[2:]          # a block; the part after the second block
    net.probe_layers, net.cuts   # names of blocks, shallow to deep

Because the blocks form one chain, all information passes through the output of each: every block is
a valid cut. A block ends with its activation or pool, so that its output is what a paper means by
"the layer". No activation works in place, so that a stored output stays what it was.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn

from undertow.errors import BadData


class Network(nn.Sequential):
    """A chain of named blocks that knows which of them its paper probes and cuts at.

    `probe_layers` may start with "input", the network's own input; its last name is the block whose
    output enters the head. Where no paper cuts a network, `cuts` are its blocks.
    """

    def __init__(
        self, blocks: Mapping[str, nn.Module], probe_layers: tuple[str, ...] = (), cuts: tuple[str, ...] = ()
    ) -> None:
        super().__init__(OrderedDict(blocks))
        self.probe_layers = probe_layers
        self.cuts = cuts


def block(**parts: nn.Module | None) -> nn.Sequential:
    """A block of named parts, in the order given; parts that are None are left out."""
    return nn.Sequential(OrderedDict((name, part) for name, part in parts.items() if part is not None))


def drop(share: float) -> nn.Dropout | None:
    """A dropout layer, or None for a share of 0, so that the plain network has no such module."""
    return nn.Dropout(share) if share else None


@dataclass(frozen=True)
class Ends:
    """What a network connects: the shape of one sample at one end, outputs at the other."""

    model: str  # who complains
    shape: tuple[int, ...]
    outputs: int
    vocabulary: int | None = None  # the number of different tokens, when samples are rows of tokens

    def flat(self) -> int:
        """The length of a sample laid out as one vector; refuses tokens."""
        if self.vocabulary is not None:
            raise self._misfit("images (C, H, W) or vectors (D,)", "For tokens use transformer.")
        size = 1
        for side in self.shape:
            size *= side
        return size

    def image(self, least: int = 1) -> tuple[int, int, int]:
        """Channels, height and width of images of at least `least` x `least`; refuses all else."""
        advice = "Enlarge or pad the images, or use mlp, cnn or resnet20."
        if self.vocabulary is not None or len(self.shape) != 3:
            advice = "Use mlp for vectors and transformer for tokens."
        elif min(self.shape[1:]) >= least:
            return self.shape[0], self.shape[1], self.shape[2]
        raise self._misfit(f"images (C, H, W) of at least {least}x{least}", advice)

    def tokens(self) -> tuple[int, int]:
        """The length of a row of tokens and the size of the vocabulary; refuses all else."""
        if self.vocabulary is None or len(self.shape) != 1:
            raise self._misfit(
                "rows of tokens (L,) with a vocabulary", "Use vit for images and mlp for vectors."
            )
        return self.shape[0], self.vocabulary

    def _misfit(self, wanted: str, advice: str) -> BadData:
        kind = {1: "vectors", 3: "images"}.get(len(self.shape), "samples")
        kind = "tokens" if self.vocabulary is not None else kind
        return BadData(f"{self.model}: wanted {wanted}, got {kind} of shape {self.shape}. {advice}")
