"""What the richness studies measure on a trained run.

    rows = last_layer(run, case="alpha 0.2", seed=0, checkpoints="0,100", samples=10_000, spectra=True)

Features are what enters the last linear layer in evaluation mode. D_LR and S_init are measured on test
samples (the paper's tables agree with those), neural collapse on test and training samples, each in a row of
its own split. A measure without a value gives a row without one, with the reason as its note.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from undertow.data.inputs import to_inputs
from undertow.data.samples import DataSet, Samples
from undertow.errors import BadData
from undertow.features.head import as_rows, layer_called, watch_layer
from undertow.features.head import last_layer as name_of_last
from undertow.features.stream import stream_features
from undertow.richness.alignment import low_rank
from undertow.richness.collapse import neural_collapse
from undertow.richness.dimension import effective_dimension
from undertow.richness.eigenfunctions import feature_spectrum
from undertow.richness.first_function import constant_share
from undertow.richness.similarity import cka, initial_kernel_alignment, squared_parameter_norm
from undertow.studies.findings import row
from undertow.studies.task import Rows
from undertow.training.run import Run
from undertow.training.schedule import CheckpointSchedule

POSITIONS = 200
"""Features whose spectrum is kept: the curves are flat long before."""


class LayerSight(NamedTuple):
    """What a network shows on some samples."""

    features: Tensor  # (N, P)
    outputs: Tensor  # (N, C)
    labels: Tensor  # (N,)

    def d_lr(self) -> float:
        """D_LR; in float64 of what differs between samples alone, however little that is beside the means."""
        if self.features.dtype != torch.float64:
            return low_rank(self.features, self.outputs).value
        features, outputs = (part - part.mean(0) for part in (self.features, self.outputs))
        if not features.any() or not outputs.any():
            raise BadData("d_lr: all samples have the same features or outputs.")
        return low_rank(features / features.norm(), outputs / outputs.norm()).value


def last_layer(
    run: Run,
    *,
    case: str,
    seed: int,
    checkpoints: str = "last",
    samples: int = 10_000,
    spectra: bool = True,
    labels: bool = True,
    double: bool = False,
) -> Rows:
    """Accuracy, D_LR, S_init, norm, neural collapse, effective dimension and spectra at checkpoints.

    Options:
        checkpoints: last, all, or epochs such as 0,10,100.
        samples: at most so many of each split.
        spectra: whether to keep the spectrum curves.
        labels: whether labels are classes that can collapse.
        double: let samples pass in float64, where outputs differ in digits that float32 does not have.
    """
    data, kind = run.data(), torch.float64 if double else torch.float32
    start = sights(data, run.fresh().eval().to(kind), samples)
    rows: Rows = []
    for at in chosen(run, checkpoints):
        model = run.model(at).to(kind)
        seen = sights(data, model, samples)
        found = [
            row("squared_parameter_norm", squared_parameter_norm(model)),
            *accuracies(run, at, len(data.test)),
        ]
        for split, now in seen.items():
            found += [{**one, "split": split} for one in richness_rows(now, start[split], model, labels)]
        found += spectrum_rows(seen["train"], seen["test"]) if spectra else []
        rows += [{"checkpoint": at, **one} for one in found]
    return rows


def chosen(run: Run, checkpoints: str) -> list[int]:
    """The kept checkpoints that a text names; a run that stopped early ends with its last one."""
    if checkpoints == "last":
        return [run.epochs[-1]]
    if checkpoints == "all":
        return list(run.epochs)
    wanted = CheckpointSchedule.parse(checkpoints).moments(run.epochs[-1])
    return sorted({at for at in run.epochs if at in wanted} | {run.epochs[-1]})


def sights(data: DataSet, model: nn.Module, samples: int, layer: str | None = None) -> dict[str, LayerSight]:
    """What a network shows on the first samples of each split, train and test."""
    parts = {"train": data.train, "test": data.test}
    return {
        name: look(model, part.take(torch.arange(min(samples, len(part)))), data.scaling, layer)
        for name, part in parts.items()
    }


@torch.no_grad()
def look(model: nn.Module, samples: Samples, scaling: str, layer: str | None = None) -> LayerSight:
    """Features that enter the last linear layer (or leave `layer`), outputs and labels."""
    batches: list[tuple[Tensor, Tensor]] = []
    name, kind = name_of_last(model), next(model.parameters()).dtype

    def prepare(x: Tensor) -> Tensor:
        inputs = to_inputs(x, scaling)
        return inputs.to(kind) if inputs.is_floating_point() else inputs  # tokens stay whole numbers

    with watch_layer(model, name) as calls:
        for batch in stream_features(model, samples.x, layer or "input", prepare=prepare, tokens="flatten"):
            entered, left = (as_rows(part) for part in calls[-1])
            batches.append((entered if layer is None else batch.features[layer], left))
            calls.clear()
    features, outputs = (torch.cat(parts) for parts in zip(*batches, strict=True))
    return LayerSight(features, outputs, samples.y)


def accuracies(run: Run, at: int, count: int) -> Rows:
    """The model's accuracy on both splits, as the run recorded it; `count` test samples."""
    recorded = run.metrics.set_index(run.unit).loc[at]
    rows = [row("accuracy", recorded["test_accuracy"], split="test", n=count)]
    if "train_fit" in recorded and recorded["train_fit"] == recorded["train_fit"]:
        rows.append(row("accuracy", recorded["train_fit"], split="train"))
    return rows


def richness_rows(now: LayerSight, start: LayerSight | None, model: nn.Module, labels: bool) -> Rows:
    """All measures of one split at one checkpoint."""
    count = {"n": len(now.features)}
    measures: dict[str, Callable[[], float | None]] = {
        "d_lr": now.d_lr,
        "effective_dimension": lambda: effective_dimension(now.features),
        "effective_dimension_rest": lambda: effective_dimension(now.features, True),
        "constant_share": lambda: constant_share(now.features),
    }
    if start is not None:
        measures["initial_kernel_alignment"] = lambda: initial_kernel_alignment(start.features, now.features)
        # The paper's tables agree with features and samples exchanged: similarity of (P, P) matrices.
        measures["s_init_transposed"] = lambda: cka(start.features.T, now.features.T)
    rows = [_row_or_reason(name, compute, count) for name, compute in measures.items()]
    return [*rows, *(_collapse_rows(now, model, count) if labels else [])]


def _collapse_rows(now: LayerSight, model: nn.Module, count: dict[str, int]) -> Rows:
    weights = cast(Tensor, layer_called(model, name_of_last(model)).weight)
    fits = len(weights) == int(now.labels.max()) + 1
    try:
        found = neural_collapse(
            now.features, now.labels, weights if fits else None, predictions=now.outputs if fits else None
        )
    except BadData as reason:
        return [row("nc1_stabilised", None, note=str(reason), **count)]
    names = ("nc1", "nc1_stabilised", "trace_within", "nc2_etf", "nc3", "nc4")
    rows = [row(name, getattr(found, name), note=found.note, **count) for name in names]
    # The paper's tables agree with Sigma_W as a mean over the classes, where its eq. 33 has a sum.
    return rows + [
        row(f"{name}_mean", getattr(found, name) / found.classes, **count)
        for name in ("nc1_stabilised", "trace_within")
    ]


def _row_or_reason(name: str, compute: Callable[[], float | None], count: dict[str, int]) -> dict[str, Any]:
    try:
        return row(name, compute(), **count)
    except BadData as reason:
        return row(name, None, note=str(reason), **count)


def first_positions(count: int) -> range:
    """1 to POSITIONS, or to `count`."""
    return range(1, min(count, POSITIONS) + 1)


def spectrum_rows(
    train: LayerSight,
    test: LayerSight,
    targets: Tensor | None = None,
    places: Callable[[int], Sequence[int]] = first_positions,
    note: str = "",
    qr: bool = True,
) -> Rows:
    """Quality, utilisation and intensity by the number of features.

    Args:
        train: what the features' spectrum is found from.
        test: what it is measured on.
        targets: what was to be learned; the labels of `test` when not given.
        places: which numbers of features to keep, of all that there are.
        note: kept with every number, before the spectrum's own warnings.
        qr: orthonormalise the eigenfunctions on the test samples.
    """
    try:
        wanted = test.labels if targets is None else targets
        seen = feature_spectrum(train.features, test.features, wanted, test.outputs, qr)
    except BadData as reason:
        return [row("quality", None, note=str(reason))]
    where = {
        "split": "test",
        "n": len(test.features),
        "note": "; ".join(filter(None, (note, *seen.warnings))),
    }
    return [
        row(name, float(getattr(seen, name)[place - 1]), position=place, **where)
        for name in ("quality", "utilisation", "intensity")
        for place in places(len(seen.eigenvalues))
    ]
