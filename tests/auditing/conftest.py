"""Small runs whose story is known, each trained and audited once for all tests of the room."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import undertow as ut
from undertow.auditing import Audit

BASE = {"data": "digits", "device": "cpu"}
CONFIGS = {
    "memorising": ut.TrainConfig(
        "mlp:128-128", noise="0.4", epochs=30, lr=0.003, checkpoints="0,4,12,20,30", **BASE
    ),
    "clean": ut.TrainConfig("mlp:48-48", epochs=12, lr=0.003, checkpoints="0,4,8,12", **BASE),
    "lazy": ut.TrainConfig(
        "mlp:96-96", epochs=10, lr=0.003, last_layer_only=True, checkpoints="0,5,10", **BASE
    ),
    "under-trained": ut.TrainConfig(
        "mlp:48-48", epochs=4, lr=0.003, optimiser="sgd", momentum=0.0, checkpoints="0,2,4", **BASE
    ),
}
LIGHT = {"probes": ["velpic", "masc"], "fits": ["given", "shuffled"]}


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ut.Run]:
    """A run by name, trained when it is first asked for."""
    root, made = tmp_path_factory.mktemp("audited"), {}

    def get(name: str) -> ut.Run:
        if name not in made:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("UNDERTOW_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
                made[name] = ut.train(CONFIGS[name], root / name)
        return made[name]

    return get


@pytest.fixture(scope="session")
def audited(trained: Callable[[str], ut.Run]) -> Callable[[str], Audit]:
    """The audit of a run by name, in its own folder."""
    made: dict[str, Audit] = {}

    def get(name: str) -> Audit:
        if name not in made:
            made[name] = ut.audit(trained(name), **LIGHT)
        return made[name]

    return get


@pytest.fixture
def spoiled(tmp_path: Path) -> Callable[..., ut.Run]:
    """A recorded run of a small net whose weights at each checkpoint were changed by hand."""

    def make(*changes: Callable[[object], None]) -> ut.Run:
        model = ut.build_model("mlp:24-24", (1, 8, 8), 10, seed=0)
        with ut.Recorder(tmp_path / "run") as recorder:
            for at, change in enumerate(changes):
                change(model)
                recorder.save(model, at)
        return ut.open_run(tmp_path / "run", model=lambda: ut.build_model("mlp:24-24", (1, 8, 8), 10, seed=0))

    return make
