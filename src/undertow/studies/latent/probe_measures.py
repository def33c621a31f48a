"""What the latent studies measure: probes over layers and checkpoints, and edited models.

    rows = grid(run, case="MLP-MNIST 0.4", seed=0, probes=("masc", "velpic"))
    rows = transfer(run, case="MLP-MNIST 0.4", seed=0)          # the model with VeLPIC in its head, at each checkpoint

Probes are fitted with the labels that the model was trained on and scored on test samples with true labels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from undertow.data.inputs import to_inputs
from undertow.data.samples import DataSet, Samples
from undertow.features.layers import INPUT
from undertow.features.stream import stream_features
from undertow.latent.grid import probe_grid
from undertow.latent.logistic import LogisticProbe
from undertow.latent.masc import MASC
from undertow.latent.probe import Probe
from undertow.latent.velpic import VeLPIC
from undertow.repairing.graft import make_graft
from undertow.repairing.transfer import write_probe_into_head
from undertow.studies.findings import row
from undertow.studies.richness.last_layer_measures import chosen
from undertow.studies.task import Rows
from undertow.training.batches import Batches
from undertow.training.evaluate import evaluate
from undertow.training.prepare import objective_of
from undertow.training.run import Run

COLUMNS = [
    "measure",
    "value",
    "low",
    "high",
    "n",
    "note",
    "checkpoint",
    "layer",
    "probe",
    "fit",
    "split",
    "labels",
]


LOGISTIC_EPOCHS, LOGISTIC_STEPS, FULL = 20, 9_400, 50_000
"""The paper's epochs of a full set; fewer pictures get as many steps of Adam as 60,000 have in as many epochs."""


def grid(
    run: Run,
    *,
    case: str,
    seed: int,
    probes: Sequence[str] = ("masc", "velpic", "logistic"),
    checkpoints: str = "all",
    logistic_at: str = "all",
    logistic_steps: int | None = None,
    samples: int | None = None,
) -> Rows:
    """Every layer, checkpoint and probe; the model itself is probe "model".

    Options:
        seed: the case's seed; of drawn samples here.
        probes: masc, velpic, logistic, ...
        checkpoints: all, last, or epochs such as 0,10,60.
        logistic_at: the same for the logistic probe, which takes most of the time.
        logistic_steps: of Adam; the paper's epochs, or so many steps as they are of 60,000 pictures, when not given.
        samples: fit and score on at most so many of each split; not of the logistic probe.
    """
    direct = tuple(name for name in probes if name != "logistic")
    table = probe_grid(
        run, probes=direct, fits=("given",), checkpoints=checkpoints, samples=samples, seed=seed
    )
    rows = [{name: line[name] for name in COLUMNS} for line in table.to_dict("records")]
    return rows + (logistic(run, seed, logistic_at, logistic_steps) if "logistic" in probes else [])


def logistic(run: Run, seed: int, checkpoints: str, steps: int | None) -> Rows:
    """Logistic probes with so many steps, on every layer; what enters the model is fitted once."""
    data, rows, seen = run.data(), Rows(), dict[str, float]()
    for at in chosen(run, checkpoints):
        train, test = (layer_features(run.model(at), part, data.scaling) for part in (data.train, data.test))
        for layer, own in train.items():
            if layer != INPUT or layer not in seen:
                seen[layer] = _answered(_by_steps(len(own), seed, steps), own, test[layer], data)
            rows.append(_probed("logistic", layer, seen[layer], at, data))
    return rows


def _by_steps(samples: int, seed: int, steps: int | None) -> LogisticProbe:
    if steps is None and samples >= FULL:
        return LogisticProbe(epochs=LOGISTIC_EPOCHS, seed=seed)
    batches = math.ceil(samples / LogisticProbe().batch_size)
    return LogisticProbe(epochs=max(1, round((steps or LOGISTIC_STEPS) / batches)), seed=seed)


def _answered(probe: Probe, train: Tensor, test: Tensor, data: DataSet) -> float:
    """The share of test samples that a probe of the given labels gets right."""
    said = torch.as_tensor(probe.fit(train, data.train.y).predict(test))
    return (said == data.test.y).double().mean().item()


def _probed(name: str, layer: str, value: float, at: int, data: DataSet) -> dict[str, Any]:
    where = {"checkpoint": at, "layer": layer, "probe": name, "fit": "given", "split": "test"}
    return row("accuracy", value, **where, labels="true", n=len(data.test))


def layer_features(
    model: nn.Module, samples: Samples, scaling: str, layers: str | Sequence[str] = "auto"
) -> dict[str, Tensor]:
    """Features of the model's own choice of layers; on a laptop some hundred megabytes."""
    stream = stream_features(model, samples.x, layers, prepare=lambda x: to_inputs(x, scaling), device="cpu")
    parts = [batch.features for batch in stream]
    return {layer: torch.cat([part[layer] for part in parts]) for layer in parts[0]}


VARIANCES = (0.5, 0.8, 0.9, 0.95, 0.99, 0.999)


def masc_variances(
    run: Run, *, case: str, seed: int, variances: Sequence[float] = VARIANCES, checkpoints: str = "last"
) -> Rows:
    """MASC with subspaces that hold other shares of the variance, VeLPIC beside it, and the model."""
    data, rows = run.data(), Rows()
    for at in chosen(run, checkpoints):
        model = run.model(at)
        train, test = (layer_features(model, part, data.scaling) for part in (data.train, data.test))
        rows.append(_probed("model", "output", accuracy(model, data.test, run, data), at, data))
        for layer, own in train.items():
            rows.append(_probed("velpic", layer, _answered(VeLPIC(), own, test[layer], data), at, data))
            for share in variances:
                right = _answered(MASC(variance=share), own, test[layer], data)
                rows.append({**_probed("masc", layer, right, at, data), "variance": share})
    return rows


def early_transfer(run: Run, *, case: str, seed: int, checkpoints: str = "last") -> Rows:
    """Grafts: the network up to each layer, with VeLPIC or MASC as its head, asked on pictures as a model is."""
    data, rows = run.data(), Rows()
    for at in chosen(run, checkpoints):
        model = run.model(at)
        whole = sum(one.numel() for one in model.parameters())
        rows.append(_probed("model", "output", accuracy(model, data.test, run, data), at, data))
        train = layer_features(model, data.train, data.scaling)
        for layer in (name for name in train if name != INPUT):
            for name, probe in (("velpic", VeLPIC()), ("masc", MASC())):
                graft = _graft(model, layer, probe.fit(train[layer], data.train.y), data)
                rows.append(_probed(name, layer, accuracy(graft, data.test, run, data), at, data))
                size = sum(one.numel() for one in [*graft.parameters(), *graft.buffers()])
                rows.append(row("size", size / whole, checkpoint=at, layer=layer, probe=name))
    return rows


def _graft(model: nn.Module, layer: str, probe: Probe, data: DataSet) -> nn.Module:
    return make_graft(model, layer, probe, example=to_inputs(data.test.tensor[:8], data.scaling))


def transfer(run: Run, *, case: str, seed: int, checkpoints: str = "all") -> Rows:
    """Accuracy of the model and of the edited model, on test samples and on the corrupted training samples."""
    data = run.data()
    rows: Rows = []
    for at in chosen(run, checkpoints):
        model = run.model(at)
        for who in ("model", "edited"):
            if who == "edited":
                write_probe_into_head(model, data)
            rows += [
                row(
                    "accuracy",
                    accuracy(model, part, run, data),
                    checkpoint=at,
                    probe=who,
                    split=split,
                    n=len(part),
                )
                for split, part in (("test", data.test), ("train", data.train))
            ]
    return rows


def raw_pixels(run: Run, *, case: str, seed: int) -> Rows:
    """MASC and VeLPIC of the samples as they enter a model, and the share of labels that were changed."""
    data = run.data()
    train, test = (to_inputs(part.tensor, data.scaling).flatten(1) for part in (data.train, data.test))
    rows = [
        row("accuracy", _answered(probe, train, test, data), probe=name, split="test", n=len(data.test))
        for name, probe in (("masc", MASC()), ("velpic", VeLPIC(sign="all")))
    ]
    true = data.train.true
    changed = 0.0 if true is None else (true != data.train.y).double().mean().item()
    return [*rows, row("changed_labels", changed, split="train", n=len(data.train))]


def accuracy(model: nn.Module, samples: Samples, run: Run, data: DataSet) -> float:
    """How often `model` gives the samples' labels, as the run evaluates itself on its data."""
    assert run.config is not None  # a study's run has one
    batches = Batches(samples, scaling=data.scaling, batch_size=512)
    return evaluate(model, batches, objective_of(run.config, data), samples).given


def intervention(run: Run, *, case: str, seed: int, probes: Sequence[str] = ("velpic",)) -> Rows:
    """The model's test accuracy at every epoch that was tested, and probes at every checkpoint."""
    rows = grid(run, case=case, seed=seed, probes=probes)
    tested = run.metrics.dropna(subset="test_accuracy").to_dict("records")
    return rows + [
        row("epoch_accuracy", line["test_accuracy"], checkpoint=line["epoch"], split="test", probe="model")
        for line in tested
    ]
