"""Runs as people make them, each written by the library itself: transformers, peft, Lightning, a script like timm's.

All of them learn the embedded digits or rows of tokens, for seconds. Two in five training labels of the noisy ones are
drawn at random.
"""

from __future__ import annotations

import argparse
import csv
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import undertow as ut

QUIET: dict[str, object] = {
    "report_to": [], "use_cpu": True, "disable_tqdm": True, "logging_steps": 5, "seed": 0,
}  # fmt: skip


def digits(noise: float = 0.0, train: int | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Pixels from 0 to 1 (N, 1, 8, 8), given labels, true labels, and both of the test split."""
    data = ut.load_data("digits", train_size=train)
    given = data.train.y.clone()
    draw = torch.Generator().manual_seed(7)
    wrong = torch.rand(len(given), generator=draw) < noise
    given[wrong] = torch.randint(0, 10, (int(wrong.sum()),), generator=draw)
    return data.train.x, given, data.train.y, data.test.x, data.test.y


class Texts(torch.utils.data.Dataset):
    """Rows of tokens whose label says which of two words comes more often."""

    def __init__(self, count: int, seed: int) -> None:
        draw = torch.Generator().manual_seed(seed)
        self.ids = torch.randint(5, 12, (count, 12), generator=draw)
        self.labels = ((self.ids == 5).sum(1) > (self.ids == 6).sum(1)).long()
        self.mask = torch.ones_like(self.ids)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, at: int) -> dict[str, Tensor]:
        return {"input_ids": self.ids[at], "attention_mask": self.mask[at], "labels": self.labels[at]}


def tiny_bert() -> nn.Module:
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=16, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=16, num_labels=2, id2label={0: "fewer", 1: "more"},
    )  # fmt: skip
    return BertForSequenceClassification(config)


def tokenizer(folder: Path) -> None:
    """A tokenizer of twelve words, as transformers saves it."""
    from transformers import BertTokenizer

    words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "sea",
        "sky",
        "sand",
        "salt",
        "wave",
        "wind",
        "gull",
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)


def bert_run(folder: Path, model: nn.Module | None = None, epochs: int = 3, words: bool = True) -> Path:
    """What transformers' Trainer leaves of a tiny BERT."""
    from transformers import BertTokenizer, Trainer, TrainingArguments

    saved = folder.parent / f"{folder.name}-tokenizer"
    tokenizer(saved)
    settings = TrainingArguments(
        str(folder), num_train_epochs=epochs, per_device_train_batch_size=32, save_strategy="epoch",
        eval_strategy="epoch", learning_rate=3e-3, **QUIET,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = Trainer(
            model or tiny_bert(), settings, train_dataset=Texts(320, 0), eval_dataset=Texts(128, 1),
            processing_class=BertTokenizer.from_pretrained(saved) if words else None,
            compute_metrics=lambda got: {"accuracy": float((got.predictions.argmax(1) == got.label_ids).mean())},
        )  # fmt: skip
        trainer.train()
    return folder


class LitDigits:
    """Made in `lit_class`, so that Lightning is imported by those tests only that use it."""


def lit_class() -> type:
    import lightning as L

    class LitNet(L.LightningModule):
        def __init__(self, width: int = 16, lr: float = 3e-3) -> None:
            super().__init__()
            self.save_hyperparameters()
            self.net = nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x)

        def training_step(self, batch, _at):
            loss = functional.cross_entropy(self(batch[0]), batch[1])
            self.log("train_loss", loss)
            return loss

        def validation_step(self, batch, _at):
            self.log("val_acc", (self(batch[0]).argmax(1) == batch[1]).float().mean())

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)

    return LitNet


def lightning_run(folder: Path, epochs: int = 3, width: int = 24, **named: object) -> Path:
    """What Lightning leaves: its folder, with metrics.csv, hparams.yaml and checkpoints/.

    Args:
        folder: Where it trains.
        epochs: How many.
        width: Of its hidden layer.
        named: How ModelCheckpoint calls its files.
    """
    import lightning as L
    from lightning.pytorch.callbacks import ModelCheckpoint
    from lightning.pytorch.loggers import CSVLogger
    from torch.utils.data import DataLoader, TensorDataset

    x, y, _, x2, y2 = digits()
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = L.Trainer(
            default_root_dir=folder, max_epochs=epochs, accelerator="cpu", logger=CSVLogger(folder),
            callbacks=[ModelCheckpoint(save_top_k=-1, every_n_epochs=1, save_last=True, **named)],
            enable_progress_bar=False, enable_model_summary=False, log_every_n_steps=10,
        )  # fmt: skip
        trainer.fit(
            lit_class()(width=width),
            DataLoader(TensorDataset(x, y), 64),
            DataLoader(TensorDataset(x2, y2), 256),
        )
    return folder / "lightning_logs" / "version_0"


def timm_net(classes: int = 10) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(512, 32),
        nn.ReLU(),
        nn.Linear(32, classes),
    )


def timm_run(folder: Path, epochs: int = 3) -> Path:
    """What a script like timm's train.py leaves: .pth.tar with args, a moving average, module. and summary.csv."""
    x, y, _, x2, y2 = digits()
    torch.manual_seed(0)
    model = nn.DataParallel(timm_net())
    average = torch.optim.swa_utils.AveragedModel(
        model.module, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
    )
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    folder.mkdir(parents=True)
    args = argparse.Namespace(model="timm_net", lr=0.1, output=folder, mean=np.float64(0.5), opt=None)
    rows = []
    for epoch in range(epochs):
        for part in torch.randperm(len(x), generator=torch.Generator().manual_seed(epoch)).split(64):
            optimiser.zero_grad()
            functional.cross_entropy(model(x[part]), y[part]).backward()
            optimiser.step()
            average.update_parameters(model.module)
        with torch.no_grad():
            top = float((model(x2).argmax(1) == y2).float().mean())
        rows.append({"epoch": epoch, "eval_top1": 100 * top})
        state = {
            "epoch": epoch, "arch": "timm_net", "state_dict": model.state_dict(), "optimizer": optimiser.state_dict(),
            "version": 2, "args": args, "metric": top, "state_dict_ema": average.module.state_dict(),
        }  # fmt: skip
        torch.save(state, folder / f"checkpoint-{epoch}.pth.tar")
    torch.save(state, folder / "model_best.pth.tar")
    torch.save(state, folder / "last.pth.tar")
    with (folder / "summary.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, ["epoch", "eval_top1"])
        table.writeheader()
        table.writerows(rows)
    return folder


def plain_net() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))


def plain_run(folder: Path, epochs: tuple[int, ...] = (1, 3, 10, 60), noise: float = 0.4) -> Path:
    """Somebody's own loop on noisy labels."""
    x, y, _, _, _ = digits(noise)
    torch.manual_seed(0)
    model = plain_net()
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    folder.mkdir(parents=True)
    for epoch in range(1, epochs[-1] + 1):
        for part in torch.randperm(len(x)).split(64):
            optimiser.zero_grad()
            functional.cross_entropy(model(x[part]), y[part]).backward()
            optimiser.step()
        if epoch in epochs:
            torch.save(model.state_dict(), folder / f"epoch_{epoch}.pt")
    return folder
