"""A network that has to memorise pictures nobody can read, with the right labels.

    rows = memorised_inputs(None, case="MLP-MNIST, shuffled pictures 0.8", seed=0, kind="shuffled", degree=0.8)

The first epochs of test accuracy, probes of every layer at the start, in the middle and at the end, and the fit.
"""

from __future__ import annotations

from dataclasses import replace
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from undertow.data.samples import DataSet
from undertow.errors import unknown
from undertow.latent.grid import probe_grid
from undertow.studies.latent.probe_measures import COLUMNS
from undertow.studies.task import Rows
from undertow.studies.train_and_measure import fits
from undertow.training.config import TrainConfig
from undertow.training.loop import train
from undertow.training.prepare import prepare_data
from undertow.training.seeds import stream

KINDS = ("shuffled", "noise")


def memorised_inputs(
    run: None,
    *,
    case: str,
    seed: int,
    kind: str,
    degree: float,
    epochs: int,
    train_size: int | None = None,
    test_size: int | None = None,
    data: str = "mnist",
) -> Rows:
    """Train on pictures of which a share is unreadable, and probe the layers on readable test pictures.

    Options:
        kind: shuffled (each such picture has its own order of pixels) or noise.
        degree: the share of unreadable training pictures.
        epochs: at most; training stops when 99 % of the labels are fitted.
        train_size: training pictures; all when None.
        test_size: likewise.
        data: the set.
    """
    config = TrainConfig(
        model="mlp:128-512-512-512", data=data, scaling="unit", train_size=train_size, test_size=test_size,
        optimiser="adam", batch_size=32, epochs=epochs, stop_at=0.99, seed=seed,
        test_at="checkpoints", checkpoints="0,1,2,4,8,12,20,40,60,80",
    )  # fmt: skip
    changed = unreadable(prepare_data(config), kind, degree, seed)
    with TemporaryDirectory() as folder:
        made = train(config, folder, data=changed)
        table = probe_grid(made, changed, probes=("masc", "velpic"), fits=("given",), out=folder)
        return [{name: line[name] for name in COLUMNS} for line in table.to_dict("records")] + fits(made)


def unreadable(data: DataSet, kind: str, degree: float, seed: int) -> DataSet:
    """The same set with a share of its training pictures made unreadable."""
    if kind not in KINDS:
        raise unknown("kind of unreadable picture", kind, KINDS)
    draw = stream(seed, f"unreadable {kind}", 0)
    pictures = data.train.tensor
    flat = pictures.flatten(1)
    chosen = torch.rand(len(flat), generator=draw) < degree
    made = _shuffled(flat, draw) if kind == "shuffled" else _noise(flat, draw)
    mixed = torch.where(chosen[:, None], made, flat).view_as(pictures)
    return replace(data, train=replace(data.train, x=mixed))


def _shuffled(flat: Tensor, draw: torch.Generator) -> Tensor:
    return flat.gather(1, torch.rand(flat.shape, generator=draw).argsort(1))


def _noise(flat: Tensor, draw: torch.Generator) -> Tensor:
    """Normal numbers with the mean and deviation of all pixels, cut to what a pixel can be."""
    values = flat.double()
    made = values.mean() + values.std() * torch.randn(flat.shape, generator=draw, dtype=torch.float64)
    return made.clamp(values.min(), values.max()).to(flat.dtype)
