"""What a reader of the pages has before the first line: a run that memorised, a network, samples, files.

    folder = set_up(tmp_path)                 # runs/m40, runs/m00, emb.npy, y.csv, mynet.py, ...
    names_for("temporal.md", folder)          # run, model, state_10, ... as that page's blocks use them

Pages are written for large data. SMALLER lists what the tests change in their lines, and nothing else is changed.
"""

from __future__ import annotations

import io
import re
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import undertow as ut

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]

SMALLER = (
    (r"train mlp ", "train mlp:128-128-128 "),
    (r"--data mnist", "--data digits"),
    (r"--epochs 60", "--epochs 30 --lr 0.004 --checkpoints every:6"),
    (r"--epochs 100", "--epochs 6"),
    (r"--edit-at 40", "--edit-at 3"),
    (r"--scale (laptop|paper)|(?<=target-scale)(?= --workers| --out s3)", "--scale smoke"),
    (r'"(latent|richness|temporal)/\*"|--all', "richness/target-scale"),
    (r"--seeds 3", "--seeds 1"),
    (r"--address (auto|10\.\S+|ray://\S+)|--gpus \S+|--cpus 4", ""),
    (r"s3://bucket", "memory://bucket"),
    (r"target-scale--scale", "target-scale --scale"),
)
"""Commands: no MNIST, no cluster but this machine, no GPU, no bucket, minutes become seconds."""

SMALLER_PYTHON = (
    (r"range\(1, 101\)", "range(1, 23)"),
    (r'"mlp", data="mnist", noise=0.4, epochs=60', '"mlp:32", data="digits", noise=0.4, epochs=4'),
    (r', address="auto"', ""),
)


def blocks(page: Path, language: str) -> list[str]:
    """The code blocks of a page in one language."""
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def made_smaller(text: str, changes: tuple[tuple[str, str], ...]) -> str:
    """The same lines, for seconds instead of hours."""
    for pattern, instead in changes:
        text = re.sub(pattern, instead, text)
    return text


class Block(nn.Module):
    """A residual block."""

    def __init__(self) -> None:
        super().__init__()
        self.mlp = nn.Linear(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.relu(self.mlp(x))


class Net(nn.Module):
    """With the layers that the pages name."""

    def __init__(self) -> None:
        super().__init__()
        self.layer1 = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU())
        self.layer2 = nn.Sequential(nn.Linear(32, 32), nn.ReLU())
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer2(self.layer1(x))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def train_one_epoch(model: nn.Module, loader: DataLoader[Any]) -> None:
    """A reader's own loop."""
    adam = torch.optim.Adam(model.parameters(), 4e-3)
    for x, y in loader:
        adam.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        adam.step()


def build_bert() -> nn.Module:
    """BERT of two layers, with a pooled answer."""
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=30, max_position_embeddings=16, num_labels=3, hidden_size=16, num_hidden_layers=2,
        num_attention_heads=2, intermediate_size=32,
    )  # fmt: skip
    return BertForSequenceClassification(config)


def tokens(count: int, seed: int) -> tuple[dict[str, Tensor], Tensor]:
    """Texts of eight tokens, whose class is told by the first."""
    rng = torch.Generator().manual_seed(seed)
    ids = torch.randint(4, 30, (count, 8), generator=rng)
    mask = torch.ones_like(ids)
    mask[::3, 6:] = 0
    return {"input_ids": ids, "attention_mask": mask}, ids[:, 0] % 3


class Texts(Dataset[dict[str, Tensor]]):
    """A Dataset of dicts, as tokenisers give them."""

    def __init__(self, inputs: dict[str, Tensor], labels: Tensor) -> None:
        self.columns = {**inputs, "label": labels}

    def __len__(self) -> int:
        return len(self.columns["label"])

    def __getitem__(self, row: int) -> dict[str, Tensor]:
        return {name: column[row] for name, column in self.columns.items()}


# ---------------------------------------------------------------------- files


def set_up(folder: Path) -> Path:
    """Write every file that the pages name into `folder`."""
    memorising = {"data": "digits", "epochs": 30, "checkpoints": "every:6", "lr": 0.004}
    ut.train("mlp:64-64", folder / "runs" / "m40", noise=0.4, **memorising)
    clean = ut.train("mlp:64-64", folder / "runs" / "m00", noise="0", **memorising)
    ut.audit(clean, quick=True)
    data = ut.load_data("digits")
    _own_run(folder, data)
    _texts(folder)
    _embeddings(folder, data)
    for split in ("train", "val"):
        _tar(folder / "shards" / split, data.train.x[:200].flatten(1), data.train.y[:200])
    _pictures(folder / "pictures", data.train.x[:300])
    return folder


def _own_run(folder: Path, data: Any) -> None:
    (folder / "mynet.py").write_text("from reader import Net as build\n")
    (folder / "mymodels.py").write_text("from reader import build_bert\n")
    torch.manual_seed(0)
    model = Net()
    loader = DataLoader(TensorDataset(data.train.x[:400].flatten(1), data.train.y[:400]), 50, shuffle=True)
    with ut.Recorder(folder / "runs" / "mine") as recorder:
        for epoch in range(3):
            recorder.save(model, epoch)
            train_one_epoch(model, loader)
    x, y = data.train.x.flatten(1).numpy(), data.train.y.numpy()
    x2, y2 = data.test.x.flatten(1).numpy(), data.test.y.numpy()
    np.savez(folder / "mine.npz", x_train=x[:400], y_train=y[:400], x_test=x2[:200], y_test=y2[:200])


def _texts(folder: Path) -> None:
    from datasets import Dataset, DatasetDict

    with ut.Recorder(folder / "runs" / "bert") as recorder:
        for epoch in range(2):
            torch.manual_seed(epoch)
            recorder.save(build_bert(), epoch)
    parts = {"train": tokens(60, 0), "test": tokens(40, 1)}
    flat = {f"{name}_{split}": part.numpy() for split, (x, _) in parts.items() for name, part in x.items()}
    np.savez(folder / "texts.npz", **flat, **{f"y_{split}": y.numpy() for split, (_, y) in parts.items()})
    DatasetDict(
        {
            split: Dataset.from_dict(
                {**{name: part.tolist() for name, part in x.items()}, "label": y.tolist()}
            )
            for split, (x, y) in parts.items()
        }
    ).save_to_disk(folder / "tokenised")


def _embeddings(folder: Path, data: Any) -> None:
    x, y = data.train.x[:300].flatten(1).numpy(), data.train.y[:300].numpy()
    for name in ("emb", "a", "b"):
        np.save(folder / f"{name}.npy", x.astype(np.float32))
    given = y.copy()
    given[:30] = (given[:30] + 1) % 10
    np.save(folder / "y.npy", given)
    pd.DataFrame({"label": given}).to_csv(folder / "y.csv", index=False)
    pd.DataFrame(x).assign(label=given).to_csv(folder / "table.csv", index=False)
    sure = 0.8 * np.eye(10)[y] + 0.02
    np.save(folder / "p.npy", (sure / sure.sum(1, keepdims=True)).astype(np.float32))
    for name in ("reviewed.json", "export.json"):
        pd.DataFrame({"sample": [0, 1], "label": [3, 4]}).to_json(folder / name, orient="records")


def _pictures(folder: Path, images: Tensor) -> None:
    from PIL import Image

    folder.mkdir()
    for row, image in enumerate(images.reshape(-1, 8, 8)):
        Image.fromarray((image.float() / image.max() * 255).byte().numpy()).save(folder / f"{row:04d}.png")


def _tar(folder: Path, x: Tensor, y: Tensor) -> None:
    """WebDataset's layout: NUMBER.npy beside NUMBER.cls."""
    folder.mkdir(parents=True)
    with tarfile.open(folder / "part-000.tar", "w") as tar:
        for row in range(len(x)):
            array = io.BytesIO()
            np.save(array, x[row].float().numpy())
            for ending, content in (("npy", array.getvalue()), ("cls", str(int(y[row])).encode())):
                about = tarfile.TarInfo(f"{row:06d}.{ending}")
                about.size = len(content)
                tar.addfile(about, io.BytesIO(content))


# ---------------------------------------------------------------------- names


def names_for(page: str) -> dict[str, Any]:
    """What the blocks of a page use and do not define, read in the current folder."""
    data = ut.load_data("digits")
    x, y = data.train.x[:400].flatten(1), data.train.y[:400]
    x2, y2 = data.test.x[:200].flatten(1), data.test.y[:200]
    common = {"ut": ut, "x": x, "y": y, "x2": x2, "y2": y2, "train": (x, y), "test": (x2, y2)}
    match page:
        case "README.md":
            return common | _for_readme(x, y, x2, y2)
        case "labels.md":
            wide = {"X": x.numpy(), "A": x.numpy(), "B": x.numpy() ** 2}
            sure = torch.nn.functional.one_hot(y, 10).double() * 0.8 + 0.02
            names = [f"digit {one}" for one in y.tolist()]
            votes = {"P": sure.numpy(), "Q": sure.numpy(), "pictures": data.train.x[:400]}
            return common | wide | votes | {"run": memorised(), "names": names}
        case "temporal.md":
            states = {f"state_{at}": Net().state_dict() for at in (10, 50)}
            return common | states | {"model": Net(), "run": memorised()}
        case "probes.md":
            return common | _for_probes()
        case "cluster.md":
            return common | {"run": memorised()} | _for_streams(x, y)
        case _:
            return common | {"run": memorised()}


def memorised() -> ut.Run:
    """The run that memorised wrong labels."""
    return ut.open_run("runs/m40")


def _for_readme(x: Tensor, y: Tensor, x2: Tensor, y2: Tensor) -> dict[str, Any]:
    model = Net()
    return {
        "model": model, "build_model": Net, "train_one_epoch": train_one_epoch, "accuracy": 0.5, "inputs": x2,
        "loader": DataLoader(TensorDataset(x, y), 50, shuffle=True), "embeddings": x.numpy(),
        "train_set": TensorDataset(x, y), "test_set": TensorDataset(x2, y2), "features": x, "labels": y,
        "state_10": Net().state_dict(), "state_50": Net().state_dict(),
    }  # fmt: skip


def _for_probes() -> dict[str, Any]:
    (x, y), (x2, y2) = tokens(60, 0), tokens(40, 1)

    return {
        "run": memorised(), "build_bert": build_bert, "ids": x["input_ids"], "mask": x["attention_mask"], "y": y,
        "x2": x2, "y2": y2, "train_set": Texts(x, y), "test_set": Texts(x2, y2),
    }  # fmt: skip


def _for_streams(x: Tensor, y: Tensor) -> dict[str, Any]:
    """Openers of torchvision and the hub, each giving digits under the name that the page uses."""
    from datasets import Dataset

    def load_dataset(name: str, split: str, streaming: bool) -> Any:
        return Dataset.from_dict({"x": x.tolist(), "label": y.tolist()}).to_iterable_dataset()

    digits = TensorDataset(x, y)
    return {
        "ImageFolder": lambda path: digits,
        "DataLoader": DataLoader,
        "val": digits,
        "load_dataset": load_dataset,
    }
