"""Late drift on made-up rows: what stands still refutes the paper only where it was given the paper's steps."""

from __future__ import annotations

import pandas as pd
import pytest

from undertow.studies.catalogue import find_study
from undertow.studies.cost import updates
from undertow.studies.findings import row
from undertow.studies.outcome import StudyOutcome
from undertow.studies.temporal.networks import MLP, MLP_CASE, RESNET_CASE


@pytest.mark.parametrize(
    ("scale", "drifts", "expected"),
    [
        ("laptop", (0.02, 0.02), True),
        ("laptop", (0.005, 0.02), True),  # the first cannot tell: too few steps follow its last rate drop
        ("laptop", (0.005, 0.005), None),
        ("paper", (0.005, 0.02), False),
    ],
)
def test_weights_that_stand_still(scale, drifts, expected):
    rows = []
    for case, drift in zip((MLP_CASE, RESNET_CASE), drifts, strict=True):
        rows += [
            {"case": case, "seed": 0, **row("parameter_drift", drift, checkpoint=30, layer="all")},
            {"case": case, "seed": 0, **row("train_fit", 1.0, split="train")},
        ]
    verdict = StudyOutcome.of(find_study("temporal/drift"), scale, pd.DataFrame(rows)).verdicts()[0][1]
    assert verdict.holds is expected


def test_updates_are_counted_in_whole_batches():
    assert updates(MLP, epochs=150) == 150 * 300
    assert updates(MLP) == 300 * 300
