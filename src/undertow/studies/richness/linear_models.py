"""Linear models, whose bias can be calculated: what is learned of each feature, how fast, and what sizes decide.

find_study("richness/learnability"); find_study("richness/inductive-bias")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from undertow.plots import COLOURS, line, panels
from undertow.studies.claims import CaseVerdict, Claim, ClaimVerdict
from undertow.studies.findings import Findings, number
from undertow.studies.recipe import Case, ScaleChange, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MEASURES = "undertow.studies.richness.linear_model_measures"
_NOTHING_TRAINED = "nothing is changed: no network is trained"

# ------------------------------------------------------------------------------------------------ learnability

_LAWS = {f"exponent {exponent:g}": exponent for exponent in (1.0, 1.5, 2.0)}
FLOW = ["seed", "time", "position"]
NEAR = 0.05
"""How far a mean share may lie from the told one; it is between 0 and 1."""


def _numbers(found: Findings, case: str) -> list[int]:
    return sorted(set(found.of(case, "loss_told")["n"].astype(int)))


def _at_each(found: Findings) -> list[tuple[str, int]]:
    return [(case, count) for case in found.cases for count in _numbers(found, case)]


def _shares_agree(found: Findings) -> ClaimVerdict:
    judged: list[CaseVerdict] = []
    for case, count in _at_each(found):
        drawn, told = (
            found.curve(case, name, x="position", n=count).mean for name in ("share_drawn", "share_told")
        )
        worst = float(np.abs(drawn - told).max())
        judged.append(
            CaseVerdict(f"{case}, {count} samples", worst < NEAR, f"off by {number(worst)} at most")
        )
    return ClaimVerdict.of_cases(judged)


def _shares_add_up(found: Findings) -> ClaimVerdict:
    judged = [
        CaseVerdict(f"{case}, {count} samples", abs(total.mean / count - 1) < 0.01, f"{total}")
        for case, count in _at_each(found)
        for total in [found.seen(case, "share_sum", n=count)]
    ]
    return ClaimVerdict.of_cases(judged)


def _losses_agree(found: Findings) -> ClaimVerdict:
    judged: list[CaseVerdict] = []
    for case, count in _at_each(found):
        drawn, told = (found.mean(case, name, n=count) for name in ("loss_drawn", "loss_told"))
        words = f"{number(drawn)} drawn, {number(told)} told"
        judged.append(CaseVerdict(f"{case}, {count} samples", abs(drawn / told - 1) < 0.1, words))
    return ClaimVerdict.of_cases(judged)


def _saturates(found: Findings) -> ClaimVerdict:
    """The largest gap between found and told coefficients at any time, over the largest coefficient told."""
    judged: list[CaseVerdict] = []
    for case in found.cases:
        got, told = (found.of(case, name).set_index(FLOW)["value"] for name in ("flow_found", "flow_told"))
        gap = float((got - told).abs().max() / told.abs().max())
        judged.append(CaseVerdict(case, gap < NEAR, f"off by {number(gap)} at most"))
    return ClaimVerdict.of_cases(judged)


def _learnability_figure(found: Findings) -> Figure:
    figure, axes = panels(3, title=found.study.title)
    for index, case in enumerate(found.cases):
        most = _numbers(found, case)[-1]
        drawn, told = (
            found.curve(case, name, x="position", n=most) for name in ("share_drawn", "share_told")
        )
        line(axes[0], told, case, index)
        axes[0].plot(drawn.x[::8], drawn.mean[::8], "o", color=COLOURS[index], markersize=3)
        counts = _numbers(found, case)
        axes[1].plot(counts, [found.mean(case, "loss_told", n=n) for n in counts], color=COLOURS[index])
        axes[1].plot(counts, [found.mean(case, "loss_drawn", n=n) for n in counts], "o", color=COLOURS[index])
    axes[0].set(title="a. learnability (lines: eq. 15)", xlabel="feature k", xscale="log", ylim=(-0.03, 1.03))
    axes[0].legend(loc="best")
    axes[1].set(title="b. loss (lines: eq. 16)", xlabel="samples", xscale="log", yscale="log")
    first = found.cases[0]
    for index, time in enumerate(sorted(set(found.of(first, "flow_told")["time"]))):
        line(axes[2], found.curve(first, "flow_told", x="position", time=time), f"t = {time:g}", index)
        got = found.curve(first, "flow_found", x="position", time=time)
        axes[2].plot(got.x, got.mean, "o", color=COLOURS[index], markersize=3)
    axes[2].set(title=f"c. gradient flow (lines: eq. 25), {first}", xlabel="feature k", ylabel="coefficient")
    axes[2].legend(loc="best")
    return figure


learnability = Study(
    name="richness/learnability",
    title="A linear model learns its large features, and those first",
    source="paper 002, appendix C, equations 15, 16 and 25",
    cases=tuple(Case(name, options={"exponent": exponent}) for name, exponent in _LAWS.items()),
    measure=f"{_MEASURES}:learned_shares",
    options={"features": 1000, "samples": "100,300"},
    claims=(
        Claim("the learned share of feature k is rho_k / (rho_k + kappa)", _shares_agree, place="equation 15"),
        Claim(
            "the learnabilities sum to n, the number of training samples", _shares_add_up, place="equation 15",
            proved=True,
        ),
        Claim(
            "the generalisation loss is that of equation 16, to a tenth", _losses_agree, place="equation 16",
        ),
        Claim("gradient flow saturates mode by mode, as 1 - exp(-rho_k t)", _saturates, place="equation 25"),
    ),
    figure=_learnability_figure,
    changes={
        "smoke": ScaleChange(
            options={"features": 200, "samples": "50", "draws": 100}, minutes=0.1
        ),
        "laptop": ScaleChange(because=_NOTHING_TRAINED, minutes=0.1),
    },
    notes=(
        "The paper states the theory and refers to others for its test; here it is tested on Gaussian features. It is "
        "a theory of many samples: with 30 the drawn loss was 11 % above equation 16 at exponent 2.",
    ),
)  # fmt: skip

# ---------------------------------------------------------------------------------------------- inductive bias

_LOW, _HIGH = "large low frequencies", "large high frequencies"
_MIDDLE = 5.5


def _frequencies(found: Findings) -> ClaimVerdict:
    judged: list[CaseVerdict] = []
    for case, below in ((_LOW, True), (_HIGH, False)):
        rows = found.of(case, "mean_frequency")
        judged += [
            CaseVerdict(
                f"{case}, seed {seed:g}", (value < _MIDDLE) is below, f"mean frequency {number(value)}"
            )
            for seed, value in zip(rows["seed"], rows["value"], strict=True)
        ]
    return ClaimVerdict.of_cases(judged)


def _both_fit(found: Findings) -> ClaimVerdict:
    def judge(case: str) -> tuple[bool, str]:
        worst = float(found.of(case, "misfit")["value"].max())
        return worst < 1e-6, f"{case} misses a point by {number(worst)} at most"

    return ClaimVerdict.of_each(found.cases, judge)


def _bias_figure(found: Findings) -> Figure:
    figure, axes = panels(2, title=found.study.title)
    seed = int(found.rows["seed"].min())
    for index, case in enumerate(found.cases):
        line(axes[0], found.curve(case, "intensity", x="position", seed=seed), case, index)
        line(axes[1], found.curve(case, "curve", x="x", seed=seed), case, index)
    points = found.curve(found.cases[0], "point", x="x", seed=seed)
    axes[1].plot(points.x, points.mean, "o", color="#111111", markersize=5)
    axes[0].set(title="a. intensity", xlabel="frequency k", yscale="log")
    axes[1].set(title=f"b. learned functions (seed {seed})", xlabel="x")
    axes[0].legend(loc="best")
    return figure


inductive_bias = Study(
    name="richness/inductive-bias",
    title="The same functions with other sizes fit the same points otherwise",
    source="paper 002, figure 7",
    cases=(Case(_LOW, options={"power": -4.0}), Case(_HIGH, options={"power": 4.0})),
    measure=f"{_MEASURES}:two_spectra",
    claims=(
        Claim(
            "each model uses the functions with large eigenvalues to fit the points",
            _frequencies,
            place="figure 7",
        ),
        Claim("both models fit all four points", _both_fit, place="figure 7"),
    ),
    figure=_bias_figure,
    changes={
        "smoke": ScaleChange(because=_NOTHING_TRAINED, minutes=0.1),
        "laptop": ScaleChange(because=_NOTHING_TRAINED, minutes=0.1),
    },
    notes=(
        "The paper does not print its four points: each seed draws one in each quarter of [0, 1], with values from a "
        "normal distribution. Gradient flow from 0 ends at the fit of least norm, which is calculated.",
    ),
    seeds=5,
)

STUDIES = (learnability, inductive_bias)
