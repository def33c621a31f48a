"""A forward that changes its input in place is measured as its twin that does not, and no sample changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import undertow as ut
from undertow.features.tap import Tap
from undertow.integrations.look import Looker
from undertow.integrations.settings import WatchConfig
from undertow.temporal.batchnorm import recalibrated
from undertow.training.config import TrainConfig

Pair = tuple[Tensor, Tensor]
CLASSES, DIM = 3, 8


class Shifted(nn.Module):
    """Takes a mean off its inputs, either in place or not; what follows the first layer does so anyway."""

    def __init__(self, *, in_place: bool = True) -> None:
        super().__init__()
        self.in_place = in_place
        self.layer1 = nn.Sequential(nn.Linear(DIM, 16), nn.BatchNorm1d(16), nn.ReLU(inplace=True))
        self.layer2 = nn.Sequential(nn.Linear(16, 16), nn.ReLU())
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = x.sub_(0.5).mul_(0.7) if self.in_place else (x - 0.5) * 0.7
        return self.head(self.layer2(self.layer1(x)))


def samples(count: int, seed: int) -> Pair:
    labels = torch.arange(count) % CLASSES
    x = torch.randn(count, DIM, generator=torch.Generator().manual_seed(seed))
    x[torch.arange(count), labels] += 2
    given = torch.where(torch.arange(count) % 7 == 3, (labels + 1) % CLASSES, labels)
    return x, given if seed == 0 else labels


def runs(folder: Path) -> dict[bool, ut.Run]:
    """The same checkpoints under both models, each with a folder of its own for what is kept."""
    torch.manual_seed(0)
    x, y = samples(240, 0)
    model = Shifted(in_place=False)
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    for epoch in range(3):
        for name in ("True", "False"):
            (folder / name).mkdir(exist_ok=True)
            torch.save(model.state_dict(), folder / name / f"epoch_{epoch}.pt")
        for rows in torch.randperm(240).split(40) * 3:
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimiser.step()
    return {
        one: ut.open_run(folder / str(one), model=lambda one=one: Shifted(in_place=one))
        for one in (True, False)
    }


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, ut.Run]:
    with torch.random.fork_rng(devices=[]):
        return runs(tmp_path_factory.mktemp("twins"))


def tapped(run: ut.Run, train: Pair, test: Pair) -> Any:
    with Tap(run.model(), ["input", "layer1"]) as tap:
        return [tap(part[0]) for part in (train, train)]


def looked(run: ut.Run, train: Pair, test: Pair) -> Any:
    looker = Looker(train, test, WatchConfig(samples=200))
    found = [looker.look(run.model(at), at) for at in run.epochs]
    return [
        {k: v for k, v in one.measures().items() if k != "undertow_seconds"}
        for one in found
        if one is not None
    ]


def matrix(batch_norm: Any) -> Callable[[ut.Run, Pair, Pair], Any]:
    def work(run: ut.Run, train: Pair, test: Pair) -> Any:
        found = ut.composite_matrix(
            run, *test, batch_norm=batch_norm, calibration=train[0] if batch_norm == "recalibrated" else None,
            batch_size=64,
        )  # fmt: skip
        return pd.DataFrame(list(found.rows()))

    return work


WAYS: dict[str, Callable[[ut.Run, Pair, Pair], Any]] = {
    "audit": lambda run, train, test: ut.audit(run, train=train, test=test, progress=False).table,
    "probe": lambda run, train, test: ut.probe_grid(run, train=train, test=test),
    "labels": lambda run, train, test: ut.label_errors(run, train=train, progress=False).table,
    "repair": lambda run, train, test: ut.repair(run.model(), train=train, test=test).reason,
    "graft": lambda run, train, test: ut.repair(run, train=train, test=test, layer="layer1").reason,
    "composites": matrix("own"),
    "recalibrated composites": matrix("recalibrated"),
    "compose": lambda run, train, test: ut.compose(
        run.model(), run.weights(0), run.weights(2), "layer1", x=test[0]
    ).state_dict(),
    "cuts": lambda run, train, test: ut.valid_cuts(run.model(), test[0]),
    "batch norm": lambda run, train, test: recalibrated(run.model(), train[0]).state_dict(),
    "richness": lambda run, train, test: str(ut.richness.measure_richness(run.model(), *test)),
    "tap": tapped,
    "watch": looked,
}  # fmt: skip


@pytest.mark.parametrize("verb", WAYS)
def test_a_forward_in_place_is_measured_as_its_twin(twins: dict[bool, ut.Run], verb: str):
    """Fails if a model is given views of the samples: what it does to them adds up pass by pass."""
    found: dict[bool, Any] = {}
    for one, run in twins.items():
        train, test = samples(240, 0), samples(150, 1)
        found[one] = WAYS[verb](run, train, test)
        assert torch.equal(train[0], samples(240, 0)[0])
        assert torch.equal(test[0], samples(150, 1)[0])
    assert_same(found[True], found[False])


def assert_same(one: Any, other: Any) -> None:
    if hasattr(one, "columns"):
        left, right = (part.drop(columns="seconds", errors="ignore") for part in (one, other))
        assert left.equals(right)
    elif isinstance(one, str | tuple):
        assert one == other
    else:
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


def test_training_leaves_its_samples_alone(tmp_path: Path):
    """Fails if the evaluation after an epoch gives the model views of the samples."""
    (x, y), (xt, yt) = samples(240, 0), samples(150, 1)
    data = ut.DataSet("mine", ut.Samples.of(x, y), ut.Samples.of(xt, yt), ("a", "b", "c"))
    found = []
    for one in (True, False):
        torch.manual_seed(0)
        made = ut.train(
            TrainConfig(epochs=2, seed=0, scaling="none"),
            tmp_path / str(one),
            data=data,
            model=Shifted(in_place=one),
        )
        found.append(made.metrics.test_accuracy.tolist())
    assert torch.equal(x, samples(240, 0)[0])
    assert found[0] == found[1]
