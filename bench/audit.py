"""Whole audits, side by side with another version of undertow: CPU seconds of one thread, rows, and passes.

    python bench/audit.py --work /tmp/audits                          # this version alone
    git worktree add ../before d792d1d
    python bench/audit.py --work /tmp/audits --before ../before/src   # and the ratio to that one

Three runs: the demo; an MLP 128-512-2048-2048 on 5,000 MNIST pictures with 8 checkpoints; a CNN on 2,000 CIFAR-10
pictures with 6 (real data: UNDERTOW_DATA). Each version audits its own copy of a run in a process of its own. Rows are
matched by all their coordinates; names that changed since the other version are translated.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd

import undertow as ut

RUNS = {
    "demo": {"what": "mlp:256-256-256", "data": "digits", "noise": 0.4, "epochs": 60},
    "mlp": {
        "what": "mlp:128-512-2048-2048", "data": "mnist", "noise": 0.4, "train_size": 5000, "test_size": 2000,
        "epochs": 30, "checkpoints": "0,1,2,4,8,16,24,30",
    },
    "cnn": {
        "what": "cnn", "data": "cifar10", "noise": 0.4, "train_size": 2000, "test_size": 1000, "epochs": 15,
        "checkpoints": "0,1,3,6,10,15",
    },
}  # fmt: skip
SAME = {"s_init": "initial_kernel_alignment", "parameter_norm": "squared_parameter_norm"}
KEYS = [
    "lens", "measure", "checkpoint", "layer", "split", "probe", "fit", "labels", "shallow", "position", "sample"
]  # fmt: skip
AUDIT = """
import json, sys, time, warnings
import undertow as ut
warnings.simplefilter("ignore")
run = ut.open_run(sys.argv[1])
began = time.process_time()
ut.audit(run)
print(json.dumps({"seconds": time.process_time() - began}))
"""


def audited(source: Path, run: Path) -> float:
    """CPU seconds of an audit of `run` by the undertow in `source`, with one maths thread."""
    one = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONPATH": str(source)}
    done = subprocess.run(
        [sys.executable, "-c", AUDIT, str(run)], env=os.environ | one, capture_output=True, text=True, check=True
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])["seconds"]


def differing(before: Path, after: Path) -> tuple[int, int]:
    """How many rows both tables have, and how many of those differ by more than 1e-6."""
    old, new = (_keyed(pd.read_parquet(path / "audit.parquet")) for path in (before, after))
    both = old.merge(new, on=KEYS, suffixes=("_old", "_new"))
    off = (both["value_old"] - both["value_new"]).abs() / both["value_old"].abs().clip(lower=1e-9)
    return len(both), int((off > 1e-6).sum())


def _keyed(table: pd.DataFrame) -> pd.DataFrame:
    table = table.assign(measure=table["measure"].replace(SAME))
    for name in KEYS:
        table[name] = table[name].map(
            lambda value: "" if pd.isna(value) else f"{value:.6g}" if not isinstance(value, str) else value
        )
    return table[[*KEYS, "value"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--runs", default=",".join(RUNS))
    asked = parser.parse_args()
    print("| run | before s | now s | ratio | rows in both | rows that differ |\n|---|---|---|---|---|---|")
    for name in asked.runs.split(","):
        home = asked.work / name
        if not (home / "run.json").exists():
            ut.train(**RUNS[name], out=home)  # pyright: ignore[reportArgumentType]
        copies = {which: asked.work / f"{name}-{which}" for which in ("now", "before")}
        for copy in copies.values():
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(home, copy)
        now = audited(Path(ut.__file__).parents[1], copies["now"])
        if asked.before is None:
            print(f"| {name} | | {now:.1f} | | | |")
            continue
        before = audited(asked.before, copies["before"])
        rows, off = differing(copies["before"], copies["now"])
        print(f"| {name} | {before:.1f} | {now:.1f} | {before / now:.2f} | {rows} | {off} |", flush=True)


if __name__ == "__main__":
    main()
