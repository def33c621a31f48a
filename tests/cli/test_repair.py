"""`undertow repair` and `undertow train --edit-at` as a person meets them."""

from __future__ import annotations

import json

import pytest
import torch

import undertow as ut
from undertow.cli import main
from undertow.data import to_inputs
from undertow.repairing import load_repaired

TRAIN = ["train", "mlp:128-128", "--data", "digits", "--noise", "0.4", "--device", "cpu", "--quiet"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "noisy"
    assert main([*TRAIN, "--epochs", "30", "--lr", "0.005", "--checkpoints", "30", "--out", str(path)]) == 0
    return path


def call(capsys, *arguments):
    code = main([str(argument) for argument in arguments])
    seen = capsys.readouterr()
    return code, seen.out, seen.err


def test_repair_writes_a_pair_of_files(capsys, run, tmp_path):
    """From a run with one checkpoint only; what is loaded answers as well as was said."""
    code, out, err = call(capsys, "repair", run, "--layer", "layer1", "--out", tmp_path / "fixed.safetensors")
    assert (code, err) == (0, "")
    assert "velpic at 'layer1': accepted: " in out
    assert "fixed.json" in out
    data = ut.open_run(run).data()
    said = load_repaired(tmp_path / "fixed.safetensors")(to_inputs(data.test.x, "half")).argmax(1)
    stored = json.loads((tmp_path / "fixed.json").read_text())
    assert float((said == data.test.y).double().mean()) == stored["after"]
    assert stored["after"] > stored["before"]


def test_json_and_onnx(capsys, run, tmp_path):
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    code, out, _ = call(
        capsys, "repair", run, "--out", tmp_path / "a.safetensors", "--onnx", tmp_path / "a.onnx", "--json"
    )
    row = json.loads(out)
    assert code == 0
    assert row["accepted"]
    assert row["low"] > 0
    assert row["written"][-1].endswith("a.onnx")
    x = to_inputs(ut.open_run(run).data().test.x, "half")
    session = runtime.InferenceSession(tmp_path / "a.onnx")
    found = session.run(None, {session.get_inputs()[0].name: x.numpy()})[0]
    wanted = load_repaired(tmp_path / "a.safetensors")(x).detach()
    torch.testing.assert_close(torch.from_numpy(found), wanted, rtol=1e-4, atol=1e-4)


def test_not_worth_it(capsys, run, tmp_path):
    code, out, err = call(capsys, "repair", run, "--out", tmp_path / "no.safetensors", "--least", "0.9")
    assert (code, err) == (1, "")
    assert "not worth it: " in out
    assert "Nothing was written." in out
    assert not list(tmp_path.iterdir())
    code, out, _ = call(
        capsys, "repair", run, "--out", tmp_path / "no.safetensors", "--least", "0.9", "--no-gate"
    )
    assert code == 0
    assert (tmp_path / "no.safetensors").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--probe", "mask"], "Did you mean 'masc'"),
        (["--layer", "layr1"], "Did you mean 'layer1'"),
        (["--checkpoint", "7"], "The nearest are 30"),
        (["--memory", "much"], "much"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(capsys, run, tmp_path, arguments, message):
    code, out, err = call(capsys, "repair", run, "--out", tmp_path / "x.safetensors", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1


def test_out_is_wanted(capsys, run):
    code, _, err = call(capsys, "repair", run)
    assert code == 2
    assert "--out" in err


def test_edit_in_the_middle_with_a_control(capsys, tmp_path):
    """The twins are one until the edit; the edit's weights are VeLPIC's, and training goes on from them."""
    more = ["--epochs", "3", "--edit-at", "2", "--with-control", "--checkpoints", "every:1", "--lr", "0.0005"]
    code, out, err = call(capsys, *TRAIN, *more, "--out", tmp_path / "run")
    assert (code, err) == (0, "")
    assert out.count("Ended after 3 epochs") == 2
    edited, control = ut.open_run(tmp_path / "run"), ut.open_run(tmp_path / "run-control")
    assert edited.facts.interventions == ["EditAt 2"]
    assert control.facts.interventions == []
    for name, value in edited.weights(2).items():
        assert torch.equal(value, control.weights(2)[name])
    # A few steps of Adam move a weight by no more than lr each: unit vectors are still near unit.
    lengths = edited.weights(3)["head.weight"].norm(dim=1)
    assert not torch.equal(edited.weights(3)["head.weight"], control.weights(3)["head.weight"])
    torch.testing.assert_close(lengths, torch.ones(10), rtol=0, atol=0.15)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--edit-at", "2", "--greedy"], "--greedy"),
        (["--edit-at", "2", "--loss", "mse", "--target", "scalar"], "--target scalar"),
        (["--edit-at", "5", "--epochs", "3"], "an epoch from 0 to 2"),
        (["--with-control"], "an intervention to control for"),
    ],
)
def test_edits_that_could_never_be(capsys, tmp_path, arguments, message):
    code, _, err = call(capsys, *TRAIN, *arguments, "--out", tmp_path / "run")
    assert code == 2
    assert message in err
    assert not (tmp_path / "run").exists()
