"""Trained by two processes: `python lightning_ddp.py FOLDER`; test_lightning.py compares with one process."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import torch
from digits import digits
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import undertow as ut
from undertow.integrations.lightning import UndertowCallback


class Normed(LightningModule):
    """With batch norm, whose statistics differ between the processes."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU())
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        loss = cross_entropy(self(batch[0]), batch[1])
        self.log("loss", loss, on_epoch=True, sync_dist=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1)


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    (x, given, true), test = digits()
    # 401 held-out samples: one process has one more than the other.
    watcher = UndertowCallback(
        folder / "run", ut.Samples.of(x, given, true), (torch.cat([test[0], x[:1]]), torch.cat([test[1], true[:1]])),
        keep="every:1", report="none", labels=False,
    )  # fmt: skip
    trainer = Trainer(
        max_epochs=2, accelerator="cpu", devices=2, strategy="ddp", callbacks=[watcher], logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder,
    )  # fmt: skip
    module = Normed()
    trainer.fit(module, DataLoader(TensorDataset(x, given), 50))
    state = {
        "looks": watcher.state_dict(),
        "body": module.body[1].running_mean.tolist(),
        "steps": trainer.global_step,
    }
    torch.save(state, folder / f"rank{trainer.global_rank}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
