"""Choosing a checkpoint without clean labels: regret against held-out noisy labels, on runs of the label bench.

    UNDERTOW_DATA=... python bench/choosing.py --work DIR [--cells fresh or names]

Held-out samples (1,000, as noisy as the training labels) are others than those of the run. Regret: the best test
accuracy of any kept checkpoint, on 5,000 clean test pictures, less that of the chosen one; in points.
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
from _label_cells import CELLS, Cell, Skipped, material, noisy_labels, rows_of
from _label_learners import accuracy_of
from undertow.data.inputs import to_inputs

HELD_OUT = 1000


def held_out_of(cell: Cell, data: ut.DataSet) -> tuple[Tensor, Tensor]:
    """Pictures that the run has not seen, and labels as noisy as its own."""
    used = torch.zeros(len(data.train.y), dtype=torch.bool).index_fill(
        0, rows_of(cell, data.train.y), value=True
    )
    if cell.noise.startswith("people"):
        used[12_500:] = True  # nobody labelled those
    free = (~used).nonzero()[:, 0]
    rows = free[torch.randperm(len(free), generator=torch.Generator().manual_seed(7))[:HELD_OUT]]
    flat = to_inputs(data.train.tensor[rows], data.scaling).flatten(1)
    return data.train.tensor[rows], noisy_labels(cell, flat, data.train.y[rows], rows, len(data.classes))


def measure(cell: Cell, work: Path) -> dict[str, object]:
    """Regrets of one run."""
    material(cell, work)  # trains it, if that was not done
    run, data = ut.open_run(work / "runs" / cell.name), ut.load_data(cell.data)
    alone = ut.choose_checkpoint(run)
    both = ut.choose_checkpoint(run, test=held_out_of(cell, data), errors=alone.errors)
    table = both.table
    epochs = [int(epoch) for epoch in table["epoch"]]
    reached = {epoch: accuracy_of(run, data, epoch) for epoch in epochs}
    chosen = {
        "without held-out": alone.epoch,
        "with held-out": both.epoch,
        "noisy validation": int(table.loc[table["held_out"].idxmax(), "epoch"]),
        "last": epochs[-1],
    }
    best = max(reached.values())
    return {"cell": cell.name, "best": best, **{name: best - reached[at] for name, at in chosen.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cells", default="fresh")
    parser.add_argument("--work", type=Path, required=True)
    given = parser.parse_args()
    asked = given.cells.split(",")
    torch.set_num_threads(1)
    rows = []
    for role, cells in CELLS.items():
        for cell in cells:
            if (role in asked or cell.name in asked) and cell.trains and cell.noise != "clean":
                try:
                    rows.append(measure(cell, given.work))
                    print(rows[-1], file=sys.stderr, flush=True)
                except Skipped as reason:
                    print(f"{cell.name}: left out, {reason}", file=sys.stderr)
    table = pd.DataFrame(rows)
    print(table.to_string(index=False, float_format="%.2f"))
    print(table.drop(columns=["cell", "best"]).mean().to_string(float_format="%.2f"))


if __name__ == "__main__":
    main()
