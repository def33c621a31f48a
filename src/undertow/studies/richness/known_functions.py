"""Functions whose features can be looked at: a step, a scalar target, Gaussian features with a known truth.

find_study("richness/heaviside"); find_study("richness/regression"); find_study("richness/nystrom")
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from undertow.plots import line, panels
from undertow.studies.claims import Claim, ClaimVerdict
from undertow.studies.findings import Findings, SeedCurve, number
from undertow.studies.recipe import Case, ScaleChange, Study
from undertow.studies.richness.image_claims import all_rich
from undertow.studies.richness.spectrum_figures import draw_spectra, spectra_and_bars
from undertow.studies.richness.training_settings import LAPTOP, MNIST, NARROW, SMOKE
from undertow.training.config import TrainConfig

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MEASURES = "undertow.studies.richness.known_functions_measures"
TEST = {"split": "test"}

# --------------------------------------------------------------------------------------------------- heaviside

_STEP = "step function"
_STEP_NET = TrainConfig(
    model="mlp:1000-1000-1000", data="heaviside:n=6000", train_size=2000, target="scalar", loss="mse",
    optimiser="adam", lr=1e-3, batch_size=128, epochs=100, test_at="checkpoints",
    checkpoints="0,1,3,10,30",
)  # fmt: skip


def _one_feature(found: Findings) -> ClaimVerdict:
    last = {"checkpoint": "last", **TEST}
    quality = found.seen(_STEP, "best_feature_quality", **last)
    used = found.seen(_STEP, "best_feature_utilisation", **last)
    words = f"share of the target {quality}, of the learned function {used}"
    return ClaimVerdict(quality.mean > 0.9 and used.mean > 0.9, words)


def _not_at_first(found: Findings) -> ClaimVerdict:
    first, last = (
        found.seen(_STEP, "best_feature_quality", checkpoint=at, **TEST) for at in ("first", "last")
    )
    words = f"best single feature's share of the target: {first} at the start, {last} at the end"
    return ClaimVerdict(first.mean < 0.9 and first.mean < last.mean, words)


def _few_suffice(found: Findings) -> ClaimVerdict:
    """Features needed for 95 % of the target, before and after training."""
    first, last = (_needed(found, "quality", at) for at in ("first", "last"))
    return ClaimVerdict(
        last < first, f"features for 95 % of the target: {first:g} at the start, {last:g} at the end"
    )


def _needed(found: Findings, measure: str, at: str, share: float = 0.95) -> float:
    curve = found.curve(_STEP, measure, x="position", checkpoint=at)
    return float(curve.x[np.argmax(curve.mean >= share)]) if curve.mean.max() >= share else float("inf")


def _heaviside_figure(found: Findings) -> Figure:
    """Eigenfunctions at the start, midway and at the end; below them the spectrum over training."""
    kept = sorted(set(found.of(_STEP, "d_lr")["checkpoint"].tolist()))
    shown = [kept[0], kept[len(kept) // 2], kept[-1]]
    figure, axes = panels(3, 2, title=found.study.title)
    for panel, at in zip(axes[:3], shown, strict=True):
        _draw_functions(panel, found, at)
    draw_spectra(axes[3:], found, [(_STEP, f"epoch {at:g}", {"checkpoint": at}) for at in shown])
    return figure


def _draw_functions(axes: Axes, found: Findings, at: float) -> None:
    plain = {"color": "#999999", "linestyle": "-", "linewidth": 2.4}
    line(axes, _function(found, at, "target"), "target", 0, **plain)
    line(axes, _function(found, at, "learned"), "learned", 2, linestyle="-")
    for k, colour in enumerate(("#D55E00", "#0072B2", "#E69F00"), start=1):
        name = f"eigenfunction {k}"
        line(axes, _function(found, at, name), name, 0, color=colour, linestyle="--")
    axes.set(title=f"epoch {at:g}", xlabel="x", ylim=(-3.5, 3))
    if at == 0:
        axes.legend(loc="lower right", ncols=2, fontsize=7)


def _function(found: Findings, at: float, name: str) -> SeedCurve:
    return found.curve(_STEP, "curve", x="x", function=name, checkpoint=at)


heaviside = Study(
    name="richness/heaviside",
    title="One feature becomes the step function",
    source="paper 002, figure 9",
    cases=(Case(_STEP, _STEP_NET),),
    measure=f"{_MEASURES}:heaviside",
    claims=(
        Claim("after training one feature fits both the target and the learned function", _one_feature),
        Claim("before training no single feature does", _not_at_first),
        Claim("fewer features express the target after training", _few_suffice),
    ),
    figure=_heaviside_figure,
    changes={
        "smoke": ScaleChange(
            train={"model": "mlp:40-40-40", "data": "heaviside:n=800", "train_size": 200, "epochs": 5},
            minutes=0.1,
        ),
        "laptop": ScaleChange(
            because="nothing is changed: this is the paper's network and task", minutes=0.7
        ),
    },
    notes=(
        "The paper gives neither samples nor optimiser for this figure: 2,000 uniform points and Adam at 1e-3 are "
        "taken, and PyTorch's own initial weights (with biases of 0 all features would be |x| and x).",
    ),
)

# -------------------------------------------------------------------------------------------------- regression

_SCALAR, _CLASSES = "scalar output", "ten classes"


def _two_suffice(found: Findings) -> ClaimVerdict:
    used = found.seen(_SCALAR, "utilisation", position=2)
    others = found.seen(_CLASSES, "utilisation", position=2)
    words = f"share of the learned function in two features: {used}; with ten classes {others}"
    return ClaimVerdict(used.mean > 0.95 and others.mean < 0.5, words)


def _ten_suffice(found: Findings) -> ClaimVerdict:
    used = found.seen(_CLASSES, "utilisation", position=10)
    return ClaimVerdict(used.mean > 0.95, f"share of the learned functions in ten features: {used}")


regression = Study(
    name="richness/regression",
    title="A scalar output needs two features, ten classes need ten",
    source="paper 002, figure 10",
    cases=(Case(_SCALAR, replace(MNIST, target="scalar", alpha=1.0, lr=5e-3)), Case(_CLASSES, MNIST)),
    measure=f"{_MEASURES}:by_target",
    claims=(
        Claim(
            "with a scalar output two features express the learned function, unlike with ten classes",
            _two_suffice,
        ),
        Claim("with ten classes ten features do", _ten_suffice),
        Claim("both are rich (D_LR < .1)", lambda found: all_rich(found, (_SCALAR, _CLASSES))),
    ),
    figure=spectra_and_bars,
    changes={
        "smoke": ScaleChange(train={**SMOKE, "epochs": 3}, minutes=0.1),
        "laptop": ScaleChange(train=LAPTOP, because=NARROW, minutes=0.5),
    },
    notes=(
        "The paper gives no settings for this figure: those of its CIFAR networks are taken, without augmentation. "
        "The scalar target is the digit itself; with errors of that size a rate of 5e-2 diverges, so a tenth is taken.",
    ),
)

# ----------------------------------------------------------------------------------------------------- nystrom

_EXPONENTS = (0.5, 1.0, 1.5, 2.0)
_LAWS = tuple(f"exponent {exponent:g}" for exponent in _EXPONENTS)


def _each_law(
    found: Findings, before: str, numbers: Callable[[str], tuple[float, float]], holds: Callable[..., bool]
) -> ClaimVerdict:
    """Two numbers of each exponent, and what they must fulfil."""

    def judge(name: str) -> tuple[bool, str]:
        one, other = numbers(name)
        return holds(one, other), f"{name}: {number(one)}, {number(other)}"

    return ClaimVerdict.of_each(_cases(found), judge, before)


def _eigenvalues(found: Findings) -> ClaimVerdict:
    def bulk_and_tail(name: str) -> tuple[float, float]:
        error = found.curve(name, "eigenvalue_error", x="position").mean
        return float(error[: len(error) * 4 // 5].mean()), float(error[len(error) * 19 // 20 :].mean())

    before = "squared relative error of the first 80 %, and of the last 5 %: "
    return _each_law(found, before, bulk_and_tail, lambda bulk, tail: bulk < 0.02 and tail > 2 * bulk)


def _large_ones(found: Findings) -> ClaimVerdict:
    def first_and_median(name: str) -> tuple[float, float]:
        error = found.curve(name, "eigenfunction_error", x="position").mean
        return float(error[0]), float(np.median(error[len(error) * 2 // 5 : len(error) * 3 // 5]))

    before = "error of the first, and near the median: "
    return _each_law(found, before, first_and_median, lambda first, middle: first < 0.05 and middle > 0.3)


def _spans(found: Findings) -> ClaimVerdict:
    worst = {name: float(found.curve(name, "span_error", x="position").mean.max()) for name in _cases(found)}
    words = ", ".join(f"{name} {number(value)}" for name, value in worst.items())
    return ClaimVerdict(max(worst.values()) < 0.25, f"largest over k: {words}")


def _qr_needed(found: Findings) -> ClaimVerdict:
    def sums(name: str) -> tuple[float, float]:
        qr, plain = (_end(found, name, "expressed", way, few=False) for way in ("with QR", "without QR"))
        return qr, plain

    before = "sum over all features with and without QR: "
    return _each_law(found, before, sums, lambda qr, plain: qr <= 1 + 1e-9 and plain > 1)


def _finite_size(found: Findings) -> ClaimVerdict:
    def shares(name: str) -> tuple[float, float]:
        few, many = (_end(found, name, "noise_expressed", "with QR", few=one) for one in (True, False))
        return few, many

    before = "share of noise, test samples as many as features, and more: "
    return _each_law(found, before, shares, lambda few, many: few > 0.99 and many < 0.5)


def _cases(found: Findings) -> tuple[str, ...]:
    return tuple(name for name in _LAWS if name in found.cases)


def _end(found: Findings, case: str, measure: str, way: str, *, few: bool) -> float:
    """The sum over all features; `few` asks for as many test samples as features."""
    counts = found.of(case, measure, qr=way)["n"]
    return float(
        found.curve(case, measure, x="position", qr=way, n=counts.min() if few else counts.max()).mean[-1]
    )


def _nystrom_figure(found: Findings) -> Figure:
    figure, axes = panels(4, title=found.study.title)
    kinds = (
        ("eigenvalue_error", "a. eigenvalues", "log"), ("eigenfunction_error", "b. eigenfunctions", "linear"),
        ("span_error", "c. span of the first k", "linear"),
    )  # fmt: skip
    for panel, (measure, title, scale) in zip(axes, kinds, strict=False):
        for index, name in enumerate(_cases(found)):
            line(panel, found.curve(name, measure, x="position"), name, index)
        panel.set(title=title, xlabel="k", xscale="log", yscale=scale, ylabel="error")
    axes[2].axhline(0.25, color="#999999", linewidth=1)
    axes[2].legend(loc="best")
    _draw_sums(axes[3], found, _cases(found)[0])
    return figure


def _draw_sums(axes: Axes, found: Findings, case: str) -> None:
    most = found.of(case, "expressed", qr="with QR")["n"].max()
    for index, way in enumerate(("with QR", "without QR")):
        line(axes, found.curve(case, "expressed", x="position", qr=way, n=most), way, index)
    axes.axhline(1, color="#999999", linewidth=1)
    axes.set(title=f"d. sum of squares ({case})", xlabel="k")
    axes.legend(loc="best")


nystrom = Study(
    name="richness/nystrom",
    title="Eigenvalues and spans are found from samples, single eigenfunctions of the tail are not",
    source="paper 002, figures 23 to 25",
    cases=tuple(
        Case(name, options={"exponent": exponent}) for name, exponent in zip(_LAWS, _EXPONENTS, strict=True)
    ),
    measure=f"{_MEASURES}:nystrom",
    claims=(
        Claim("eigenvalues are accurate but for the tail", _eigenvalues),
        Claim("eigenfunctions are accurate only where the eigenvalue is large", _large_ones),
        Claim("the span of the first k is off by less than .25 for all k", _spans),
        Claim("without QR the sum of squares exceeds 1, with QR it does not", _qr_needed),
        Claim("with as many test samples as features even noise is expressed", _finite_size),
    ),
    figure=_nystrom_figure,
    options={"samples": 10_000, "features": 1_000, "draws": 3},
    changes={
        "smoke": ScaleChange(options={"samples": 1000, "features": 100, "draws": 2}, minutes=0.1),
        "laptop": ScaleChange(because="nothing is changed: this is the paper's setting", minutes=0.5),
    },
    notes=(
        "The paper does not print its exponents; its bound of .25 on the span's error is met from about .5 on. "
        "Its figure 25 shows the sums for a trained network, here they are those of the Gaussian features.",
    ),
)

STUDIES = (heaviside, regression, nystrom)
