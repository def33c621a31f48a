"""Opening runs: ours, and folders that other tools wrote."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import undertow as ut
from undertow.errors import BadFile, BadValue, NotThere, RunProblem, UnknownName
from undertow.training.config import TrainConfig
from undertow.training.facts import RunFacts


def net() -> nn.Module:
    return ut.build_model("mlp:6-5", (4,), 3, seed=1)


def states(count: int) -> list[dict[str, torch.Tensor]]:
    return [ut.build_model("mlp:6-5", (4,), 3, seed=seed).state_dict() for seed in range(count)]


def same(run: ut.Run, at: int, state: dict[str, torch.Tensor]) -> bool:
    model = run.model(at).state_dict()
    return all(torch.equal(model[name], value) for name, value in state.items())


@pytest.mark.parametrize(
    ("names", "numbers", "unit"),
    [
        (["model_epoch_1.pt", "model_epoch_10.pt", "model_epoch_2.pt"], (1, 2, 10), "epoch"),
        (["epoch=0-step=10.ckpt", "epoch=1-step=20.ckpt", "last.ckpt"], (0, 1), "epoch"),
        (["epoch=0-step=10.ckpt", "epoch=0-step=20.ckpt"], (10, 20), "step"),
        (["step100.pth", "step_20.pth"], (20, 100), "step"),
        (["ckpt-3.pt", "ckpt-12.pt"], (3, 12), "epoch"),
        (["resnet20_5.pt", "resnet20_15.pt"], (5, 15), "epoch"),
        (["iter_0500.pt", "iter_1000.pt"], (500, 1000), "step"),
        (["adam_1e-4_epoch=12.pt", "adam_1e-4_epoch=9.pt"], (9, 12), "epoch"),
        (["lr1e-3_epoch1.pt", "lr1e-3_epoch2.pt"], (1, 2), "epoch"),
        (["e5.pt", "e10.pt"], (5, 10), "epoch"),
    ],
)
def test_numbers_in_names(tmp_path: Path, names, numbers, unit):
    for name in names:
        torch.save({}, tmp_path / name)
    run = ut.open_run(tmp_path)
    assert (run.epochs, run.unit) == (numbers, unit)


def test_a_pattern_of_ones_own(tmp_path: Path):
    for name in ("a7b1.pt", "a7b2.pt"):
        torch.save(states(1)[0], tmp_path / name)
    assert ut.open_run(tmp_path, pattern=r"b(\d+)").epochs == (1, 2)
    with pytest.raises(BadValue, match="exactly one group"):
        ut.open_run(tmp_path, pattern=r"b\d+")
    with pytest.raises(BadValue, match="a regular expression"):
        ut.open_run(tmp_path, pattern="(")
    with pytest.raises(RunProblem, match=r"one file per epoch, got a7b1.pt and a7b2.pt for epoch 7"):
        ut.open_run(tmp_path, pattern=r"a(\d+)")


def wrapped(state: dict[str, torch.Tensor], way: str) -> object:
    match way:
        case "plain":
            return state
        case "compiled":
            return {f"_orig_mod.{name}": value for name, value in state.items()}
        case "parallel":
            return {
                "model_state_dict": {f"module.{name}": value for name, value in state.items()},
                "epoch": 3,
            }
        case "parallel compiled":
            return {f"module._orig_mod.{name}": value for name, value in state.items()}
        case "lightning":
            inner = {f"model.{name}": value for name, value in state.items()}
            inner["train_metric.total"] = torch.tensor(3.0)
            return {
                "state_dict": inner,
                "epoch": 3,
                "optimizer_states": [{"lr": 0.1}],
                "hyper_parameters": {"a": 1},
            }
        case "unusual key":
            return {"generator": state, "epoch": 3}
        case "deep":
            return {"state_dict": {f"module.net.backbone.{name}": value for name, value in state.items()}}
    raise AssertionError(way)


@pytest.mark.parametrize(
    "way", ["plain", "compiled", "parallel", "parallel compiled", "lightning", "unusual key", "deep"]
)
def test_wrapped_state_dicts_are_unwrapped(tmp_path: Path, way: str):
    for epoch, state in enumerate(states(3)):
        torch.save(wrapped(state, way), tmp_path / f"epoch{epoch}.ckpt")
    run = ut.open_run(tmp_path, model=net)
    assert all(same(run, epoch, state) for epoch, state in enumerate(states(3)))


def test_safetensors_and_older_pickles(tmp_path: Path):
    first, second = states(2)
    save_file(first, tmp_path / "epoch_1.safetensors")
    torch.save(second, tmp_path / "epoch_2.pth", _use_new_zipfile_serialization=False)
    run = ut.open_run(tmp_path, model=net)
    assert same(run, 1, first)
    assert same(run, 2, second)


class Surprise:
    """Would write a file if it were unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> object:
        return (Path.write_text, (self.path, "run"))


@pytest.mark.parametrize("old_format", [False, True])
def test_code_in_a_checkpoint_is_never_run(tmp_path: Path, old_format: bool):
    trap = tmp_path / "trap"
    file = tmp_path / "epoch_1.pt"
    if old_format:
        file.write_bytes(pickle.dumps(Surprise(trap)))
    else:
        torch.save({"state_dict": states(1)[0], "extra": Surprise(trap)}, file)
    with pytest.raises(RunProblem) as caught:
        ut.open_run(tmp_path, model=net).model(1)
    assert not trap.exists()
    assert "epoch_1.pt" in str(caught.value)
    if not old_format:
        assert "save model.state_dict() alone" in str(caught.value)


@pytest.mark.parametrize("ending", [".pt", ".safetensors"])
@pytest.mark.parametrize("content", [b"", b"torn", b"PK\x03\x04" + b"\0" * 50, b"\x80\x02}q\x00."])
def test_damaged_files_are_named(tmp_path: Path, ending: str, content: bytes):
    (tmp_path / f"epoch_1{ending}").write_bytes(content)
    with pytest.raises(RunProblem, match=f"epoch_1{ending}"):
        ut.open_run(tmp_path, model=net).model(1)


def test_weights_of_another_model_are_named(tmp_path: Path):
    torch.save(ut.build_model("mlp:6-7", (4,), 3, seed=0).state_dict(), tmp_path / "epoch_1.pt")
    with pytest.raises(
        RunProblem, match=r"weights of .*, got .*instead of .*Give the model that was trained"
    ):
        ut.open_run(tmp_path, model=net).model(1)


@pytest.mark.parametrize(
    ("facts", "advice"),
    [(None, "Record on"), (RunFacts.of_this_machine(config=TrainConfig("mlp:4").to_dict()), "--resume")],
)
def test_a_run_killed_before_its_first_checkpoint_has_none_yet(tmp_path: Path, facts, advice: str):
    """Fails where what a killed writer left of its first file counts as a folder of foreign checkpoints."""
    ut.Recorder(tmp_path / "run", facts=facts).close()
    (tmp_path / "run" / "checkpoints" / ".undertow-0123.part").mkdir(parents=True)
    with pytest.raises(NotThere, match=f"has no checkpoint yet.*{advice}"):
        ut.open_run(tmp_path / "run")


def test_missing_runs_and_checkpoints(tmp_path: Path):
    ut.Recorder(tmp_path / "run40").close()
    with pytest.raises(UnknownName, match=r"Did you mean .*run40"):
        ut.open_run(tmp_path / "run4")
    with pytest.raises(NotThere, match="There is no run"):
        ut.open_run(tmp_path / "no" / "where")
    with pytest.raises(NotThere, match="has no checkpoint yet"):
        ut.open_run(tmp_path / "run40")
    (tmp_path / "nothing").mkdir()
    with pytest.raises(NotThere, match="wanted checkpoints"):
        ut.open_run(tmp_path / "nothing")
    (tmp_path / "file").touch()
    with pytest.raises(RunProblem, match="got a file"):
        ut.open_run(tmp_path / "file")
    torch.save(states(1)[0], tmp_path / "run40" / "epoch_5.pt")
    run = ut.open_run(tmp_path / "run40")
    with pytest.raises(BadValue, match=r"epoch of a kept checkpoint, got 4. The nearest are 5"):
        run.weights(4)
    with pytest.raises(NotThere, match="does not say what it was trained on"):
        run.data()


def test_a_newer_format_is_told_from_a_field_that_nobody_knows(tmp_path: Path):
    with ut.Recorder(tmp_path / "run") as recorder:
        recorder.save(net(), 0)
    file = tmp_path / "run" / "run.json"
    facts = json.loads(file.read_text())
    del facts["seal"]
    file.write_text(json.dumps({**facts, "from_the_future": 1}))
    with pytest.raises(BadFile, match=r"run.json: from_the_future: undertow knows no such field"):
        ut.open_run(tmp_path / "run")
    file.write_text(json.dumps({**facts, "format": 99}))
    with pytest.raises(RunProblem, match="Update undertow"):
        ut.open_run(tmp_path / "run")
    file.write_text("{")
    with pytest.raises(RunProblem, match="cannot be read"):
        ut.open_run(tmp_path / "run")


def test_changed_data_is_noticed(tmp_path: Path):
    run = ut.train(ut.TrainConfig("mlp:8", data="digits", epochs=0), tmp_path / "run")
    assert len(run.data().train) == 1297
    data = {**run.facts.data, "fingerprint": "0" * 32}
    replace(run.facts, data=data).write(tmp_path / "run")
    with pytest.raises(RunProblem, match="wanted the data it was trained on"):
        ut.open_run(tmp_path / "run").data()


def test_two_sets_of_weights_in_one_file_are_refused(tmp_path: Path):
    """Fails if one of them is picked, which once depended on Python's hash seed."""
    teacher, student = states(2)
    both = {f"teacher.{name}": value for name, value in teacher.items()}
    both |= {f"student.{name}": value for name, value in student.items()}
    torch.save(both, tmp_path / "epoch_1.pt")
    with pytest.raises(RunProblem, match=r"epoch_1.pt: .*'student\.' and 'teacher\.'"):
        ut.open_run(tmp_path, model=net).model(1)


def test_a_models_own_part_called_module(tmp_path: Path):
    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module, self.weight = nn.Linear(2, 2), nn.Parameter(torch.zeros(2, 2))

    torch.save(Wrapped().state_dict(), tmp_path / "epoch_1.pt")
    run = ut.open_run(tmp_path, model=Wrapped)
    assert set(run.weights(1)) == {"weight", "module.weight", "module.bias"}
    assert torch.equal(run.model(1).weight, torch.zeros(2, 2))


def test_a_model_may_be_given_as_it_is_and_nonsense_is_answered(tmp_path: Path):
    state = states(1)[0]
    torch.save(state, tmp_path / "epoch_1.pt")
    run = ut.open_run(tmp_path, model=net())
    assert same(run, 1, state)
    assert run.model(1) is not run.model(1)
    for wrong in ("mlp:32", lambda: 3, lambda size: net()):
        with pytest.raises(BadValue, match="model"):
            ut.open_run(tmp_path, model=wrong).model(1)
    with pytest.raises(BadValue, match="a number of a checkpoint"):
        run.model("last")


def test_a_folder_of_runs_is_no_run(tmp_path: Path):
    with ut.Recorder(tmp_path / "one") as recorder:
        recorder.save(net(), 0)
    with pytest.raises(NotThere, match="holds 1 runs and is none itself"):
        ut.open_run(tmp_path)
