"""The training loop and the recorder against the plainest code that does the same.

python bench/training.py [--json FILE]

Loop: one epoch of `undertow.train` against a bare loop over tensors (goal: at least 0.95 of its speed) and
against a DataLoader with per-sample transforms. Recorder: what saving a checkpoint after every epoch of the
demo's model adds to an epoch (goal: under 2 %).
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import undertow as ut
from _ratio import median_seconds, report
from undertow.training.loop import Trainer
from undertow.training.prepare import prepare_data, prepare_model

CASES = {
    "MLP 128-512-2048-2048, batch 32, SGD": ut.TrainConfig(
        "mlp", data="digits", optimiser="sgd", batch_size=32, device="cpu"
    ),
    "MLP 256-256-256, batch 64, Adam (demo)": ut.TrainConfig("mlp:256-256-256", data="digits", device="cpu"),
    "CNN, batch 128, Adam": ut.TrainConfig("cnn", data="digits", batch_size=128, lr=2e-4, device="cpu"),
}


class PerSample(Dataset):
    """The usual way: one Python call per sample that scales it."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return (self.x[index] - 0.5) / 0.5, int(self.y[index])


def data_of(config: ut.TrainConfig) -> ut.DataSet:
    """Digits, blown up to 28x28 for the convolutional net."""
    data = prepare_data(config)
    if config.model != "cnn":
        return data
    grown = [nn.functional.interpolate(part.x, (28, 28)) for part in (data.train, data.test)]
    return ut.DataSet(
        "digits28", ut.Samples.of(grown[0], data.train.y), ut.Samples.of(grown[1], data.test.y), data.classes
    )


def default_optimiser(config: ut.TrainConfig, model: nn.Module) -> torch.optim.Optimizer:
    if config.optimiser == "sgd":
        return torch.optim.SGD(model.parameters(), config.lr, momentum=config.momentum)
    return torch.optim.Adam(model.parameters(), config.lr)


def plain_loop(config: ut.TrainConfig, data: ut.DataSet):
    """Five lines that everyone writes, with torch's default optimiser."""
    model, _ = prepare_model(config, data)
    x, y = (data.train.x - 0.5) / 0.5, data.train.y
    optimiser = default_optimiser(config, model)

    def epoch() -> None:
        order = torch.randperm(len(x))
        for rows in order.split(config.batch_size):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimiser.step()

    return epoch


def loader_loop(config: ut.TrainConfig, data: ut.DataSet):
    model, _ = prepare_model(config, data)
    loader = DataLoader(PerSample(data.train.x, data.train.y), batch_size=config.batch_size, shuffle=True)
    optimiser = default_optimiser(config, model)

    def epoch() -> None:
        for x, y in loader:
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimiser.step()

    return epoch


def our_loop(config: ut.TrainConfig, data: ut.DataSet, folder: Path):
    model, _ = prepare_model(config, data)
    trainer = Trainer(config, data, model, folder, (), torch.device("cpu"), None)
    trainer._enter_stage(1)

    def epoch() -> None:
        trainer.epoch += 1
        trainer._train_epoch()

    return epoch


def compare_loops(rounds: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for name, config in CASES.items():
        data = data_of(config)
        with tempfile.TemporaryDirectory() as folder:
            seconds = median_seconds(
                {
                    "ours": our_loop(config, data, Path(folder)),
                    "plain": plain_loop(config, data),
                    "loader": loader_loop(config, data),
                },
                rounds,
            )
        rows.append(
            {
                "one epoch of": name,
                "ours ms": round(1e3 * seconds["ours"], 1),
                "plain loop ms": round(1e3 * seconds["plain"], 1),
                "DataLoader ms": round(1e3 * seconds["loader"], 1),
                "speed / plain": round(seconds["plain"] / seconds["ours"], 2),
                "speed / DataLoader": round(seconds["loader"] / seconds["ours"], 2),
            }
        )
    return rows


def recorder_cost(epochs: int) -> dict[str, object]:
    """Epochs with and without a save take turns; the difference of the medians is what a save costs."""
    config = CASES["MLP 256-256-256, batch 64, Adam (demo)"]
    data = prepare_data(config)
    model, _ = prepare_model(config, data)
    bare, called, saved = [], [], []
    with tempfile.TemporaryDirectory() as folder, ut.Recorder(Path(folder) / "run") as recorder:
        trainer = Trainer(config, data, model, Path(folder) / "other", (), torch.device("cpu"), None)
        trainer._enter_stage(1)
        for number in range(2 * epochs):
            began = time.perf_counter()
            trainer.epoch += 1
            trainer._train_epoch()
            ended = time.perf_counter()
            # The file of an odd epoch is written while the even one after it trains, which shows the rest of the cost.
            if number % 2:
                recorder.save(model, number, test_accuracy=0.5)
                called.append(time.perf_counter() - ended)
                bare.append(ended - began)
            else:
                saved.append(ended - began)
    plain, behind = statistics.median(bare), statistics.median(saved)
    call = statistics.median(called)
    return {
        "epoch ms": round(1e3 * plain, 2),
        "call of save ms": round(1e3 * call, 3),
        "call / epoch %": round(100 * call / plain, 2),
        "epoch while writing ms": round(1e3 * behind, 2),
        "whole cost %": round(100 * (behind - plain + call) / plain, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    rows = compare_loops(options.rounds)
    report(rows, options.json)
    print()
    report([recorder_cost(60)])


if __name__ == "__main__":
    main()
