"""What commands remember of a folder: only what worked, and how to take it back is said."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import undertow as ut
from undertow.cli import main
from undertow.cli.remembered import FILE, Told, recall, remember

NETS = """
from torch import nn
def build(): return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
def wrong(): return nn.Sequential(nn.Flatten(), nn.Linear(64, 7))
"""
QUICK = ["--lenses", "latent", "--probes", "mean", "--no-report", "--quick"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.setenv("UNDERTOW_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "remembered_nets.py").write_text(NETS)
    return tmp_path


@pytest.fixture
def own(place: Path) -> Path:
    ut.train("mlp:8", place / "run", data="digits", epochs=1, train_size=60, test_size=60)
    return place / "run"


@pytest.fixture
def theirs(place: Path) -> Path:
    (place / "ck").mkdir()
    torch.save(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).state_dict(), place / "ck" / "epoch_1.pt")
    return place / "ck"


def test_a_refused_average_is_not_remembered(own: Path, capsys):
    """Fails if every later command asks for the moving average that is not there."""
    assert main(["audit", str(own), "--weights", "ema", *QUICK]) == 2
    assert "a checkpoint with averaged weights" in capsys.readouterr().err
    assert not (own / FILE).exists()
    assert main(["audit", str(own), *QUICK]) == 0


def test_a_wrong_model_is_not_remembered(own: Path, theirs: Path, capsys):
    """Fails if a run of undertow's own loses its builder to a flag that never worked."""
    for run, more in ((own, []), (theirs, ["--data", "digits"])):
        assert main(["audit", str(run), "--model", "remembered_nets.py:wrong", *more, *QUICK]) == 1
        assert "Give the model that was trained" in capsys.readouterr().err
        assert recall(run) == Told()
    assert main(["audit", str(own), *QUICK]) == 0


def test_data_that_cannot_be_read_are_not_remembered(theirs: Path, capsys):
    given = ["--model", "remembered_nets.py:build"]
    assert main(["audit", str(theirs), *given, "--data", "nowhere.npz", *QUICK]) in (1, 2)
    assert recall(theirs) == Told()
    assert main(["audit", str(theirs), *given, "--data", "digits", *QUICK]) == 0
    assert recall(theirs).data == "digits"
    capsys.readouterr()


def test_what_an_older_command_remembered_wrongly_is_named_with_the_way_back(own: Path, capsys):
    remember(own, Told(weights="ema", model="remembered_nets.py:wrong", folder=str(own.parent)))
    assert main(["labels", str(own)]) == 2
    told = capsys.readouterr().err
    assert "An earlier command was told" in told
    assert "--weights own" in told
    assert str(own / FILE) in told
    assert main(["audit", str(own), "--weights", "own", *QUICK]) == 0
    assert recall(own) == Told(weights="own")  # and run.json builds the model
    assert main(["layers", str(own)]) == 0


def test_a_remembered_model_that_is_gone_is_named(theirs: Path, place: Path, capsys):
    remember(theirs, Told(model="remembered_gone.py:build", data="digits", folder=str(place)))
    for words in (["audit", str(theirs), *QUICK], ["layers", str(theirs)]):
        assert main(words) == 2
        told = capsys.readouterr().err
        assert "there is no file" in told
        assert "another --model" in told
        assert str(theirs / FILE) in told
