"""Wrong labels beside other methods: ranking, decision, rate, proposals and seconds, cell by cell.

python bench/labels.py [--cells small,chosen,looked,fresh or names] [--work DIR] [--no-peers]
                       [--folds] [--csv FILE.csv] [--page FILE.md]

Without --cells: one small cell of embedded data. --folds adds cleanlab on a cross-validated network to the peers of
runs, which trains each five times more. --csv keeps rows of cells that are not measured now, and with --no-peers what
peers reached on the same labels; --page makes the marked parts of a page anew from it. Runs, features and peers are
kept in --work, so that a bench that was stopped goes on; training all runs took an hour and a half of one core. Cells
whose data or packages are not here are named and left out. One thread; seconds are CPU seconds of `judge_labels` alone,
features and outputs being at hand.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")  # before torch reads them

import numpy as np
import pandas as pd
import torch
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import Tensor

from _label_cells import CELLS, Cell, Material, Skipped, cross_validated, judged, material
from _label_page import goals, losses, rewritten, stored
from _label_peers import best_by_family, by_folds, peers
from undertow.files import write_text
from undertow.labels.judge import LabelBeliefs


def row(cell: Cell, role: str, held: Material) -> dict[str, Any]:
    """What undertow says of a cell."""
    began = time.process_time()
    found = judged(held)
    seconds = time.process_time() - began
    mine, answer = found.judged, found.rate
    wrong = (held.given != held.true) & mine
    rate = float(wrong[mine].float().mean())
    facts = {
        "cell": cell.name, "role": role, "samples": int(mine.sum()), "wrong": rate, "value": answer.value,
        "low": answer.low, "high": answer.high, "told": answer.told, "covered": answer.low <= rate <= answer.high,
        "flagged": float(found.flagged[mine].float().mean()), "seconds": seconds, "doubt": found.evidence.doubt,
        "honest": found.evidence.honest, "everyone": found.evidence.everyone,
    }  # fmt: skip
    return facts | (_found(found, wrong, held.true) if rate else {})


def _found(found: LabelBeliefs, wrong: Tensor, true: Tensor) -> dict[str, Any]:
    mine, proposed = found.judged, found.proposed
    truth, scores = wrong[mine].numpy(), found.scores[mine].numpy()
    at_true = torch.zeros_like(mine)
    at_true[found.scores.topk(int(wrong.sum())).indices] = True
    seen = found.flagged & wrong
    right = (proposed == true).float()
    return {
        "AP": average_precision_score(truth, scores), "AUROC": roc_auc_score(truth, scores),
        "F1": _f1(found.flagged, wrong), "F1 at true rate": _f1(at_true, wrong),
        "right on flagged wrong": float(right[seen].mean()),
        "right of proposed": float(right[seen & (proposed >= 0)].mean()),
    }  # fmt: skip


def _f1(flagged: Tensor, wrong: Tensor) -> float:
    return float(2 * (flagged & wrong).sum() / (flagged.sum() + wrong.sum()).clamp(min=1))


def beside(cell: Cell, held: Material, work: Path, *, folds: bool = False) -> dict[str, Any]:
    """What peers reach, measured once; with `folds`, cleanlab on a cross-validated network of the run too."""
    path = work / "peers" / f"{cell.name}.json"
    said = json.loads(path.read_text()) if path.exists() else _peers_of(held)
    if (
        folds
        and cell.trains
        and said["ap"]
        and not any(name.startswith("cleanlab, cross") for name in said["ap"])
    ):
        said["ap"] |= _precisions(by_folds(cross_validated(cell, held, work), held.given), held)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(said, indent=1))
    top = max(said["ap"], key=lambda name: said["ap"][name], default=None)
    best = {} if top is None else {"best peer": top, "best peer AP": said["ap"][top]}
    families = {f"peer {name}": value for name, value in best_by_family(said["ap"]).items()}
    return {**families, **best, "LDA right on wrong": said["lda"]}


def _peers_of(held: Material) -> dict[str, Any]:
    if bool((held.given == held.true)[held.given >= 0].all()):
        return {"ap": {}, "lda": None}  # nothing to rank
    found = peers(held)
    return {"ap": _precisions(found.scores, held), "lda": found.right_by_discriminant()}


def _precisions(scores: dict[str, Tensor], held: Material) -> dict[str, float]:
    wrong = (held.given != held.true)[held.given >= 0].numpy()
    return {name: float(average_precision_score(wrong, one.nan_to_num())) for name, one in scores.items()}


def measure(asked: list[str], work: Path, *, with_peers: bool, folds: bool) -> pd.DataFrame:
    rows = []
    for role, cells in CELLS.items():
        for cell in cells:
            if role not in asked and cell.name not in asked:
                continue
            try:
                held = material(cell, work)
            except Skipped as reason:
                print(f"{cell.name}: left out, {reason}", file=sys.stderr)
                continue
            rows.append(row(cell, role, held) | (beside(cell, held, work, folds=folds) if with_peers else {}))
            print(f"{cell.name}: AP {_three(rows[-1].get('AP')) or 'none'}", file=sys.stderr, flush=True)
    return pd.DataFrame(rows)


def _three(value: Any) -> str:
    return "" if value is None or pd.isna(value) else f"{value:.3f}".removeprefix("0")


def merged(table: pd.DataFrame, path: Path) -> pd.DataFrame:
    """With rows that a csv holds of other cells, in the order of the cells."""
    before = pd.read_csv(path) if path.exists() else table.iloc[:0]
    both = pd.concat([_with_peers(table, before), before[~before["cell"].isin(table["cell"])]])
    order = {cell.name: (role, place) for role, cells in CELLS.items() for place, cell in enumerate(cells)}
    both = both[both["cell"].isin(order)]
    both["role"] = [order[name][0] for name in both["cell"]]
    return both.sort_values(
        "cell", key=lambda names: names.map(lambda name: (order[name][0], order[name][1]))
    )


def _with_peers(table: pd.DataFrame, before: pd.DataFrame) -> pd.DataFrame:
    """With what a csv knows of peers, where none were measured now and the labels are the same."""
    if "best peer" in table and table["best peer"].notna().any():
        return table
    known = before.set_index("cell")
    columns = [name for name in known if "peer" in str(name) or name == "LDA right on wrong"]
    kept = known[columns].reindex(table["cell"])
    same = np.isclose(known["wrong"].reindex(table["cell"]), table["wrong"], atol=1e-4)  # csv: four digits
    return table.drop(columns=columns, errors="ignore").join(kept[same], on="cell")


def main() -> None:
    known = {*CELLS, *(cell.name for cells in CELLS.values() for cell in cells)}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cells", default="small")
    parser.add_argument("--work", type=Path)
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--folds", action="store_true")
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--page", type=Path)
    given = parser.parse_args()
    asked = given.cells.split(",")
    if unknown := [name for name in asked if name not in known]:
        parser.error(f"there is no cell {unknown[0]!r}; there are {', '.join(sorted(known))}")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        table = measure(asked, given.work or Path(scratch), with_peers=not given.no_peers, folds=given.folds)
    if not len(table):
        print("No cell could be measured here.")
        return
    table = stored(table) if given.csv is None else stored(merged(table, given.csv))
    if given.csv is not None:
        table.to_csv(given.csv, index=False, float_format="%.4f")
        table = pd.read_csv(given.csv)  # the page says what the file says, to the last digit
    if given.page is not None:
        write_text(given.page, rewritten(given.page.read_text(), table))
    print(table.to_string(index=False, float_format="%.3f"))
    print(goals(table), losses(table), sep="\n")


if __name__ == "__main__":
    main()
