"""The grid over networks that no paper here probed: a ViT, and Hugging Face's BERT and GPT-2."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import undertow as ut
from undertow.latent.grid import probe_grid


def test_a_vit_trained_here(tmp_path: Path):
    config = ut.TrainConfig(
        "vit:patch=4,depth=2,width=32,heads=2",
        data="digits",
        epochs=3,
        checkpoints="0,3",
        device="cpu",
        lr=3e-3,
    )
    run = ut.train(config, tmp_path / "run")
    table = probe_grid(run, probes=["masc", "velpic"], fits="given")
    test = table[(table["split"] == "test") & (table["measure"] == "accuracy")]
    assert {"block1", "block2"} <= set(test["layer"])
    trained = test[(test["checkpoint"] == 3) & (test["probe"] == "velpic")]
    assert trained["value"].max() > 0.6


class Classifier(nn.Module):
    """A Hugging Face classification model that answers with its logits."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        return self.model(input_ids=tokens).logits


def tiny(name: str) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    if name == "bert":
        config = transformers.BertConfig(
            vocab_size=16, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
            max_position_embeddings=8, num_labels=3,
        )  # fmt: skip
        return Classifier(transformers.BertForSequenceClassification(config))
    config = transformers.GPT2Config(
        vocab_size=16, n_embd=16, n_layer=2, n_head=2, n_positions=8, num_labels=3, pad_token_id=0
    )
    return Classifier(transformers.GPT2ForSequenceClassification(config))


@pytest.mark.parametrize(
    ("name", "layers"), [("bert", "model.bert.encoder.layer.*"), ("gpt2", "model.transformer.h.*")]
)
def test_transformers_from_a_tiny_config(tmp_path: Path, name: str, layers: str):
    """Which of three tokens comes most often can be read from the mean of any layer."""
    source = torch.Generator().manual_seed(0)
    tokens = torch.randint(4, 16, (360, 6), generator=source)
    labels = torch.arange(360) % 3
    tokens[:, :4] = labels[:, None] + 1
    torch.save(tiny(name).state_dict(), tmp_path / "epoch_1.pt")
    run = ut.open_run(tmp_path, model=lambda: tiny(name))
    table = probe_grid(
        run, train=(tokens[:240], labels[:240]), test=(tokens[240:], labels[240:]), layers=layers,
        probes=["masc", "velpic", "mean"], fits="given", checkpoints="last",
    )  # fmt: skip
    test = table[(table["split"] == "test") & (table["measure"] == "accuracy") & (table["probe"] != "model")]
    assert len(test) == 2 * 3
    assert test[test["probe"] == "mean"]["value"].min() > 0.8
