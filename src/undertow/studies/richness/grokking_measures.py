"""What the grokking study measures: richness at every checkpoint, and before and after the change.

rows = grokking(run, case="division mod 97", seed=0)      # rows of a moment have moment="before" or "after"
"""

from __future__ import annotations

from undertow.studies.findings import row
from undertow.studies.richness.last_layer_measures import last_layer
from undertow.studies.task import Rows
from undertow.training.run import Run

FITTED = 0.98
"""Training accuracy from which the pairs count as fitted (the paper's is 100 %)."""


def grokking(run: Run, *, case: str, seed: int, samples: int = 10_000) -> Rows:
    """All measures at every checkpoint, and those of two moments again under names of their own."""
    rows = last_layer(run, case=case, seed=seed, checkpoints="all", samples=samples, labels=False)
    for moment, at in moments(run).items():
        there = [one for one in rows if one.get("checkpoint") == at]
        rows.append(row("epoch", at, moment=moment))
        for one in there:
            if one["measure"] in ("d_lr", "accuracy"):
                rows.append({**one, "measure": f"{one['measure']}_{moment}"})
            if "position" in one:
                one["moment"] = moment
    return rows


def moments(run: Run) -> dict[str, int]:
    """Before: the first checkpoint that fits its training samples. After: the one with the best test accuracy.

    A network that never fits them has neither.
    """
    recorded = run.metrics.set_index(run.unit)
    fits: dict[int, float] = recorded["train_fit"].to_dict()
    fitted = [at for at in run.epochs if fits.get(at, 0.0) >= FITTED]
    if not fitted:
        return {}
    after = max(run.epochs, key=lambda at: (recorded["test_accuracy"].loc[at], at))
    return {"before": fitted[0], "after": after}
