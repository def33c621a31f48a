"""What the claims on trained image networks have in common.

    seen(found, ["lr 0.05", "lr 0.2"], "d_lr")              # means at the end of training, on test samples
    judged(found, cases, holds, "D_LR 0.02, 0.04")          # "cannot tell" where a network has not fitted
    features_used(found, "lr 0.05", checkpoint="last")      # features that carry 95 % of the outputs

The paper's networks fit all their training samples. One that has not says nothing about how it would.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from undertow.data.catalogue import DATA
from undertow.errors import BadData
from undertow.studies.findings import Array, Findings, number
from undertow.studies.recipe import ClaimVerdict, Published

END = {"checkpoint": "last"}
TEST = {"split": "test", **END}
TRAIN = {"split": "train", **END}

FITTED = 0.9
"""The share of training samples that a network must fit before its features are judged."""

CARRIED = 0.95
"""Features count as used until they carry this share of the outputs."""

RICH = 0.1
"""The paper calls training rich where D_LR lies below this (figure 15)."""


def seen(found: Findings, cases: Sequence[str], measure: str, **where: Any) -> list[float]:
    """Each case's mean over seeds, at the end of training and on test samples unless `where` says otherwise."""
    return [found.mean(case, measure, **{**TEST, **where}) for case in cases]


def listed(name: str, values: Sequence[float]) -> str:
    """`D_LR 0.05, 0.015, 0.003`."""
    return f"{name} {', '.join(map(number, values))}"


def judged(found: Findings, cases: Sequence[str], holds: bool, numbers: str) -> ClaimVerdict:
    """The verdict, or that none can be given because a network has not fitted its training samples."""
    fits = {case: found.mean(case, "accuracy", **TRAIN) for case in cases}
    poor = [f"{case} {fit:.0%}" for case, fit in fits.items() if fit < FITTED]
    if poor:
        return ClaimVerdict(None, f"training samples not fitted: {', '.join(poor)}; {numbers}")
    return ClaimVerdict(holds, numbers)


def classes_of(found: Findings, case: str) -> int:
    """How many classes the data of a case has; a smaller scale may take other data than the paper."""
    config = found.study.case(case).train
    if config is None:
        raise BadData(f"{found.study.name}: wanted a case that is trained, got {case!r}.")
    return DATA[config.data.partition(":")[0]].classes


def features_used(found: Findings, case: str, **where: Any) -> float:
    """How many features carry CARRIED of the outputs; infinite if not all kept ones together do."""
    curve = found.curve(case, "utilisation", x="position", **{**END, **where})
    enough = np.flatnonzero(curve.mean >= CARRIED)
    return float(curve.x[enough[0]]) if len(enough) else float("inf")


def each_feature(found: Findings, case: str, measure: str, **where: Any) -> tuple[Array, Array]:
    """Features 1, 2, ... and what each adds to a running sum such as quality."""
    curve = found.curve(case, measure, x="position", **where)
    return curve.x, np.diff(curve.mean, prepend=0.0)


def rank_correlation(one: Array, other: Array) -> float:
    """Spearman's, for numbers without ties."""
    first, second = (values.argsort().argsort() for values in (one, other))
    return float(np.corrcoef(first, second)[0, 1])


def beyond_chance(count: int) -> float:
    """The rank correlation of `count` pairs that chance exceeds in one case of a thousand (normal, one-sided)."""
    return 3.09 / (count - 1) ** 0.5


def table_3(
    cases: Sequence[str], d_lr: Sequence[tuple[float, float]], test: Sequence[float], train: Sequence[float]
) -> tuple[Published, ...]:
    """Rows of table 3 with the standard deviations of table 8; accuracies are in per cent, as printed."""
    return (
        *(
            Published(case, "d_lr", value, 3 * deviation, "tables 3 and 8, 3 s.d.", TEST)
            for case, (value, deviation) in zip(cases, d_lr, strict=True)
        ),
        *(
            Published(case, "accuracy", value / 100, 0.015, "table 3, 1.5 points", TEST)
            for case, value in zip(cases, test, strict=True)
        ),
        *(
            Published(case, "accuracy", value / 100, 0.005, "table 3, half a point", TRAIN)
            for case, value in zip(cases, train, strict=True)
        ),
    )
