"""Why eigenfunctions are orthonormalised on the test samples: sums with and without QR.

find_study("richness/qr")
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from undertow.plots import line, panels
from undertow.studies.claims import CaseVerdict, Claim, ClaimVerdict
from undertow.studies.findings import Findings, SeedCurve, number
from undertow.studies.recipe import Case, ScaleChange, Study
from undertow.studies.richness.depth_figures import layer_names
from undertow.studies.richness.training_settings import (
    CIFAR10,
    COLLAPSED,
    LONGER,
    POOLED,
    RESNET_LAYERS,
    SMOKE,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TEST = {"split": "test"}
_SUMS = ("quality", "utilisation")
APART = 0.01
"""From here on the sums with and without QR are told apart."""
KNOWS = 0.9
"""A network that is right on so many test pictures shows the same last features there as in training."""


def _qr_sums(found: Findings, case: str, layer: str, measure: str) -> tuple[SeedCurve, SeedCurve]:
    with_qr, without = (
        found.curve(case, measure, x="position", layer=layer, qr=way) for way in ("with", "without")
    )
    return with_qr, without


def _qr_layers(found: Findings) -> list[tuple[str, str, str]]:
    return [
        (case, layer, measure)
        for case in found.cases
        for measure in _SUMS
        for layer in layer_names(found, case, measure)
    ]


def _only_without_exceed(found: Findings) -> ClaimVerdict:
    judged: list[CaseVerdict] = []
    for case, layer, measure in _qr_layers(found):
        ends = [float(curve.mean.max()) for curve in _qr_sums(found, case, layer, measure)]
        words = f"at most {number(ends[0])} with QR, {number(ends[1])} without"
        judged.append(CaseVerdict(f"{layer}, {measure}", ends[0] <= 1 + 1e-9, words))
    beyond = sum(float(_qr_sums(found, *one)[1].mean.max()) > 1 for one in _qr_layers(found))
    verdict = ClaimVerdict.of_cases(judged)
    words = f"beyond 1 without QR in {beyond}; within 1 with it in {verdict.numbers}"
    return replace(verdict, holds=bool(verdict.holds) and beyond > 0, numbers=words)


def _parted_where_small(found: Findings) -> ClaimVerdict:
    judged: list[CaseVerdict] = []
    for case, layer, measure in _qr_layers(found):
        with_qr, without = _qr_sums(found, case, layer, measure)
        apart = np.flatnonzero(np.abs(with_qr.mean - without.mean) > APART)
        if not len(apart):
            judged.append(CaseVerdict(f"{layer}, {measure}", None, "never apart"))
            continue
        place = float(with_qr.x[apart[0]])
        strength = found.mean(case, "intensity", layer=layer, qr="with", position=place)
        words = f"apart from feature {place:g} on, of intensity {number(strength)}"
        right = found.mean(case, "accuracy", **TEST)
        holds = strength < 0.01
        if not holds and layer == layer_names(found, case, measure)[-1] and right < KNOWS:
            # Collapsed on training pictures alone: on test pictures its largest eigenfunctions are others.
            holds, words = None, f"{words}, in a network that is right on {right:.0%} of the test pictures"
        judged.append(CaseVerdict(f"{layer}, {measure}", holds, words))
    return ClaimVerdict.of_cases(judged)


def _qr_figure(found: Findings) -> Figure:
    figure, axes = panels(2, title=found.study.title)
    [case] = found.cases
    for panel, measure in zip(axes, _SUMS, strict=True):
        for index, layer in enumerate(layer_names(found, case, measure)):
            with_qr, without = _qr_sums(found, case, layer, measure)
            line(panel, with_qr, layer, index, linestyle="-")
            line(panel, without, "", index, linestyle="--")
        panel.axhline(1, color="#999999", linewidth=1)
        panel.set(title=f"{measure}: solid with QR, dashed without", xlabel="feature k", xscale="log")
    axes[0].legend(loc="best", fontsize=7)
    return figure


qr = Study(
    name="richness/qr",
    title="Without QR the sums of a trained network's features exceed 1",
    source="paper 002, figure 25",
    cases=(Case("ResNet-18", CIFAR10, options=RESNET_LAYERS),),
    measure="undertow.studies.richness.depth_measures:layer_spectra",
    claims=(
        Claim(
            "the sums grow beyond 1 without QR, and never with it", _only_without_exceed, place="figure 25"
        ),
        Claim(
            "both part only where eigenvalues are sufficiently small (below a hundredth of the first)",
            _parted_where_small,
            place="appendix J.3",
        ),
    ),
    figure=_qr_figure,
    options={"samples": 10_000, "map_side": None, "without_qr": True},
    changes={
        "smoke": ScaleChange(train={**SMOKE, "train_size": 400}, minutes=0.1),
        "laptop": ScaleChange(
            train=COLLAPSED,
            options={"map_side": 4},
            because=f"{LONGER}; {POOLED}, four for each at least",
            minutes=0.2,
        ),
    },
    notes=(
        "How small an eigenvalue is sufficiently small is not said there; a hundredth of the first is ours.",
    ),
)

STUDIES = (qr,)
