"""kill -9 at random moments: every command, then again to its end; folders must be readable and results equal.

    python bench/kills.py 100 --seed 0                      # kills, spread over the commands; a line for each command
    python bench/kills.py 30 --only audit labels

A command works in a process that is forked off here, after all imports, so that the kill hits its work. It is killed
after a random share of the time that it takes undisturbed, up to five times in one folder, and then left to end (train:
with --resume). After each kill every file that is there must be readable; at the end the results must be those of a
command that nobody killed, nothing unfinished may lie around and no process may be left.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import nn

import undertow as ut
from undertow.cli import main as undertow
from undertow.errors import UndertowError
from undertow.files import is_unfinished
from undertow.report import read_saved
from undertow.stored.archives import check_archive
from undertow.stored.tensors import check_content

SMALL = ["--data", "digits", "--noise", "0.4", "--train-size", "300", "--test-size", "100", "--epochs", "20"]
IN_A_ROW = 5
"""Kills in one folder before the command may end."""
PATIENCE = 60.0
"""Seconds for workers to notice that nobody listens any more."""


def record(out: Path) -> int:
    """Somebody's own loop: a model after each epoch, the same in every call."""
    with ut.Recorder(out) as recorder:
        for epoch in range(60):
            torch.manual_seed(epoch)
            recorder.save(nn.Linear(200, 200), epoch, loss=float(epoch))
    return 0


def commands(run: Path, out: Path) -> dict[str, tuple[Callable[[], int], Path]]:
    """Each command with the folder that it writes to."""

    def words(*told: object) -> Callable[[], int]:
        return lambda: undertow([str(one) for one in told])

    study = ("study", "run", "richness/target-scale", "--scale", "smoke", "--workers", 2, "--out", out)
    return {
        "train": (
            words("train", "mlp:64-64", *SMALL, "--checkpoints", "every:1", "--resume", "--out", out),
            out,
        ),
        "recorder": (lambda: record(out), out),
        "audit": (words("audit", run, "--quick", "--out", out), out),
        "labels": (words("labels", run, "--json"), run),
        "probe": (words("probe", run, "--json"), run),
        "report": (words("report", run, "--out", out / "report.html"), out),
        "repair": (words("repair", run, "--no-gate", "--out", out / "fixed"), out),
        "study": (words(*study), out),
    }


def start(work: Callable[[], int]) -> int:
    """The id of a process that does the work, quietly, in a group of its own."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    os.setsid()
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    code = 1
    with contextlib.suppress(BaseException):
        code = work()
    os._exit(code)


def ended(child: int, within: float | None) -> int | None:
    """Its exit code; None where it still works after so many seconds."""
    late = None if within is None else time.monotonic() + within
    while True:
        found, status = os.waitpid(child, 0 if late is None else os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if late is not None and time.monotonic() > late:
            return None
        time.sleep(0.001)


def left_over(group: int) -> int:
    """How many live processes are left of a group, after they had time to notice."""
    late = time.monotonic() + PATIENCE
    while (count := _alive(group)) and time.monotonic() < late:
        time.sleep(0.05)
    return count


def _alive(group: int) -> int:
    count = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, own = stat.read_text().rpartition(")")[2].split()[:3]
            count += int(own) == group and state != "Z"
    return count


def marks(folder: Path) -> dict[str, str]:
    """What the files say, without times and other words that differ from call to call."""
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if not path.is_file() or "cache" in path.parts or is_unfinished(path.parent):
            continue
        if path.suffix == ".parquet":
            found[name] = pd.read_parquet(path).to_csv()
        elif path.suffix == ".safetensors":
            own = {key: word for key, word in check_content(path).words.items() if "undertow.h" not in key}
            found[name] = str(sorted((key, word) for key, word in own.items() if key != "run"))
        elif path.suffix in (".npz", ".pt"):
            check_archive(path, 1 << 30)
            found[name] = "whole"
        elif path.suffix == ".html":
            found[name] = "there"
        elif path.suffix == ".json":
            said = json.loads(path.read_text())
            found[name] = ",".join(sorted(said)) if isinstance(said, dict) else str(len(said))
    return found


def damage(folder: Path) -> list[str]:
    """What of a folder that a killed command left cannot be read."""
    readers: tuple[Callable[[], Any], ...] = (
        lambda: marks(folder), lambda: [ut.open_run(folder).weights(at) for at in ut.open_run(folder).epochs],
        lambda: ut.open_run(folder).metrics, lambda: read_saved(folder),
    )  # fmt: skip
    found: list[str] = []
    for read in readers if (folder / "run.json").exists() else readers[:1]:
        try:
            read()
        except Exception as error:
            empty = isinstance(error, UndertowError) and "has no checkpoint yet" in str(error)
            found += [] if empty else [f"{type(error).__name__}: {error}"]
    return found


@dataclass
class Ended:
    """What became of a command."""

    command: str
    seconds: float = 0.0
    kills: int = 0
    folders: int = 0
    same: int = 0
    left: int = 0
    processes: int = 0
    damaged: list[str] = field(default_factory=list[str])
    failed: list[str] = field(default_factory=list[str])


def attack(name: str, run: Path, place: Path, kills: int, rng: random.Random) -> Ended:
    """Kill one command until it was killed `kills` times."""
    told = Ended(name)
    work, whole = commands(_copy(run, place / f"{name}-run"), place / f"{name}-whole")[name]
    began = time.monotonic()
    if code := ended(start(work), None):
        told.failed.append(f"undisturbed: exit {code}")
        return told
    told.seconds, wanted = round(time.monotonic() - began, 2), marks(whole)
    while told.kills < kills:
        told.folders += 1
        work, out = commands(
            _copy(run, place / f"{name}-{told.folders}-run"), place / f"{name}-{told.folders}"
        )[name]
        _kill_some(work, out, min(IN_A_ROW, kills - told.kills), told, rng)
        if code := ended(start(work), None):
            told.failed.append(f"again: exit {code}")
        told.same += marks(out) == wanted
        told.left += sum(is_unfinished(path) for path in out.rglob("*"))
        print(json.dumps(vars(told)), file=sys.stderr, flush=True)  # how far it is
        shutil.rmtree(out)
    return told


def _kill_some(work: Callable[[], int], out: Path, most: int, told: Ended, rng: random.Random) -> None:
    for _ in range(most):
        child = start(work)
        if ended(child, told.seconds * rng.uniform(0.0, 0.9)) is not None:
            return  # it was quicker, or it was done
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        told.kills += 1
        told.processes += left_over(child)
        told.damaged += damage(out)


def _copy(run: Path, place: Path) -> Path:
    return Path(shutil.copytree(run, place))


def main() -> None:
    """Kill, repeat, compare."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kills", type=int, nargs="?", default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="kills-") as folder:
        place = Path(folder)
        run = place / "run"
        code = ended(start(lambda: undertow(["train", "mlp:32-32", *SMALL, "--out", str(run)])), None)
        assert code == 0, code
        names = asked.only or list(commands(run, place))
        for name in names:
            rng = random.Random(f"{asked.seed} {name}")
            told = attack(name, run, place, -(-asked.kills // len(names)), rng)
            print(json.dumps(vars(told)), flush=True)


if __name__ == "__main__":
    main()
