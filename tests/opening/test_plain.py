"""A plain loop's own names: endings of one's own, {"model": ..., "epoch": ...}, a model in a file beside."""

from __future__ import annotations

import json
import shutil
import zipfile

import numpy as np
import pytest
import torch

import undertow as ut
from undertow.cli import main
from undertow.errors import RunProblem
from undertow.training.checkpoint_files import weight_files
from undertow.training.logs import read_logs

from . import worlds

x, given, true, x2, y2 = worlds.digits(0.4)


@pytest.fixture
def odd(plain, tmp_path):
    """The plain run, as somebody else would have called its files."""
    folder = tmp_path / "odd"
    folder.mkdir()
    for path in sorted(plain.glob("*.pt*")):  # other tests leave what undertow remembers there
        held = torch.load(path, weights_only=True)
        weights = held.get("model", held)
        number = "".join(letter for letter in path.stem if letter.isdigit())
        torch.save({"model": weights, "epoch": int(number)}, folder / f"mlp-run7-{number}.chk")
    np.savez(folder / "samples.npz", x=x, y=given)
    (folder / "notes.chk").write_text("learning rate 0.1")
    return folder


def test_what_torch_saved_is_opened_by_any_name(plain, odd):
    """Fails if endings alone say what a checkpoint is: these were "no checkpoints"."""
    known, found = (ut.open_run(folder, model=worlds.plain_net) for folder in (plain, odd))
    assert found.epochs == known.epochs
    for at in (found.epochs[0], found.epochs[-1]):
        for name, value in known.model(at).state_dict().items():
            assert torch.equal(found.model(at).state_dict()[name], value)


def test_a_folder_without_any_says_what_it_holds(tmp_path, capsys):
    with zipfile.ZipFile(tmp_path / "epoch-1.zip", "w") as archive:
        archive.writestr("data.txt", "no checkpoint")
    assert main(["audit", str(tmp_path)]) == 1
    assert "but 1 other file, such as epoch-1.zip" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("names", "epochs"),
    [
        (["net_0.72_3.pt", "net_0.7_12.pt"], (3, 12)),
        (["3-0.72.pt", "12-0.7.pt"], (3, 12)),
        (["resnet18.3.pt", "resnet18.12.pt"], (3, 12)),
        (["3_resnet18.pt", "12_resnet18.pt"], (3, 12)),
        (["model-v3.pt", "model-v12.pt"], (3, 12)),
    ],
    ids=lambda one: str(one[0]),
)
def test_the_number_that_tells_files_apart_is_found(tmp_path, names, epochs):
    for name in names:
        torch.save({"w": torch.zeros(1)}, tmp_path / name)
    assert ut.open_run(tmp_path).epochs == epochs


def test_two_files_of_one_epoch_are_named(tmp_path):
    """The second is Lightning's, of the same score."""
    for name in ("05-0.72.ckpt", "06-0.7.ckpt", "06-0.7-v1.ckpt"):
        torch.save({"w": torch.zeros(1)}, tmp_path / name)
    with pytest.raises(RunProblem, match=r"06-0\.7-v1\.ckpt and 06-0\.7\.ckpt for epoch 6"):
        ut.open_run(tmp_path)


def test_checkpoints_some_folders_below_are_found_or_named(odd, tmp_path, capsys):
    above = tmp_path / "above"
    home = above / "train" / "today"
    shutil.copytree(odd, home)
    run = ut.open_run(above)
    assert (run.path, run.epochs) == (home, ut.open_run(odd).epochs)
    assert (
        repr(run)
        == f"<Run today · {len(run.epochs)} checkpoints · epoch {run.epochs[0]} to {run.epochs[-1]}>"
    )
    assert main(["runs", str(above)]) == 0
    assert f"`undertow audit {home}` reads the first" in " ".join(capsys.readouterr().out.split())
    torch.save({"w": torch.zeros(1)}, above / "best.pt")
    assert main(["show", str(above)]) == 1
    assert f"no step (best.pt). There are checkpoints in {home}." in capsys.readouterr().err


def test_the_model_may_stand_in_a_file(odd, tmp_path, capsys, monkeypatch):
    """file.py:function, as people type it; later commands know it, in other folders too."""
    home = tmp_path / "mine"
    home.mkdir()
    (home / "odd_net.py").write_text(
        "from torch import nn\n\n\ndef build():\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))\n"
    )
    monkeypatch.chdir(tmp_path)
    data = ["--data", str(odd / "samples.npz")]
    assert main(["audit", str(odd), "--model", "mine/other.py:build", *data]) == 2
    assert "there is no file mine/other.py" in capsys.readouterr().err
    assert main(["audit", str(odd), "--model", "mine/odd_net.py:bild", *data]) == 2
    assert "build" in capsys.readouterr().err
    lens = ["--lenses", "richness", "--no-report"]
    assert main(["audit", str(odd), "--model", "mine/odd_net.py:build", *data, *lens]) == 0
    monkeypatch.chdir(home)
    capsys.readouterr()
    assert main(["layers", str(odd)]) == 0
    assert "Linear" in capsys.readouterr().out


def test_an_index_names_no_file_outside_its_folder(tmp_path):
    (tmp_path / "model").mkdir()
    index = tmp_path / "model" / "model.safetensors.index.json"
    (tmp_path / "secret.safetensors").touch()
    for name in ("../secret.safetensors", str(tmp_path / "secret.safetensors")):
        index.write_text(json.dumps({"weight_map": {"a": name}}))
        with pytest.raises(ut.UndertowError, match="wanted parts of a checkpoint beside it, got "):
            weight_files(index.parent)


def test_logs_of_another_kind_are_refused(tmp_path):
    """Fails by a TypeError of Python's own; numbers that are none are left out."""
    log = tmp_path / "trainer_state.json"
    for state in ({"log_history": 3}, {"log_history": [1.5]}):
        log.write_text(json.dumps(state))
        with pytest.raises(ut.UndertowError, match=r"trainer_state.json: wanted what the Trainer logged"):
            read_logs([tmp_path], "epoch")
    entries = [{"epoch": "1", "loss": 2.0}, {"epoch": [1]}, {"epoch": 1e300}, {"epoch": 1, "loss": 0.5}]
    log.write_text(json.dumps({"epoch": "3", "global_step": [1], "log_history": entries}))
    assert read_logs([tmp_path], "epoch").rows == {1: {"epoch": 1, "loss": 0.5}}
    log.unlink()
    (tmp_path / "metrics.csv").write_text("epoch,step,loss\nnan,1,1\n-1,0,1\n1e400,5,6,7\n2,9,0.5\n")
    assert read_logs([tmp_path], "epoch").rows[2]["loss"] == 0.5
