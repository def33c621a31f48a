"""How commands feed models that undertow did not train: as they were fed, and it is said."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import nn

import undertow as ut
from undertow.cli import main

FACTORY = """
from torch import nn

def build():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10))
"""


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    """Checkpoints of somebody's own loop on pixels from 0 to 1, and their data in a file."""
    folder = tmp_path_factory.mktemp("foreign")
    (folder / "mynet_feeding.py").write_text(FACTORY)
    data = ut.load_data("digits")
    x, y = data.train.x[:, 0], data.train.y
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10))
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    (folder / "ck").mkdir()
    for epoch in range(1, 4):
        for rows in torch.randperm(len(x)).split(32):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimiser.step()
        torch.save(model.state_dict(), folder / "ck" / f"epoch_{epoch}.pt")
    test = data.test.x[:, 0]
    right = float((model(test).argmax(1) == data.test.y).double().mean())
    arrays = {"y_train": y.numpy(), "y_test": data.test.y.numpy()}
    np.savez(folder / "floats.npz", x_train=x.numpy(), x_test=test.numpy(), **arrays)
    to_bytes = [np.round(part.numpy() * 255).astype(np.uint8) for part in (x, test)]
    np.savez(folder / "bytes.npz", x_train=to_bytes[0], x_test=to_bytes[1], **arrays)
    return folder, right


def told(foreign, monkeypatch, capsys, data, *options):
    folder, _ = foreign
    monkeypatch.syspath_prepend(str(folder))
    command = ["audit", str(folder / "ck"), "--model", "mynet_feeding:build", "--data", str(folder / data)]
    more = ["--lenses", "latent", "--no-report", "--json", "--out", str(folder / "out")]
    code = main([*command, *more, *options])
    said = capsys.readouterr()
    return code, said


@pytest.mark.parametrize(
    ("data", "words"), [("floats.npz", "fed as they are"), ("bytes.npz", "fed as numbers from 0 to 1")]
)
def test_a_model_of_others_is_fed_as_it_was_trained(foreign, monkeypatch, capsys, data, words):
    """Fails if pixels from 0 to 1 are stretched to -1 to 1, as undertow does for its own training."""
    code, said = told(foreign, monkeypatch, capsys, data)
    assert code == 0
    found = json.loads(said.out)
    assert found["measures"]["accuracy"] == pytest.approx(foreign[1], abs=0.004)
    assert any(words in note and "--scaling" in note for note in found["settings"]["notes"])


def test_another_scaling_can_be_asked_for(foreign, monkeypatch, capsys):
    code, said = told(foreign, monkeypatch, capsys, "floats.npz", "--scaling", "half")
    assert code == 0
    assert json.loads(said.out)["measures"]["accuracy"] < foreign[1] - 0.05
    code, said = told(foreign, monkeypatch, capsys, "floats.npz", "--scaling", "hal")
    assert code == 2
    assert "'half'" in said.err


def test_labels_and_probe_say_it_too(foreign, monkeypatch, capsys):
    folder, _ = foreign
    monkeypatch.syspath_prepend(str(folder))
    rest = [str(folder / "ck"), "--model", "mynet_feeding:build", "--data", str(folder / "floats.npz")]
    assert main(["labels", *rest, "--top", "0"]) == 0
    assert "Inputs are fed as they are (--scaling none)" in capsys.readouterr().out
    assert main(["probe", *rest, "--probes", "mean", "--fits", "given", "--checkpoints", "last"]) == 0
    assert "Inputs are fed as they are" in capsys.readouterr().out


def test_a_run_of_undertow_says_itself(capsys, tmp_path):
    ut.train(ut.TrainConfig("mlp:8", data="digits", epochs=1, device="cpu"), tmp_path / "run")
    assert main(["audit", str(tmp_path / "run"), "--data", "digits", "--scaling", "unit"]) == 2
    assert "already says how its inputs were scaled (half)" in capsys.readouterr().err
