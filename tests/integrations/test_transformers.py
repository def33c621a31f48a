"""UndertowCallback in a real Hugging Face Trainer: a tiny BERT that reads digits as 64 tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from digits import digits
from torch.utils.data import Dataset

import undertow as ut
from undertow.integrations.transformers import UndertowCallback

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings(
    "ignore::FutureWarning",
    "ignore:.*pin_memory.*",
    "ignore::undertow.integrations.watch.MemorisationWarning",
)


class Tokens(Dataset[dict[str, Any]]):
    def __init__(self, x: torch.Tensor, y: torch.Tensor) -> None:
        self.x, self.y = (x * 16).long(), y

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, place: int) -> dict[str, Any]:
        return {"input_ids": self.x[place], "labels": self.y[place]}


def bert() -> torch.nn.Module:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=17, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=64, num_labels=10,
    )  # fmt: skip
    return transformers.BertForSequenceClassification(config)


def trainer(folder: Path, epochs: float) -> Any:
    (x, given, _), _ = digits()
    options = transformers.TrainingArguments(
        str(folder / "out"), num_train_epochs=epochs, per_device_train_batch_size=25, gradient_accumulation_steps=2,
        save_strategy="epoch", logging_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True, learning_rate=3e-3,
    )  # fmt: skip
    return transformers.Trainer(bert(), options, train_dataset=Tokens(x[:300], given[:300]))


def watcher(folder: Path, **settings: Any) -> UndertowCallback:
    (x, given, _), (held, y) = digits()
    own = {"report": "none", "labels": False, "samples": 200, **settings}
    return UndertowCallback(folder / "run", Tokens(x[:300], given[:300]), Tokens(held, y), **own)


def test_steps_count_through_accumulation_and_resume(tmp_path: Path):
    """300 samples, 12 batches, 6 steps an epoch. Fails if batches are counted, or if a resumed run starts anew."""
    first = watcher(tmp_path, keep="every:3steps")
    training = trainer(tmp_path, 1)
    first.add_to(training)
    training.train()
    assert [look.at for look in first.watch.looks] == [0, 3, 6]
    logged = [one for one in training.state.log_history if "undertow/test_accuracy" in one]
    assert [one["step"] for one in logged] == [0, 3, 6]

    second = watcher(tmp_path, keep="every:3steps")
    again = trainer(tmp_path, 2)
    second.add_to(again)
    again.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-6"))
    assert [look.at for look in second.watch.looks] == [0, 3, 6, 9, 12]
    assert second.watch.looks[:3] == first.watch.looks
    run = ut.open_run(tmp_path / "run", model=bert)
    assert (run.epochs, run.unit) == ((0, 3, 6, 9, 12), "step")
    for name, value in run.model(12).state_dict().items():
        assert torch.equal(value, again.model.state_dict()[name].cpu()), name


def test_an_epoch_is_whole_and_the_report_is_written(tmp_path: Path):
    callback = watcher(tmp_path, keep="every:1", report="quick", layers="bert.encoder.layer.0")
    training = trainer(tmp_path, 2)
    training.add_callback(callback)
    training.train()
    assert ut.open_run(tmp_path / "run").epochs == (0, 1, 2)
    assert (tmp_path / "run" / "report.html").exists()
    history = json.loads((tmp_path / "out" / "checkpoint-12" / "trainer_state.json").read_text())[
        "log_history"
    ]
    assert any("undertow/d_lr" in one for one in history)
