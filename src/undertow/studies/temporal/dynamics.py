"""The paper's equations and arguments tried on runs: feature dynamics, appendices C and D, SGD noise over time.

find_study("temporal/step-equation"); find_study("temporal/balance"); find_study("temporal/linearised")
find_study("temporal/anisotropy")
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.plots import line, panels
from undertow.studies.claims import CaseVerdict, Claim, ClaimVerdict, Share, each_seed
from undertow.studies.findings import Findings, number
from undertow.studies.recipe import Study
from undertow.studies.temporal.by_cut import FITS, agreed, by_cut, by_seed, cuts
from undertow.studies.temporal.networks import (
    BOTH,
    LAPTOP,
    MLP,
    MLP_CASE,
    RESNET,
    RESNET_CASE,
    SMOKE,
    small_scales,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEASURES = "undertow.studies.temporal.dynamics_measures"
NEAR = 0.1
"""An equation within a tenth of what was measured describes it."""


def _curves_figure(
    measures: dict[str, str], x: str = "checkpoint", **where: Any
) -> Callable[[Findings], Figure]:
    """A row of panels for each case: one measure each over `x`, a line for each cut."""

    def draw(found: Findings) -> Figure:
        figure, axes = panels(len(measures), len(found.cases), title=found.study.title, size=(3.2, 2.5))
        for panel, (case, (measure, title)) in zip(axes, product(found.cases, measures.items()), strict=True):
            for index, cut in enumerate(cuts(found, case)):
                if found.has(case, measure, layer=cut, **where):
                    line(panel, found.curve(case, measure, x=x, layer=cut, **where), f"after {cut}", index)
            panel.set(title=f"{case}: {title}", xlabel="epoch")
        axes[0].legend()
        return figure

    return draw


# ----------------------------------------------------------------------------------------------- equations 1 to 3


def _described(measure: str, share: Share) -> Callable[[Findings], ClaimVerdict]:
    """So many of all cuts and epochs where the equation is near what was measured."""

    def check(found: Findings) -> ClaimVerdict:
        def near(value: float) -> bool:
            return value < NEAR

        return ClaimVerdict.of_cases(_each_epoch(found, measure, near), before=before)

    before = "relative error, "
    return each_seed(check, before=before) if share == "most" else check


def _each_epoch(found: Findings, measure: str, holds: Callable[[float], bool]) -> list[CaseVerdict]:
    judged: list[CaseVerdict] = []
    for case, cut in [(name, cut) for name in found.cases for cut in cuts(found, name)]:
        if not found.has(case, measure, layer=cut):
            judged.append(CaseVerdict(f"{case}, {cut}", None, "no step moved a feature", case))
            continue
        curve = found.curve(case, measure, x="checkpoint", layer=cut)
        judged += [
            CaseVerdict(f"{case}, {cut}, epoch {at:g}", holds(float(value)), number(float(value)), case)
            for at, value in zip(curve.x, curve.mean, strict=True)
        ]
    return judged


def _random_part(found: Findings) -> ClaimVerdict:
    def counts(value: float) -> bool:
        return value > NEAR

    return ClaimVerdict.of_cases(_each_epoch(found, "random_share", counts))


_PAPERS_BATCHES = {
    MLP_CASE: {**LAPTOP[MLP_CASE], "step_batch": MLP.batch_size},
    RESNET_CASE: {**LAPTOP[RESNET_CASE], "step_batch": RESNET.batch_size},
}
"""A laptop trains with smaller batches, whose steps scatter more than those that the equation is for."""

_STILL_LARGE = (
    "the step's: at epoch 20 a tenth of the small ResNet's is still large. Of layer3's whole, tenth and hundredth of a "
    "step the mean is off by .65, .15 and .05, the covariance by 2.3, .33 and .11"
)

step_equation = Study(
    name="temporal/step-equation",
    title="One step of SGD is the sum of a deterministic and a random part",
    source="paper 000, section 3, appendix A, equations 1 to 3",
    cases=BOTH,
    measure=f"{MEASURES}:step_equations",
    options={"checkpoints": "50,100,150,300", "batches": 256, "inputs": 20, "small": 0.1},
    changes=small_scales(
        smoke={"checkpoints": "2,6", "batches": 8, "inputs": 2},
        laptop={"checkpoints": "10,20,30,60", "batches": 24, "inputs": 4},
        minutes=4,
        cases=(SMOKE, _PAPERS_BATCHES),
    ),
    claims=(
        Claim(
            "the mean step is equation 3's deterministic part, slope and Ito's term (within a tenth, of small steps)",
            _described("mean_error_small", "every"),
            place="equation 3",
            cause=_STILL_LARGE,
        ),
        Claim(
            "the covariance of steps is that of equation 3's random part (within a tenth, of small steps)",
            _described("covariance_error_small", "every"),
            place="equation 3",
            cause=_STILL_LARGE,
        ),
        Claim(
            "steps as large as in training are described so, too: their mean",
            _described("mean_error", "most"),
            place="equation 3",
            ours=True,
        ),
        Claim(
            "and their covariance",
            _described("covariance_error", "most"),
            place="equation 3",
            ours=True,
        ),
        Claim(
            "the random part is not negligible: a feature becomes a distribution (a tenth of the step or more)",
            each_seed(_random_part, before="share of the mean squared step that is random, "),
            place="section 3",
        ),
    ),
    figure=_curves_figure(
        {
            "mean_error": "error of the mean",
            "covariance_error": "of the covariance",
            "random_share": "random share",
        }
    ),
    notes=(
        "For a first layer with ReLU Ito's term is nothing: the layer is piecewise linear in its parameters.",
        "Small steps are a tenth of those of training: the equation is of steps that tend to 0.",
    ),
)

# ------------------------------------------------------------------------------------------------------ appendix C


def _vanishes(measure: str, before: str) -> Callable[[Findings], ClaimVerdict]:
    """Slower at the last checkpoint than at the first, in every seed: over the learning rate, as training time runs.

    A step is an epoch, and every epoch has as many updates.
    """

    def check(found: Findings) -> ClaimVerdict:
        def judge(case: str, cut: str) -> tuple[bool | None, str]:
            where = {"layer": cut, "split": "train"}
            times = sorted(found.of(case, measure, **where)["checkpoint"].unique())
            early, late = (
                {
                    seed: value / _rate(found, case, at)
                    for seed, value in by_seed(found, case, measure, checkpoint=at, **where).items()
                }
                for at in (times[0], times[-1])
            )
            words = f"{number(fmean(early.values()))} → {number(fmean(late.values()))}"
            return agreed(late[seed] < early[seed] for seed in early), words

        return ClaimVerdict.of_cases(by_cut(found, judge))

    return each_seed(check, before=before)


def _rate(found: Findings, case: str, at: float) -> float:
    """The learning rate of the epoch behind a checkpoint."""
    config = found.study.case(case).train
    assert config is not None  # both networks are trained
    return config.learning_rate(int(at) + 1)


def _flat(found: Findings) -> ClaimVerdict:
    def judge(case: str, cut: str) -> tuple[bool | None, str]:
        if not found.has(case, "flatness", layer=cut, split="train", checkpoint="last"):
            return None, "flat everywhere"
        seen = by_seed(found, case, "flatness", layer=cut, split="train", checkpoint="last")
        return agreed(one < 1 for one in seen.values()), number(fmean(seen.values()))

    return ClaimVerdict.of_cases(by_cut(found, judge))


def _not_elsewhere(found: Findings) -> ClaimVerdict:
    """The feature part on test and corrupted data is larger than on training data."""

    def judge(case: str, cut: str) -> tuple[bool | None, str]:
        parts = {
            split: by_seed(found, case, "feature_part", layer=cut, split=split, checkpoint="last")
            for split in ("train", "test", "corrupted")
        }
        words = ", ".join(f"{split} {number(fmean(one.values()))}" for split, one in parts.items())
        larger = (
            parts[split][seed] > parts["train"][seed]
            for split in ("test", "corrupted")
            for seed in parts[split]
        )
        return agreed(larger), words

    return ClaimVerdict.of_cases(by_cut(found, judge))


balance = Study(
    name="temporal/balance",
    title="Why memory: features drift where the deep part is flat",
    source="paper 000, appendix C",
    cases=BOTH,
    measure=f"{MEASURES}:balances",
    options={"checkpoints": "10,50,100,150,200,250,299", "samples": 2000},
    changes=small_scales(
        smoke={"checkpoints": "1,3,5", "samples": 40},
        laptop={"checkpoints": "1,5,10,20,30,40,59", "samples": 150},
        minutes=2,
    ),
    claims=(
        Claim(
            "as training goes, df/dz dz/dt + df/dtheta dtheta/dt tends to 0 on the training set",
            _vanishes("together_part", "size of the sum over the learning rate, first → last, "),
            presupposes=FITS,
            place="appendix C",
        ),
        Claim(
            "df/dz dz/dt tends to 0 by itself",
            _vanishes("feature_part", "over the learning rate, first → last, "),
            presupposes=FITS,
            place="appendix C",
        ),
        Claim(
            "df/dtheta dtheta/dt is getting small too",
            _vanishes("parameter_part", "over the learning rate, first → last, "),
            presupposes=FITS,
            place="appendix C",
        ),
        Claim(
            "features drift where the classifier is flatter than along random directions of the same length",
            each_seed(_flat, before="over random directions of the same length, "),
            presupposes=FITS,
            place="appendix C calls the directions locally flat",
            ours=True,
            cause="drift is steeper than random directions, which hardly meet the few that the deep part answers to",
        ),
        Claim(
            "on test data or corrupted inputs the balance no longer holds",
            each_seed(_not_elsewhere, before="size of df/dz dz at the end, "),
            presupposes=FITS,
            place="appendix C",
        ),
    ),
    figure=_curves_figure(
        {"feature_part": "|df/dz dz|", "parameter_part": "|df/dtheta dtheta|", "flatness": "flatness"},
        split="train",
    ),
    notes=(
        "f is the softmax of the outputs, which do not tend to a constant themselves; a step is an epoch, and its "
        "change is taken over the learning rate: the paper's t is the time of gradient flow.",
    ),
)

# ------------------------------------------------------------------------------------------------------ appendix D


def _convex(found: Findings) -> ClaimVerdict:
    def judge(case: str, cut: str) -> tuple[bool, str]:
        least = float(found.of(case, "curvature", layer=cut)["value"].min())
        return least > -1e-9, f"least eigenvalue {number(least)}"

    return ClaimVerdict.of_cases(by_cut(found, judge))


def _never_larger(found: Findings) -> ClaimVerdict:
    def judge(case: str, cut: str) -> tuple[bool, str]:
        rows = found.of(case, "broken", layer=cut)
        broken, pairs = int(rows["value"].sum()), int(rows["pairs"].sum())
        most, fit = (found.mean(case, name, layer=cut) for name in ("most_broken", "linear_fit"))
        words = f"more loss in {broken} of {pairs} pairs, at most {number(most)}; fits {number(100 * fit)} %"
        return broken == 0, words

    return ClaimVerdict.of_cases(by_cut(found, judge))


def _linearised_figure(found: Findings) -> Figure:
    names = [(case, cut) for case in found.cases for cut in cuts(found, case)]
    figure, axes = panels(min(3, len(names)), -(-len(names) // 3), title=found.study.title, size=(3.4, 2.7))
    for panel, (case, cut) in zip(axes, names, strict=False):
        rows: Any = found.of(case, "linear_loss", layer=cut)
        table = rows.pivot_table(index="shallow", columns="checkpoint", values="value")
        more = table.to_numpy() - np.diag(table.to_numpy())[:, None]
        most = float(np.abs(more).max()) or 1.0
        seen = panel.pcolormesh(
            table.columns, table.index, more, cmap="RdBu_r", vmin=-most, vmax=most, shading="nearest"
        )
        figure.colorbar(seen, ax=panel)
        panel.set(
            title=f"{case}, {cut}: loss over the model at s", xlabel="step of the deep part", ylabel="shallow"
        )
    return figure


linearised = Study(
    name="temporal/linearised",
    title="Does a linearised network forget?",
    source="paper 000, appendix D, lemma 1",
    cases=BOTH,
    measure=f"{MEASURES}:linearised",
    options={"samples": 500, "steps": 2000, "kept": 20},
    changes=small_scales(
        smoke={"samples": 40, "steps": 20, "kept": 4},
        laptop={"samples": 60, "steps": 150, "kept": 10},
        minutes=2,
    ),
    claims=(
        Claim("-log softmax is convex", _convex, place="lemma 1", proved=True),
        Claim(
            "in a linearised network composite(t1, t2) has never more loss than the model at t1",
            _never_larger,
            place="appendix D",
            cause="convexity does not give it: a deep parameter may turn back when a shallow one takes over its part",
        ),
    ),
    figure=_linearised_figure,
    notes=(
        "Linearised where training began, by gradient descent on all samples, at the largest rate that cannot rise.",
    ),
)

# ------------------------------------------------------------------------------------ SGD noise against consistency


def _goes_with(measure: str) -> Callable[[Findings], ClaimVerdict]:
    """Spearman's correlation over checkpoints within each run; the sign that all seeds have."""

    def check(found: Findings) -> ClaimVerdict:
        def judge(case: str, cut: str) -> tuple[bool | None, str]:
            found_rho = {seed: _rank(found, case, cut, seed, measure) for seed in _seeds(found, case)}
            told = [rho for rho in found_rho.values() if rho is not None]
            if not told:
                return None, f"the {measure} is the same at all checkpoints"
            return agreed(rho > 0 for rho in told), "rho " + ", ".join(number(rho) for rho in told)

        return ClaimVerdict.of_cases(by_cut(found, judge))

    return each_seed(check)


def _seeds(found: Findings, case: str) -> list[int]:
    return sorted({int(seed) for seed in found.of(case, "anisotropy")["seed"]})


def _rank(found: Findings, case: str, cut: str, seed: int, measure: str) -> float | None:
    from scipy.stats import spearmanr

    own = found.of(case, "anisotropy", layer=cut, seed=seed).set_index("checkpoint")["value"]
    other = found.of(case, measure, layer=cut, seed=seed, split="train").set_index("checkpoint")["value"]
    both: Any = own.to_frame("a").join(other.to_frame("b"), how="inner").to_numpy(float)
    if len(both) < 3 or np.ptp(both[:, 0]) == 0 or np.ptp(both[:, 1]) == 0:
        return None
    seen: Any = spearmanr(both[:, 0], both[:, 1])
    return float(seen.statistic)


_BOTH_CHANGE = (
    "not known; both change with time alone: where rates fell by ten instead of to halves the MLP's went together "
    "(.48 to .78)"
)

anisotropy = Study(
    name="temporal/anisotropy",
    title="Does uneven SGD noise go with consistency and a wide window?",
    source="paper 000, section 1 (claimed, nowhere drawn)",
    cases=BOTH,
    measure=f"{MEASURES}:anisotropy",
    options={"checkpoints": "every:20", "batches": 256, "inputs": 20, "samples": 5000, "back": 3},
    changes=small_scales(
        smoke={"checkpoints": "every:1", "batches": 12, "inputs": 2, "samples": 60, "back": 1},
        laptop={"checkpoints": "2,4,6,8,10,15,20,25,30,40,50,60", "batches": 32, "inputs": 3, "samples": 300},
        minutes=2.5,
    ),
    claims=(
        Claim(
            "the strength of anisotropy correlates with temporal consistency over training",
            _goes_with("consistency"),
            place="section 1",
            cause=_BOTH_CHANGE,
        ),
        Claim(
            "and with the length of the memory window",
            _goes_with("window"),
            place="section 1",
            cause=_BOTH_CHANGE,
        ),
    ),
    figure=_curves_figure(
        {"anisotropy": "anisotropy (log)", "consistency": "consistency", "window": "window"}
    ),
    notes=(
        "Anisotropy is the logarithm of the isotropy statistic over its mean for isotropic noise of the same size.",
        "Consistency is with the three chosen checkpoints before; both sides change with time, which may be all.",
    ),
)

STUDIES = (step_equation, balance, linearised, anisotropy)
