"""What the grokking study measures: richness at every checkpoint, and before and after the change.

rows = grokking(run, case="division mod 97", seed=0)      # rows of a moment have moment="before" or "after"
"""

from __future__ import annotations

from undertow.errors import BadData
from undertow.studies.findings import row
from undertow.studies.richness.last_layer_measures import last_layer
from undertow.studies.task import Rows
from undertow.training.run import Run

LOW = 0.2
"""Test accuracy below which nothing is understood yet."""


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
    """The checkpoint with the best test accuracy, and the last one before it with a low one."""
    recorded = run.metrics.set_index(run.unit)["test_accuracy"]
    after = max(run.epochs, key=lambda at: (recorded.loc[at], at))
    low = [at for at in run.epochs if at < after and recorded.loc[at] < LOW]
    if not low:
        raise BadData(
            f"{run.path}: wanted a checkpoint with test accuracy below {LOW:g}, got none. Keep earlier ones."
        )
    return {"before": low[-1], "after": after}
