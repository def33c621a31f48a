"""Heads whose weight is computed from others are measured as plain ones that hold that weight."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

import undertow as ut

CLASSES, DIM = 3, 8
Norm = Callable[[nn.Linear], nn.Module]
NORMS: dict[str, Norm] = {
    "weight norm": parametrizations.weight_norm,
    "spectral norm": parametrizations.spectral_norm,
    "orthogonal": parametrizations.orthogonal,
}


def build(norm: Norm) -> nn.Sequential:
    return nn.Sequential(nn.Linear(DIM, 12), nn.ReLU(), norm(nn.Linear(12, CLASSES)))


def samples(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    labels = torch.arange(count) % CLASSES
    x = torch.randn(count, DIM, generator=torch.Generator().manual_seed(seed))
    x[torch.arange(count), labels] += 2
    return x, labels


@pytest.fixture(params=NORMS)
def trained(request: pytest.FixtureRequest) -> nn.Sequential:
    x, y = samples(300, 0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = build(NORMS[request.param])
        optimiser = torch.optim.Adam(model.parameters(), 1e-2)
        for rows in torch.randperm(300).split(50) * 3:
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimiser.step()
    return model


def plain(model: nn.Sequential) -> nn.Sequential:
    """The same function, its weights held as they are."""
    made = build(lambda head: head)
    model.eval()
    made.load_state_dict({
        **{name: value for name, value in model.state_dict().items() if name.startswith("0.")},
        "2.weight": model[2].weight.detach(), "2.bias": model[2].bias.detach(),
    })  # fmt: skip
    return made


def test_a_run_with_such_a_head_is_audited(trained: nn.Sequential):
    """Fails if the head's weight is looked for among its parameters."""
    found, wanted = (
        ut.audit(model, train=samples(300, 0), test=samples(150, 1), full=True, progress=False).table
        for model in (trained, plain(trained))
    )
    for name in ("d_lr", "nc3"):
        own, other = (table[table.measure == name].value.dropna().tolist() for table in (found, wanted))
        assert own
        assert own == pytest.approx(other, rel=1e-5)


def test_to_measure_it_in_training_changes_nothing(trained: nn.Sequential):
    """Fails if its weight is read in training, where a spectral norm moves its estimate at each reading."""
    test = samples(150, 1)
    trained.train()
    before = copy.deepcopy(trained.state_dict())
    found = ut.richness.measure_richness(trained, *test)
    assert all(torch.equal(value, before[name]) for name, value in trained.state_dict().items())
    assert all(module.training for module in trained.modules())
    wanted = ut.richness.measure_richness(plain(trained), *test)
    assert found.nc3.value == pytest.approx(wanted.nc3.value, rel=1e-5)
