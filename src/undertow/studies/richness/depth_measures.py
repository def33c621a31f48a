"""What the studies of depth and data measure: intermediate layers, all of table 4, points of a learning curve.

    layer_spectra(run, case=..., seed=0, layers="layer1,layer2,avg_pool", map_side=8)
    used_dimensions(run, case=..., seed=0)       # the last layer, with the dimension of what is used
    curve_point(run, case=..., seed=0)           # error, loss and D_LR on test samples

An intermediate layer is seen linearly only: what lies behind it is not linear. Its features are flattened, as the
paper has them; `map_side` averages maps down to so many pixels a side first, which keeps more samples than features.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import adaptive_avg_pool2d

from undertow.data.inputs import to_inputs
from undertow.data.samples import DataSet
from undertow.errors import BadData
from undertow.richness.dimension import effective_dimension
from undertow.richness.eigenfunctions import feature_spectrum
from undertow.studies.findings import row
from undertow.studies.richness.gaussian_process import gp_rows
from undertow.studies.richness.last_layer_measures import (
    LayerSight,
    accuracies,
    last_layer,
    sights,
    spectrum_rows,
)
from undertow.studies.task import Rows
from undertow.training.prepare import objective_of
from undertow.training.run import Run
from undertow.training.stages import run_up_to

DENSE = 120
"""So many first features have a row each; later ones are thinned out evenly on a log axis."""

LINEAR = "linear view only"


def layer_spectra(
    run: Run, *, case: str, seed: int, layers: str, map_side: int | None = None, samples: int = 10_000,
    without_qr: bool = False,
) -> Rows:  # fmt: skip
    """Quality, utilisation and intensity of several layers at the last checkpoint.

    Options:
        layers: blocks of the network by name, shallow to deep, parted by commas; the last enters the head.
        map_side: average maps down to so many pixels a side; None leaves them.
        samples: at most so many of each split.
        without_qr: the same without orthonormalising on the test samples too, in rows whose `qr` says so.
    """
    at = run.epochs[-1]
    data, model, names = run.data(), run.model(at), layers.split(",")
    rows = [*accuracies(run, at, len(data.test)), *stage_fits(run)]
    for depth, name in enumerate(names, start=1):
        seen = sights(data, model, samples, name)
        train, test = (_averaged(data, model, seen[split], name, map_side) for split in ("train", "test"))
        note = "" if depth == len(names) else LINEAR
        found = spectrum_rows(train, test, places=log_positions, note=note)
        if without_qr:
            plain = spectrum_rows(train, test, places=log_positions, note=note, qr=False)
            found = [
                {**one, "qr": way} for way, rows in (("with", found), ("without", plain)) for one in rows
            ]
        width = row(
            "width", train.features.shape[1], split="test", n=len(test.features), note=found[0]["note"]
        )
        rows += [{**one, "layer": name, "depth": depth} for one in (width, *found)]
    return [{"checkpoint": at, **one} for one in rows]


def stage_fits(run: Run) -> Rows:
    """Trained layer by layer: the share of labels that each layer fitted under its own head, in its last epoch."""
    config = run.config
    if config is None or not config.greedy:
        return []
    cuts: tuple[str, ...] = getattr(run.fresh(), "cuts", ())
    running = run.metrics.set_index("epoch")["train_accuracy"]
    ends = [config.epochs * place // len(cuts) for place in range(1, len(cuts) + 1)]
    return [
        row("stage_fit", float(running.loc[end]), layer=cut, split="train")
        for cut, end in zip(cuts, ends, strict=True)
    ]


def _averaged(data: DataSet, model: nn.Module, seen: LayerSight, name: str, side: int | None) -> LayerSight:
    with torch.no_grad():
        shape = run_up_to(model, name, to_inputs(data.test.tensor[:1], data.scaling)).shape[1:]
    if side is None or len(shape) != 3 or max(shape[1:]) <= side:
        return seen
    maps = seen.features.reshape(-1, *shape)
    return seen._replace(features=adaptive_avg_pool2d(maps, side).flatten(1))


def log_positions(count: int) -> list[int]:
    """1 to `count`: the first ones all, then forty for each factor of ten, and the last."""
    late = (DENSE * 10 ** (step / 40) for step in range(400))
    return sorted({*range(1, min(DENSE, count) + 1), *(int(one) for one in late if one < count), count})


def used_dimensions(run: Run, *, case: str, seed: int, samples: int = 10_000) -> Rows:
    """The last layer's measures and spectrum, and the effective dimension of the utilisation (table 4)."""
    rows = last_layer(run, case=case, seed=seed, samples=samples, spectra=False)
    train, test = sights(run.data(), run.model(run.epochs[-1]), samples).values()
    found = spectrum_rows(train, test)
    try:
        seen = feature_spectrum(train.features, test.features, test.labels, test.outputs)
        # Eq. 9 leaves out the first function, the constant, and not the one that is used most.
        used, note = 1 + effective_dimension(seen.feature_utilisation[1:]), ""
    except BadData as reason:
        used, note = None, str(reason)
    found.append(row("used_dimension", used, split="test", n=len(test.features), note=note))
    return [*rows, *({"checkpoint": run.epochs[-1], **one} for one in found)]


def curve_point(run: Run, *, case: str, seed: int, samples: int = 10_000, gp_samples: int = 25_000) -> Rows:
    """Error, loss and D_LR at the end of training, with the number of training samples.

    Options:
        samples: at most so many of each split.
        gp_samples: a Gaussian process is fitted beside the network to at most so many training samples.
    """
    rows = last_layer(run, case=case, seed=seed, samples=samples, spectra=False)
    end = run.metrics.set_index(run.unit).loc[run.epochs[-1]]
    data, config = run.data(), run.config
    count = len(data.train)
    found = [
        row("error", 1 - end["test_accuracy"], split="test"),
        row("loss", end["test_loss"], split="test"),
        *([] if config is None else gp_rows(data, objective_of(config, data), most=gp_samples)),
    ]
    return [{"size": count, "checkpoint": run.epochs[-1], **one} for one in [*rows, *found]]
