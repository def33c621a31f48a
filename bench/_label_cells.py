"""One cell of the label bench: data, noise and seed; its run, and a network trained the same way on other labels.

cell = Cell("fashion_mnist", "uniform:0.4", seed=0, samples=5000, epochs=40)
run = cell.run(work)                             # trained if it is not there yet, gone on with if it was killed
network = fit_network(run.config, data, rows, y) # the same network, batches and epochs, without a folder
cell.validation(500)                             # further samples with the same noise, which the run never saw
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import undertow as ut
from undertow.data.inputs import to_inputs
from undertow.data.noise import parse_noise
from undertow.features import stream_features
from undertow.training.batches import Batches
from undertow.training.facts import RunFacts
from undertow.training.optimise import make_optimiser
from undertow.training.prepare import prepare_model
from undertow.training.seeds import global_stream

KEPT = (0, 1, 2, 3, 4, 6, 8, 11, 15, 20, 25, 30, 35, 40)
SUBSET_SEED = 0
"""Every seed of a setting has the same samples; labels, weights and batches differ."""


@dataclass(frozen=True)
class Cell:
    """What is trained."""

    data: str
    noise: str
    seed: int
    samples: int
    epochs: int
    model: str = "mlp:512-512"

    @property
    def name(self) -> str:
        parts = (self.data, self.noise, self.model, f"n{self.samples}", f"e{self.epochs}", f"seed{self.seed}")
        return "-".join(parts).replace(":", "_").replace("/", "_")

    @property
    def setting(self) -> tuple[str, str]:
        return self.data, self.noise

    @property
    def config(self) -> ut.TrainConfig:
        kept = ",".join(str(epoch) for epoch in KEPT if epoch <= self.epochs)
        return ut.TrainConfig(
            self.model, data=self.data, noise=f"{self.noise},seed={self.seed}", train_size=self.samples,
            epochs=self.epochs, batch_size=64, optimiser="adam", lr=1e-3, checkpoints=kept,
            seed=self.seed, seed_noise=SUBSET_SEED, device="cpu",
        )  # fmt: skip

    def run(self, work: Path) -> ut.Run:
        folder = work / "runs" / self.name
        if (folder / "run.json").exists() and RunFacts.read(folder).finished:
            return ut.open_run(folder)
        return ut.train(self.config, folder, resume=True)

    def validation(self, count: int) -> ut.Samples:
        """`count` samples beyond those of the run, their labels wrong in the same way."""
        source = ut.load_data(self.data, train_size=self.samples + count, seed=SUBSET_SEED)
        seen = ut.load_data(self.data, train_size=self.samples, seed=SUBSET_SEED).train.index
        # Drawn for all at once: the directions of instance noise are scaled by the samples that it sees.
        noisy = parse_noise(self.noise, seed=self.seed).apply(source.train, len(source.classes))
        return noisy.take(torch.from_numpy(~np.isin(source.train.index, seen)).nonzero().flatten())


def fit_network(
    config: ut.TrainConfig,
    data: ut.DataSet,
    rows: Tensor,
    y: Tensor,
    watch: Callable[[nn.Module], None] | None = None,
) -> nn.Module:
    """The network of `config` trained on the samples `rows` of `data.train` with labels `y`, in eval mode.

    `watch` is shown the network after each epoch.
    """
    model, _ = prepare_model(config, data)
    samples = replace(data.train.take(rows), y=y)
    batches = Batches(samples, scaling=data.scaling, batch_size=config.batch_size, seed=config.batch_seed)
    optimiser = make_optimiser(config, model)
    model.train()
    for epoch in range(1, config.epochs + 1):
        with global_stream(config.batch_seed, "dropout", epoch, torch.device("cpu")):
            for x, given in batches.epoch(epoch):
                optimiser.zero_grad(set_to_none=True)
                nn.functional.cross_entropy(model(x), given).backward()
                optimiser.step()
        if watch is not None:
            watch(model.eval())
            model.train()
    return model.eval()


def read(model: nn.Module, x: Tensor, scaling: str) -> tuple[Tensor, dict[str, Tensor]]:
    """Logits (N, C) and the features (N, D) of the layers whose outputs are probed, shallow to deep."""
    layers = [name for name in model.probe_layers if name != "input"]
    parts = list(stream_features(model, x, layers, prepare=partial(to_inputs, scaling=scaling)))
    features = {name: torch.cat([part.features[name] for part in parts]) for name in layers}
    return torch.cat([part.outputs for part in parts]), features


@torch.no_grad()
def accuracy(model: nn.Module, samples: ut.Samples, scaling: str) -> float:
    """Against the true labels where they are known."""
    right = samples.y if samples.true is None else samples.true
    said = torch.cat([model(to_inputs(part, scaling)).argmax(1) for part in samples.x.split(1000)])
    return float((said == right).double().mean())
