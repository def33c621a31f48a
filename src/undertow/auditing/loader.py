"""A run's models for an audit: built the same way each time, with a hash of each checkpoint's weights.

loader = Loader(run, device=None)
loader.model(20)                 # in evaluation mode
loader.initial()                 # before training, where that is known
loader.mark(20)                  # a hash of the file: what was computed from it holds as long as this does
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import torch
from torch import nn

from undertow.training.prepare import find_device
from undertow.training.run import Run
from undertow.training.seeds import global_stream


@dataclass(frozen=True)
class Loader:
    """Models of a run."""

    run: Run
    device: str | None = None
    _marks: dict[int, str] = field(default_factory=dict[int, str])

    def model(self, at: int) -> nn.Module:
        """The model at a checkpoint."""
        # A user's factory may draw from the global generator: the same draws each time, and none lost.
        with global_stream(0, "fresh model", 0, torch.device("cpu")):
            model = self.run.model(at)
        return model if self.device is None else model.to(find_device(self.device))

    def initial(self) -> nn.Module | None:
        """The model before training: checkpoint 0, or what undertow built; nobody else's factory gives the same."""
        if self.run.epochs[0] == 0:
            return self.model(0)
        if self.run.config is None:
            return None
        model = self.run.fresh().eval()
        return model if self.device is None else model.to(find_device(self.device))

    def mark(self, at: int) -> str:
        """A hash of the checkpoint's file."""
        if at not in self._marks:
            content = self.run.checkpoint(at).path.read_bytes()
            self._marks[at] = hashlib.blake2b(content, digest_size=16).hexdigest()
        return self._marks[at]


def first_bad_tensor(model: nn.Module) -> str | None:
    """The name of the first parameter or buffer with NaN or infinity; None for a sound model."""
    for name, value in model.state_dict().items():
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            return name
    return None
