"""How error, loss and richness change with the size of the training set, beside a linear model's.

find_study("richness/learning-curve")
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from undertow.plots import line, panels
from undertow.studies.claims import Claim, ClaimVerdict
from undertow.studies.findings import Findings, number
from undertow.studies.recipe import Case, ScaleChange, Study
from undertow.studies.richness.depth_figures import over_sizes
from undertow.studies.richness.power_law_break import Break, find_break
from undertow.studies.richness.training_settings import CIFAR10, LAPTOP, SMOKE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SIZES = (100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_000, 50_000)
_LAPTOP_EPOCHS = {100: 40, 200: 35, 400: 30, 800: 25, 1600: 20, 3200: 20, 6400: 16}
NEAR = (10**2.5, 10**3.5)
"""What counts as near 10^3."""

SURE = 0.05
"""The p value above which a break is not believed."""


def _samples(size: int) -> str:
    return f"{size:,} samples"


def _turns(measure: str, name: str) -> Callable[[Findings], ClaimVerdict]:
    """A check that the curve falls faster from near 10^3 on; where one line fits as well nobody can tell."""

    def check(found: Findings) -> ClaimVerdict:
        one = _break_of(found, measure)
        words = (
            f"{name}: slope {one.before:.2f} → {one.after:.2f} at {one.at:.0f} samples (p {number(one.p)})"
        )
        if one.p > SURE:
            return ClaimVerdict(None, f"one power law fits as well; {words}")
        return ClaimVerdict(NEAR[0] < one.at < NEAR[1] and one.after < one.before, words)

    return check


def _richer(found: Findings) -> ClaimVerdict:
    curve = over_sizes(found, "d_lr")
    first, last = float(curve.mean[0]), float(curve.mean[-1])
    words = f"D_LR {number(first)} at {curve.x[0]:g} samples, {number(last)} at {curve.x[-1]:g}"
    return ClaimVerdict(last < first, words)


def _faster_than_linear(found: Findings) -> ClaimVerdict:
    """Slopes on log axes from about 10^3 samples on: that of the network and that of the process."""
    slopes: list[float] = []
    for measure in ("error", "gp_error"):
        curve = over_sizes(found, measure)
        late = curve.x >= NEAR[0]
        if late.sum() < 3:
            return ClaimVerdict(None, f"wanted three sizes from {NEAR[0]:.0f} samples on, got {late.sum()}")
        slopes.append(float(np.polyfit(np.log(curve.x[late]), np.log(curve.mean[late]), 1)[0]))
    words = (
        f"slope of the error from {NEAR[0]:.0f} samples on: {slopes[0]:.2f}, of the process {slopes[1]:.2f}"
    )
    return ClaimVerdict(slopes[0] < slopes[1], words)


def _break_of(found: Findings, measure: str) -> Break:
    """Each seed's points count on their own: their scatter is what the break is judged by."""
    points = found.rows.loc[(found.rows["measure"] == measure) & (found.rows["split"] == "test")]
    points = points.dropna(subset=["value", "size"])
    return find_break(points["size"].to_numpy(float), points["value"].to_numpy(float))


def _curve_figure(found: Findings) -> Figure:
    figure, axes = panels(3, title=found.study.title)
    kinds = (("error", "a. test error"), ("loss", "b. test loss"), ("d_lr", "c. D_LR"))
    for panel, (measure, title) in zip(axes, kinds, strict=True):
        line(panel, over_sizes(found, measure), "network", marker="o", markersize=4)
        if measure != "d_lr" and any(found.has(name, f"gp_{measure}") for name in found.cases):
            line(panel, over_sizes(found, f"gp_{measure}"), "Gaussian process", 1, marker="s", markersize=3)
        panel.axvspan(*NEAR, color="#EEEEEE", zorder=0)
        panel.set(title=title, xlabel="training samples", xscale="log", yscale="log")
    axes[0].legend(loc="best")
    return figure


learning_curve = Study(
    name="richness/learning-curve",
    title="With enough data training turns rich and the error falls faster",
    source="paper 002, figure 2",
    cases=tuple(Case(_samples(size), replace(CIFAR10, train_size=size)) for size in _SIZES),
    measure="undertow.studies.richness.depth_measures:curve_point",
    claims=(
        Claim(
            "the error turns to a faster-decaying power law near n = 10^3",
            _turns("error", "error"),
            place="figure 2a",
        ),
        Claim("the loss does too", _turns("loss", "loss"), place="figure 2b"),
        Claim("the decay of D_LR shifts there too", _turns("d_lr", "D_LR"), place="figure 2c"),
        Claim(
            "more data, richer: D_LR is lower for the largest set than for the smallest",
            _richer,
            place="figure 2c",
        ),
        Claim(
            "from there on the error falls faster than that of a linear model",
            _faster_than_linear,
            place="figure 2a",
        ),
    ),
    figure=_curve_figure,
    seeds=5,
    changes={
        "smoke": ScaleChange(
            train={key: value for key, value in SMOKE.items() if key != "train_size"},
            only=tuple(_samples(size) for size in _SIZES[:3]),
            because="three sizes: too few for a break",
            minutes=0.1,
        ),
        "laptop": ScaleChange(
            train={**LAPTOP, "test_size": 1000, "batch_size": 64},
            cases={
                _samples(size): {
                    "train_size": size,
                    "epochs": epochs,
                    "milestones": (epochs * 3 // 5, epochs * 17 // 20),
                }
                for size, epochs in _LAPTOP_EPOCHS.items()
            },
            only=tuple(_samples(size) for size in _LAPTOP_EPOCHS),
            because="an eighth of the width with a pool behind the stem, no augmentation, and only as many epochs as "
            "each size needs to be nearly fitted",
            minutes=2.5,
        ),
    },
    notes=(
        "The break is the meeting point of two power laws; it counts if an F test prefers them to one (p < .05). "
        "The paper does not say which Gaussian process it draws: ours is that of an infinitely wide ReLU network of "
        "three hidden layers, fitted to the same samples.",
    ),
)

STUDIES = (learning_curve,)
