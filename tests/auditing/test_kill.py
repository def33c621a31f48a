"""An audit that is killed from outside, with no chance to tidy up, goes on to the same table."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pandas as pd
import pytest

import undertow as ut

CODE = """
import sys, undertow as ut
from undertow.session.cache import Cache

put, left = Cache.put, [int(sys.argv[2])]

def held(self, *value):
    kept = put(self, *value)
    left[0] -= 1
    if not left[0]:
        print("kept", flush=True)
        sys.stdin.read()
    return kept

Cache.put = held
ut.audit(ut.open_run(sys.argv[1]))
"""
"""An audit that stops after it has kept some values, until its input ends."""


@pytest.mark.parametrize("values", [2, 12])
def test_kill_9_in_mid_audit(trained, tmp_path, values):
    """A real SIGKILL while the audit has kept some of its values."""
    folder = tmp_path / "run"
    ignored = shutil.ignore_patterns("audit*", "cache", "probes.parquet")
    shutil.copytree(trained("clean").path, folder, ignore=ignored)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "UNDERTOW_CACHE": str(tmp_path / "cache")}
    command, stored = [sys.executable, "-c", CODE, str(folder)], folder / "cache"
    with subprocess.Popen(
        [*command, str(values)], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout.readline() == "kept\n"
        child.kill()
    assert not (folder / "audit.parquet").exists()
    kept = {
        path: path.stat().st_mtime_ns for path in stored.glob("*.bin") if "feature-drift" not in path.name
    }
    again = subprocess.run([*command, "0"], env=environment, capture_output=True, check=False)
    assert again.returncode == 0, again.stderr
    assert {path: path.stat().st_mtime_ns for path in kept} == kept

    whole = ut.audit(trained("clean"), out=tmp_path / "whole").table
    found = pd.read_parquet(folder / "audit.parquet")
    pd.testing.assert_frame_equal(
        found.reset_index(drop=True), whole.reset_index(drop=True), rtol=1e-5, atol=1e-6
    )
