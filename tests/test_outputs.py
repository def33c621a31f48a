"""Outputs: links are kept, and nothing that is no file, is read, or is a run's own is written over."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from torch import nn

import undertow as ut
from undertow.cli import main
from undertow.errors import BadValue, RunProblem, UndertowError
from undertow.files import write_text
from undertow.outputs import as_path, check_output_folder, check_outputs

MINE = {"model": "mlp:8", "data": "digits", "epochs": 2, "checkpoints": "every:1", "train_size": 100}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "a"
    ut.train(MINE["model"], path, **{name: own for name, own in MINE.items() if name != "model"})
    assert main(["audit", str(path), "--quick", "--lenses", "latent", "--probes", "mean"]) == 0
    return path


@pytest.fixture
def given(tmp_path: Path) -> Path:
    y = np.arange(120) % 3
    x = np.random.default_rng(0).normal(size=(120, 4)).astype(np.float32)
    x[np.arange(120), y] += 4
    np.save(tmp_path / "x.npy", x)
    pd.DataFrame({"label": y}).to_csv(tmp_path / "y.csv", index=False)
    return tmp_path


def kinds(path: Path) -> list[Path]:
    """A pipe, a folder, and where it is allowed a device like /dev/null."""
    os.mkfifo(path / "pipe")
    (path / "folder").mkdir()
    made = [path / "pipe", path / "folder"]
    try:
        os.mknod(path / "device", stat.S_IFCHR | 0o600, os.makedev(1, 3))
        made.append(path / "device")
    except PermissionError:
        pass
    return made


def test_what_is_no_file_stays_what_it_is(tmp_path: Path):
    """Fails if a pipe or a device is replaced by a file."""
    for path in kinds(tmp_path):
        before = path.stat()
        with pytest.raises(RunProblem, match=r"wanted a file, got a (pipe|folder|device)"):
            write_text(path, "x")
        assert (path.stat().st_ino, path.stat().st_mode) == (before.st_ino, before.st_mode)


def test_a_link_is_kept_and_what_it_names_is_written(tmp_path: Path):
    """Fails if the link becomes a file and its target stays old."""
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "real").write_text("old")
    (tmp_path / "link").symlink_to("far/real")
    (tmp_path / "second").symlink_to("link")
    write_text(tmp_path / "second", "new")
    assert (tmp_path / "second").is_symlink()
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "far" / "real").read_text() == "new"
    assert list((tmp_path / "far").iterdir()) == [tmp_path / "far" / "real"]
    (tmp_path / "new").symlink_to("far/none yet")
    write_text(tmp_path / "new", "made")
    assert (tmp_path / "far" / "none yet").read_text() == "made"
    (tmp_path / "pipe").symlink_to("real pipe")
    os.mkfifo(tmp_path / "real pipe")
    with pytest.raises(RunProblem, match="got a pipe"):
        write_text(tmp_path / "pipe", "x")
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(RunProblem, match="Too many levels"):
        write_text(tmp_path / "circle", "x")


def test_links_in_a_folder_from_elsewhere_lead_nowhere(tmp_path: Path):
    """Fails if an audit of somebody's folder writes over a file of the user's that a link in it names."""
    (tmp_path / "mine").write_text("precious")
    place = tmp_path / "theirs"
    (place / "checkpoints").mkdir(parents=True)
    (place / "run.json").write_text("{}")
    for name in (
        "audit.json",
        "suspects.parquet",
        "report.html",
        "opened.json",
        "checkpoints/epoch-1.safetensors",
    ):
        (place / name).symlink_to(tmp_path / "mine")
        write_text(place / name, "theirs")
        assert (place / name).read_text() == "theirs"
        assert (tmp_path / "mine").read_text() == "precious"


def test_the_file_that_holds_what_is_printed_is_no_output(tmp_path: Path):
    """Fails if `--csv out.txt > out.txt` loses what is printed to a file that is gone."""
    code = "from pathlib import Path; from undertow.files import write_text; write_text(Path('out.txt'), 'x')"
    with (tmp_path / "out.txt").open("w") as file:
        done = subprocess.run(
            [sys.executable, "-c", code], stdout=file, stderr=subprocess.PIPE, text=True, cwd=tmp_path
        )
    assert "wanted a file, got what undertow prints" in done.stderr
    assert (tmp_path / "out.txt").read_text() == ""


def test_outputs_of_a_call(tmp_path: Path):
    """Law: what is read, written by itself, or an output already is refused by any of its names."""
    (tmp_path / "a").write_text("")
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "read").mkdir()
    a, link = tmp_path / "a", tmp_path / "link"
    check_outputs("me", [("--x", a), ("--y", tmp_path / "b"), ("--z", None)], used=[tmp_path / "c"])
    for used in (a, link, tmp_path / "read" / ".." / "a"):
        with pytest.raises(BadValue, match=r"me --x: wanted a file of its own, .* Name another"):
            check_outputs("me", [("--x", link)], used=[used])
    with pytest.raises(BadValue, match="--x writes that file too"):
        check_outputs("me", [("--x", a), ("--y", link)])
    with pytest.raises(BadValue, match="reads the folder"):
        check_outputs("me", [("--x", tmp_path / "read" / "deep" / "new")], used=[tmp_path / "read"])
    with pytest.raises(BadValue, match="wanted a folder"):
        check_output_folder("me", "--out", a)
    for nothing in (None, 5, b"a", "", "a\0b"):
        with pytest.raises(BadValue, match="wanted a path"):
            as_path(nothing, "me")


@pytest.mark.parametrize(
    "words",
    [
        "audit RUN --csv RUN/checkpoints/epoch-000002.safetensors",
        "audit RUN --csv RUN/run.json",
        "audit RUN --csv RUN/audit.parquet",
        "audit RUN --csv RUN/report.html",
        "audit RUN --out OUT --csv OUT/audit.json",
        "audit RUN --out RUN/checkpoints",
        "audit RUN --data OUT/mine.npz --csv OUT/mine.npz",
        "probe RUN --csv RUN/metrics.parquet",
        "probe RUN --csv RUN/checkpoints/rows.csv",
        "repair RUN --out RUN/checkpoints/epoch-000002.safetensors",
        "repair RUN --out OUT/r.safetensors --onnx OUT/r.safetensors",
        "repair RUN --out OUT/r --onnx OUT/r.json",
        "report RUN --out RUN/run.json",
        "report RUN --out RUN/checkpoints/epoch-000001.safetensors",
        "figure RUN drift --out RUN/checkpoints/figures",
        "labels RUN --out RUN/labels.parquet",
        "labels RUN --out OUT/a.csv --to-cleanlab OUT/a.csv",
        "labels RUN --report OUT/found --out OUT/found/suspects.parquet",
    ],
)
def test_no_command_writes_over_a_run(run: Path, tmp_path: Path, capsys, words: str):
    """Fails if a checkpoint, run.json or another output is gone and the exit code is 0."""
    np.savez(tmp_path / "mine.npz", x=np.zeros((4, 8), np.float32), y=np.arange(4) % 2)
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()}
    argv = [word.replace("RUN", str(run)).replace("OUT", str(tmp_path)) for word in words.split()]
    assert main(argv) == 2
    told = capsys.readouterr()
    assert "of its own, got" in told.err
    assert len(told.err.splitlines()) == 1
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["mine.npz"]


@pytest.mark.parametrize(
    "words",
    [
        "audit RUN --csv PIPE",
        "probe RUN --csv PIPE",
        "report RUN --out PIPE",
        "repair RUN --out RUN --onnx PIPE",
    ],
)
def test_no_command_puts_a_file_in_the_place_of_a_pipe(run: Path, tmp_path: Path, capsys, words: str):
    os.mkfifo(tmp_path / "pipe")
    argv = [word.replace("RUN", str(run)).replace("PIPE", str(tmp_path / "pipe")) for word in words.split()]
    assert main(argv) == 1
    assert "wanted a file, got a pipe" in capsys.readouterr().err
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


@pytest.mark.parametrize(
    "more",
    [
        "--out y.csv",
        "--cleaned y.csv --clean drop",
        "--pred-probs x.npy",
        "--out a.csv --to-cleanlab a.csv",
        "--to-labelstudio t.json --out link.csv --to-cleanlab a.csv",
        "--apply t.json --cleaned y.csv",
    ],
)
def test_labels_in_files_are_not_written_over(given: Path, capsys, monkeypatch, more: str):
    """Fails if the user's only labels are replaced by the table of suspects."""
    monkeypatch.chdir(given)
    (given / "link.csv").symlink_to("a.csv")
    own = (given / "y.csv").read_bytes(), (given / "x.npy").read_bytes()
    where = "--labels y.csv" if "--apply" in more else "--features x.npy --labels y.csv"
    assert main(["labels", *where.split(), *more.split()]) == 2
    assert "wanted a file of its own" in capsys.readouterr().err
    assert ((given / "y.csv").read_bytes(), (given / "x.npy").read_bytes()) == own


def test_the_checkpoints_of_others_are_not_written_over(tmp_path: Path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ourtest_net.py").write_text(
        "from torch import nn\ndef build(): return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))\n"
    )
    from safetensors.torch import save_file

    (tmp_path / "ck").mkdir()
    one = tmp_path / "ck" / "epoch_1.safetensors"
    save_file(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).state_dict(), one)
    own = one.read_bytes()
    flags = ["--model", "ourtest_net.py:build", "--data", "digits"]
    assert main(["repair", "ck", "--out", str(one), *flags]) == 2
    assert main(["report", "ck", "--out", str(one)]) in (1, 2)
    assert one.read_bytes() == own


def test_python_refuses_too(run: Path, tmp_path: Path):
    checkpoint = run / "checkpoints" / "epoch-000002.safetensors"
    own = checkpoint.read_bytes()
    fixed = ut.repair(ut.open_run(run), gate=False)
    for work in (
        lambda: fixed.save(checkpoint),
        lambda: ut.write_report([run], checkpoint),
        lambda: ut.write_report([run], run / "metrics.parquet"),
        lambda: ut.audit(run, out=run / "checkpoints"),
        lambda: ut.write_report([run], ""),
        lambda: fixed.save(""),
        lambda: fixed.save("."),
    ):
        with pytest.raises(UndertowError):
            work()
    assert checkpoint.read_bytes() == own
    assert fixed.save(tmp_path / "r")[0].is_file()
