"""What an idle callback costs: Lightning with UndertowCallback attached and nothing due, against without it.

The cost of a batch is the same for every network, so it is measured beside a tiny one, where noise hides it less, and
set against the steps of others. One training; every few steps its list of callbacks is changed, so that all contenders
meet the same busy moments, and each block is compared with the one of its round that had none. An empty callback shows
what Lightning itself takes for calling any.
"""

from __future__ import annotations

import logging
import statistics
import tempfile
import time
import warnings
from operator import sub
from pathlib import Path

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from _ratio import report
from undertow.integrations.lightning import UndertowCallback

TINY = (16, 8)
NETWORKS = {"mlp:256-256": (784, 256), "mlp:1024-1024": (784, 1024)}
"""Inputs and width."""
BLOCK, ROUNDS, STEPS = 8, 120, 120
"""Steps with one contender, how often each has its turn, and steps of a network by itself."""
FAR = 1_000_000


class Net(LightningModule):
    """An MLP that lets the contenders take turns and times them."""

    def __init__(self, inputs: int, width: int, contenders: dict[str, list[Callback]]) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
        )
        self.contenders, self.began = contenders, 0.0
        self.taken: dict[str, list[float]] = {name: [] for name in contenders}

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        return cross_entropy(self(batch[0]), batch[1])

    def on_train_start(self) -> None:
        self._change(0)

    def on_train_batch_end(self, *_: object) -> None:
        """Comes after the callbacks' own hook of that name, so a block holds whole steps."""
        done = self.global_step
        if done % BLOCK == 0:
            seconds = (time.process_time() - self.began) / BLOCK
            self.taken[self._turn(done // BLOCK - 1)].append(seconds)
            self._change(done // BLOCK)

    def _turn(self, block: int) -> str:
        return list(self.contenders)[block % len(self.contenders)]

    def _change(self, block: int) -> None:
        self.trainer.callbacks[:] = self.contenders[self._turn(block)]
        self.began = time.process_time()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.01)


def idle(keep: str) -> Callback:
    """A callback for which nothing is ever due."""
    return UndertowCallback(Path("never-written"), keep=keep, report="none", last=1e9)


def step_seconds(
    inputs: int, width: int, contenders: dict[str, list[Callback]], rounds: int
) -> dict[str, list[float]]:
    """Processor seconds of a step with each contender, round by round."""
    x, y = torch.randn(6400, inputs), torch.randint(0, 10, (6400,))
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            max_steps=BLOCK * rounds * len(contenders), max_epochs=-1, accelerator="cpu", logger=False,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
            default_root_dir=folder,
        )  # fmt: skip
        net = Net(inputs, width, contenders)
        trainer.fit(net, DataLoader(TensorDataset(x, y), 64))
    return net.taken


def main() -> None:
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    contenders: dict[str, list[Callback]] = {
        "without": [],
        "an empty callback": [Callback()],
        "idle, by epochs": [idle(f"{FAR}")],
        "idle, by steps": [idle(f"{FAR}steps")],
    }
    taken = step_seconds(*TINY, contenders, ROUNDS)
    alone = {
        name: statistics.median(step_seconds(*sizes, {"": []}, STEPS // BLOCK)[""])
        for name, sizes in NETWORKS.items()
    }
    rows: list[dict[str, object]] = []
    for own, seconds in list(taken.items())[1:]:
        cost = statistics.median(map(sub, seconds, taken["without"]))
        shares = {f"of a step of {name}": f"{100 * cost / step:.2f} %" for name, step in alone.items()}
        rows.append({"callback": own, "µs a step": f"{1e6 * cost:.1f}", **shares})
    report(rows)


if __name__ == "__main__":
    main()
