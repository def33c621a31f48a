"""Room for the features of a block of samples, made once and used again for every block.

    buffer = FeatureBuffer(rows=2000)
    part = buffer.put("layer2", 256, output)      # rows 256 to 256 + len(output); the same numbers, in their place

Features kept piece by piece, between activations that come and go, leave holes that the allocator cannot fill:
the process grew to two and a half times what was held. Whatever does not fit such a room (a tuple, samples of
different lengths, another order of dimensions in memory) is kept as it came.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_map_only


class FeatureBuffer:
    """One tensor per cut with a row for each sample."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self._room: dict[str, Tensor] = {}

    def put(self, name: str, start: int, output: Any) -> Any:
        """Keep an output whose first sample has the place `start`."""
        if not isinstance(output, Tensor) or not output.ndim or not output.is_contiguous():
            return tree_map_only(Tensor, _own, output)
        if name not in self._room:
            self._room[name] = output.new_empty(self.rows, *output.shape[1:])
        place = self._room[name][start : start + len(output)]
        if place.shape != output.shape or place.dtype != output.dtype:
            return _own(output)
        return place.copy_(output)


def _own(tensor: Tensor) -> Tensor:
    """The tensor without the rest of the memory that it is a view of."""
    spare = tensor.untyped_storage().nbytes() > tensor.numel() * tensor.itemsize
    return tensor.clone() if spare else tensor
