"""Finding wrong labels beside other methods, what repairs give back, and which checkpoint to keep.

python bench/labels.py [--full] [--data mnist,...] [--noise uniform:0.4,...] [--seeds 3] [--samples 5000] [--epochs 40]
                       [--work DIR] [--parts peers,ours,...] [--redo ours,...] [--report FILE.md] [--csv FILE]

Without --full: one small cell of embedded data. With it: MNIST, Fashion-MNIST and CIFAR-10 (set UNDERTOW_DATA), five
kinds of noise, three seeds; single settings can be given besides. A cell is a run of `undertow.train` in --work; each
of its parts is written there when it is done and never computed again, so that a bench that was killed goes on.

    peers       AUM, losses, kNN, cleanlab on features, pixels and the network's own probabilities, VeLPIC's sketch
    regularised cleanlab on a logistic regression that is held back
    network     cleanlab on probabilities of the network, cross-validated in five folds: the cost to compare with
    ours        undertow.label_errors on the run
    grafts      test accuracy of the last checkpoint, of its edited head and of grafts
    retrain     test accuracy after relabelling or dropping what `ours` suspects
    stopping    the checkpoint that 500 further samples with noisy labels choose, and the best in hindsight
    choice      the checkpoint that undertow chooses, without and with those 500
    places      the layer and checkpoint to graft a VeLPIC head on: as undertow and those 500 choose, and the best

One thread; seconds are CPU seconds. With 5,000 samples and 40 epochs a cell of MNIST takes 3.3 minutes (network 1.4,
retrain 0.7), of CIFAR-10 twice that. The tables hold all that is known of the cells asked for: parts that cost much
may be had for fewer seeds, with one call for each.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path

os.environ.update(
    OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1"
)  # before torch reads them

import pandas as pd
import torch

import undertow as ut
from _label_cells import Cell
from _label_repairs import Rows, chosen, grafts, places, retrained, stopping
from _label_report import as_markdown
from _label_scores import (
    Scores,
    Trace,
    cheap_scores,
    crossvalidated_scores,
    ranking_quality,
    regularised_scores,
)
from undertow.files import aside, write_text
from undertow.labels.findings import LabelErrors
from undertow.labels.search import label_errors

PARTS = ("peers", "regularised", "network", "ours", "grafts", "retrain", "stopping", "choice", "places")
OURS = "undertow"
VALIDATION = 500


@dataclass(frozen=True)
class Full:
    """What --full measures."""

    data: str = "mnist,fashion_mnist,cifar10"
    noise: str = "uniform:0.2,uniform:0.4,uniform:0.6,pairwise:0.3,instance:0.3"
    seeds: int = 3
    samples: int = 5000
    epochs: int = 40


@dataclass(frozen=True)
class Small(Full):
    """What a call without settings measures: under a minute, nothing to download."""

    data: str = "digits"
    noise: str = "uniform:0.4"
    seeds: int = 1
    samples: int = 1000
    epochs: int = 11


class CellWork:
    """One cell, its run and the files of its parts."""

    def __init__(self, cell: Cell, work: Path) -> None:
        self.cell, self.folder = cell, work / "cells" / cell.name
        self.run = cell.run(work)
        self.data = self.run.data()
        assert self.data.train.true is not None
        self.wrong = (self.data.train.y != self.data.train.true).numpy()

    @cached_property
    def found(self) -> tuple[LabelErrors, float]:
        """What undertow finds, and its seconds; reading the data is among them."""
        began = time.process_time()
        return label_errors(self.run), time.process_time() - began

    def do(self, part: str) -> None:
        """Compute a part and keep its rows."""
        began = time.process_time()
        rows = getattr(self, f"_{part}")()
        seconds = time.process_time() - began
        facts = {
            **self.cell.__dict__,
            "part": part,
            "part_seconds": seconds,
            "wrong": float(self.wrong.mean()),
        }
        kept = [{**facts, "name": name, **values} for name, values in rows.items()]
        write_text(self.folder / f"{part}.json", json.dumps(kept, indent=1))

    def _peers(self) -> Rows:
        return self._judged(cheap_scores(Trace.of(self.run, self.data), self.cell.seed))

    def _regularised(self) -> Rows:
        return self._judged(regularised_scores(Trace.of(self.run, self.data), self.cell.seed))

    def _network(self) -> Rows:
        return self._judged(crossvalidated_scores(self.cell.config, self.data, self.cell.seed))

    def _ours(self) -> Rows:
        found, seconds = self.found
        rows = self._judged({OURS: (found.table["score"].to_numpy("float64"), seconds)})
        rows[OURS] |= {
            "noise_rate": found.noise_rate, "noise_low": found.noise_low, "noise_high": found.noise_high,
        }  # fmt: skip
        return rows

    def _grafts(self) -> Rows:
        return grafts(self.run, self.data, self._validation())

    def _retrain(self) -> Rows:
        return retrained(self.run, self.data, self.found[0].table)

    def _stopping(self) -> Rows:
        return stopping(self.run, self.data, self._validation())

    def _choice(self) -> Rows:
        return chosen(self.run, self._validation(), self.found[0])

    def _places(self) -> Rows:
        return places(self.run, self.data, self._validation(), self.found[0])

    def _judged(self, scores: Scores) -> Rows:
        return {
            name: ranking_quality(score, self.wrong) | {"seconds": seconds}
            for name, (score, seconds) in scores.items()
        }

    def _validation(self) -> ut.Samples:
        return self.cell.validation(min(VALIDATION, self.cell.samples // 10))


def compute(cells: list[Cell], parts: list[str], redo: list[str], work: Path) -> None:
    for cell in cells:
        folder = work / "cells" / cell.name
        missing = [part for part in parts if part in redo or not (folder / f"{part}.json").exists()]
        if not missing:
            continue
        began = time.process_time()
        one = CellWork(cell, work)
        print(f"{cell.name}: run {time.process_time() - began:.1f} s", end="", flush=True)
        for part in missing:
            began = time.process_time()
            one.do(part)
            print(f", {part} {time.process_time() - began:.1f} s", end="", flush=True)
        print(flush=True)


def results(cells: list[Cell], work: Path) -> pd.DataFrame:
    """All that is known of these cells, one row per method or repair."""
    files = [path for cell in cells for path in sorted((work / "cells" / cell.name).glob("*.json"))]
    return pd.DataFrame([row for path in files for row in json.loads(path.read_text())])


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--data")
    parser.add_argument("--noise")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--samples", type=int)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--model", default="mlp:512-512")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--redo", default="")
    parser.add_argument("--work", type=Path)
    parser.add_argument("--report", type=Path)
    parser.add_argument("--csv", type=Path)
    given = parser.parse_args()
    for name, value in (Full() if given.full else Small()).__dict__.items():
        if getattr(given, name) is None:
            setattr(given, name, value)
    for name in (*given.parts.split(","), *filter(None, given.redo.split(","))):
        if name not in PARTS:
            parser.error(f"there is no part {name!r}; there are {', '.join(PARTS)}")
    return given


def main() -> None:
    given = options()
    torch.set_num_threads(1)
    # Seeds outermost: what a bench has when it is stopped early is every setting once, not one setting often.
    cells = [
        Cell(data, noise, seed, given.samples, given.epochs, given.model)
        for seed, data, noise in product(range(given.seeds), given.data.split(","), given.noise.split(","))
    ]
    with tempfile.TemporaryDirectory() as scratch:
        work = given.work or Path(scratch)
        compute(cells, given.parts.split(","), [name for name in given.redo.split(",") if name], work)
        table = results(cells, work)
        if given.work is not None or given.csv is not None:
            with aside(given.csv or work / "results.csv") as path:
                table.to_csv(path, index=False)
    text = as_markdown(table, ours=OURS)
    print(text)
    if given.report is not None:
        write_text(given.report, text)


if __name__ == "__main__":
    main()
