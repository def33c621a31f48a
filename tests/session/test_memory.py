"""The memory that was asked for is kept: measured from outside, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

WIDE = """
import json, re, sys, torch
from torch import nn
import undertow as ut

def net():
    # Wide layers between narrow ones: the weights are small.
    torch.manual_seed(0)
    parts = [part for _ in range(3) for part in (nn.Linear(32, 2048), nn.ReLU(), nn.Linear(2048, 32))]
    return nn.Sequential(*parts, nn.Linear(32, 10))

def some(count):
    y = torch.arange(count) % 10
    return torch.eye(32)[y] + torch.randn(count, 32, generator=torch.Generator().manual_seed(count)), y

def resident(what):
    # Of this process alone: getrusage's peak would begin with that of its parent.
    return int(re.search(what + ":[^0-9]*([0-9]+)", open("/proc/self/status").read())[1]) * 1024 / 1e6

if __name__ == "__main__":
    folder, memory = sys.argv[1:]
    torch.set_num_threads(1)
    with ut.Recorder(folder) as recorder:
        recorder.save(net(), 1)
    run, settings = ut.open_run(folder, model=net), {"probes": "masc", "lenses": ("latent",), "full": True}
    few, train, test = some(60), some(2500), some(400)
    ut.audit(run, few, few, out=folder + "/few", memory=memory, **settings)  # all libraries are there now
    before = resident("VmRSS")
    ut.audit(run, train, test, out=folder + "/out", memory=memory, layers=["1", "4", "7"], **settings)
    print(json.dumps(resident("VmHWM") - before))
"""


def taken(folder: Path, memory: str) -> float:
    """MB beyond libraries, model and samples."""
    command = [sys.executable, "-W", "ignore", "-c", WIDE, str(folder), memory]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_an_audit_keeps_to_its_memory(tmp_path):
    """Features of three layers are 71 MB, directions of the classes come on top: held together they would show."""
    assert taken(tmp_path / "little", "100MB") < 100
    assert taken(tmp_path / "much", "2GB") > 100
