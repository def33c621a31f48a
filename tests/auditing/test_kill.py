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

CODE = "import sys, undertow as ut; ut.audit(ut.open_run(sys.argv[1]))"


@pytest.mark.parametrize("values", [2, 12])
def test_kill_9_in_mid_audit(trained, tmp_path, values):
    """A real SIGKILL while the audit has kept some of its values."""
    folder = tmp_path / "run"
    ignored = shutil.ignore_patterns("audit*", "cache", "probes.parquet")
    shutil.copytree(trained("clean").path, folder, ignore=ignored)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "UNDERTOW_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-c", CODE, str(folder)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as child:
        stored = folder / "cache"
        until = time.monotonic() + 120
        while len(list(stored.glob("*.bin"))) < values and child.poll() is None and time.monotonic() < until:
            time.sleep(0.005)
        assert child.poll() is None, "the audit was over before it could be killed"
        child.send_signal(signal.SIGKILL)
    assert not (folder / "audit.parquet").exists()
    kept = {
        path: path.stat().st_mtime_ns for path in stored.glob("*.bin") if "feature-drift" not in path.name
    }
    again = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert again.returncode == 0, again.stderr
    assert {path: path.stat().st_mtime_ns for path in kept} == kept

    whole = ut.audit(trained("clean"), out=tmp_path / "whole").table
    found = pd.read_parquet(folder / "audit.parquet")
    pd.testing.assert_frame_equal(
        found.reset_index(drop=True), whole.reset_index(drop=True), rtol=1e-5, atol=1e-6
    )
