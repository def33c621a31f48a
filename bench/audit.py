"""Whole audits, side by side with another version of undertow: CPU seconds of one thread, rows, and passes.

    python bench/audit.py --work /tmp/audits                          # this version alone
    git worktree add ../before d792d1d
    python bench/audit.py --work /tmp/audits --before ../before/src   # and the ratio to that one
    python bench/audit.py --work /tmp/audits --floor                  # closed-form probes against their floor, by stage

Three runs: the demo; an MLP 128-512-2048-2048 on 5,000 MNIST pictures with 8 checkpoints; a CNN on 2,000 CIFAR-10
pictures with 6 (real data: UNDERTOW_DATA). Each version audits its own copy of a run in a process of its own. Rows are
matched by all their coordinates; names that changed since the other version are translated.

The floor of MASC and VeLPIC is bare passes over both splits, and for each class and set of labels the smaller product
of its rows (X X^T or X^T X); then with what MASC cannot do without: eigenvectors in float64, and the products of all
samples with those that hold 99 % of the variance.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
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


FLOOR = """
import json, sys, time, warnings
from collections import Counter
warnings.simplefilter("ignore")
import torch
import undertow as ut
from audit import bare
from undertow.session.sight import Sight
from undertow.session.visiting import Visiting
torch.set_num_threads(1)
stages = Counter()

def timed(owner, name, stage):
    whole = getattr(owner, name)
    def work(self, *given):
        began = time.process_time()
        try:
            return whole(self, *given)
        finally:
            stages[stage(*given)] += time.process_time() - began
    setattr(owner, name, work)

run, closed = ut.open_run(sys.argv[1]), {"probes": ("masc", "velpic"), "lenses": ("latent",), "full": True}
ut.audit(run, out=sys.argv[2] + "/warm", checkpoints="last", **closed)
floors = []
for decompose in (False, True):
    began = time.process_time()
    bare(run, decompose)
    floors.append(time.process_time() - began)
timed(Sight, "_take", lambda *_: "passes")
timed(Visiting, "_measure", lambda gauge, _: gauge.name.partition(" ")[0])
began = time.process_time()
ut.audit(run, out=sys.argv[2] + "/closed", **closed)
whole = time.process_time() - began
stages["the rest"] = whole - sum(stages.values())
print(json.dumps({"whole": whole, "floors": floors, "stages": stages}))
"""


def bare(run: ut.Run, decompose: bool) -> None:
    """Passes over both splits, and what each class of each set of labels cannot do without.

    With `decompose` that is MASC's: eigenvectors, and all samples' products with those of 99 % of the variance.
    """
    import torch

    from undertow.features.stream import stream_features

    session = ut.Session(run)
    train, test, layers = (
        session.samples.split("train"),
        session.samples.split("test"),
        session.layers("auto"),
    )
    sets = (*train.label_sets().values(), train.y.flip(0))

    def masc(product: torch.Tensor, own: torch.Tensor, rows: torch.Tensor) -> None:
        values, vectors = torch.linalg.eigh(product.double())
        count = int((values.flip(0).cumsum(0) < 0.99 * values.sum()).sum()) + 1
        found = vectors[:, -count:].float()
        _ = rows @ (found if len(product) == rows.shape[1] else own.T @ found)

    for at in run.epochs:
        reader = session.reader(session.model(at))
        passed = [
            list(stream_features(reader.model, split.x, layers, prepare=reader.inputs))
            for split in (train, test)
        ]
        for name in layers:
            rows, held = (torch.cat([part.features[name] for part in parts]) for parts in passed)
            both = torch.cat([rows, held]) if decompose else rows
            for own in (rows[labels == c] for labels in sets for c in range(len(session.samples.classes))):
                product = own @ own.T if len(own) < rows.shape[1] else own.T @ own
                if decompose:
                    masc(product, own, both)


def against_floor(run: Path, work: Path) -> str:
    """A line of the table: seconds, floors, and what took how long."""
    here = [str(Path(ut.__file__).parents[1]), str(Path(__file__).parent)]
    one = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(here)}
    shutil.rmtree(work, ignore_errors=True)
    command = [sys.executable, "-c", FLOOR, str(run), str(work)]
    done = subprocess.run(command, env=os.environ | one, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    whole, (plain, decomposed) = found["whole"], found["floors"]
    stages = ", ".join(f"{name} {spent:.2g}" for name, spent in found["stages"].items())
    ratios = f"{plain:.2f} | {whole / plain:.1f} | {decomposed:.2f} | {whole / decomposed:.1f}"
    return f"| {run.name} | {whole:.2f} | {ratios} | {stages} |"


def audited(source: Path, run: Path) -> float:
    """CPU seconds of an audit of `run` by the undertow in `source`, with one maths thread."""
    one = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONPATH": str(source)}
    done = subprocess.run(
        [sys.executable, "-c", AUDIT, str(run)], env=os.environ | one, capture_output=True, text=True, check=True
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])["seconds"]


def made(name: str, work: Path) -> Path:
    """The run, trained once."""
    if not (work / name / "run.json").exists():
        ut.train(**RUNS[name], out=work / name)  # pyright: ignore[reportArgumentType]
    return work / name


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
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "undertow-bench")
    parser.add_argument("--before", type=Path)
    parser.add_argument("--runs", default=",".join(RUNS))
    parser.add_argument("--floor", action="store_true")
    asked = parser.parse_args()
    if asked.floor:
        print("| run | MASC and VeLPIC s | floor s | times | with MASC's own s | times | stages s |")
        print("|---|---|---|---|---|---|---|")
        for name in asked.runs.split(","):
            print(against_floor(made(name, asked.work), asked.work / f"{name}-closed"), flush=True)
        return
    print("| run | before s | now s | ratio | rows in both | rows that differ |\n|---|---|---|---|---|---|")
    for name in asked.runs.split(","):
        home = made(name, asked.work)
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
