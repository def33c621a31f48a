"""Rows of steps (N, steps, width) reach recurrent networks as they are, and convolutions as grey pictures."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import undertow as ut
from undertow.integrations.look import Looker
from undertow.integrations.settings import WatchConfig
from undertow.session.sequences import fitted_to
from undertow.session.splits import Split


class Recurrent(nn.Module):
    """Reads (N, steps, 6)."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(6, 8, batch_first=True), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0][:, -1])


class Pooling(nn.Module):
    """Takes four dimensions without a word, and then gives one answer for each step."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(6, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.embed(x).relu().mean(1))


def convolution() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 3 * 4, 2))


def flat() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(30, 2))


def rows(seed: int, many: int = 40) -> tuple[Tensor, Tensor]:
    torch.manual_seed(seed)
    y = torch.arange(many) % 2
    return torch.randn(many, 5, 6) + y[:, None, None], y


@pytest.mark.parametrize(
    ("build", "shape"),
    [(Recurrent, (5, 6)), (Pooling, (5, 6)), (convolution, (1, 5, 6)), (flat, (1, 5, 6))],
)
def test_the_model_says_what_they_are(build, shape):
    """Fails if the channel of a picture is forced upon a recurrent network, or taken from a convolution."""
    x, y = rows(0)
    fitted, none = fitted_to((Split(x[:, None], y), None), None, build)
    assert none is None
    assert tuple(fitted.x.shape[1:]) == shape
    assert torch.equal(fitted.x.reshape(x.shape), x)


def test_what_no_model_takes_stays_for_the_check_to_name():
    x, y = rows(0)
    split = Split(x[:, None], y)
    assert fitted_to((split, None), None, lambda: nn.Conv2d(7, 1, 1))[0] is split


@pytest.mark.parametrize("build", [Recurrent, Pooling])
def test_every_verb_takes_them(build, tmp_path):
    """Before, a session fed (N, 1, steps, width) and the network refused it."""
    train, test = rows(0), rows(1)
    model = build()
    torch.save(model.state_dict(), tmp_path / "epoch-1.pt")
    run = ut.open_run(tmp_path, model=build)
    session, before = ut.Session(run, train, test), torch.get_rng_state()
    assert tuple(session.samples.train.x.shape) == (40, 5, 6)
    assert torch.equal(torch.get_rng_state(), before), "the model that was asked took the user's draws"
    found = ut.audit(run, train, test, lenses="latent", progress=False)
    with torch.no_grad():
        right = (model.eval()(test[0]).argmax(1) == test[1]).float().mean()
    assert found.measures["accuracy"] == pytest.approx(float(right))
    look = Looker(train, test, WatchConfig(labels=False)).look(model, 1)
    assert look.test.value == pytest.approx(float(right))
    assert ut.repair(model, train=train, test=test) is not None
