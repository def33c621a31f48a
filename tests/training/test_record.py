"""Recording anyone's own loop: nothing lost, nothing half written, errors said."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from torch import nn

import undertow as ut
from undertow.errors import BadValue, RunProblem
from undertow.files import aside, write_text


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))


def test_a_loop_of_ones_own(tmp_path: Path):
    model = small()
    with ut.Recorder(tmp_path / "run") as recorder:
        for epoch in range(4):
            with torch.no_grad():
                model[0].bias.fill_(float(epoch))
            recorder.save(model, epoch, test_accuracy=0.1 * epoch, loss=torch.tensor(1.0))
    run = ut.open_run(tmp_path / "run", model=small)
    assert run.epochs == (0, 1, 2, 3)
    # The copy is taken when save is called, not when the thread comes to write it.
    assert [float(run.weights(epoch)["0.bias"][0]) for epoch in run.epochs] == [0, 1, 2, 3]
    assert run.metrics["test_accuracy"].tolist() == pytest.approx([0, 0.1, 0.2, 0.3])
    assert torch.equal(run.model(2)[0].bias, torch.full((3,), 2.0))
    assert run.config is None
    assert run.labels is None


def test_metrics_are_in_each_file_too(tmp_path: Path):
    """A killed process loses no metrics of the checkpoints that it wrote."""
    with ut.Recorder(tmp_path / "run") as recorder:
        recorder.save(small(), step=100, loss=0.5)
    file = tmp_path / "run" / "checkpoints" / "step-000100.safetensors"
    with safe_open(file, framework="pt") as opened:
        assert json.loads(opened.metadata()["metrics"]) == {"step": 100, "loss": 0.5}
    (tmp_path / "run" / "metrics.parquet").unlink()
    assert ut.open_run(tmp_path / "run").metrics["loss"].tolist() == [0.5]


def test_tied_and_buffered_weights_are_kept(tmp_path: Path):
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.BatchNorm1d(3), nn.Linear(3, 3, bias=False))
    model[2].weight = model[0].weight
    with ut.Recorder(tmp_path / "run") as recorder:
        recorder.save(model, 0)
    kept = ut.open_run(tmp_path / "run").weights(0)
    assert torch.equal(kept["0.weight"], kept["2.weight"])
    assert "1.running_mean" in kept


def test_neither_epoch_nor_step_or_both_is_refused(tmp_path: Path):
    recorder = ut.Recorder(tmp_path / "run")
    with pytest.raises(BadValue, match="an epoch or a step"):
        recorder.save(small())
    with pytest.raises(BadValue, match="an epoch or a step"):
        recorder.save(small(), 1, step=2)
    recorder.close()
    with pytest.raises(RunProblem, match="recorder is closed"):
        recorder.save(small(), 1)


def test_forgetting_to_close_loses_nothing(tmp_path: Path):
    code = f"""
        import torch, undertow as ut
        recorder = ut.Recorder({str(tmp_path / "run")!r})
        for epoch in range(5):
            recorder.save(torch.nn.Linear(500, 500), epoch, loss=epoch)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)
    run = ut.open_run(tmp_path / "run")
    assert run.epochs == (0, 1, 2, 3, 4)
    assert len(run.metrics) == 5


def save_often(recorder: ut.Recorder, model: nn.Module) -> None:
    for epoch in range(9):
        recorder.save(model, epoch, loss=0.0)


def test_a_full_disk_is_said_and_earlier_checkpoints_stay(tmp_path: Path):
    """A real file system of 1 MB runs full."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        recorder = ut.Recorder(disk / "run")
        model = nn.Linear(300, 300)  # 361 kB a checkpoint: the third does not fit
        with pytest.raises(RunProblem, match=r"Cannot write .*No space left.*saved before is intact"):
            save_often(recorder, model)
        with pytest.raises(RunProblem, match="No space left"):
            recorder.close()
        run = ut.open_run(disk / "run")
        assert run.epochs == (0, 1)
        assert torch.equal(run.weights(1)["weight"], model.weight)
        assert not list((disk / "run").rglob("*.part"))
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_file_size_limit_is_said(tmp_path: Path):
    """The same without root: the system refuses files over 100 kB."""
    code = f"""
        import resource, signal, torch, undertow as ut
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        recorder = ut.Recorder({str(tmp_path / "run")!r})
        recorder.save(torch.nn.Linear(10, 10), 0)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        recorder.save(torch.nn.Linear(300, 300), 1)
        try:
            recorder.close()
        except ut.UndertowError as error:
            print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    )
    assert "Cannot write" in done.stdout
    assert "File too large" in done.stdout
    assert ut.open_run(tmp_path / "run").epochs == (0,)


def test_aside_leaves_the_old_file_when_the_block_fails(tmp_path: Path):
    path = tmp_path / "file.txt"
    write_text(path, "old")

    def fail() -> None:
        with aside(path) as part:
            part.write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert path.read_text() == "old"
    assert [found.name for found in tmp_path.iterdir()] == ["file.txt"]


def test_reopening_keeps_the_metrics_of_before(tmp_path: Path):
    for epoch in range(2):
        with ut.Recorder(tmp_path / "run") as recorder:
            recorder.save(small(), epoch, loss=float(epoch))
    assert ut.open_run(tmp_path / "run").metrics["loss"].tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("arguments", "numbers", "message"),
    [
        ((small(), -1), {}, "a whole number from 0 on"),
        ((small(), 1.5), {}, "a whole number from 0 on"),
        ((small().state_dict(), 1), {}, "the model, an nn.Module"),
        ((small(), 1), {"loss": "high"}, r"loss=\.\.\.\): wanted a number"),
    ],
)
def test_nonsense_is_refused_and_nothing_written(tmp_path: Path, arguments, numbers, message):
    with ut.Recorder(tmp_path / "run") as recorder, pytest.raises(BadValue, match=message):
        recorder.save(*arguments, **numbers)
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_a_second_save_of_an_epoch_takes_the_place_of_the_first(tmp_path: Path):
    with ut.Recorder(tmp_path / "run") as recorder:
        for loss in (1.0, 0.5):
            recorder.save(small(), 3, loss=loss)
    assert ut.open_run(tmp_path / "run").metrics["loss"].tolist() == [0.5]


def test_others_may_read_what_the_umask_allows(tmp_path: Path):
    with ut.Recorder(tmp_path / "run") as recorder:
        recorder.save(small(), 0)
    plain = tmp_path / "plain"
    plain.touch()
    for path in (tmp_path / "run").rglob("*.*"):
        assert path.stat().st_mode == plain.stat().st_mode, path.name


def test_a_failed_write_that_nobody_asks_about_is_printed(tmp_path: Path):
    code = f"""
        import undertow as ut, torch
        recorder = ut.Recorder({str(tmp_path / "run")!r})
        recorder.do(lambda: (_ for _ in ()).throw(ut.UndertowError("the disk is gone")))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    )
    assert "undertow: the disk is gone" in done.stderr
