"""What verbs say that they will take of memory, libraries counted, is what they keep to: measured from outside."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from undertow.cli import main

WATCHED = """
import io, json, re, sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from undertow.cli import main
from undertow.sizes import parse_size

words = io.StringIO()
with redirect_stderr(words), redirect_stdout(words):
    code = main(sys.argv[1:])
told = " ".join(words.getvalue().split())
said = re.search(r"at most ([0-9.]+ [kMG]B) of memory in all", told)
# Of this process alone: getrusage's peak would begin with that of its parent.
peak = int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024
print(json.dumps({"code": code, "said": said and parse_size(said[1]), "took": peak, "words": told[-2000:]}))
"""

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="needs Linux, to ask for the peak"
)


@pytest.fixture(scope="module")
def wide(tmp_path_factory) -> Path:
    """A run with 86 MB of features: 6,000 samples of noise that no few directions hold, a layer of 2,048."""
    folder = tmp_path_factory.mktemp("wide")
    random = np.random.default_rng(0)
    y = np.arange(6000) % 10
    means = 10 * random.normal(size=(10, 28, 28))
    x = (100 + means[y] + 30 * random.normal(size=(6000, 28, 28))).clip(0, 255).astype(np.uint8)
    np.savez(folder / "d.npz", x_train=x[:5000], y_train=y[:5000], x_test=x[5000:], y_test=y[5000:])
    asked = ["--data", str(folder / "d.npz"), "--noise", "0.2", "--epochs", "1", "--batch-size", "256"]
    assert main(["train", "mlp:2048-512-1024", *asked, "--out", str(folder / "run")]) == 0
    return folder / "run"


def watched(*words: object) -> dict[str, object]:
    command = [sys.executable, "-W", "ignore", "-c", WATCHED, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


VERBS = {
    "audit": ("--no-report", "--full", "--checkpoints", "last", "--probes", "masc"),
    "labels": ("--top", "0"),
    "probe": ("--checkpoints", "last", "--probes", "masc"),
    "repair": ("--layer", "layer1", "--no-gate", "--out", "fixed.safetensors"),
}


@pytest.mark.parametrize("memory", ["60MB", pytest.param("300MB", marks=pytest.mark.slow)])
@pytest.mark.parametrize("verb", VERBS)
def test_the_peak_stays_below_what_was_said(wide: Path, tmp_path: Path, monkeypatch, verb: str, memory: str):
    """Fails if directions are kept whatever they take, or if libraries are not counted."""
    run = shutil.copytree(wide, tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    found = watched(verb, run, *VERBS[verb], "--memory", memory)
    assert found["code"] == 0, found["words"]
    assert found["said"], found["words"]

    assert found["took"] < found["said"]
