"""The thread that writes checkpoints: where it lives, when it ends, and what it never gets to see."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import undertow as ut
from undertow.errors import BadValue


def writers() -> int:
    return sum(one.name == "undertow-writer" for one in threading.enumerate())


def wait_for_none() -> None:
    until = time.monotonic() + 20
    while writers() and time.monotonic() < until:
        time.sleep(0.01)


def test_a_recorder_at_rest_leaves_no_thread(tmp_path: Path):
    """Fails if each recorder whose loop crashed keeps its thread until the process ends."""
    kept: list[BaseException] = []
    for number in range(5):
        try:
            recorder = ut.Recorder(tmp_path / f"run{number}")
            recorder.save(nn.Linear(3, 2), 0, loss=1.0)
            raise ZeroDivisionError
        except ZeroDivisionError as error:
            kept.append(error)  # with its frames, as a notebook keeps them
    wait_for_none()
    assert writers() == 0
    assert all(ut.open_run(tmp_path / f"run{number}").epochs == (0,) for number in range(5))
    recorder.save(nn.Linear(3, 2), 1, loss=2.0)  # and goes on when it is asked to
    recorder.close()
    assert ut.open_run(tmp_path / "run4").epochs == (0, 1)


def test_a_forgotten_recorder_is_collected_with_all_written(tmp_path: Path):
    recorder = ut.Recorder(tmp_path / "run")
    for epoch in range(20):
        recorder.save(nn.Linear(50, 50), epoch, loss=float(epoch))
    del recorder
    gc.collect()
    wait_for_none()
    assert writers() == 0
    assert ut.open_run(tmp_path / "run").epochs == tuple(range(20))


def test_no_write_is_lost_between_threads_that_end_and_begin(tmp_path: Path):
    """Fails if a job that comes while the thread ends is left lying."""
    with ut.Recorder(tmp_path / "run") as recorder:
        for epoch in range(200):
            recorder.save(nn.Linear(2, 2), epoch)
            if epoch % 3 == 0:
                time.sleep(0.002)
    assert ut.open_run(tmp_path / "run").epochs == tuple(range(200))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_of_a_recorder_does_not_hang(tmp_path: Path):
    """Fails if the child waits for a thread that lives in its parent: for ever."""
    code = f"""
        import os, sys, torch, undertow as ut
        recorder = ut.Recorder({str(tmp_path / "run")!r})
        recorder.save(torch.nn.Linear(3, 2), 0, loss=1.0)
        child = os.fork()
        if not child:
            try:
                recorder.save(torch.nn.Linear(3, 2), 1)
            except ut.UndertowError as error:
                print(error, flush=True)
            recorder.close()
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        recorder.save(torch.nn.Linear(3, 2), 2)
        recorder.close()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True, timeout=120
    )
    assert "of which this one is a fork: only that one writes" in done.stdout
    assert ut.open_run(tmp_path / "run").epochs == (0, 2)


def quiet(make: Callable[[], Tensor]) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make()


class Holding(nn.Module):
    def __init__(self, value: Tensor) -> None:
        super().__init__()
        self.register_buffer("held", value)


ODD: dict[str, Callable[[], nn.Module]] = {
    "meta": lambda: nn.Linear(3, 2, device="meta"),
    "sparse": lambda: Holding(torch.eye(3).to_sparse()),
    "nested": lambda: Holding(quiet(lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]))),
    "quantised": lambda: Holding(quiet(lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8))),
    "lazy": lambda: quiet(lambda: nn.LazyLinear(2)),  # type: ignore[arg-type, return-value]
}  # fmt: skip


@pytest.mark.parametrize("kind", ODD)
def test_weights_that_hold_no_numbers_are_refused(tmp_path: Path, kind: str):
    """Fails if torch or safetensors speak, or only the next save hears of it."""
    with (
        ut.Recorder(tmp_path / "run") as recorder,
        pytest.raises(BadValue, match=f"wanted a dense tensor that holds numbers, got 'a {kind} one'"),
    ):  # fmt: skip
        recorder.save(ODD[kind](), 0)
    assert not (tmp_path / "run" / "checkpoints").exists()


@pytest.mark.parametrize(
    "dtype", [torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.bool, torch.uint16]
)
def test_weights_of_any_dtype_are_kept_or_refused(tmp_path: Path, dtype: torch.dtype):
    model = Holding(torch.ones(3).to(dtype))
    try:
        with ut.Recorder(tmp_path / "run") as recorder:
            recorder.save(model, 0)
    except ut.UndertowError:
        return
    assert ut.open_run(tmp_path / "run").weights(0)["held"].dtype == dtype


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({"loss": torch.ones((), device="meta")}, "wanted a number, got 'a meta tensor'"),
        ({"loss": -(10**400)}, "wanted a number that fits a float"),
        ({"loss": torch.ones(3)}, "wanted a number"),
        ({"loss": 1j}, "wanted a number"),
        ({"a\udc80b": 1.0}, "wanted names of metrics that are text"),
    ],
)
def test_metrics_that_no_table_holds_are_refused(tmp_path: Path, numbers, words: str):
    """Fails if they are foreign errors, or end the writer of all that follows."""
    with ut.Recorder(tmp_path / "run") as recorder:
        with pytest.raises(BadValue, match=words):
            recorder.save(nn.Linear(3, 2), 0, **numbers)
        recorder.save(nn.Linear(3, 2), 1, **{"größe": 1.0})
    assert ut.open_run(tmp_path / "run").epochs == (1,)
