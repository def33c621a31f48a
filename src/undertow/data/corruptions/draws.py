"""Random numbers that belong to an image, not to the batch it is in.

    draws = Draws(seed=0, name="fog", index=torch.arange(100, 200))
    draws.uniform(32, 32)                 # (100, 32, 32) float64 in (0, 1)
    draws.normal(3)                       # (100, 3); each call goes on in every image's own stream

Image i has the stream of (seed, name, i), a SplitMix64 sequence computed for all images at once in
wrapping 64-bit integers: the same numbers in any batch, in any order and on any device.
"""

from __future__ import annotations

import hashlib
import math

import torch
from torch import Tensor

# SplitMix64's constants, as the signed numbers that torch's int64 holds.
_STEP = 0x9E3779B97F4A7C15 - 2**64
_MIX = ((30, 0xBF58476D1CE4E5B9 - 2**64), (27, 0x94D049BB133111EB - 2**64))


class Draws:
    """The streams of the images with the numbers `index` (N,), for one seed and one corruption."""

    def __init__(self, seed: int, name: str, index: Tensor) -> None:
        start = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
        # Mixed twice: streams of neighbouring images start far apart, not one step apart.
        self._start = mix(mix(index.to(torch.int64)) + int.from_bytes(start, "little", signed=True))  # (N,)
        self._used = 0

    @property
    def device(self) -> torch.device:
        """Where the numbers are made."""
        return self._start.device

    def zeros(self, *shape: int) -> Tensor:
        """Zeros (N, *shape) float64 to fill, on the device of the draws."""
        return torch.zeros(len(self._start), *shape, dtype=torch.float64, device=self._start.device)

    def uniform(self, *shape: int) -> Tensor:
        """The next numbers of each image, (N, *shape) float64, strictly between 0 and 1."""
        count = math.prod(shape)
        steps = torch.arange(self._used + 1, self._used + count + 1, device=self._start.device)
        self._used += count
        bits = mix(self._start[:, None] + steps * _STEP)  # (N, count)
        # 52 bits and a half fit a float64 exactly; the half keeps 0 out, whose normal is -infinity.
        return ((_shift(bits, 12).double() + 0.5) * 2.0**-52).reshape(-1, *shape)

    def normal(self, *shape: int) -> Tensor:
        """The next standard normal numbers of each image, (N, *shape) float64."""
        return torch.special.ndtri(self.uniform(*shape))

    def between(self, low: float, high: float, *shape: int) -> Tensor:
        """The next uniform numbers from `low` to `high`, (N, *shape) float64."""
        return low + (high - low) * self.uniform(*shape)


def mix(bits: Tensor) -> Tensor:
    """The bits of 64-bit numbers, well mixed: near numbers give unlike ones."""
    for shift, factor in _MIX:
        bits = (bits ^ _shift(bits, shift)) * factor
    return bits ^ _shift(bits, 31)


def _shift(bits: Tensor, places: int) -> Tensor:
    """Shift right and fill with zeros; torch's own shift keeps the sign."""
    return (bits >> places) & ((1 << (64 - places)) - 1)
