"""Folders and files that we may not read: each is told in a sentence of undertow's own, and hides no other run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch import nn

import undertow as ut

RIGHTLESS = ["setpriv", "--bounding-set=-dac_override,-dac_read_search,-fowner"]
"""So that root, too, is held to the rights of files."""


def without_rights(*words: str) -> subprocess.CompletedProcess[str]:
    """A Python that may not read what its rights forbid."""
    root = os.geteuid() == 0
    if root and shutil.which("setpriv") is None:
        pytest.skip("root reads everything where setpriv is not there")
    command = [*RIGHTLESS * root, sys.executable, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def runs(folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    return without_rights("-m", "undertow", "runs", str(folder), *flags)


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Path]:
    """Runs a and b."""
    for name in ("a", "b"):
        with ut.Recorder(tmp_path / "two" / name) as recorder:
            recorder.save(nn.Linear(3, 2), 1)
    yield tmp_path / "two"
    for path in (tmp_path / "two").rglob("*"):
        path.chmod(0o755)


def test_one_unreadable_run_does_not_hide_the_others(two: Path):
    """Fails if "Permission denied" is all that is said."""
    (two / "b" / "checkpoints").chmod(0)
    done = runs(two, "--json")
    assert done.returncode == 0, done.stderr
    first, second = map(json.loads, done.stdout.splitlines())
    assert (first["run"], first["state"]) == (str(two / "a"), "recorded")
    assert (second["run"], second["state"]) == (str(two / "b"), "damaged")
    assert "b/checkpoints: Permission denied. Give yourself the right" in second["why"]
    shown = without_rights("-m", "undertow", "show", str(two / "b"))
    assert shown.returncode == 1
    assert f"The run {two / 'b'} cannot be read" in shown.stderr


def test_folders_in_which_runs_may_be_are_told(two: Path):
    """Fails if they are passed over in silence, or called a folder without runs."""
    (two / "b").chmod(0)
    rows = [json.loads(line) for line in runs(two, "--json").stdout.splitlines()]
    assert [(row["run"], row["state"]) for row in rows] == [
        (str(two / "a"), "recorded"),
        (str(two / "b"), "unreadable"),
    ]
    alone = runs(two / "b")
    assert alone.returncode == 1
    assert "No runs" not in alone.stdout
    assert f"{two / 'b'} cannot be read: Permission denied." in alone.stderr


@pytest.mark.parametrize("work", ["open_run(run).mark(1)", "open_run(run, model=net).model(1)"])
@pytest.mark.parametrize("name", ["checkpoints", "checkpoints/epoch-000001.safetensors", "plain.pt"])
def test_python_gets_an_error_of_undertow(two: Path, name: str, work: str):
    """Fails on a PermissionError, and where a file that we may not read is called damaged."""
    run = two / "b"
    if name == "plain.pt":
        import torch

        run = two / "b" / name
        torch.save(nn.Linear(3, 2).state_dict(), run)
    (two / "b" / name).chmod(0)
    done = without_rights(
        "-c",
        "import sys, undertow as ut\nfrom torch import nn\nfrom undertow.errors import RunProblem\n"
        "run, net = sys.argv[1], lambda: nn.Linear(3, 2)\n"
        f"try:\n    ut.{work}\nexcept RunProblem as error:\n    print(error)\n",
        str(run),
    )
    assert done.returncode == 0, done.stderr
    assert "cannot be read" in done.stdout
    assert "Permission denied" in done.stdout
    assert "damaged" not in done.stdout
