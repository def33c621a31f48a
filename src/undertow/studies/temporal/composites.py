"""Composites over training: memory, its window, forgetting, transferability.

find_study("temporal/memory"); find_study("temporal/window"); find_study("temporal/transfer")
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from statistics import fmean

import numpy as np

from undertow.studies.claims import Claim, ClaimVerdict, each_seed
from undertow.studies.findings import Findings, number
from undertow.studies.recipe import Study
from undertow.studies.temporal.by_cut import FITS, HIGH, MOVES, agreed, by_cut, by_seed
from undertow.studies.temporal.composite_figures import column_figure, window_figure
from undertow.studies.temporal.networks import (
    ALL,
    BOTH,
    HUNDRED_CASE,
    LAPTOP,
    MLP_CASE,
    NETWORKS,
    RESNET_CASE,
    SMOKE,
    STL_CASE,
    SVHN_CASE,
    cases_of,
    small_scales,
)

COLUMN = "undertow.studies.temporal.composite_measures:column"
MATRIX = "undertow.studies.temporal.composite_measures:matrix"
NAMES = tuple(NETWORKS)
SECOND_BLOCK = ("layer2",)
"""The cut of the paper's figures 2 and 5."""
CHANCE = 0.025
"""Share of pairs without any difference whose interval lies above 0."""
NEAR_ONE = 0.95
"""Consistency that counts as near 1."""
SETTLED = 1.5
"""A loss that falls by more than this over the window is not settled: later deep parts are better by themselves."""
EARLY_HIGH = 0.8
"""The level of the paper's window."""
NEAR_ZERO = 0.1
"""Cross-entropy that counts as near 0: a mean chance of 90 % for the right class."""
UNCHANGED = 0.02
"""An accuracy that stays within this is largely unchanged."""
CPU = "a cut-down network on few pictures"


def _lowest(found: Findings, measure: str, case: str, cut: str) -> tuple[float, float, float]:
    """The lowest value over the window, with where it is and the deep checkpoint."""
    curve = found.curve(case, measure, x="shallow", layer=cut, split="train")
    deep = float(found.of(case, measure, layer=cut, split="train")["checkpoint"].iloc[0])
    at = int(curve.mean.argmin())
    return float(curve.mean[at]), float(curve.x[at]), deep


def _over_98(found: Findings) -> ClaimVerdict:
    """As the paper says of CIFAR-10 and its second block."""

    def judge(case: str, cut: str) -> tuple[bool, str]:
        low, at, deep = _lowest(found, "accuracy", case, cut)
        return low > HIGH, f"lowest accuracy {number(low)} (shallow {at:g}, deep {deep:g})"

    return ClaimVerdict.of_cases(by_cut(found, judge, (RESNET_CASE,), SECOND_BLOCK))


def _as_high(found: Findings) -> ClaimVerdict:
    """Within two points of the model's own, at the checkpoint of the deep part."""

    def judge(case: str, cut: str) -> tuple[bool, str]:
        low, at, deep = _lowest(found, "accuracy", case, cut)
        own = found.mean(case, "accuracy", layer="output", split="train", shallow=deep)
        return (
            low > own - UNCHANGED,
            f"lowest accuracy {number(low)} (shallow {at:g}), the model {number(own)}",
        )

    return ClaimVerdict.of_cases(by_cut(found, judge))


def _near_zero_loss(found: Findings) -> ClaimVerdict:
    def judge(case: str, cut: str) -> tuple[bool, str]:
        curve = found.curve(case, "loss", x="shallow", layer=cut, split="train").mean
        return float(curve.max()) < NEAR_ZERO, f"highest loss {number(float(curve.max()))}"

    return ClaimVerdict.of_cases(by_cut(found, judge))


def _consistent(found: Findings) -> ClaimVerdict:
    def judge(case: str, cut: str) -> tuple[bool, str]:
        seen = found.seen(case, "pointwise", layer=cut, split="train")
        return seen.mean > NEAR_ONE, f"mean consistency {seen}"

    return ClaimVerdict.of_cases(by_cut(found, judge))


def _theorem(found: Findings) -> ClaimVerdict:
    def judge(case: str, cut: str) -> tuple[bool | None, str]:
        delta = found.mean(case, "memory_delta", layer=cut, split="train")
        if not found.has(case, "theorem_2", layer=cut, split="train"):
            return None, f"delta {number(delta)}, the theorem says nothing"
        shares = found.curve(case, "memory_share", x="position", layer=cut, split="train")
        words = ", ".join(f"q {q:g}: {number(share)}" for q, share in zip(shares.x, shares.mean, strict=True))
        holds = found.mean(case, "theorem_2", layer=cut, split="train") == 1
        return holds, f"delta {number(delta)}; shares {words}"

    return ClaimVerdict.of_cases(by_cut(found, judge))


memory = Study(
    name="temporal/memory",
    title="Late deep layers still understand the shallow features of earlier epochs",
    source="paper 000, figures 2 and 10, definition 2, theorem 2",
    cases=ALL,
    measure=COLUMN,
    options={"deep": 300, "first": 150, "last": 300, "near": 200, "samples": 10_000},
    changes=small_scales(
        smoke={"deep": 6, "first": 3, "last": 6, "near": 4, "samples": 100},
        laptop={"deep": 60, "first": 30, "last": 60, "near": 40, "samples": 500},
        minutes=2.5,
        names=NAMES,
    ),
    claims=(
        Claim(
            "on CIFAR-10, d at the second block, composites have over 98 % accuracy once t1 is 150 or later",
            _over_98,
            presupposes=(FITS, MOVES),
            place="section 4.2, figure 2",
        ),
        Claim(
            "composites keep high accuracy (within two points of the model) on all data sets and depths",
            each_seed(_as_high),
            presupposes=(FITS, MOVES),
            place="section 4.2, figure 10",
        ),
        Claim(
            "the cross-entropy of composites is near zero (below .1)",
            each_seed(_near_zero_loss),
            presupposes=(FITS, MOVES),
            place="section 4.2, figures 2 and 10",
        ),
        Claim(
            "consistency is tightly concentrated around 1 (mean above .95) for t1 from 200 to 300",
            each_seed(_consistent),
            presupposes=(FITS, MOVES),
            place="section 4.2, figures 2 and 10",
        ),
        Claim(
            "more than 1 - 1/q of the samples have memory at q times the set's delta",
            _theorem,
            place="theorem 2",
            proved=True,
        ),
    ),
    figure=column_figure,
)

transfer = replace(
    memory,
    name="temporal/transfer",
    title="Earlier deep layers understand shallow features of later epochs",
    source="paper 000, figures 5 and 13",
    cases=cases_of(500),
    options={"deep": 300, "first": 300, "last": 500, "near": 500, "samples": 10_000},
    changes=small_scales(
        smoke={"deep": 3, "first": 3, "last": 6, "near": 6, "samples": 100},
        laptop={"deep": 60, "first": 60, "last": 100, "near": 100, "every": 2, "samples": 500},
        minutes=0.25,
        names=NAMES,
    ),
    claims=(
        Claim(
            "on CIFAR-10, d at the second block, composites have above 98 % accuracy for t2 up to 500",
            _over_98,
            presupposes=(FITS, MOVES),
            place="section 4.4, figure 5",
        ),
        Claim(
            "the accuracy remains high (within two points of the model) on all data sets and depths",
            each_seed(_as_high),
            presupposes=(FITS, MOVES),
            place="figure 13",
        ),
        Claim(
            "the cross-entropy of composites is near zero (below .1)",
            each_seed(_near_zero_loss),
            presupposes=(FITS, MOVES),
            place="section 4.4, figures 5 and 13",
        ),
        Claim(
            "consistency, with the model at t2, is tightly concentrated around 1 (mean above .95)",
            each_seed(_consistent),
            presupposes=(FITS, MOVES),
            place="section 4.4, figures 5 and 13",
        ),
    ),
    notes=(
        "Consistency is with the model of the shallow part's checkpoint, as the point-wise definition says.",
    ),
)


def _deteriorates(found: Findings) -> ClaimVerdict:
    """Loss and error are higher with the earliest tenth of shallow parts than with the latest, in every seed."""

    def judge(case: str, cut: str) -> tuple[bool | None, str]:
        rises = [_rises(found, case, cut, measure) for measure in ("loss", "accuracy")]
        words = f"loss {number(fmean(rises[0]))} higher, accuracy {number(-fmean(rises[1]))} lower"
        if float(found.of(case, "accuracy", layer=cut, split="train")["value"].min()) == 1:
            return None, f"{words}: no composite errs, so that nothing is left to forget"
        return agreed(more > 0 and change < 0 for more, change in zip(*rises, strict=True)), words

    cases = (RESNET_CASE, HUNDRED_CASE, SVHN_CASE)
    return ClaimVerdict.of_cases(by_cut(found, judge, cases))


def _rises(found: Findings, case: str, cut: str, measure: str) -> list[float]:
    """From the latest tenth of shallow parts to the earliest, for each seed."""
    rows = found.of(case, measure, layer=cut, split="train").sort_values("shallow")
    tenth = max(1, rows["shallow"].nunique() // 10)
    values = [own["value"].to_numpy(float) for _, own in rows.groupby("seed")]
    return [float(one[:tenth].mean() - one[-tenth:].mean()) for one in values]


def _unchanged(found: Findings) -> ClaimVerdict:
    def judge(case: str, cut: str) -> tuple[bool, str]:
        seen = found.curve(case, "accuracy", x="shallow", layer=cut, split="train").mean
        return float(np.ptp(seen)) <= UNCHANGED, f"accuracy from {number(seen.min())} to {number(seen.max())}"

    return ClaimVerdict.of_cases(by_cut(found, judge, (MLP_CASE, STL_CASE)))


def _own_loss(found: Findings, case: str) -> tuple[float, float]:
    """Of the model itself, at the first and the last of the shallow checkpoints."""
    own = found.curve(case, "loss", x="shallow", layer="output", split="train").mean
    return float(own[0]), float(own[-1])


def _forgets(found: Findings) -> ClaimVerdict:
    """More composites than by chance have certainly more loss than their own model: one in forty would by chance."""

    def judge(case: str, cut: str) -> tuple[bool | None, str]:
        rows = found.of(case, "forgetting", layer=cut, split="train")
        early, late = _own_loss(found, case)
        if early > SETTLED * late:
            return None, f"the model's own loss still falls meanwhile, from {number(early)} to {number(late)}"
        sure, chance = int((rows["verdict"] == "larger").sum()), len(rows) * CHANCE
        most = chance + 3 * (chance * (1 - CHANCE)) ** 0.5
        worst = number(float(rows["value"].max()))
        return (
            sure > most,
            f"{sure} of {len(rows)} composites (up to {most:.0f} by chance), at most {worst} more loss",
        )

    cases = (RESNET_CASE, HUNDRED_CASE, SVHN_CASE)
    return ClaimVerdict.of_cases(by_cut(found, judge, cases))


_CROPPED = {**LAPTOP[RESNET_CASE], "augment": "crop-flip"}
"""Without crop and flip, as the paper has them, a small network errs on no picture, and has nothing to forget."""

forgetting = replace(
    memory,
    name="temporal/forgetting",
    title="The further back the shallow layers, the more is forgotten",
    source="paper 000, figures 4 and 12, appendix D",
    cases=cases_of(1000, "every:10"),
    options={"deep": 1000, "first": 300, "last": 1000, "near": 300, "samples": 10_000},
    changes=small_scales(
        smoke={"deep": 6, "first": 3, "last": 6, "near": 3, "samples": 100},
        laptop={"deep": 100, "first": 30, "last": 100, "near": 30, "every": 2, "samples": 500},
        minutes=2.5,
        cases=(SMOKE, {**LAPTOP, RESNET_CASE: _CROPPED, HUNDRED_CASE: _CROPPED}),
        names=NAMES,
        train={"checkpoints": "every:1"},
    ),
    claims=(
        Claim(
            "on CIFAR-10, CIFAR-100 and SVHN a decrease of t1 raises the loss and lowers the accuracy",
            each_seed(_deteriorates),
            place="section 4.2, figures 4 and 12",
        ),
        Claim(
            "on MNIST and STL-10 accuracy remains largely unchanged (within .02) as t1 varies",
            _unchanged,
            presupposes=(FITS, MOVES),
            place="figure 12",
        ),
        Claim(
            "composites get more loss than the model at t1, which a linearised network would not (see linearised)",
            each_seed(_forgets),
            place="appendix D",
        ),
    ),
    notes=("temporal/linearised looks at what a linearised network does: the paper's argument has a gap.",),
)


def _widens(found: Findings) -> ClaimVerdict:
    def judge(case: str, cut: str) -> tuple[bool | None, str]:
        where = {"layer": cut, "split": "train"}
        if not found.has(case, "window_widens_shallow", **where):
            reasons = found.rows[
                (found.rows["measure"] == "window_tau_shallow") & (found.rows["case"] == case)
            ]
            return None, str(reasons["reason"].iloc[0])
        seen = by_seed(found, case, "window_widens_shallow", **where)
        tau = found.seen(case, "window_tau_shallow", **where)
        return agreed(
            one == 1 for one in seen.values()
        ), f"tau {tau}, {sum(seen.values()):g} of {len(seen)} seeds"

    return ClaimVerdict.of_cases(by_cut(found, judge))


def _high_early(found: Findings) -> ClaimVerdict:
    """In the first fifth of the epochs, with the shallow part of the trained checkpoint before."""

    def judge(case: str, cut: str) -> tuple[bool, str]:
        rows = found.of(case, "consistency_shallow", layer=cut, split="train")
        times = sorted(rows.loc[rows["checkpoint"] > 0, "checkpoint"].unique())
        early = times[: max(2, len(times) // 5)]
        pairs = rows.set_index(["shallow", "checkpoint"])["value"].groupby(level=[0, 1]).mean()
        mean = fmean(float(pairs[pair]) for pair in pairwise(early))
        return mean > EARLY_HIGH, f"{number(mean)} up to epoch {early[-1]:g}"

    return ClaimVerdict.of_cases(by_cut(found, judge))


window = Study(
    name="temporal/window",
    title="The window of epochs that a deep part understands widens",
    source="paper 000, figure 3",
    cases=BOTH,
    measure=MATRIX,
    options={"checkpoints": "every:5", "samples": 10_000, "threshold": 0.8},
    changes=small_scales(
        smoke={"checkpoints": "every:1", "samples": 60},
        laptop={"checkpoints": "every:5", "samples": 300},
        minutes=0.5,
    ),
    claims=(
        Claim(
            "the window with consistency above .8 (with the model at t1) gradually expands",
            each_seed(_widens),
            place="section 4.2, figure 3",
        ),
        Claim(
            "consistency is already high in early epochs (above .8 one checkpoint back)",
            each_seed(_high_early),
            place="section 4.2, figure 3",
        ),
    ),
    figure=window_figure,
    notes=("A window that reaches the first checkpoint is open; only pairs whose order is certain count.",),
)

STUDIES = (memory, window, transfer, forgetting)
