"""Names that would crash, steer or confuse a terminal; bombs; pipes that close."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from safetensors.torch import save_file
from torch import nn

import undertow as ut
from undertow.cli import main
from undertow.cli.remembered import Told, recall, remember
from undertow.errors import RunProblem

UNDERTOW = [sys.executable, "-m", "undertow"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with ut.Recorder(tmp_path / "run") as recorder:
        for epoch in range(3):
            recorder.save(nn.Linear(3, 2), epoch, test_accuracy=0.5)
    return tmp_path / "run"


def rewrite(run: Path, **changes: object) -> None:
    facts = json.loads((run / "run.json").read_text())
    del facts["seal"]
    (run / "run.json").write_text(json.dumps({**facts, **changes}))


@pytest.mark.parametrize("name", ["my[/x]set", "a\x1b[31mb", "[bold]", "\x07\x9b2J"])
def test_names_neither_crash_nor_steer_the_screen(run: Path, capsys, name: str):
    rewrite(
        run, data={"name": name, "fingerprint": "0" * 32, "classes": [name]}, made=name, versions={name: name}
    )
    assert main(["show", str(run)]) == 0
    shown = capsys.readouterr().out
    assert not {"\x1b", "\x07", "\x9b"} & set(shown)
    assert name.replace("\x1b", "\\x1b").replace("\x07", "\\x07").replace("\x9b", "\\x9b") in shown


def test_a_terminal_of_plain_letters(run: Path):
    done = subprocess.run(
        [*UNDERTOW, "runs", str(run.parent)],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr


def test_a_pipe_that_closes_is_no_failure(run: Path):
    """As in `undertow show run | head -1`."""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as closed:
        done = subprocess.run([*UNDERTOW, "show", str(run)], stdout=closed, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("name", ["with space", "new\nline", os.fsdecode(b"caf\xe9"), "ü" * 60, "x" * 200])
def test_folders_of_any_name(tmp_path: Path, name: str, capsys):
    """Fails if a name that is no UTF-8 is called damaged."""
    settings = {"data": "digits", "epochs": 1, "train_size": 50, "test_size": 50}
    made = ut.train("mlp:4", tmp_path / name, **settings)
    assert made.model(1)
    assert len(ut.train("mlp:4", tmp_path / name, resume=True, **settings).metrics) == 2
    assert main(["show", str(tmp_path / name)]) == 0
    assert main(["runs", str(tmp_path)]) == 0
    capsys.readouterr()


def test_a_small_file_of_200_million_rows_is_refused(run: Path):
    rewrite(run, id="")
    many = pa.chunked_array([pa.array([1] * 1_000_000)] * 30)
    parquet.write_table(pa.table({"epoch": many}), run / "metrics.parquet")
    with pytest.raises(RunProblem, match=r"metrics.parquet: wanted at most 20,000,000 rows, got 30,000,000"):
        _ = ut.open_run(run).metrics


def test_a_packed_checkpoint_that_unpacks_to_gigabytes_is_refused(tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "epoch_1.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data/0", bytes(300 << 20))
    with pytest.raises(RunProblem, match="unpacks to 315 MB"):
        ut.open_run(tmp_path, model=lambda: nn.Linear(3, 2)).weights(1)


def test_a_run_json_that_never_ends_is_refused(tmp_path: Path):
    (tmp_path / "run.json").symlink_to("/dev/zero")
    with pytest.raises(RunProblem, match=r"run.json: wanted a file, got something else"):
        ut.open_run(tmp_path)
    os.mkfifo(tmp_path / "epoch_1.pt")
    (tmp_path / "run.json").unlink()
    with pytest.raises(RunProblem):
        ut.open_run(tmp_path, model=lambda: nn.Linear(3, 2)).weights(1)


EVIL = """
import os
from pathlib import Path
from torch import nn
Path(os.environ["EVIL"]).touch()
def build():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
"""


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch) -> Path:
    """Somebody's folder: weights, a module, and a note that names it as the model."""
    monkeypatch.setenv("EVIL", str(tmp_path / "it ran"))
    monkeypatch.setenv("UNDERTOW_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "theirs"
    folder.mkdir()
    save_file(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).state_dict(), folder / "epoch_1.safetensors")
    (folder / "evil_net.py").write_text(EVIL)
    told = {"model": "evil_net:build", "data": "digits", "folder": str(folder)}
    (folder / "opened.json").write_text(json.dumps({**told, "signed": "0" * 64}))
    return folder


def test_a_folder_of_others_names_no_code_to_run(theirs: Path, tmp_path: Path, capsys):
    """Fails if opened.json is believed: `audit` of a folder from the network then imports a module in it."""
    sign = tmp_path / "mine"
    sign.mkdir()
    remember(sign, Told(data="digits"))  # this user has a key, and it is another's signature
    assert main(["audit", str(theirs), "--quick"]) == 2
    assert "Add --model package.module:function" in capsys.readouterr().err
    assert not (tmp_path / "it ran").exists()


def test_what_this_user_said_is_remembered_and_no_word_of_it_can_be_changed(theirs: Path):
    remember(theirs, Told(model="my_net:build", data="digits"))
    assert recall(theirs) == Told(model="my_net:build", data="digits")
    path = theirs / "opened.json"
    path.write_text(path.read_text().replace("my_net", "evil_net"))
    assert recall(theirs) == Told()


@pytest.mark.parametrize("text", ["", "[]", '{"model": [1]}', "[" * 100_000, '{"signed": 3}', '{"a": 1e999}'])
def test_a_damaged_note_is_none(theirs: Path, text: str):
    (theirs / "opened.json").write_text(text)
    assert recall(theirs) == Told()
