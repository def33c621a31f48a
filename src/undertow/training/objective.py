"""What a run minimises, and when an answer counts as right.

    objective = Objective("mse", classes=10, alpha=0.5)
    objective.outputs                      # 10 outputs; 1 for a scalar target
    objective.loss(outputs, labels)        # mean over the batch (and over outputs for squared error)
    objective.predict(outputs)             # class numbers, comparable with labels

Squared error is taken against one-hot rows divided by alpha. A scalar output should equal the label and
counts as right within one half of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from undertow.training.config import Loss, Target

ONE_OUTPUT = (
    "its one output may be a log-odds, a chance or a number; for log-odds z, give a model that answers (0, z)"
)
"""Why an output that stands alone names no class."""


@dataclass(frozen=True)
class Objective:
    """A loss with its rule for a right answer."""

    kind: Loss
    classes: int
    alpha: float = 1.0
    target: Target = "classes"

    @property
    def outputs(self) -> int:
        """How many outputs the network has."""
        return 1 if self.target == "scalar" else self.classes

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """The loss of one batch, a scalar."""
        if self.kind == "ce":
            return functional.cross_entropy(outputs, labels)
        return functional.mse_loss(outputs, self._targets(outputs, labels))

    def predict(self, outputs: Tensor) -> Tensor:
        """The class number that the outputs stand for; a scalar may round to no class at all."""
        if self.target == "scalar":
            return (outputs[:, 0] * self.alpha).round().long()
        return outputs.argmax(1)

    def unread(self, outputs: Tensor) -> str:
        """Why outputs (N, C) name no classes; nothing where they do."""
        return ONE_OUTPUT if self.target == "classes" and outputs.shape[1] == 1 else ""

    def _targets(self, outputs: Tensor, labels: Tensor) -> Tensor:
        # bfloat16 outputs (autocast) have targets of float32: 1 / 0.3 would be off by a sixth of a per cent.
        dtype = torch.promote_types(outputs.dtype, torch.float32)
        if self.target == "scalar":
            return labels.to(dtype)[:, None] / self.alpha
        # A row look-up is cheaper than one_hot + cast on small batches.
        rows = torch.eye(self.classes, dtype=dtype, device=outputs.device) / self.alpha
        return rows[labels]
