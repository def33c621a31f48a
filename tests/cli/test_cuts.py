"""`undertow cuts` as a person meets it."""

from __future__ import annotations

import json
import shutil

import pytest
import torch

from undertow.cli import main


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main([str(argument) for argument in arguments])
    seen = capsys.readouterr()
    return code, seen.out, seen.err


def test_cuts_of_a_model_by_name(capsys):
    code, out, err = call(capsys, "cuts", "resnet8:width=4", "--data", "cifar10")
    assert (code, err) == (0, "")
    assert "layer2" in out
    assert "conv1" not in out
    assert "5 of 35 modules are different cuts. --all says why the others are not." in out
    code, out, _ = call(capsys, "cuts", "resnet8:width=4", "--all")
    assert code == 0
    assert "goes round it" in out
    assert "it makes the same composites as layer3" in out


def test_cuts_of_tokens_as_json(capsys):
    code, out, _ = call(capsys, "cuts", "transformer:depth=1,width=8,heads=2", "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert {"embed", "block1"} <= {row["name"] for row in rows if row["valid"]}
    assert rows[0]["shallow_parameters"] > 0
    assert rows[0]["shape"] == [4, 8]


def test_cuts_of_a_run_and_of_someones_checkpoints(capsys, tmp_path, monkeypatch):
    call(capsys, "train", "mlp:8-8", "--epochs", "0", "--out", tmp_path / "run", "--device", "cpu")
    code, out, err = call(capsys, "cuts", tmp_path / "run")
    assert (code, err) == (0, "")
    assert "2 of 8 modules are different cuts" in out

    (tmp_path / "mine.py").write_text(
        "from torch import nn\n\ndef build():\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    from importlib import import_module

    (tmp_path / "ckpts").mkdir()
    torch.save(import_module("mine").build().state_dict(), tmp_path / "ckpts" / "epoch_3.pt")
    where = ["cuts", tmp_path / "ckpts", "--model", "mine:build"]
    code, out, err = call(capsys, *where, "--data", "digits")
    assert (code, err) == (0, "")
    assert "1 of 4 modules are different cuts" in out
    assert call(capsys, *where)[0] == 0  # what was said once is remembered with the folder
    shutil.copytree(tmp_path / "ckpts", tmp_path / "other", ignore=shutil.ignore_patterns("opened.json"))
    code, _, err = call(capsys, "cuts", tmp_path / "other", "--model", "mine:build")
    assert code == 2
    assert "--data" in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(("model", "message"), [("resnet19", "Did you mean"), ("no/such/run", "model")])
def test_unknown_models_are_answered_in_one_line(capsys, model, message):
    code, _, err = call(capsys, "cuts", model)
    assert code == 2
    assert message in err
    assert len(err.strip().splitlines()) == 1
