"""Claims about composites, judged for every network and cut: so many of so many.

    def judge(case: str, cut: str) -> tuple[bool | None, str]: ...
    each_seed(lambda found: ClaimVerdict.of_cases(by_cut(found, judge)))     # every seed's networks by themselves
    by_cut(found, judge, cases=(RESNET_CASE,), cuts_kept=("layer2",))
    agreed([True, True, None])          # over seeds: True; seeds that differ cannot tell

Seeds are not averaged where each has a test of its own: what all that can tell agree on is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from undertow.studies.claims import CaseVerdict, Presupposes
from undertow.studies.findings import Findings

Judge = Callable[[str, str], tuple[bool | None, str]]

HIGH = 0.98
"""The paper's accuracy of composites that still fit."""

FITS = Presupposes("train_fit", HIGH, "fits {} of its training labels")
"""The paper's networks fit their training pictures; one that does not itself cannot have composites that do."""

MOVES = Presupposes("window_drift", 0.02, "its weights move by {} over the window")
"""The paper's move by 7 % meanwhile, so that memory is "not a trivial byproduct of convergence" (section 4.2)."""


def cuts(found: Findings, case: str) -> list[str]:
    """The cuts of a case, shallow to deep."""
    rows = found.rows
    names: Any = rows.loc[rows["case"] == case, "layer"].dropna().unique()
    return [str(name) for name in names if name not in ("output", "all")]


def by_cut(
    found: Findings, judge: Judge, cases: Sequence[str] = (), cuts_kept: Sequence[str] = ()
) -> list[CaseVerdict]:
    """What `judge` says of every case and cut, or of those that are named."""
    return [
        CaseVerdict(f"{case}, {cut}", *judge(case, cut), case)
        for case in found.cases
        if not cases or case in cases
        for cut in cuts(found, case)
        if not cuts_kept or cut in cuts_kept
    ]


def agreed(answers: Iterable[bool | None]) -> bool | None:
    """What all seeds that can tell agree on; None where they differ or none can tell."""
    told = {one for one in answers if one is not None}
    return told.pop() if len(told) == 1 else None


def by_seed(found: Findings, case: str, measure: str, **where: Any) -> dict[int, float]:
    """One number for each seed, in the order of seeds; several of one seed are averaged."""
    means: Any = found.of(case, measure, **where).groupby("seed")["value"].mean()
    return {int(seed): float(value) for seed, value in means.items()}
