"""Models in bfloat16, float16 and float64: samples are fed in the model's own dtype, and every verb answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import undertow as ut
from undertow.errors import UndertowError
from undertow.integrations.look import Looker
from undertow.integrations.settings import WatchConfig
from undertow.temporal.batchnorm import recalibrated

from .nets import CLASSES, DIM, held_samples, train_samples

KINDS = (torch.bfloat16, torch.float16, torch.float64)
Pair = tuple[Tensor, Tensor]


def build(kind: torch.dtype) -> nn.Module:
    return nn.Sequential(
        nn.Linear(DIM, 24),
        nn.BatchNorm1d(24),
        nn.ReLU(),
        nn.Linear(24, 16),
        nn.ReLU(),
        nn.Linear(16, CLASSES),
    ).to(kind)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[torch.dtype, ut.Run]:
    """One training in float32, its checkpoints rounded to each kind."""
    place, data, opened = tmp_path_factory.mktemp("kinds"), train_samples(), {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = build(torch.float32)
        optimiser = torch.optim.Adam(model.parameters(), 1e-2)
        for epoch in range(3):
            for kind in (torch.float32, *KINDS):
                (place / str(kind)).mkdir(exist_ok=True)
                state = {n: t.to(kind) if t.is_floating_point() else t for n, t in model.state_dict().items()}
                torch.save(state, place / str(kind) / f"epoch_{epoch}.pt")
            for rows in torch.randperm(len(data)).split(50):
                optimiser.zero_grad()
                nn.functional.cross_entropy(model(data.tensor[rows]), data.y[rows]).backward()
                optimiser.step()
    for kind in (torch.float32, *KINDS):
        opened[kind] = ut.open_run(place / str(kind), model=lambda kind=kind: build(kind))
    return opened


def accuracies(run: ut.Run, train: Pair, test: Pair) -> Tensor:
    table = ut.audit(run, train=train, test=test, full=True, progress=False).table
    rows = table[(table.lens == "answers") & (table.measure == "accuracy")]
    return torch.tensor(rows.value.to_numpy(dtype=float))


WAYS: dict[str, Callable[[ut.Run, Pair, Pair], Any]] = {
    "audit": accuracies,
    "probe": lambda run, train, test: ut.probe_grid(run, train=train, test=test).value.mean(),
    "labels": lambda run, train, test: ut.label_errors(run, train=train, progress=False).rate.value,
    "repair": lambda run, train, test: ut.repair(run, train=train, test=test).after,
    "repair of a model": lambda run, train, test: ut.repair(run.model(), train=train, test=test).after,
    "graft": lambda run, train, test: ut.repair(run, train=train, test=test, layer="2", probe="masc").after,
    "composites": lambda run, train, test: torch.tensor(ut.composite_matrix(run, *test).accuracy()),
    "cuts": lambda run, train, test: len(ut.valid_cuts(run.model(), test[0])),
    "batch norm": lambda run, train, test: recalibrated(run.model(), test[0]).state_dict()["1.running_var"].double(),
    "richness": lambda run, train, test: ut.richness.measure_richness(run.model(), *test).d_lr.value,
    "watch": lambda run, train, test: Looker(train, test, WatchConfig()).look(run.model(), 2).measures()[  # type: ignore[union-attr]
        "test_accuracy"
    ],
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("verb", WAYS)
def test_a_model_of_another_kind_is_measured(runs: dict[torch.dtype, ut.Run], verb: str, kind: torch.dtype):
    """Fails if samples come in float32 whatever the model computes in; rounding alone may tell the answers apart."""
    train, test = train_samples(), held_samples()
    wanted, found = (
        WAYS[verb](runs[one], (train.tensor, train.y), (test.tensor, test.y)) for one in (torch.float32, kind)
    )
    torch.testing.assert_close(
        torch.as_tensor(found).double(), torch.as_tensor(wanted).double(), rtol=0, atol=0.05
    )


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_entries_by_name_are_fed_in_its_kind_too(kind: torch.dtype):
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(DIM, CLASSES).to(kind)

        def forward(self, values: Tensor, **rest: Tensor) -> Tensor:
            return self.head(values) + rest["more"].sum()

    train = train_samples()
    entries = {"values": train.tensor, "more": torch.ones(len(train), 2)}
    found = ut.repair(Named(), train=(entries, train.y), gate=False, probe="logistic")
    assert found.model is not None
    with pytest.raises(UndertowError, match="There is no input of Named 'mroe'"):
        ut.repair(Named(), train=({**entries, "mroe": entries["more"]}, train.y))


def test_a_float64_tensor_enters_a_model_in_float32():
    """Fails if a tap hands a table of numpy's usual numbers to a model that was built as usual."""
    model, x = nn.Sequential(nn.Linear(DIM, 4)), held_samples().tensor
    with ut.Tap(model, "0") as tap:
        assert torch.equal(tap(x.double())[0], tap(x)[0])
