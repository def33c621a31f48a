"""An audit that is killed from outside, with no chance to tidy up, goes on to the same table."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest

import undertow as ut

COMMAND = [sys.executable, "-m", "undertow", "audit"]
OPTIONS = ["--no-report", "--json"]


@pytest.mark.parametrize("parts", [2, 8])
def test_kill_9_in_mid_audit(trained, tmp_path, parts):
    """A real SIGKILL while the audit has stored some of its parts."""
    folder = tmp_path / "run"
    shutil.copytree(trained("clean").path, folder, ignore=shutil.ignore_patterns("audit*", "probes.parquet"))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "UNDERTOW_CACHE": str(tmp_path / "cache")}
    with subprocess.Popen(
        [*COMMAND, str(folder), *OPTIONS], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as child:
        stored = folder / "audit-parts"
        until = time.monotonic() + 120
        while len(list(stored.glob("*.npz"))) < parts and child.poll() is None and time.monotonic() < until:
            time.sleep(0.005)
        assert child.poll() is None, "the audit was over before it could be killed"
        child.send_signal(signal.SIGKILL)
    assert not (folder / "audit.parquet").exists()
    again = subprocess.run(
        [*COMMAND, str(folder), *OPTIONS], env=environment, capture_output=True, check=False
    )
    assert again.returncode == 0, again.stderr

    whole = ut.audit(trained("clean"), out=tmp_path / "whole").table
    found = pd.read_parquet(folder / "audit.parquet")
    pd.testing.assert_frame_equal(
        found.reset_index(drop=True), whole.reset_index(drop=True), rtol=1e-5, atol=1e-6
    )
