"""What an idle callback costs: Lightning with UndertowCallback attached and nothing due, against without it."""

from __future__ import annotations

import logging
import tempfile
import time
import warnings
from pathlib import Path

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from _ratio import median_seconds, report
from undertow.integrations.lightning import UndertowCallback

WIDTHS = {"mlp:256-256 (the harder case)": 256, "mlp:1024-1024": 1024}


class Net(LightningModule):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(784, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        return cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.01)


def fit(width: int, watched: str) -> None:
    """Train 200 steps; a schedule far in the future leaves the callback idle."""
    x, y = torch.randn(6400, 784), torch.randint(0, 10, (6400,))
    with tempfile.TemporaryDirectory() as folder:
        own = []
        if watched:
            own = [
                UndertowCallback(
                    Path(folder) / "run", test=(x[:100], y[:100]), keep=watched, report="none", last=1e9
                )
            ]
        trainer = Trainer(
            max_steps=200, max_epochs=-1, accelerator="cpu", logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, callbacks=own, default_root_dir=folder,
        )  # fmt: skip
        if own:
            own[0].on_train_end = lambda *_: None  # the last checkpoint and the report are no idle time
        trainer.fit(Net(width), DataLoader(TensorDataset(x, y), 64))


def main() -> None:
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    rows: list[dict[str, object]] = []
    for name, width in WIDTHS.items():
        contenders = {
            "without": lambda width=width: fit(width, ""),
            "idle, by epochs": lambda width=width: fit(width, "1000000"),
            "idle, by steps": lambda width=width: fit(width, "1000000steps"),
        }
        taken = median_seconds(contenders, rounds=5, clock=time.process_time)
        rows += [
            {"network": name, "callback": one, "ratio": f"{taken[one] / taken['without']:.3f}"} for one in contenders
        ]  # fmt: skip
    report(rows)


if __name__ == "__main__":
    main()
