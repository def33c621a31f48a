"""A run that was stopped goes on to the bits of one that was not: kill -9 for real."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import undertow as ut
from undertow.errors import RunProblem

ARGUMENTS = [
    "mlp:64-64,dropout=0.2", "--data", "digits", "--noise", "0.4", "--epochs", "25", "--checkpoints", "every:5",
    "--batch-size", "32", "--device", "cpu", "--quiet",
]  # fmt: skip


def start(out: Path, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "undertow", "train", *ARGUMENTS, "--out", str(out), *more]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def finish(process: subprocess.Popen[bytes]) -> None:
    _, complaints = process.communicate(timeout=900)
    assert process.returncode == 0, complaints.decode()


def tensors(run: ut.Run) -> dict[tuple[int, str], torch.Tensor]:
    return {(at, name): value for at in run.epochs for name, value in run.weights(at).items()}


def wait_for_new(path: Path, before: int, process: subprocess.Popen[bytes], seconds: float = 600) -> None:
    """Wait until `path` was written after `before`, so that the kill hits the work and not the start-up."""
    end = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < end:
        if path.exists() and path.stat().st_mtime_ns > before:
            return
        time.sleep(0.002)


def test_kill_9_at_several_moments_and_resume_to_the_same_bits(tmp_path: Path):
    whole = start(tmp_path / "whole")
    finish(whole)
    # While run.json is written, while the first and the third checkpoint are, and in the middle of an epoch.
    files = [
        "run.json",
        "checkpoints/epoch-000000.safetensors",
        "state.pt",
        "checkpoints/epoch-000010.safetensors",
    ]
    kills = 0
    for file in files:
        wanted = tmp_path / "broken" / file
        before = wanted.stat().st_mtime_ns if wanted.exists() else 0
        process = start(tmp_path / "broken", "--resume")
        wait_for_new(wanted, before, process)
        time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kills += process.returncode == -signal.SIGKILL
        if (tmp_path / "broken" / "checkpoints").is_dir() and any(
            (tmp_path / "broken" / "checkpoints").glob("e*")
        ):
            run = ut.open_run(tmp_path / "broken")
            assert all(run.weights(at) for at in run.epochs), "readable at any moment"
    assert kills >= 3, "the run was too quick to be killed: the test would prove nothing"
    last = start(tmp_path / "broken", "--resume")
    finish(last)

    first, second = ut.open_run(tmp_path / "whole"), ut.open_run(tmp_path / "broken")
    assert first.epochs == second.epochs == (0, 5, 10, 15, 20, 25)
    one, other = tensors(first), tensors(second)
    assert one.keys() == other.keys()
    assert all(torch.equal(one[key], other[key]) for key in one)
    assert first.metrics.equals(second.metrics)
    assert not list((tmp_path / "broken").rglob("*.part"))


QUICK = ut.TrainConfig("mlp:16-16", data="digits", epochs=4, checkpoints="every:1", device="cpu")


class StopAt:
    """Interrupts the training at an epoch or a step."""

    def __init__(self, epoch: int = -1, step: int = -1) -> None:
        self._epoch, self._step = epoch, step

    def begin(self, *facts: object) -> None:
        """Nothing."""

    def end(self, reason: str) -> None:
        """Nothing."""

    def step(self, epoch: int, step: int) -> None:
        if step == self._step:
            raise KeyboardInterrupt

    def epoch(self, row: dict) -> None:
        if row["epoch"] == self._epoch:
            raise KeyboardInterrupt


def test_more_epochs_may_be_added_and_nothing_else_changed(tmp_path: Path):
    whole = ut.train(replace(QUICK, epochs=6), tmp_path / "whole")
    ut.train(QUICK, tmp_path / "run")
    longer = ut.train(replace(QUICK, epochs=6), tmp_path / "run", resume=True)
    assert all(torch.equal(value, longer.weights(6)[name]) for name, value in whole.weights(6).items())
    with pytest.raises(RunProblem, match=r"started with \(lr = 0.001\), got 0.01"):
        ut.train(replace(QUICK, epochs=6, lr=0.01), tmp_path / "run", resume=True)
    with pytest.raises(RunProblem, match="interventions"):
        ut.train(
            replace(QUICK, epochs=6), tmp_path / "run", resume=True, interventions=[ut.FreezeAt(2, "layer1")]
        )


@pytest.mark.parametrize("greedy", [False, True])
def test_interventions_and_stages_survive_a_stop(tmp_path: Path, greedy: bool):
    """Fails if a resumed run forgets that a layer is frozen, or enters the wrong stage."""
    config = replace(QUICK, greedy=greedy, model="mlp:16-16-16", epochs=6)
    changes = [] if greedy else [ut.FreezeAt(2, "layer1")]
    whole = ut.train(config, tmp_path / "whole", interventions=changes)
    for stop in (2, 3):
        with pytest.raises(KeyboardInterrupt):
            ut.train(config, tmp_path / str(stop), interventions=changes, watch=StopAt(epoch=stop))
        again = ut.train(config, tmp_path / str(stop), interventions=changes, resume=True)
        assert all(torch.equal(value, again.weights(6)[name]) for name, value in whole.weights(6).items())


def test_resuming_nothing_starts_anew_and_resuming_a_finished_run_changes_nothing(tmp_path: Path):
    run = ut.train(QUICK, tmp_path / "run", resume=True)
    before = run.weights(4)
    again = ut.train(QUICK, tmp_path / "run", resume=True)
    assert all(torch.equal(value, again.weights(4)[name]) for name, value in before.items())
    assert len(again.metrics) == 5


def test_a_damaged_state_is_named(tmp_path: Path):
    ut.train(QUICK, tmp_path / "run")
    (tmp_path / "run" / "state.pt").write_bytes(b"torn")
    with pytest.raises(RunProblem, match=r"state.pt.*damaged.*Delete it"):
        ut.train(replace(QUICK, epochs=5), tmp_path / "run", resume=True)


@pytest.mark.parametrize("settings", [{"schedule": "cosine"}, {"greedy": True}, {"checkpoints": "log:3"}])
def test_more_epochs_are_refused_where_earlier_ones_would_differ(tmp_path: Path, settings: dict):
    ut.train(replace(QUICK, **settings), tmp_path / "run")
    with pytest.raises(RunProblem, match="epochs = 4"):
        ut.train(replace(QUICK, epochs=6, **settings), tmp_path / "run", resume=True)


def test_checkpoints_by_step_survive_a_stop(tmp_path: Path):
    config = replace(QUICK, checkpoints="every:8steps")
    whole = ut.train(config, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        ut.train(config, tmp_path / "stopped", watch=StopAt(step=50))
    again = ut.train(config, tmp_path / "stopped", resume=True)
    assert again.epochs == whole.epochs
    assert all(torch.equal(value, tensors(again)[key]) for key, value in tensors(whole).items())
