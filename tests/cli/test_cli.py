"""The command line as a person meets it: output, complaints, exit codes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import undertow as ut
from undertow.cli import main

QUICK = ["--data", "digits", "--epochs", "2", "--device", "cpu"]


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main([str(argument) for argument in arguments])
    seen = capsys.readouterr()
    return code, seen.out, seen.err


def test_help_lists_all_commands(capsys):
    code, out, _ = call(capsys, "--help")
    assert code == 0
    for command in ("train", "runs", "show", "data", "layers", "demo"):
        assert command in out


def test_train_show_runs_and_layers(capsys, tmp_path):
    code, out, err = call(
        capsys, "train", "mlp:16-16", *QUICK, "--noise", "0.4", "--out", tmp_path / "runs" / "one"
    )
    assert (code, err) == (0, "")
    assert "mlp:16-16 on digits, label noise 0.4: 2 epochs of adam" in out
    assert "Ended after 2 epochs: training accuracy" in out
    assert "3 checkpoints in" in out

    code, out, _ = call(capsys, "show", tmp_path / "runs" / "one")
    assert code == 0
    assert "1,297 train, 500 test, 10 classes" in out
    assert "checkpoints at epoch 0, 1, 2" in out

    code, out, _ = call(capsys, "runs", tmp_path / "runs")
    assert code == 0
    assert "finished" in out
    assert "mlp:16-16" in out

    code, out, _ = call(capsys, "layers", tmp_path / "runs" / "one")
    assert code == 0
    assert "layer2" in out
    assert "probed" in out


def test_json_for_machines(capsys, tmp_path):
    code, out, _ = call(capsys, "train", "mlp:16", *QUICK, "--out", tmp_path / "run", "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [row.get("epoch") for row in rows] == [0, 1, 2, None]
    assert rows[-1] == {"ended": "2 epochs"}
    assert 0 <= rows[2]["test_accuracy"] <= 1

    _, out, _ = call(capsys, "show", tmp_path / "run", "--json")
    shown = json.loads(out)
    assert shown["kept"] == [0, 1, 2]
    assert shown["config"]["model"] == "mlp:16"
    _, out, _ = call(capsys, "runs", tmp_path, "--json")
    assert json.loads(out)["checkpoints"] == 3
    _, out, _ = call(capsys, "layers", "mlp:16", "--json")
    assert json.loads(out.splitlines()[0])["name"]
    _, out, _ = call(capsys, "data", "list", "--json")
    assert {"digits", "mnist", "mod-division"} <= {json.loads(line)["name"] for line in out.splitlines()}


def test_freeze_and_reinitialise_from_the_command_line(capsys, tmp_path):
    more = ["--freeze-at", "1:layer1", "--reinit-at", "1:layer2", "--checkpoints", "every:1"]
    code, _, err = call(capsys, "train", "mlp:8-8", *QUICK, *more, "--out", tmp_path / "run")
    assert (code, err) == (0, "")
    import undertow as ut

    run = ut.open_run(tmp_path / "run")
    assert run.facts.interventions == ["FreezeAt 1 layer1", "ReinitialiseAt 1 layer2"]
    first, last = run.weights(1), run.weights(2)
    assert {name for name in first if torch.equal(first[name], last[name])} >= {
        name for name in first if name.startswith("layer1.")
    }


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["trian"], 2, 'Did you mean "train"?'),
        (["train", "--epoch", "3"], 2, "Did you mean --epochs?"),
        (["train", "--epochs", "many"], 2, "epochs"),
        (["train", "--optimiser", "sdg"], 2, "sgd"),
        (["train", "mpl"], 2, "Did you mean 'mlp'"),
        (["train", "mlp:8,dropuot=0.1"], 2, "Did you mean 'dropout'"),
        (["train", "--data", "digts"], 2, "Did you mean 'digits'"),
        (["train", "--noise", "1.4"], 2, "1.4"),
        (["train", "--noise", "unifrm:0.2"], 2, "Did you mean 'uniform'"),
        (["train", "--scaling", "halff"], 2, "Did you mean 'half'"),
        (["train", "--lr", "-1"], 2, "lr: wanted a number of at least 0.0, got -1.0"),
        (["train", "--checkpoints", "now"], 2, "paper, every:K"),
        (["train", "--freeze-at", "layer1"], 2, "EPOCH:LAYER"),
        (["train", "--data", "no/such/folder"], 1, "no/such/folder"),
        (["show", "no/such/run"], 1, "There is no run no/such/run"),
        (["runs", "no/such/folder"], 1, "There is no folder"),
        (["layers", "resnet19"], 2, "Did you mean"),
        (["layers", "mlp", "--data", "digts"], 2, "Did you mean 'digits'"),
        (["data", "show", "minst"], 2, "Did you mean 'mnist'"),
        (["data", "fetch"], 2, "name at least one data set"),
        (["data", "lst"], 2, 'Did you mean "list"?'),
        (["repair", "run"], 2, "repair: --out FILE is missing. Give the repaired model's file"),
        (["repair", "run", "--out"], 2, "repair: --out needs a value. Give the repaired model's file"),
        (["figure", "run"], 2, "figure: NAME is missing. Give one of latent-dynamics, heat-map"),
        (["audit"], 2, "audit: RUN is missing. Give the run's folder"),
        (["study", "show"], 2, "`undertow study list` lists them"),
        (["train", "--epochs"], 2, "train: --epochs needs a value"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(capsys, tmp_path, monkeypatch, arguments, code, message):
    monkeypatch.chdir(tmp_path)
    got, out, err = call(capsys, *arguments)
    assert got == code
    assert message in err
    assert err.startswith("undertow: ")
    assert len(err.strip().splitlines()) == 1
    assert "Traceback" not in err + out
    assert not any(tmp_path.iterdir()), "bad usage leaves nothing behind"


def test_debug_shows_the_traceback(tmp_path):
    command = [sys.executable, "-m", "undertow", "show", str(tmp_path / "none"), "--debug"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "Traceback" in done.stderr


def test_data_commands(capsys, tmp_path):
    code, out, _ = call(capsys, "data", "list")
    assert code == 0
    assert "digits" in out
    assert "cifar100" in out
    code, out, _ = call(capsys, "data", "show", "digits", "--noise", "0.4")
    assert code == 0
    assert "of the training labels are wrong" in out
    code, out, _ = call(capsys, "data", "show", "digits", "--noise", "0.4", "--json")
    assert 0.3 < json.loads(out)["wrong_labels"] < 0.42
    code, out, _ = call(capsys, "data", "fetch", "digits", "blobs")
    assert code == 0
    assert "digits: 1,297 + 500 samples" in out


@pytest.mark.realdata
def test_contact_sheet(capsys, tmp_path, real_data):
    code, out, _ = call(capsys, "data", "corruptions", "--out", tmp_path / "sheet.png")
    assert code == 0
    assert "15 corruptions" in out
    assert (tmp_path / "sheet.png").read_bytes()[:4] == b"\x89PNG"


def test_foreign_checkpoints_are_shown(capsys, tmp_path):
    torch.save({"weight": torch.zeros(2, 2)}, tmp_path / "model_epoch_3.pt")
    code, out, err = call(capsys, "show", tmp_path)
    assert (code, err) == (0, "")
    assert "checkpoints at epoch 3" in out


def test_a_log_of_thousands_of_measures(capsys, tmp_path):
    """Fails if the screen is filled with columns of no width."""
    with ut.Recorder(tmp_path / "run") as recorder:
        recorder.save(nn.Linear(3, 2), 0, **{f"m{number}": number / 8 for number in range(5000)})
    assert main(["show", str(tmp_path / "run")]) == 0
    told = capsys.readouterr().out
    assert [line.split() for line in told.splitlines() if line.startswith("epoch")] == [
        ["epoch", *(f"m{number}" for number in range(12))]
    ]
    assert "4,988 more measures are recorded; --json prints all." in told
    assert main(["show", str(tmp_path / "run"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"][0]["m4999"] == 4999 / 8


def test_only_shares_of_other_trainers_are_shown_as_such(capsys, tmp_path):
    """Fails if a learning rate of 0.003 becomes 0.3 %, or if rows without the accuracy crowd out those with it."""
    torch.save({"weight": torch.zeros(2, 2)}, tmp_path / "epoch_1.pt")
    rows = [f"{step // 20},{step},0.003,,1.5" for step in range(40)]
    rows += ["0,20,,0.45,", "1,40,,0.62,"]
    (tmp_path / "metrics.csv").write_text("\n".join(["epoch,step,lr,val/acc,train_loss", *rows]))
    out = call(capsys, "show", tmp_path)[1]
    assert "0.003" in out
    assert "0.3 %" not in out
    assert "62.0 %" in out


def test_folders_without_checkpoints_say_what_they_hold(capsys, tmp_path):
    code, _, err = call(capsys, "audit", tmp_path)
    assert code == 1
    endings = ".safetensors, .pth.tar, .pt.tar, .pt, .pth, .ckpt, .bin, .tar"
    assert err == f"undertow: {tmp_path} holds no checkpoints ({endings}, or what torch.save wrote).\n"
    (tmp_path / "last.pt").write_bytes(b"")
    assert "carry no epoch and no step (last.pt). Rename them" in call(capsys, "show", tmp_path)[2]
    (tmp_path / "last.pt").unlink()
    call(capsys, "train", "mlp:8", "--epochs", "0", "--out", tmp_path / "one", "--device", "cpu")
    assert f"is not a run, but it holds one: {tmp_path / 'one'}." in call(capsys, "show", tmp_path)[2]
    call(capsys, "train", "mlp:8", "--epochs", "0", "--out", tmp_path / "two", "--device", "cpu")
    assert f"it holds 2: `undertow runs {tmp_path}` lists them." in call(capsys, "audit", tmp_path)[2]


@pytest.mark.parametrize("command", ["audit", "probe", "labels", "repair --out x.safetensors", "cuts"])
def test_foreign_checkpoints_want_model_and_data_at_once(capsys, tmp_path, command):
    torch.save({"weight": torch.zeros(2, 2)}, tmp_path / "model_epoch_3.pt")
    name, *more = command.split()
    code, _, err = call(capsys, name, tmp_path, *more)
    assert code == 2
    assert "--model package.module:function" in err
    assert "--data NAME or PATH" in err
    code, _, err = call(capsys, name, tmp_path, *more, "--data", "digits")
    assert (code, "--data" in err, "--model" in err) == (2, False, True)


def test_layers_of_foreign_checkpoints_name_a_command_that_can(capsys, tmp_path):
    torch.save({"weight": torch.zeros(2, 2)}, tmp_path / "model_epoch_3.pt")
    code, _, err = call(capsys, "layers", tmp_path)
    assert code == 2
    assert f"`undertow cuts {tmp_path} --all --model" in err


def test_a_best_epoch_that_was_not_kept_is_told_beside_the_best_kept():
    from types import SimpleNamespace

    import pandas as pd

    from undertow.cli.summary import ending

    rows = [{"epoch": at, "test_accuracy": share} for at, share in enumerate([0.1, 0.9, 0.8, 0.7])]
    facts = SimpleNamespace(ended="3 epochs", data=None)
    run = SimpleNamespace(
        metrics=pd.DataFrame(rows),
        epochs=(0, 2, 3),
        unit="epoch",
        facts=facts,
        checkpoints=[1, 2],
        path="run",
    )
    said = ending(run)
    assert "was 90.0 % at epoch 1. Of the epochs that were kept, 2 is best: 80.0 %." in said
    run.epochs = (0, 1, 3)
    assert "was 90.0 % at epoch 1.\n" in ending(run)


def test_a_damaged_run_does_not_hide_the_others(capsys, tmp_path):
    call(capsys, "train", "mlp:8", "--epochs", "0", "--out", tmp_path / "good", "--device", "cpu")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "run.json").write_text("{")
    code, out, _ = call(capsys, "runs", tmp_path)
    assert code == 0
    assert "good" in out
    assert "cannot be read" in out


def test_names_with_brackets_are_printed_as_they_are(capsys, tmp_path):
    """Fails if a user's name is taken for screen markup."""
    folder = tmp_path / "[bold]run[/]"
    code, out, _ = call(capsys, "train", "mlp:8", "--epochs", "0", "--out", folder, "--device", "cpu")
    assert code == 0
    assert "[bold]run[/]" in out


def test_demo_tells_the_story_and_replaces_only_its_own_run(capsys, tmp_path):
    code, out, _ = call(capsys, "demo", "--out", tmp_path / "demo")
    assert code == 0
    assert "it memorised them, and lost" in out
    (tmp_path / "other" / "run").mkdir(parents=True)
    (tmp_path / "other" / "run" / "mine.txt").write_text("mine")
    code, _, err = call(capsys, "demo", "--out", tmp_path / "other")
    assert code == 1
    assert "not an earlier demo" in err
    assert (tmp_path / "other" / "run" / "mine.txt").exists()


def test_a_bar_on_a_terminal_and_silence_in_a_pipe(tmp_path):
    """A real pseudo-terminal shows the bar with its numbers."""
    import pty

    seen = bytearray()

    def read(descriptor: int) -> bytes:
        data = os.read(descriptor, 4096)
        seen.extend(data)
        return b""

    command = [sys.executable, "-m", "undertow", "train", "mlp:16", *QUICK, "--out", str(tmp_path / "tty")]
    # Not pty.fork: between fork and exec a child of a process with threads may wait for a lock for ever.
    descriptor, terminal = pty.openpty()
    shown = subprocess.Popen(
        command, stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    )  # fmt: skip
    os.close(terminal)
    try:
        while read(descriptor) == b"":
            pass
    except OSError:  # the other side has closed
        pass
    os.close(descriptor)
    assert shown.wait(timeout=600) == 0
    text = seen.decode(errors="replace")
    assert "epoch 2/2" in text
    assert "loss" in text
    assert "/s" in text

    command[-1] = str(tmp_path / "pipe")
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "epoch 2/2" not in done.stdout
    assert "\x1b" not in done.stdout


def test_an_interrupted_run_says_how_to_go_on(capsys, tmp_path, monkeypatch):
    from undertow.training import loop

    monkeypatch.setattr(loop.Trainer, "_train_epoch", lambda self: (_ for _ in ()).throw(KeyboardInterrupt))
    code, _, err = call(capsys, "train", "mlp:8", *QUICK, "--out", tmp_path / "run")
    assert code == 130
    assert "with --resume" in err


def test_output_cut_off_by_head_is_no_error(tmp_path: Path):
    # More than a pipe's buffer holds, so that the writer really meets the closed end.
    for number in range(300):
        (tmp_path / f"{number:0200d}").mkdir()
        (tmp_path / f"{number:0200d}" / "run.json").write_text("{")
    command = f"set -o pipefail; {sys.executable} -m undertow runs {tmp_path} --json | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr


def test_the_demo_replaces_no_run_of_anyone_else(capsys, tmp_path):
    call(capsys, "train", "mlp:8", "--epochs", "0", "--out", tmp_path / "run", "--device", "cpu")
    code, _, err = call(capsys, "demo", "--out", tmp_path)
    assert code == 1
    assert "not an earlier demo" in err
    assert (tmp_path / "run" / "run.json").exists()


def test_torn_files_and_a_run_without_checkpoints_are_listed(capsys, tmp_path):
    call(capsys, "train", "mlp:8", "--epochs", "1", "--out", tmp_path / "torn", "--device", "cpu")
    (tmp_path / "torn" / "metrics.parquet").write_text("torn")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "run.json").write_text((tmp_path / "torn" / "run.json").read_text())
    code, out, err = call(capsys, "runs", tmp_path)
    assert (code, err) == (0, "")
    assert "no checkpoint yet" in out
    assert "damaged" in out
    code, _, err = call(capsys, "show", tmp_path / "torn")
    assert code == 1
    assert "metrics.parquet" in err


def test_probe(capsys, tmp_path):
    call(capsys, "train", "mlp:16-16", *QUICK, "--noise", "0.4", "--out", tmp_path / "run")
    options = ["--probes", "masc,velpic", "--csv", tmp_path / "rows.csv"]
    code, out, err = call(capsys, "probe", tmp_path / "run", *options)
    assert (code, err) == (0, "")
    assert "features held in memory, in one pass" in out
    assert "fitted with the labels of training" in out
    assert "fitted with shuffled labels (control: one shuffle scatters around chance, 10 %)" in out
    assert "The model itself scores" in out
    assert len((tmp_path / "rows.csv").read_text().splitlines()) > 30
    code, out, _ = call(capsys, "probe", tmp_path / "run", *options)
    assert "54 of them there already" in out
    code, out, _ = call(
        capsys, "probe", tmp_path / "run", "--probes", "mean", "--checkpoints", "last", "--json"
    )
    assert code == 0
    assert {json.loads(line)["probe"] for line in out.splitlines()} == {"mean", "model"}


THEIRS = """
from torch import nn

def build():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
"""


def test_probe_of_someones_checkpoints(capsys, tmp_path, monkeypatch):
    (tmp_path / "theirs.py").write_text(THEIRS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    from importlib import import_module

    (tmp_path / "ckpts").mkdir()
    torch.save(import_module("theirs").build().state_dict(), tmp_path / "ckpts" / "epoch_3.pt")
    where = ["probe", tmp_path / "ckpts", "--probes", "mean", "--fits", "given"]
    code, out, err = call(capsys, *where, "--model", "theirs:build", "--data", "digits", "--layers", "1,2")
    assert (code, err) == (0, "")
    assert "The model itself scores" in out
    wrong = {"theirs:biuld": "Did you mean 'build'", "nowhere:build": "nowhere", "theirs": "module:f"}
    for place, message in wrong.items():
        code, _, err = call(capsys, *where, "--model", place, "--data", "digits")
        assert (code, message in err) == (2, True), err
    code, out, _ = call(capsys, *where)  # what was said once is remembered with the folder
    assert (code, "The model itself scores" in out) == (0, True)
    shutil.copytree(tmp_path / "ckpts", tmp_path / "other", ignore=shutil.ignore_patterns("opened.json"))
    code, _, err = call(capsys, "probe", tmp_path / "other", "--data", "digits")
    assert code == 2
    assert "model" in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--fits", "true"], "true labels are unknown or no different"),
        (["--device", "foo"], "device: wanted a device of this machine"),
        (["--probes", "velpc"], "Did you mean 'velpic'"),
        (["--layers", "layr1"], "Did you mean 'layer1'"),
        (["--checkpoints", "9"], "The nearest are"),
        (["--memory", "much"], "a size like"),
        (["--memory", "1KB"], "memory: wanted at least"),
        (["--conv", "men"], "mean"),
    ],
)
def test_bad_probe_options_are_said_in_one_line(capsys, tmp_path, options, message):
    call(capsys, "train", "mlp:8", "--epochs", "0", "--out", tmp_path / "run", "--device", "cpu")
    code, _, err = call(capsys, "probe", tmp_path / "run", *options)
    assert code == 2
    assert message in err
    assert len(err.strip().splitlines()) == 1


def modules_after(*arguments: object) -> set[str]:
    """Names of all modules that a command loads in a fresh interpreter."""
    code = (
        f"import sys; from undertow.cli import main; main({list(map(str, arguments))!r}); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_looking_at_runs_loads_no_torch(capsys, tmp_path):
    """Two seconds for a list that needs none of it; with the recorder's metrics, too, which lie in the checkpoints."""
    import undertow as ut

    call(capsys, "train", "mlp:8", *QUICK, "--out", tmp_path / "ours", "--quiet")
    with ut.Recorder(tmp_path / "theirs") as recorder:
        recorder.save(torch.nn.Linear(2, 2), 3, test_accuracy=0.5)
    (tmp_path / "theirs" / "metrics.parquet").unlink(missing_ok=True)
    commands = [
        ["--help"],
        ["-V"],
        ["runs", tmp_path],
        ["show", tmp_path / "ours"],
        ["show", tmp_path / "theirs"],
    ]
    for arguments in commands:
        assert "torch" not in modules_after(*arguments), arguments
    assert "50.0 %" in call(capsys, "show", tmp_path / "theirs")[1]
    assert "torch" in modules_after("layers", "mlp:8"), "the check can fail"


@pytest.mark.parametrize(
    ("command", "config"),
    [
        ("train", "undertow.training.config:TrainConfig"), ("audit", "undertow.auditing.settings:AuditConfig"),
        ("probe", "undertow.latent.settings:GridConfig"), ("labels", "undertow.labels.settings:LabelConfig"),
        ("repair", "undertow.repairing.settings:RepairConfig"),
    ],
)  # fmt: skip
def test_every_setting_is_a_flag(command, config):
    """Fails if a config's new field is left out of its command."""
    from dataclasses import fields
    from importlib import import_module

    from undertow.cli.app import app

    module, _, name = config.partition(":")
    flags = {name for argument in app[command].assemble_argument_collection() for name in argument.names}
    wanted = {f"--{field.name.replace('_', '-')}" for field in fields(getattr(import_module(module), name))}
    assert wanted - flags <= {"--_"}
