"""What the studies of interventions measure: accuracy on clean pictures and under corruption.

rows = robustness(run, case="one block kept", seed=0, samples=1000)
rows = accuracy_curve(run, case="frozen at 150", seed=0)
"""

from __future__ import annotations

from undertow.studies.findings import row
from undertow.studies.task import Rows
from undertow.studies.temporal.composite_measures import pixels, some
from undertow.studies.temporal.robustness import corruption_error
from undertow.training.run import Run


def robustness(run: Run, *, case: str, seed: int, samples: int = 10_000) -> Rows:
    """Clean accuracy of the last model and its mean error over 15 corruptions at 5 severities."""
    data = run.data()
    images = pixels(some(data.test, samples))
    found = corruption_error(run.model(), images, scaling=data.scaling, seed=seed)
    rows = accuracy_curve(run, case=case, seed=seed)
    rows.append(row("mce", found.mce.value, low=found.mce.low, high=found.mce.high, split="test"))
    rows.append(row("clean_error", found.clean_error, split="test"))
    return rows + [
        row("corruption_error", line["error"], low=line["low"], high=line["high"], layer=line["corruption"])
        for line in found.by_corruption.to_dict("records")
    ]


def accuracy_curve(run: Run, *, case: str, seed: int) -> Rows:
    """Test accuracy of every epoch."""
    rows: Rows = []
    for line in run.metrics.to_dict("records"):
        rows.append(row("accuracy", line["test_accuracy"], checkpoint=line["epoch"], split="test"))
    return rows
