"""ResNet-18 probed twice: in evaluation mode, and with each image normalised by itself.

    rows = both_modes(run, case="ResNet18-CIFAR10 0.2", seed=0)      # each row says its mode: eval or image

Probes are fitted and scored on features of the same mode. The edited model has VeLPIC of that mode in its head and
answers in that mode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn

from undertow.data.samples import DataSet
from undertow.latent.masc import MASC
from undertow.latent.velpic import VeLPIC
from undertow.repairing.transfer import write_probe_into_head
from undertow.studies.findings import row
from undertow.studies.latent.per_image_batch_norm import per_image_statistics
from undertow.studies.latent.probe_measures import accuracy, layer_features
from undertow.studies.richness.last_layer_measures import chosen
from undertow.studies.task import Rows
from undertow.training.run import Run

Switch = Callable[[nn.Module], AbstractContextManager[None]]

MODES: Mapping[str, Switch] = {"eval": lambda model: nullcontext(), "image": per_image_statistics}


def both_modes(run: Run, *, case: str, seed: int, checkpoints: str = "all") -> Rows:
    """MASC, VeLPIC, the model and the edited model on test samples, in both modes.

    Options:
        checkpoints: all, last, or epochs such as 0,10,60.
    """
    data = run.data()
    return [
        {**one, "mode": mode, "checkpoint": at, "split": "test", "n": len(data.test)}
        for at in chosen(run, checkpoints)
        for mode, switch in MODES.items()
        for one in _measured(run, run.model(at), data, switch)
    ]


def _measured(run: Run, model: nn.Module, data: DataSet, switch: Switch) -> Rows:
    """The rows of one checkpoint in one mode; the model's head is edited on the way."""
    with switch(model):
        rows = _probed(model, data)
        for who in ("model", "edited"):
            if who == "edited":
                write_probe_into_head(model, data)
            rows.append(row("accuracy", accuracy(model, data.test, run, data), probe=who, layer="output"))
    return rows


def _probed(model: nn.Module, data: DataSet) -> Rows:
    train, test = (layer_features(model, part, data.scaling) for part in (data.train, data.test))
    rows: Rows = []
    for layer, seen in train.items():
        for name, probe in (("masc", MASC()), ("velpic", VeLPIC())):
            said = torch.as_tensor(probe.fit(seen, data.train.y).predict(test[layer]))
            right = (said == data.test.y).double().mean().item()
            rows.append(row("accuracy", right, probe=name, layer=layer))
    return rows
