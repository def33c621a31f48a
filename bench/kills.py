"""kill -9 at random moments: every command, then again to its end; folders must be readable and results equal.

    python bench/kills.py 100 --seed 0          # kills, spread over the commands; a table at the end

A command is started, killed after a random share of the time that it takes, and repeated (train: with --resume). At
the end its results must be those of a command that nobody killed, and nothing unfinished may lie around.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import undertow as ut
from undertow.files import is_unfinished
from undertow.stored.tensors import check_content

SMALL = ["--data", "digits", "--noise", "0.4", "--train-size", "200", "--test-size", "100", "--epochs", "6"]
RECORDER = """
import sys, torch, undertow as ut
torch.manual_seed(0)
with ut.Recorder(sys.argv[1]) as recorder:
    for epoch in range(40):
        recorder.save(torch.nn.Linear(200, 200), epoch, loss=float(epoch))
"""


def commands(run: Path, out: Path) -> dict[str, tuple[list[str], Path]]:
    """Each command with the folder that it writes."""
    own = [sys.executable, "-m", "undertow"]
    return {
        "train": ([*own, "train", "mlp:32-32", *SMALL, "--checkpoints", "every:1", "--resume", "--out", str(out)], out),
        "recorder": ([sys.executable, "-c", RECORDER, str(out)], out),
        "audit": ([*own, "audit", str(run), "--quick", "--out", str(out)], out),
        "labels": ([*own, "labels", str(run), "--json"], run),
        "probe": ([*own, "probe", str(run)], run),
        "report": ([*own, "report", str(run), "--out", str(out / "report.html")], out),
        "repair": ([*own, "repair", str(run), "--out", str(out / "fixed")], out),
        "study": (
            [*own, "study", "run", "richness/target-scale", "--scale", "smoke", "--workers", "2", "--out", str(out)],
            out,
        ),
    }  # fmt: skip


def marks(folder: Path) -> dict[str, str]:
    """What the files say, without times and other words that differ from call to call."""
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if not path.is_file() or "cache" in path.parts or "runs/" in name:
            continue
        if path.suffix == ".parquet":
            import pandas as pd

            found[name] = pd.read_parquet(path).to_csv()
        elif path.suffix == ".safetensors":
            found[name] = str(
                sorted(check_content(path).words.items())
            )  # safetensors orders its words at random
    return found


def prepared(run: Path, name: str, place: Path) -> Path:
    """The run that a command reads, its own copy."""
    return Path(shutil.copytree(run, place / f"run-{name}", dirs_exist_ok=True))


def main() -> None:
    """Kill, repeat, compare."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kills", type=int, nargs="?", default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*")
    asked = parser.parse_args()
    rng = random.Random(asked.seed)
    with tempfile.TemporaryDirectory(prefix="kills-") as folder:
        place = Path(folder)
        run = ut.train(
            "mlp:32-32", place / "run", data="digits", noise=0.4, epochs=4, train_size=200, test_size=100
        ).path
        names = asked.only or list(commands(run, place))
        for name in names:
            print(json.dumps(_one(name, run, place, max(1, asked.kills // len(names)), rng)), flush=True)


def _one(name: str, run: Path, place: Path, kills: int, rng: random.Random) -> dict[str, object]:
    words, whole = commands(prepared(run, f"{name}-whole", place), place / f"{name}-whole")[name]
    began = time.monotonic()
    subprocess.run(words, capture_output=True, check=True)
    takes, wanted = time.monotonic() - began, marks(whole)
    words, out = commands(prepared(run, f"{name}-killed", place), place / f"{name}-killed")[name]
    killed = 0
    for _ in range(kills):
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(takes * rng.uniform(0.1, 1.0))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            killed += 1
    last = subprocess.run(words, capture_output=True, text=True)
    found = marks(out)
    left = [str(path) for path in out.rglob("*") if is_unfinished(path)]
    # A recorder has no seed of its own to begin again from: its files must be readable and all there.
    same = found.keys() == wanted.keys() if name == "recorder" else found == wanted
    told = {} if last.returncode == 0 else {"said": last.stderr[-300:]}
    return {
        "command": name,
        "kills": killed,
        "exit": last.returncode,
        "same": same,
        "left": len(left),
        **told,
    }


if __name__ == "__main__":
    main()
