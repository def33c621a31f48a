"""Models whose answers cannot be judged: one output that names no class, test labels of one class."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import undertow as ut
from undertow.auditing import Audit
from undertow.integrations.watch import Watch

DIM = 6


def halves(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Two classes that one direction tells apart."""
    x = torch.randn(count, DIM, generator=torch.Generator().manual_seed(seed))
    return x, (x[:, 0] + x[:, 1] > 0).long()


def trained(outputs: int) -> nn.Module:
    """Linear, ReLU, Linear on both classes; with one output by its log-odds."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(DIM, 8), nn.ReLU(), nn.Linear(8, outputs))
        optimiser = torch.optim.Adam(model.parameters(), 0.02)
        x, y = halves(300, 0)
        for _ in range(150):
            said = model(x)
            loss = (
                nn.functional.binary_cross_entropy_with_logits(said[:, 0], y.float())
                if outputs == 1
                else nn.functional.cross_entropy(said, y)
            )
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return model


@pytest.fixture
def recorded(tmp_path: Path) -> Callable[[nn.Module], ut.Run]:
    def make(model: nn.Module) -> ut.Run:
        with ut.Recorder(tmp_path / "run") as recorder:
            recorder.save(model, 1)
            recorder.save(model, 2)
        return ut.open_run(tmp_path / "run", model=lambda: model)

    return make


def training(found: Audit) -> tuple[str, str]:
    one = found.verdict.topic("training")
    return one.answer, one.sentence


class Squeezed(nn.Module):
    """Answers (N,)."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)[:, 0]


@pytest.mark.parametrize("wrap", [lambda model: model, Squeezed])
def test_one_output_is_no_collapse(recorded, wrap):
    """Fails if the largest of one output is taken for an answer: a model that is right on 98 % was "collapsed"."""
    model = trained(1)
    x, y = halves(200, 1)
    assert ((model(x)[:, 0] > 0).long() == y).float().mean() > 0.9
    found = ut.audit(recorded(wrap(model)), halves(300, 0), (x, y), progress=False)
    answer, sentence = training(found)
    assert answer == "cannot tell"
    assert "its one output may be a log-odds, a chance or a number" in sentence
    assert "give a model that answers (0, z)" in sentence
    assert "Collapsed" not in str(found.verdict)
    assert not {"accuracy", "train_accuracy", "answered", "consistency"} & set(found.measures)
    assert found.headline.startswith("No accuracy, as its one output names no class: ")


def test_what_it_advises_is_judged(recorded):
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = trained(1)

        def forward(self, x: Tensor) -> Tensor:
            z = self.inner(x)
            return torch.cat([torch.zeros_like(z), z], 1)

    found = ut.audit(recorded(Both()), halves(300, 0), halves(200, 1), lenses=["richness"], progress=False)
    assert found.measures["accuracy"] > 0.9


def test_a_watch_gives_one_output_no_accuracy(tmp_path: Path):
    """Fails if a look tells the share of the first class as the accuracy."""
    watch = Watch(tmp_path / "run", halves(300, 0), halves(200, 1), keep="every:1", report="none")
    look = watch.epoch(trained(1), 1)
    assert look is not None
    assert look.test is None
    assert any("one output" in note for note in look.notes)


@pytest.mark.parametrize("count", [1, 4, 44])
@pytest.mark.parametrize("label", [0, 1])
def test_test_samples_of_one_class_show_no_collapse(recorded, count: int, label: int):
    """Fails if a model that answers all of them rightly is called collapsed, or no better than chance."""
    model = trained(2)
    x, y = halves(500, 1)
    right = (y == label) & (model(x).argmax(1) == label)
    held = (x[right][:count], y[right][:count])
    found = ut.audit(recorded(model), halves(300, 0), held, lenses=["richness"], progress=False)
    answer, sentence = training(found)
    assert answer == "cannot tell"
    assert "all test labels are of one class" in sentence
    assert found.measures["accuracy"] == 1


def test_one_answer_without_labels_may_be_right(recorded):
    model = trained(2)
    x, _ = halves(500, 1)
    held = x[model(x).argmax(1) == 1][:44]
    answer, sentence = training(ut.audit(recorded(model), None, held, lenses=["richness"], progress=False))
    assert answer == "cannot tell"
    assert sentence.endswith("there are no labels. It gives one answer to all 44 test samples.")
