"""What the latent studies measure: probes over layers and checkpoints, and edited models.

    rows = grid(run, case="MLP-MNIST 0.4", seed=0, probes=("masc", "velpic"))
    rows = transfer(run, case="MLP-MNIST 0.4", seed=0)          # the model with VeLPIC in its head, at each checkpoint

Probes are fitted with the labels that the model was trained on and scored on test samples with true labels.
"""

from __future__ import annotations

from collections.abc import Sequence

from undertow.latent.grid import probe_grid
from undertow.repairing.transfer import write_probe_into_head
from undertow.studies.findings import row
from undertow.studies.richness.last_layer_measures import chosen
from undertow.studies.task import Rows
from undertow.training.batches import Batches
from undertow.training.evaluate import evaluate
from undertow.training.prepare import objective_of
from undertow.training.run import Run

COLUMNS = (
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
)


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

    Args:
        run: a trained run.
        case: the study's case (unused: all cases are measured alike).
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
    data, config = run.data(), run.config
    assert config is not None  # a study's run has one
    objective = objective_of(config, data)
    rows: Rows = []
    for at in chosen(run, checkpoints):
        model = run.model(at)
        for who in ("model", "edited"):
            if who == "edited":
                write_probe_into_head(model, data)
            for split in ("test", "train"):
                part = getattr(data, split)
                seen = evaluate(model, Batches(part, scaling=data.scaling, batch_size=512), objective, part)
                rows.append(row("accuracy", seen.given, checkpoint=at, probe=who, split=split, n=len(part)))
    return rows


def intervention(run: Run, *, case: str, seed: int, probes: Sequence[str] = ("velpic",)) -> Rows:
    """The model's test accuracy at every epoch, and probes at every checkpoint."""
    rows = grid(run, case=case, seed=seed, probes=probes)
    for line in run.metrics.to_dict("records"):
        rows.append(
            row(
                "epoch_accuracy", line["test_accuracy"], checkpoint=line["epoch"], split="test", probe="model"
            )
        )
    return rows
