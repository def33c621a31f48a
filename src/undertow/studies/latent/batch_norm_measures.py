"""ResNet-18 probed twice: in evaluation mode, and with each image normalised by itself.

    rows = both_modes(run, case="ResNet18-CIFAR10 0.2", seed=0)      # each row says its mode: eval or image

Probes are fitted and scored on features of the same mode. The edited model has VeLPIC of that mode in its head and
answers in that mode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from undertow.data.inputs import to_inputs
from undertow.data.samples import DataSet, Samples
from undertow.features.stream import stream_features
from undertow.latent.masc import MASC
from undertow.latent.velpic import VeLPIC
from undertow.repairing.transfer import write_probe_into_head
from undertow.studies.findings import row
from undertow.studies.latent.per_image_batch_norm import per_image_statistics
from undertow.studies.richness.last_layer_measures import chosen
from undertow.studies.task import Rows
from undertow.training.batches import Batches
from undertow.training.evaluate import evaluate
from undertow.training.objective import Objective
from undertow.training.prepare import objective_of
from undertow.training.run import Run

Switch = Callable[[nn.Module], AbstractContextManager[None]]

MODES: Mapping[str, Switch] = {"eval": lambda model: nullcontext(), "image": per_image_statistics}


def both_modes(run: Run, *, case: str, seed: int, checkpoints: str = "all") -> Rows:
    """MASC, VeLPIC, the model and the edited model on test samples, in both modes.

    Args:
        run: a trained run.
        case: the study's case (unused: all cases are measured alike).
        seed: the case's seed (unused: nothing is drawn here).
        checkpoints: all, last, or epochs such as 0,10,60.
    """
    data, config = run.data(), run.config
    assert config is not None  # a study's run has one
    objective = objective_of(config, data)
    return [
        {**one, "mode": mode, "checkpoint": at, "split": "test", "n": len(data.test)}
        for at in chosen(run, checkpoints)
        for mode, switch in MODES.items()
        for one in _measured(run.model(at), data, objective, switch)
    ]


def _measured(model: nn.Module, data: DataSet, objective: Objective, switch: Switch) -> Rows:
    """The rows of one checkpoint in one mode; the model's head is edited on the way."""
    with switch(model):
        rows = _probed(model, data)
        rows.append(_answers(model, data, objective, "model"))
        write_probe_into_head(model, data)
        rows.append(_answers(model, data, objective, "edited"))
    return rows


def _probed(model: nn.Module, data: DataSet) -> Rows:
    train, test = (_features(model, part, data.scaling) for part in (data.train, data.test))
    rows: Rows = []
    for layer, seen in train.items():
        for name, probe in (("masc", MASC()), ("velpic", VeLPIC())):
            said = torch.as_tensor(probe.fit(seen, data.train.y).predict(test[layer]))
            rows.append(
                row("accuracy", (said == data.test.y).double().mean().item(), probe=name, layer=layer)
            )
    return rows


def _features(model: nn.Module, samples: Samples, scaling: str) -> dict[str, Tensor]:
    """Features of the model's own choice of layers; on a laptop some hundred megabytes."""
    parts = [
        batch.features
        for batch in stream_features(
            model, samples.x, "auto", prepare=lambda x: to_inputs(x, scaling), device="cpu"
        )
    ]
    return {layer: torch.cat([part[layer] for part in parts]) for layer in parts[0]}


def _answers(model: nn.Module, data: DataSet, objective: Objective, who: str) -> dict[str, Any]:
    batches = Batches(data.test, scaling=data.scaling, batch_size=512)
    return row("accuracy", evaluate(model, batches, objective, data.test).given, probe=who, layer="output")
