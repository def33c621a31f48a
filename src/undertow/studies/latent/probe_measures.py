"""What the latent studies measure: probes over layers and checkpoints, and edited models.

    rows = grid(run, case="MLP-MNIST 0.4", seed=0, probes=("masc", "velpic"))
    rows = transfer(run, case="MLP-MNIST 0.4", seed=0)          # the model with VeLPIC in its head, at each checkpoint

Probes are fitted with the labels that the model was trained on and scored on test samples with true labels.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from undertow.data.samples import DataSet, Samples
from undertow.latent.grid import probe_grid
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


def grid(
    run: Run,
    *,
    case: str,
    seed: int,
    probes: Sequence[str] = ("masc", "velpic"),
    checkpoints: str = "all",
    samples: int | None = None,
) -> Rows:
    """Every layer, checkpoint and probe; the model itself is probe "model".

    Options:
        seed: the case's seed; of drawn samples here.
        probes: masc, velpic, logistic, ...
        checkpoints: all, last, or epochs such as 0,10,60.
        samples: fit and score on at most so many of each split.
    """
    table = probe_grid(
        run, probes=tuple(probes), fits=("given",), checkpoints=checkpoints, samples=samples, seed=seed
    )
    return [{name: line[name] for name in COLUMNS} for line in table.to_dict("records")]


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


def accuracy(model: nn.Module, samples: Samples, run: Run, data: DataSet) -> float:
    """How often `model` gives the samples' labels, as the run evaluates itself on its data."""
    assert run.config is not None  # a study's run has one
    batches = Batches(samples, scaling=data.scaling, batch_size=512)
    return evaluate(model, batches, objective_of(run.config, data), samples).given


def intervention(run: Run, *, case: str, seed: int, probes: Sequence[str] = ("velpic",)) -> Rows:
    """The model's test accuracy at every epoch, and probes at every checkpoint."""
    rows = grid(run, case=case, seed=seed, probes=probes)
    return rows + [
        row("epoch_accuracy", line["test_accuracy"], checkpoint=line["epoch"], split="test", probe="model")
        for line in run.metrics.to_dict("records")
    ]
