"""The table of architectures is true: a small network of each kind is tapped, cut and repaired."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from reader import ROOT, build_bert
from torch import Tensor, nn

import undertow as ut
from undertow.errors import UndertowError
from undertow.models import build_model
from undertow.repairing.transfer import write_probe_into_head
from undertow.temporal.cuts import valid_cuts

transformers = pytest.importorskip("transformers")
SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
LABELS = torch.arange(60) % 3
Inputs = Tensor | dict[str, Tensor]


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(6, 16, batch_first=True)
        self.head = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(x)[0][:, -1])


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        block = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.encoder = nn.TransformerEncoder(block, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(x).mean(1))


def ours(spec: str, *shape: int) -> Callable[[], tuple[nn.Module, Inputs]]:
    return lambda: (build_model(spec, shape, 3, seed=0), torch.rand(60, *shape))


def texts() -> dict[str, Tensor]:
    ids = torch.randint(4, 30, (60, 8))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def hub(kind: str, inputs: Callable[[], Inputs], **config: Any) -> Callable[[], tuple[nn.Module, Inputs]]:
    """A model of transformers from its configuration; no download."""

    def make() -> tuple[nn.Module, Inputs]:
        name, task = kind.split(":")
        own = getattr(transformers, f"{name}Config")(num_labels=3, **config)
        return getattr(transformers, f"{name}For{task}Classification")(own), inputs()

    return make


KINDS: dict[str, Callable[[], tuple[nn.Module, Inputs]]] = {
    "MLP": ours("mlp:16-16", 1, 8, 8),
    "CNN": ours("cnn:width=2,units=8", 1, 8, 8),
    "AlexNet": ours("alexnet:width=2", 3, 64, 64),
    "VGG-16 with batch norm": ours("vgg16bn:width=2", 3, 32, 32),
    "ResNet-8": ours("resnet8:width=3", 3, 16, 16),
    "ResNet-18": ours("resnet18:width=2", 3, 16, 16),
    "ResNet-18, pre-activation": ours("resnet18:width=2,preact", 3, 16, 16),
    "ViT": ours("vit:depth=2,width=12", 3, 8, 8),
    "LSTM": lambda: (Recurrent(), torch.rand(60, 7, 6)),
    "`nn.TransformerEncoder`": lambda: (Encoder(), torch.rand(60, 7, 16)),
    "BERT (transformers)": lambda: (build_bert(), texts()),
    "GPT-2 (transformers)": hub(
        "GPT2:Sequence", texts, vocab_size=30, n_positions=16, n_embd=16, n_layer=2, n_head=2, pad_token_id=0,
        bos_token_id=1, eos_token_id=1,
    ),
    "Llama (transformers)": hub(
        "Llama:Sequence", texts, vocab_size=30, pad_token_id=0, bos_token_id=1, eos_token_id=1,
        num_key_value_heads=2, **SMALL,
    ),
    "ViT (transformers)": hub(
        "ViT:Image", lambda: torch.rand(60, 1, 8, 8), image_size=8, patch_size=4, num_channels=1, **SMALL
    ),
    "ConvNeXt (transformers)": hub(
        "ConvNext:Image", lambda: torch.rand(60, 1, 32, 32), num_channels=1, hidden_sizes=[8, 16, 16, 16],
        depths=[1, 1, 1, 1], image_size=32,
    ),
}  # fmt: skip


def works(do: Callable[[], Any]) -> str:
    try:
        do()
    except UndertowError:
        return "no"
    return "yes"


def measured(kind: str) -> list[str]:
    """The cells of a network's row: layers, cuts, head, graft."""
    torch.manual_seed(0)
    model, x = KINDS[kind]()
    model.eval()
    few = {name: part[:8] for name, part in x.items()} if isinstance(x, dict) else x[:8]
    with ut.Tap(model, "auto") as tap:
        _, seen = tap(x)
    assert all(bool(rows.isfinite().all()) and len(rows) == 60 for rows in seen.values())
    hidden = next(name for name in seen if name != "input")
    graft = works(lambda: ut.repair(model, train=(x, LABELS), test=(x, LABELS), layer=hidden, gate=False))
    head = works(lambda: write_probe_into_head(model, (x, LABELS)))
    return [str(len(seen)), str(len(valid_cuts(model, few)) or "none"), head, graft]


def written() -> dict[str, list[str]]:
    """The rows of the page's table."""
    text = (ROOT / "docs" / "architectures.md").read_text(encoding="utf-8")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"^\|.*\|$", text, re.M)
    ]
    return {name: cells for name, *cells in rows[2:]}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
def test_the_row_is_true(kind: str):
    assert measured(kind) == written()[kind]


def test_no_row_is_untested():
    assert set(written()) == set(KINDS)
