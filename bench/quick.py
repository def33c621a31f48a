"""What a reader asks first, in under three minutes: floors, peers, growth, many classes. Writes docs/benchmarks.md.

    make bench QUICK=1
    python bench/quick.py --part many          # one part: many, peers, floor or growth; prints, writes nothing

All numbers are processor seconds of one thread, so that a busy machine changes them little. A floor is what the job
cannot do without: bare forward passes and the products of matrices, at the speed measured beside it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

import undertow as ut
from _ratio import machine
from audit import bare
from peers import TITLES, Row, cka_pair, knn, label_growth, logistic, probes, row, seconds
from undertow.features.class_sums import ClassSums
from undertow.features.sketch import ClassSketches
from undertow.latent.layer import PROBES

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
BEGIN, END = "<!-- quick: begin -->", "<!-- quick: end -->"


# ---------------------------------------------------------------------- 1,280,000 x 2,048 x 1,000


def many(count: int = 16_384, whole: int = 1_280_000, dim: int = 2048, classes: int = 1000) -> list[Row]:
    """A part is streamed from a generator; all steps grow in proportion to the rows."""
    draw = torch.Generator().manual_seed(0)
    centres = torch.randn(classes, dim, generator=draw)
    y = torch.randint(classes, (count,), generator=draw)
    batches = [
        (torch.randn(len(own), dim, generator=draw) + centres[own], own) for own in y.split(512)
    ]  # made before the clock starts
    a = torch.randn(1024, dim, generator=draw)
    speed = 2 * 1024 * dim**2 / seconds(lambda: a.T @ a, 3)
    floor = count * dim**2 / speed  # half of the matrix

    # Fewer classes for the sketches, so that they fill up and shrink as those of all rows would; the cost is by row.
    sums, sketches = ClassSums(dim, classes), ClassSketches(dim, classes // 10, 16)

    def gather() -> None:
        for rows, own in batches:
            sums.add(rows, [own])
        sums.settle()

    def sketch() -> None:
        for rows, own in batches:
            sketches.add(rows, own % (classes // 10))

    times, scale = {"sums": seconds(gather), "sketch": seconds(sketch)}, whole / count
    lda = PROBES["lda"]()
    fit = seconds(lambda: lda.fit_moments(sums.pooled()))
    answer = seconds(lambda: lda.predict(batches[0][0])) / 512
    gflops, size = f"{speed / 1e9:.0f} GFLOP/s", f"{whole:,} x {dim:,}, {classes:,} classes"
    return [
        row(f"{size}: class sums and one scatter ({count:,} rows measured, floor at {gflops})",
            times["sums"] * scale, floor=floor * scale),
        row("... fitting LDA and nearest mean from them", fit),
        row("... LDA's answers to all rows", answer * whole, floor=whole * 2 * dim * classes / speed),
        row("... sketches of 16 rows a class, for MASC and VeLPIC", times["sketch"] * scale),
    ]  # fmt: skip


# ---------------------------------------------------------------------- peers


def peers() -> list[Row]:
    """Those of bench/peers.py that take seconds; the rest is there."""
    found = [*probes(), *knn(), *logistic((10,)), *cka_pair()]
    return [*found, *label_growth(((12_500, 30), (12_500, 200)))]


# ---------------------------------------------------------------------- an audit against its floor


def floor() -> list[Row]:
    """The demo's network: closed-form probes at all checkpoints, and the whole audit."""
    with tempfile.TemporaryDirectory() as folder:
        run = ut.train(
            "mlp:256-256-256", data="digits", noise=0.4, epochs=20, out=Path(folder) / "run"
        )  # fmt: skip
        run = ut.open_run(Path(folder) / "run")
        closed = {"probes": ("masc", "velpic"), "lenses": ("latent",), "layers": "auto"}
        ut.audit(run, out=Path(folder) / "warm", checkpoints="last", **closed)
        ours = seconds(lambda: ut.audit(run, out=Path(folder) / "a", **closed))
        whole = seconds(lambda: ut.audit(run, out=Path(folder) / "b"))
        floors = [seconds(lambda d=decompose: bare(run, d)) for decompose in (False, True)]
    count = len(run.epochs)
    return [
        row(f"audit of the demo's network, {count} checkpoints, MASC and VeLPIC", ours, floor=floors[0]),
        row(
            "... the floor with the eigenvectors of each class and their products with all samples, which MASC needs",
            ours,
            floor=floors[1],
        ),
        row("... all lenses, logistic probes and composites", whole),
    ]


# ---------------------------------------------------------------------- growth

AXES = {"n": 600, "d": 64, "C": 5, "layers": 2, "checkpoints": 2}
GROW = """
import json, re, sys, time, warnings
warnings.simplefilter("ignore")
import torch
from torch import nn
import undertow as ut
from undertow.report.page import write_report
folder, n, d, C, layers, checkpoints = sys.argv[1], *map(int, sys.argv[2:])
draw = torch.Generator().manual_seed(0)
centres = torch.randn(C, 32, generator=draw)
def some(count):
    y = torch.arange(count) % C
    return centres[y] + torch.randn(count, 32, generator=draw), y
def net():
    torch.manual_seed(0)
    hidden = [part for at in range(layers) for part in (nn.Linear(d if at else 32, d), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(d, C))
model, (x, y) = net(), some(n)
with ut.Recorder(folder) as recorder:
    for at in range(checkpoints):
        for _ in range(3):
            model.zero_grad(); nn.functional.cross_entropy(model(x), y).backward()
            with torch.no_grad():
                for p in model.parameters(): p -= 0.1 * p.grad
        recorder.save(model, at + 1)
run, test = ut.open_run(folder, model=net), some(n // 4)
names = [str(2 * at + 1) for at in range(layers)]
few = x[:60], y[:60]
ut.probe_grid(run, few, few, layers=names, probes=("velpic", "lda"), out=folder + "/w", fits="given")
found = {}
def peak():
    # Of this process alone: getrusage's would begin with that of its parent.
    return int(re.search("VmHWM:[^0-9]*([0-9]+)", open("/proc/self/status").read())[1]) / 1024
def timed(name, work):
    began = time.process_time(); work()
    found[name] = [time.process_time() - began, peak()]
timed("probe", lambda: ut.probe_grid(run, (x, y), test, layers=names, probes=("velpic", "lda"), out=folder + "/p"))
timed("audit", lambda: ut.audit(run, (x, y), test, layers=names, probes=("velpic", "lda"), out=folder + "/a",
                                lenses=("latent", "richness", "temporal")))
timed("labels", lambda: ut.label_errors(ut.Session(run, (x, y), out=folder + "/l"), layers=names))
timed("report", lambda: write_report([folder + "/a"], folder + "/r.html"))
print(json.dumps(found))
"""


def growth(factor: int = 4) -> list[Row]:
    """Log-log slopes of processor seconds and of peak memory where one size is `factor` times larger."""
    with tempfile.TemporaryDirectory() as folder:
        base = _grown(Path(folder) / "base", AXES)
        grown = [_grown(Path(folder) / axis, {**AXES, axis: factor * AXES[axis]}) for axis in AXES]

    def slope(verb: str, after: dict[str, list[float]], which: int) -> str:
        return f"{math.log(max(after[verb][which], 1e-3) / max(base[verb][which], 1e-3), factor):.2f}"

    return [
        [
            f"`{verb}`",
            f"{base[verb][0]:.2g}",
            *(f"{slope(verb, one, 0)} / {slope(verb, one, 1)}" for one in grown),
        ]
        for verb in base
    ]


def _grown(folder: Path, sizes: dict[str, int]) -> dict[str, list[float]]:
    one = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    command = [sys.executable, "-c", GROW, str(folder), *map(str, sizes.values())]
    done = subprocess.run(command, env=os.environ | one, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


PARTS = {"many": many, "peers": peers, "floor": floor, "growth": growth}


def _table(titles: list[str], rows: list[Row]) -> str:
    return "\n".join(f"| {' | '.join(one)} |" for one in [titles, ["---"] * len(titles), *rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=PARTS)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    parts = [asked.part] if asked.part else list(PARTS)
    began = time.perf_counter()
    found = {part: PARTS[part]() for part in parts}
    sizes = ["slope of time / of peak memory", "s", *AXES]
    slopes, rows = found.pop("growth", []), [one for part in found.values() for one in part]
    tables = [_table(titles, part) for titles, part in ((TITLES, rows), (sizes, slopes)) if part]
    text = "\n\n".join([f"Processor seconds of one thread ({machine()}).", *tables])
    print(f"{text}\n\n{time.perf_counter() - began:.0f} s in all")
    if not asked.part:
        page = PAGE.read_text()
        before, _, rest = page.partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
