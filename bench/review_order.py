"""Test accuracy gained by reviewing suspected labels, in several orders, on cells of the label bench.

    UNDERTOW_DATA=... python bench/review_order.py --work DIR --cells names [--networks] [--report FILE.csv]

A reviewer gives the true label. A logistic head on the cell's frozen features or inputs, or with --networks the network
of a run trained anew, then learns from all labels and is tested on clean samples. Gains are points over no review;
"random" is the mean of two draws of all labels.
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
from retraining import reviewed

COUNTS = (100, 300, 500)
DRAWS = 2


def orders_of(found: ut.LabelErrors) -> dict[str, list[Tensor]]:
    """Sample numbers in the orders compared; several draws of those by chance."""
    by_score = found.scores.argsort(descending=True, stable=True)
    by_score = by_score[found.found.judged[by_score]]
    suspects = by_score[found.flagged[by_score]]
    others = by_score[~found.flagged[by_score]]
    by_chance = [torch.Generator().manual_seed(seed) for seed in range(DRAWS)]
    return {
        "random": [by_score[torch.randperm(len(by_score), generator=one)] for one in by_chance],
        "random suspects": [
            torch.cat([suspects[torch.randperm(len(suspects), generator=one)], others]) for one in by_chance
        ],
        "score": [torch.cat([suspects, others])],
        "review order": [found.review_order(len(by_score))],
    }


def measure(cell: Cell, held: Material, work: Path, *, networks: bool) -> list[dict[str, object]]:
    """Gains of all orders on one cell."""
    found = ut.LabelErrors(judged(held), tuple(map(str, range(held.classes))))
    learns = learner(cell, held, work, head=not networks)
    before = learns(*reviewed(held, torch.empty(0, dtype=torch.long)))
    rows = []
    for order, draws in orders_of(found).items():
        for count in COUNTS:
            gains = [learns(*reviewed(held, one[:count])) - before for one in draws]
            wrong = [float((held.given != held.true)[one[:count]].float().mean()) for one in draws]
            rows.append(
                {
                    "cell": cell.name,
                    "order": order,
                    "reviewed": count,
                    "gain": sum(gains) / len(gains),
                    "wrong among them": sum(wrong) / len(wrong),
                    "before": before,
                }
            )
    return rows


def main() -> None:
    """Print the gains, cell by cell, and their mean."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cells", required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--networks", action="store_true")
    parser.add_argument("--report", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    known = {cell.name: cell for cells in CELLS.values() for cell in cells}
    rows = list[dict[str, object]]()
    for name in given.cells.split(","):
        try:
            rows += measure(
                known[name], material(known[name], given.work), given.work, networks=given.networks
            )
            print(name, file=sys.stderr, flush=True)
        except Skipped as reason:
            print(f"{name}: left out, {reason}", file=sys.stderr)
    table = pd.DataFrame(rows)
    for index in (["cell", "order"], ["order"]):
        print(table.pivot_table("gain", index, "reviewed", sort=False).round(2).to_string())
    if given.report is not None:
        table.to_csv(given.report, index=False, float_format="%.3f")


if __name__ == "__main__":
    main()
