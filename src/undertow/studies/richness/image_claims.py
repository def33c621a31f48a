"""What the claims on trained image networks have in common.

    seen(found, ["lr 0.05", "lr 0.2"], "d_lr")              # means at the end of training, on test samples
    judged(found, cases, holds, "D_LR 0.02, 0.04")          # "cannot tell" where a network has not fitted
    compared(cases, lambda d_lr: d_lr[0] < d_lr[1], "d_lr")  # a check of a claim; also accuracy, carried, fall
    carried(found, "lr 0.05", checkpoint="last")            # the share of the outputs in the first C features

The paper's networks fit all their training samples. One that has not says nothing about how it would.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from undertow.data.catalogue import DATA
from undertow.errors import BadData
from undertow.studies.claims import CaseVerdict, Claim, ClaimVerdict
from undertow.studies.findings import Array, Findings, number
from undertow.studies.recipe import Published, Scale

FULL_SIZE: tuple[Scale, ...] = ("paper",)
"""Test accuracy and D_LR of full-size networks on full sets: no smaller scale can give them."""

END = {"checkpoint": "last"}
TEST = {"split": "test", **END}
TRAIN = {"split": "train", **END}

FITTED = 0.95
"""The share of training samples that a network must fit before its features are judged; the paper's fit 99.5 %."""

CARRIED = 0.95
"""The first C features carry the outputs where they carry this share."""

CONSTANT = 0.95
"""The share of the first eigenfunction that is constant lies above this in all the paper's networks but one."""

RICH = 0.1
"""The paper calls training rich where D_LR lies below this (figure 15)."""


def seen(found: Findings, cases: Sequence[str], measure: str, **where: Any) -> list[float]:
    """Each case's mean over seeds, at the end of training and on test samples unless `where` says otherwise."""
    return [found.mean(case, measure, **{**TEST, **where}) for case in cases]


def listed(name: str, cases: Sequence[str], values: Sequence[float]) -> str:
    """`D_LR 0.05 (no decay), 0.015 (small decay)`."""
    return f"{name} {', '.join(f'{number(one)} ({case})' for case, one in zip(cases, values, strict=True))}"


def judged(
    found: Findings, cases: Sequence[str], holds: bool, numbers: str, *, fitted: float = FITTED,
    where: Mapping[str, str] = TRAIN,
) -> ClaimVerdict:  # fmt: skip
    """The verdict, or that none can be given because a network has not fitted its training samples."""
    fits = {case: found.mean(case, "accuracy", **where) for case in cases}
    poor = [f"{case} {fit:.0%}" for case, fit in fits.items() if fit < fitted]
    if poor:
        return ClaimVerdict(None, f"training samples not fitted: {', '.join(poor)}; {numbers}")
    return ClaimVerdict(holds, numbers)


def compared(
    cases: Sequence[str], holds: Callable[..., bool], *measures: str
) -> Callable[[Findings], ClaimVerdict]:
    """A claim's check: `holds` gets the cases' numbers, a list for each of the names below."""
    ways: Mapping[str, tuple[str, Callable[[Findings, str], float]]] = {
        "d_lr": ("D_LR", lambda found, case: seen(found, [case], "d_lr")[0]),
        "accuracy": ("test accuracy", lambda found, case: seen(found, [case], "accuracy")[0]),
        "carried": ("carried by the first C features", carried),
        "fall": ("eigenvalue C + 1 over eigenvalue C", fall_behind),
    }

    def check(found: Findings) -> ClaimVerdict:
        values = [[ways[one][1](found, case) for case in cases] for one in measures]
        words = (listed(ways[one][0], cases, own) for one, own in zip(measures, values, strict=True))
        return judged(found, cases, holds(*values), "; ".join(words))

    return check


def higher(case: str, base: str, measure: str) -> Callable[[Findings], ClaimVerdict]:
    """A claim's check: a case's number is above the base's, seed by seed; few seeds cannot tell."""

    def check(found: Findings) -> ClaimVerdict:
        own, other = (found.of(one, measure, **TEST).groupby("seed")["value"].mean() for one in (case, base))
        verdict = ClaimVerdict.of_paired(
            [float(own[seed] - other[seed]) for seed in sorted(set(own.index) & set(other.index))],
            f"{case} over {base}",
        )
        fitted = judged(found, (case, base), bool(verdict.holds), verdict.numbers)
        return verdict if fitted.holds is not None else fitted

    return check


def all_rich(found: Findings, cases: Sequence[str]) -> ClaimVerdict:
    """D_LR on test samples lies below RICH in each case."""

    def judge(case: str) -> tuple[bool, str]:
        d_lr = found.seen(case, "d_lr", split="test")
        return d_lr.mean < RICH, f"{case} {d_lr}"

    return ClaimVerdict.of_each(cases, judge, "D_LR: ")


def classes_of(found: Findings, case: str) -> int:
    """How many classes the data of a case has; a smaller scale may take other data than the paper."""
    config = found.study.case(case).train
    if config is None:
        raise BadData(f"{found.study.name}: wanted a case that is trained, got {case!r}.")
    return DATA[config.data.partition(":")[0]].classes


def carried(found: Findings, case: str, **where: Any) -> float:
    """The share of the outputs that the first C features carry: 1 where only the fewest needed are used."""
    return found.mean(case, "utilisation", position=classes_of(found, case), **{**END, **where})


def fall_behind(found: Findings, case: str) -> float:
    """The eigenvalue behind the C-th over the C-th: near 0 where only C features are significant.

    Eigenvalues within rounding of 0 have no rows.
    """
    classes = classes_of(found, case)
    at = {"position": classes + 1, **END}
    behind = found.mean(case, "intensity", **at) if found.has(case, "intensity", **at) else 0.0
    return behind / found.mean(case, "intensity", position=classes, **END) if behind else 0.0


def each_feature(found: Findings, case: str, measure: str, **where: Any) -> tuple[Array, Array]:
    """Features 1, 2, ... and what each adds to a running sum such as quality."""
    curve = found.curve(case, measure, x="position", **where)
    return curve.x, np.diff(curve.mean, prepend=0.0)


def _first_is_constant(found: Findings) -> ClaimVerdict:
    """At each kept checkpoint of each case."""
    judged: list[CaseVerdict] = []
    for case in found.cases:
        curve = found.curve(case, "constant_share", x="checkpoint", split="test")
        least = int(curve.mean.argmin())
        words = f"at least {number(float(curve.mean[least]))} (epoch {curve.x[least]:g})"
        judged.append(CaseVerdict(case, bool((curve.mean > CONSTANT).all()), words))
    return ClaimVerdict.of_cases(judged, before="<1|e_1>, ")


CONSTANT_FIRST = Claim(
    "the first eigenfunction is the constant function throughout training, <1|e_1> > .95",
    _first_is_constant,
    place="appendix D.2",
)
"""For studies that keep checkpoints."""


def table_3(
    cases: Sequence[str], d_lr: Sequence[tuple[float, float]], test: Sequence[float], train: Sequence[float]
) -> tuple[Published, ...]:
    """Rows of table 3 with the standard deviations of table 8; accuracies are in per cent, as printed."""
    values, deviations = zip(*d_lr, strict=True)
    return (
        *Published.row(
            cases, "d_lr", values, [3 * one for one in deviations], "tables 3 and 8, 3 s.d.", TEST, FULL_SIZE
        ),
        *Published.row(
            cases, "accuracy", [one / 100 for one in test], 0.015, "table 3, 1.5 points", TEST, FULL_SIZE
        ),
        *Published.row(
            cases, "accuracy", [one / 100 for one in train], 0.005, "table 3, half a point", TRAIN
        ),
    )
