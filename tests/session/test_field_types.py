"""Settings from Python: what means the same is taken, all else is refused before any work, in one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import undertow as ut
from undertow.auditing.settings import AuditConfig
from undertow.errors import BadValue, UndertowError
from undertow.integrations.settings import WatchConfig
from undertow.labels.settings import LabelConfig
from undertow.latent.settings import GridConfig
from undertow.repairing.settings import RepairConfig
from undertow.session.settings import SessionConfig

Y = torch.arange(90) % 3
X = torch.randn(90, 6, generator=torch.Generator().manual_seed(0)) + 3 * nn.functional.one_hot(Y, 6)


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"seed": 1.5}, "seed: wanted a whole number, got 1.5"),
    ({"seed": None}, "seed: wanted a whole number"),
    ({"seed": True}, "seed: wanted a whole number"),
    ({"seed": torch.ones((), device="meta")}, "seed: wanted a whole number"),
    ({"samples": "x"}, "samples: wanted a whole number or None, got 'x'"),
    ({"batch_size": "512"}, "batch_size: wanted a whole number"),
    (
        {"checkpoints": 1.5},
        r"checkpoints: wanted text, got 1.5. For example all, last, every:5 or \[0, 10, 60\]",
    ),
    ({"checkpoints": None}, "checkpoints: wanted text"),
    ({"layers": None}, "layers: wanted a list of names, got None"),
    ({"layers": [1.5]}, "layers: wanted a list of names"),
    ({"probes": None}, "probes: wanted a list of names"),
    ({"lenses": None}, "lenses: wanted a list of names or a function"),
    ({"full": "no"}, "full: wanted True or False, got 'no'"),
    ({"quick": 1}, "quick: wanted True or False"),
    ({"conv": "men"}, "conv: wanted flatten, mean or max, got 'men'"),
    ({"memory": None}, "memory: wanted text, got None. For example 2GB"),
    ({"device": 1.5}, "device: wanted text or None"),
    ({"config": 5}, r"audit\(config=...\): wanted an object of AuditConfig, got 'int'"),
    ({"config": LabelConfig()}, "wanted an object of AuditConfig, got 'LabelConfig'"),
    ({"out": 5}, "out: wanted a path, got 5"),
    ({"progress": 5}, "progress: wanted True, False, or an object with plan, step and close, got 5"),
]


@pytest.mark.parametrize(("given", "words"), WRONG, ids=str)
def test_a_setting_of_another_type_is_refused(given: dict[str, Any], words: str):
    """Fails if Python or torch speak, or "no" counts as yes."""
    with pytest.raises(BadValue, match=words) as told:
        ut.audit(model(), (X, Y), (X + 0.1, Y), **given)
    assert told.value.exit_code == 2


@pytest.mark.parametrize("layers", [3, [3]])
def test_a_number_of_a_layer_is_its_name(layers: Any):
    with pytest.raises(UndertowError, match="no layer '3'"):
        ut.audit(model(), (X, Y), (X + 0.1, Y), layers=layers)


def test_every_configuration_is_checked():
    for settings, given in {
        SessionConfig: {"seed": 1.5}, GridConfig: {"probes": None}, LabelConfig: {"folds": "5"},
        RepairConfig: {"gate": "no"}, WatchConfig: {"samples": "many"},
    }.items():  # fmt: skip
        with pytest.raises(BadValue, match=f"{next(iter(given))}: wanted"):
            settings.of(**given) if hasattr(settings, "of") else settings(**given)
        with pytest.raises(BadValue, match=f"{next(iter(given))}: wanted"):
            settings(**given)


def test_what_means_the_same_is_taken():
    """Fails if numpy's numbers or torch's device are carried along until something cannot write them."""
    config = AuditConfig.of(
        seed=np.int64(3), samples=1e3, device=torch.device("cpu"), layers="layer1", checkpoints=np.array([0, 5]),
        probes=["masc"], full=np.bool_(True), cpus=None,
    )  # fmt: skip
    plain = AuditConfig.of(
        seed=3, samples=1000, device="cpu", layers=["layer1"], checkpoints="0,5", probes="masc", full=True
    )
    assert config == plain
    assert [type(one) for one in (config.seed, config.samples, config.device, config.full)] == [
        int,
        int,
        str,
        bool,
    ]
    assert json.dumps(config.to_dict()) == json.dumps(plain.to_dict())
    assert AuditConfig.of(checkpoints=7).checkpoints == AuditConfig.of(checkpoints=[7]).checkpoints == "7"
    assert AuditConfig.of(memory=10**9).memory == "1000000000"


def test_an_audit_on_a_device_is_saved(tmp_path: Path):
    """Fails if everything is computed before the device turns out to be no plain value."""
    found = ut.audit(
        model(), (X, Y), (X + 0.1, Y), device=torch.device("cpu"), seed=np.int64(3), lenses=["richness"],
        out=tmp_path, progress=False,
    )  # fmt: skip
    assert found.folder == tmp_path
    assert json.loads((tmp_path / "audit.json").read_text())["settings"]["device"] == "cpu"


def test_a_numpy_seed_reaches_the_folds():
    plain, other = (ut.label_errors(features=X, labels=Y, seed=seed) for seed in (3, np.int64(3)))
    assert torch.equal(plain.scores, other.scores)
