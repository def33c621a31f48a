"""A long run for real: 200 checkpoints x 10 layers of a small network; the plan, seconds, memory, disk and page.

    python bench/long.py [--work DIR] [--checkpoints 200] [--layers 10] [--verb audit|probe]

The run is made by a few steps of plain training between two checkpoints. Seconds are the processor's, memory is the
peak of the whole process, disk is what is left in the folder.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
import warnings
from pathlib import Path

import torch
from torch import nn

import undertow as ut
from undertow.report.page import write_report

WIDTH, CLASSES, TRAIN, TEST = 64, 10, 1000, 500
PROBES = ("masc", "velpic", "lda")
"""Closed-form ones; logistic probes are their own subject."""


def net(layers: int) -> nn.Module:
    parts = [
        part for at in range(layers) for part in (nn.Linear(WIDTH if at else 32, WIDTH), nn.ReLU())
    ]  # fmt: skip
    return nn.Sequential(*parts, nn.Linear(WIDTH, CLASSES))


def some(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    centres = torch.randn(CLASSES, 32, generator=torch.Generator().manual_seed(0))
    draw = torch.Generator().manual_seed(seed)
    y = torch.randint(CLASSES, (count,), generator=draw)
    return centres[y] + torch.randn(count, 32, generator=draw), y


def recorded(folder: Path, layers: int, checkpoints: int) -> None:
    torch.manual_seed(0)
    model, (x, y) = net(layers), some(TRAIN, 1)
    y = torch.where(torch.rand(len(y)) < 0.2, torch.randint(CLASSES, (len(y),)), y)
    torch.save((x, y), folder.parent / "train.pt")
    optimiser = torch.optim.Adam(model.parameters(), 1e-3)
    with ut.Recorder(folder) as recorder:
        for at in range(checkpoints):
            recorder.save(model, at)
            for rows in torch.randperm(len(x)).split(250):
                nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
                optimiser.step()
                optimiser.zero_grad()


def size_of(folder: Path) -> float:
    return sum(one.stat().st_size for one in folder.rglob("*") if one.is_file()) / 1e6


def peak() -> float:
    found = re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())
    return int(found[1]) / 1e3 if found else float("nan")


class Told:
    """Prints the plan as a user sees it."""

    def plan(self, words: str, steps: int) -> None:
        print(f"plan: {words}", flush=True)

    def step(self, what: str, share: float) -> None:
        pass

    def close(self) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "undertow-bench")
    parser.add_argument("--checkpoints", type=int, default=200)
    parser.add_argument("--layers", type=int, default=10)
    parser.add_argument("--verb", choices=("audit", "probe"), default="audit")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    folder = asked.work / f"run-{asked.checkpoints}-{asked.layers}"
    if not folder.exists():
        asked.work.mkdir(parents=True, exist_ok=True)
        recorded(folder, asked.layers, asked.checkpoints)
    train, test = torch.load(asked.work / "train.pt"), some(TEST, 2)
    run = ut.open_run(folder, model=lambda: net(asked.layers))
    out, before, began = folder / f"out-{asked.verb}", peak(), time.process_time()
    names = [str(2 * at + 1) for at in range(asked.layers)]
    if asked.verb == "audit":
        ut.audit(run, train, test, layers=names, probes=PROBES, full=True, out=out, progress=Told())
    else:
        ut.probe_grid(run, train, test, layers=names, probes=PROBES, out=out, progress=Told())
    spent = time.process_time() - began
    words = f"{asked.verb}, {asked.checkpoints} checkpoints x {asked.layers} layers: {spent:.1f} s"
    words += f", peak {peak():.0f} MB ({before:.0f} before), {size_of(out):.1f} MB kept"
    if asked.verb == "audit":
        began = time.process_time()
        page = write_report([out], out / "page.html")
        taken = time.process_time() - began
        words += (
            f", page {Path(page).stat().st_size / 1e6:.2f} MB in {taken:.1f} s, whole peak {peak():.0f} MB"
        )
    print(words)


if __name__ == "__main__":
    main()
