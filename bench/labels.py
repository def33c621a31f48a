"""Wrong labels beside other methods: ranking, decision, rate, proposals and seconds, cell by cell.

python bench/labels.py [--cells small,chosen,looked,fresh or names] [--work DIR] [--no-peers] [--report FILE.md]

Without --cells: one small cell of embedded data. Runs, features and peers are kept in --work, so that a bench that was
stopped goes on; training all runs took an hour and a half of one core. Cells whose data or packages are not here are
named and left out. One thread; seconds are CPU seconds of `judge_labels` alone, features and outputs being at hand.
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

import pandas as pd
import torch
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import Tensor

from _label_cells import CELLS, Cell, Material, Skipped, cross_validated, judged, material
from _label_peers import FAMILIES, best_by_family, by_folds, peers
from undertow.files import write_text
from undertow.labels.judge import LabelBeliefs

TITLES = {
    "small": "Small",
    "chosen": "The method was chosen on these",
    "looked": "Looked at while the method was changed",
    "fresh": "Measured once the method was final",
}


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


def beside(cell: Cell, held: Material, work: Path) -> dict[str, Any]:
    """What peers reach, measured once."""
    path = work / "peers" / f"{cell.name}.json"
    if not path.exists():
        found = peers(held)
        if (work / "folds" / f"{cell.name}.pt").exists():
            found.scores |= by_folds(cross_validated(cell, held, work), held.given)
        scores = found.scores if found.wrong.any() else {}
        ap = {
            name: float(average_precision_score(found.wrong, one.nan_to_num()))
            for name, one in scores.items()
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps({"ap": ap, "lda": found.right_by_discriminant()}, indent=1))
    said = json.loads(path.read_text())
    top = max(said["ap"], key=lambda name: said["ap"][name], default=None)
    best = {} if top is None else {"best peer": top, "best peer AP": said["ap"][top]}
    families = {f"peer {name}": value for name, value in best_by_family(said["ap"]).items()}
    return {**families, **best, "LDA right on wrong": said["lda"]}


def goals(table: pd.DataFrame) -> list[str]:
    """Each goal, counted."""
    noisy, told = table[table["wrong"] > 0], table[table["told"]]
    lines = [
        f"rate: {int(table['covered'].sum())} of {len(table)} intervals hold the truth; told in {len(told)}, of which "
        f"{int(told['covered'].sum())} hold",
        f"cost: {table['seconds'].median():.1f} s median, {table['seconds'].max():.1f} s at most",
    ]
    if len(noisy):
        loss = noisy["F1 at true rate"] - noisy["F1"]
        lines.append(
            f"decision: F1 at most .03 below that at the true rate in {int((loss <= 0.03).sum())} of {len(noisy)}; "
            f"worst {loss.max():.3f} ({noisy.loc[loss.idxmax(), 'cell']})"
        )
    return lines + (_beside_peers(noisy) if "best peer AP" in noisy and len(noisy) else [])


def _beside_peers(noisy: pd.DataFrame) -> list[str]:
    judged = noisy[noisy["best peer AP"].notna()]
    gap = judged["AP"] - judged["best peer AP"]
    able = noisy[noisy["LDA right on wrong"] >= 2 / 3]
    right = int((able["right on flagged wrong"] >= 2 / 3).sum())
    return [
        f"ranking: at least the best peer in {int((gap >= -0.0005).sum())} of {len(judged)}; more than .02 behind in "
        f"{int((gap < -0.02).sum())}; worst {gap.min():+.3f} ({judged.loc[gap.idxmin(), 'cell']})",
        f"proposal: right on two thirds in {right} of {len(able)} cells where LDA is",
    ]


def as_markdown(table: pd.DataFrame) -> str:
    names = [name for name in FAMILIES if f"peer {name}" in table]
    head = ["cell", "wrong %", "answer %", "AP", *names, "F1 own / true rate", "proposals right / LDA", "s"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for one in table.to_dict("records"):
        span = f"{100 * one['low']:.0f}-{100 * one['high']:.0f}"
        answer = f"{100 * one['value']:.1f} ({span})" if one["told"] else f"cannot tell ({span})"
        cells = [one["cell"], f"{100 * one['wrong']:.1f}", answer + ("" if one["covered"] else " **missed**")]
        cells += [_three(one.get(name)) for name in ("AP", *(f"peer {name}" for name in names))]
        for pair in (("F1", "F1 at true rate"), ("right on flagged wrong", "LDA right on wrong")):
            cells.append(" / ".join(_three(one.get(name)) for name in pair))
        lines.append("| " + " | ".join([*cells, f"{one['seconds']:.1f}"]) + " |")
    return "\n".join(lines)


def _three(value: Any) -> str:
    return "" if value is None or pd.isna(value) else f"{value:.3f}".removeprefix("0")


def report(table: pd.DataFrame) -> str:
    parts = []
    for role, title in TITLES.items():
        part = table[table["role"] == role]
        if len(part):
            parts += [f"### {title}", "", as_markdown(part), "", *(f"- {line}" for line in goals(part)), ""]
    return "\n".join(parts)


def measure(asked: list[str], work: Path, *, with_peers: bool) -> pd.DataFrame:
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
            rows.append(row(cell, role, held) | (beside(cell, held, work) if with_peers else {}))
            print(f"{cell.name}: AP {_three(rows[-1].get('AP')) or 'none'}", file=sys.stderr, flush=True)
    return pd.DataFrame(rows)


def main() -> None:
    known = {*CELLS, *(cell.name for cells in CELLS.values() for cell in cells)}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cells", default="small")
    parser.add_argument("--work", type=Path)
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--report", type=Path)
    given = parser.parse_args()
    asked = given.cells.split(",")
    if unknown := [name for name in asked if name not in known]:
        parser.error(f"there is no cell {unknown[0]!r}; there are {', '.join(sorted(known))}")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        work = given.work or Path(scratch)
        table = measure(asked, work, with_peers=not given.no_peers)
        if len(table) and given.work is not None:
            table.to_csv(work / "results.csv", index=False, float_format="%.4f")
    text = report(table) if len(table) else "No cell could be measured here."
    print(text)
    if given.report is not None:
        write_text(given.report, text)


if __name__ == "__main__":
    main()
