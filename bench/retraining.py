"""Training on cleaned labels against training on noisy ones: clean test accuracy, on cells of the label bench.

    UNDERTOW_DATA=... python bench/retraining.py --work DIR --cells names [--report FILE.csv]

Labels are cleaned as `undertow labels --clean relabel` and `--clean drop` do, or the first 500 in the order of review,
or 500 at random, get their true label, as a reviewer would give it. Frozen features: a logistic head; runs: the network
trained anew, at its last epoch.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")  # before torch reads them

import pandas as pd
import torch
from torch import Tensor

import undertow as ut
from _label_cells import CELLS, Cell, Material, Skipped, judged, material
from _label_learners import learner

REVIEWED = 500


def ways(held: Material) -> dict[str, tuple[Tensor, Tensor]]:
    """Which samples to learn from, with which labels."""
    found = ut.LabelErrors(judged(held), tuple(map(str, range(held.classes))))
    draws = torch.randperm(len(held.given), generator=torch.Generator().manual_seed(0))
    cleaned = {way: found.clean(way) for way in ("relabel", "drop")}
    every = (held.given >= 0).nonzero()[:, 0]
    return {
        "noisy": (every, held.given[every]),
        **{way: (one.sample, one.label) for way, one in cleaned.items()},
        "500 reviewed": reviewed(held, found.review_order(REVIEWED)),
        "500 at random": reviewed(held, draws[:REVIEWED]),
        "true labels": (every, held.true[every]),
    }


def reviewed(held: Material, rows: Tensor) -> tuple[Tensor, Tensor]:
    labels = held.given.index_copy(0, rows, held.true[rows])
    kept = (labels >= 0).nonzero()[:, 0]
    return kept, labels[kept]


def measure(cell: Cell, work: Path) -> dict[str, object]:
    held = material(cell, work)
    learns = learner(cell, held, work)
    reached = {name: learns(*one) for name, one in ways(held).items()}
    wrong = 100 * float((held.given != held.true)[held.given >= 0].float().mean())
    return {"cell": cell.name, "wrong %": wrong, **reached}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cells", required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--report", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    known = {cell.name: cell for cells in CELLS.values() for cell in cells}
    rows = []
    for name in given.cells.split(","):
        try:
            rows.append(measure(known[name], given.work))
            print(rows[-1], file=sys.stderr, flush=True)
        except Skipped as reason:
            print(f"{name}: left out, {reason}", file=sys.stderr)
    table = pd.DataFrame(rows)
    print(table.to_string(index=False, float_format="%.1f"))
    if given.report is not None:
        table.to_csv(given.report, index=False, float_format="%.2f")


if __name__ == "__main__":
    main()
