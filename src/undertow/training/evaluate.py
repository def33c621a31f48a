"""How well a model does on a split, in one pass.

result = evaluate(model, batches, objective, samples)
result.loss, result.given       # against the labels that training sees
result.true, result.wrong       # against the true ones; share of wrong labels that the model repeats
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from undertow.data.samples import Samples
from undertow.training.batches import Batches
from undertow.training.objective import Objective

BATCH = 1000


@dataclass(frozen=True)
class Evaluation:
    """Loss and accuracies of a model on one split."""

    loss: float
    given: float
    true: float | None  # None where true labels are unknown
    wrong: float | None  # None where no label is known to be wrong


@torch.no_grad()
def evaluate(model: nn.Module, batches: Batches, objective: Objective, samples: Samples) -> Evaluation:
    """Evaluate in evaluation mode; every module's own mode is put back after."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    total, predictions = 0.0, []
    try:
        for x, y in batches.in_order(BATCH):
            outputs = model(x)
            total += float(objective.loss(outputs, y)) * len(y)
            predictions.append(objective.predict(outputs).cpu())
    finally:
        for module, mode in modes:
            module.training = mode
    predicted = torch.cat(predictions)
    return Evaluation(
        total / batches.count, _share(predicted == samples.y), *_against_truth(predicted, samples)
    )


def _against_truth(predicted: Tensor, samples: Samples) -> tuple[float | None, float | None]:
    if samples.true is None:
        return None, None
    wrong = samples.y != samples.true
    repeated = _share((predicted == samples.y)[wrong]) if wrong.any() else None
    return _share(predicted == samples.true), repeated


def _share(right: Tensor) -> float:
    return int(right.sum()) / len(right)
