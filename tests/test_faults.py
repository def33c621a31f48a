"""Faults around a run: a full disk, a read-only one, two searches at once, copies while it grows, clocks that jump."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import chdir, suppress
from pathlib import Path

import pytest
import torch

import undertow as ut
from undertow.cli import main
from undertow.errors import UndertowError
from undertow.files import aside, is_unfinished, sweep
from undertow.labels.suspects import write_suspects
from undertow.report.gallery import suspects

SMALL = {"data": "digits", "noise": 0.4, "train_size": 200, "test_size": 100, "checkpoints": "every:1"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ut.train("mlp:16-16", tmp_path_factory.mktemp("made") / "run", epochs=2, **SMALL).path


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of four megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def fill(disk: Path) -> Path:
    """Take all that is left of it."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass
    return ballast


COMMANDS = {
    "audit": ["audit", "run", "--quick"], "labels": ["labels", "run", "--json"], "report": ["report", "run"],
    "probe": ["probe", "run", "--probes", "mean"], "repair": ["repair", "run", "--out", "fixed"],
}  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_is_said_and_the_command_works_once_there_is_room(
    disk: Path, made: Path, capsys, command: str
):
    """Fails on a foreign error (safetensors and torch hide the reason), and on anything half-written."""
    shutil.copytree(made, disk / "run")
    ballast = fill(disk)
    with chdir(disk):
        assert main(COMMANDS[command]) == 1
        assert "No space left on device. Free some space" in capsys.readouterr().err
        assert not [path for path in disk.rglob("*") if is_unfinished(path)]
        ballast.unlink()
        assert main(COMMANDS[command]) == 0, capsys.readouterr().err


def test_a_training_on_a_full_disk_goes_on_to_the_same_weights(disk: Path, tmp_path: Path):
    ballast = fill(disk)
    os.truncate(ballast, ballast.stat().st_size - 100_000)  # room for some checkpoints, not for all
    with pytest.raises(UndertowError, match="No space left on device"):
        ut.train("mlp:64-64", disk / "run", epochs=6, **SMALL)
    ballast.unlink()
    resumed = ut.train("mlp:64-64", disk / "run", epochs=6, resume=True, **SMALL)
    whole = ut.train("mlp:64-64", tmp_path / "whole", epochs=6, **SMALL)
    assert resumed.epochs == whole.epochs
    for at in whole.epochs:
        assert all(torch.equal(own, resumed.weights(at)[name]) for name, own in whole.weights(at).items())


def test_a_folder_that_may_only_be_read(disk: Path, made: Path, capsys, tmp_path: Path):
    """What writes says so in a sentence; what need not write, works; --out elsewhere works."""
    shutil.copytree(made, disk / "run")
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    with chdir(disk):
        for words in (
            ["audit", "run", "--quick"],
            ["probe", "run"],
            ["train", "mlp:4", "--data", "digits", "--out", "new"],
        ):
            assert main(words) == 1
            assert "Read-only file system. Choose a folder that you may write to." in capsys.readouterr().err
        for words in (["show", "run"], ["runs", "."], ["labels", "run", "--json"]):
            assert main(words) == 0, capsys.readouterr().err
        assert main(["audit", "run", "--quick", "--out", str(tmp_path / "audit")]) == 0
        assert main(["labels", "run", "--out", str(tmp_path / "labels.csv")]) == 0
        assert (tmp_path / "labels.csv").is_file()


def test_what_need_not_write_into_a_run_works_where_it_may_only_be_read(
    disk: Path, made: Path, capsys, tmp_path: Path
):
    """Fails if values that nobody asked to keep end the command; where the rows go elsewhere, one note is enough."""
    shutil.copytree(made, disk / "run", ignore=shutil.ignore_patterns("cache", "probes.parquet"))
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    before = sorted(disk.rglob("*"))
    run, rows, fixed = disk / "run", tmp_path / "rows.csv", tmp_path / "fixed.safetensors"
    with pytest.warns(UserWarning, match="run/cache cannot be written to") as told:
        assert main(["probe", str(run), "--checkpoints", "last", "--probes", "mean", "--csv", str(rows)]) == 0
    assert len(told) == 1
    assert f"rows in {rows}" in " ".join(capsys.readouterr().out.split())
    with pytest.warns(UserWarning, match="cannot be written to"):
        assert main(["repair", str(run), "--out", str(fixed)]) in (0, 1)
    assert fixed.exists() == ("Written: " in capsys.readouterr().out)
    with pytest.warns(UserWarning, match="cannot be written to"):
        table = ut.probe_grid(run, checkpoints="last", probes=["mean"], progress=False)
    assert len(table) == len(rows.read_text().splitlines()) - 1
    with pytest.raises(UndertowError, match=r"audit: cannot write into .*run: Read-only .*--out names it"):
        ut.audit(run, progress=False)
    assert sorted(disk.rglob("*")) == before


def test_two_searches_at_once_leave_the_pictures_of_their_table(tmp_path: Path):
    """Fails if table and pictures are renamed without a lock: once in eight they were of different searches."""
    x = torch.rand(60, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    y = torch.arange(60) % 3
    found = [
        ut.label_errors(features=x.flatten(1), labels=torch.where(torch.arange(60) == wrong, (y + 1) % 3, y))
        for wrong in (3, 40)
    ]
    for _ in range(15):
        both = [
            threading.Thread(target=write_suspects, args=(own, x, tmp_path), daemon=True) for own in found
        ]
        for one in both:
            one.start()
        for one in both:
            one.join()
        suspects(tmp_path, ["a", "b", "c"])  # refuses pictures of another table


def test_a_run_that_is_copied_while_it_grows_can_be_read(tmp_path: Path):
    """Each copy opens, and every checkpoint in it is whole: no copy has half a file."""
    run = tmp_path / "run"
    work = threading.Thread(
        target=ut.train, args=("mlp:16-16", run), kwargs={"epochs": 30, **SMALL}, daemon=True
    )
    work.start()
    copies = 0
    while work.is_alive():
        if not any((run / "checkpoints").glob("epoch-*")):
            continue  # nothing to open yet
        copy = Path(
            shutil.copytree(run, tmp_path / f"copy-{copies}", ignore=_passing, ignore_dangling_symlinks=True)
        )
        opened = ut.open_run(copy)
        assert all(opened.weights(at) for at in opened.epochs)
        assert set(opened.metrics["epoch"]) >= {0}
        copies += 1
    work.join()
    assert copies
    assert ut.open_run(run).epochs == tuple(range(31))


def _passing(folder: str, names: list[str]) -> list[str]:
    """What a copier passes over: files that are being written."""
    return [name for name in names if name.endswith(".part")]


@pytest.mark.parametrize(
    "now", [time.time() - 4e7, time.time() + 4e7, 1.0, 2.0**32], ids=["past", "future", "1970", "2106"]
)
def test_the_clock_may_jump(made: Path, tmp_path: Path, monkeypatch, now: float):
    """Fails if the age of files, or of a live writer's, decides what is finished."""
    run = Path(shutil.copytree(made, tmp_path / "run"))
    for path in run.rglob("*"):
        os.utime(path, (now,) * 2)
    with aside(run / "notes.txt") as part:
        part.write_text("whole")
        monkeypatch.setattr(time, "time", lambda: now)
        sweep(run)
    assert (run / "notes.txt").read_text() == "whole"
    resumed = ut.train("mlp:16-16", run, epochs=2, resume=True, **SMALL)
    assert resumed.epochs == (0, 1, 2)
    assert len(resumed.metrics) == 3
