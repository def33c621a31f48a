"""Noise in labels and in steps: consistency with wrong labels, and the shape of SGD's noise.

find_study("temporal/label-noise"); find_study("temporal/sgd-noise")
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.plots import line, panels
from undertow.studies.findings import Findings, SeedCurve, number
from undertow.studies.recipe import Case, Claim, ClaimVerdict, Published, Study
from undertow.studies.temporal.composites import NEAR_ONE, cuts, each_cut
from undertow.studies.temporal.networks import (
    BOTH,
    LAPTOP,
    MLP,
    MLP_CASE,
    RESNET,
    RESNET_CASE,
    SMOKE,
    Cases,
    small_scales,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# ------------------------------------------------------------------------------------------------- label noise

_PAIRS = {kind: (f"{kind}, clean labels", f"{kind}, 40 % noise") for kind in (MLP_CASE, RESNET_CASE)}
_CORRUPTIONS = (
    "gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "motion_blur", "brightness", "contrast",
    "pixelate", "jpeg",
)  # fmt: skip

TINY = 1e-12
"""Consistencies that differ by less differ by rounding."""


def _welch_p(one: Any, other: Any) -> float | None:
    """Two-sided p that the means differ; samples are pictures, so it speaks of other pictures, not of other seeds."""
    from scipy.stats import ttest_ind

    if np.ptp(one) < TINY and np.ptp(other) < TINY:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", RuntimeWarning
        )  # where one side has no spread; p is right all the same
        found: Any = ttest_ind(one, other, equal_var=False)
    return float(found.pvalue)


def _consistencies(found: Findings, case: str, cut: str, split: str) -> Any:
    """One value per sample: its mean over seeds, so that seeds do not multiply the evidence."""
    rows: Any = found.of(case, "pointwise", layer=cut, split=split)
    return rows.groupby("position")["value"].mean().to_numpy(float)


def _kinds(found: Findings) -> list[str]:
    return [kind for kind, pair in _PAIRS.items() if set(pair) <= set(found.cases)]


def _collapses(found: Findings) -> ClaimVerdict:
    words, holds = [], True
    for kind in _kinds(found):
        for split in ("test", "corrupted"):
            for cut in cuts(found, _PAIRS[kind][0]):
                clean, noisy = (_consistencies(found, case, cut, split) for case in _PAIRS[kind])
                p = _welch_p(clean, noisy)
                holds &= p is not None and p < 0.05 and bool(clean.mean() > noisy.mean())
                said = "no p" if p is None else f"p {number(p)}"
                words.append(
                    f"{kind}, {cut}, {split}: {number(clean.mean())} and {number(noisy.mean())}, {said}"
                )
    return ClaimVerdict(holds, "; ".join(words))


def _clean_near_one(found: Findings) -> ClaimVerdict:
    words, holds = [], True
    for kind in _kinds(found):
        for split in ("test", "corrupted"):
            for cut in cuts(found, _PAIRS[kind][0]):
                seen = found.seen(_PAIRS[kind][0], "consistency", layer=cut, split=split)
                holds &= seen.mean > NEAR_ONE
                words.append(f"{kind}, {cut}, {split}: {seen}")
    return ClaimVerdict(holds, "; ".join(words))


def _for_pairs(settings: Cases) -> Cases:
    """The same training with clean and with wrong labels."""
    return {name: settings[kind] for kind, names in _PAIRS.items() for name in names}


def _noise_figure(found: Findings) -> Figure:
    from undertow.temporal.density import consistency_density

    kinds = _kinds(found)
    figure, axes = panels(2, len(kinds), title=found.study.title, size=(4.0, 2.6))
    for place, kind in enumerate(kinds):
        for column, split in enumerate(("test", "corrupted")):
            panel, names = axes[2 * place + column], cuts(found, _PAIRS[kind][0])
            for (index, case), (place_, cut) in product(enumerate(_PAIRS[kind]), enumerate(names)):
                seen = consistency_density(_consistencies(found, case, cut, split))
                if seen.density is not None:
                    band = SeedCurve(seen.points, seen.density, seen.density, seen.density)
                    name = "" if place_ else case.partition(", ")[2]
                    line(panel, band, name, index, linestyle=("-", "--", ":")[place_ % 3])
            panel.set(
                title=f"{kind}: {split} pictures", xlabel="consistency", yscale="log", ylim=(1e-2, None)
            )
            panel.legend()
    return figure


label_noise = Study(
    name="temporal/label-noise",
    title="With wrong labels consistency on new pictures collapses",
    source="paper 000, figures 7, 16 and 17, table 1",
    cases=tuple(
        Case(name, replace(config, noise=share))
        for kind, config in ((MLP_CASE, MLP), (RESNET_CASE, RESNET))
        for name, share in zip(_PAIRS[kind], ("0", "0.4"), strict=True)
    ),
    measure="undertow.studies.temporal.noise_measures:consistency_samples",
    options={"deep": 300, "first": 200, "samples": 10_000, "corruptions": _CORRUPTIONS, "severity": 5},
    changes=small_scales(
        smoke={"deep": 6, "first": 4, "samples": 60, "corruptions": ("gaussian_noise", "brightness")},
        laptop={"deep": 50, "first": 33, "samples": 1000},
        minutes=6,
        cases=(_for_pairs(SMOKE), _for_pairs(LAPTOP)),
    ),
    claims=(
        Claim(
            "40 % random labels lower consistency at every cut, on test and corrupted pictures (Welch)",
            _collapses,
        ),
        Claim("with clean labels it is near 1 (above .95) on test and corrupted pictures", _clean_near_one),
    ),
    figure=_noise_figure,
    notes=(
        "The paper's table 1 has p from 2e-14 to 5e-6 for its three depths, without the number of samples.",
    ),
)

# --------------------------------------------------------------------------------------------------- SGD noise


def _dominant(found: Findings) -> ClaimVerdict:
    def judge(case: str, cut: str) -> tuple[bool, str]:
        top = [found.curve(case, name, x="position", layer=cut).mean for name in ("share", "isotropic_share")]
        return bool(top[0][:5].sum() > 2 * top[1][:5].sum()), (
            f"five directions hold {number(float(top[0][:5].sum()))}, isotropic noise {number(float(top[1][:5].sum()))}"
        )

    return each_cut(found, judge)


def _rejected(found: Findings) -> ClaimVerdict:
    def judge(case: str, cut: str) -> tuple[bool, str]:
        p = found.of(case, "isotropy_p", layer=cut)["value"].to_numpy(float)
        return bool(
            (p < 0.001).mean() >= 0.95
        ), f"p < .001 for {number(float((p < 0.001).mean() * 100))} % of {len(p)}"

    return each_cut(found, judge)


def _spectrum_figure(found: Findings) -> Figure:
    figure, axes = panels(len(found.cases), title=found.study.title, size=(3.6, 2.7))
    for panel, case in zip(axes, found.cases, strict=True):
        for index, cut in enumerate(cuts(found, case)):
            seen, null = (
                found.curve(case, name, x="position", layer=cut) for name in ("share", "isotropic_share")
            )
            line(panel, seen, f"cut after {cut}", index, marker="o")
            line(panel, null, "", index, linewidth=0.8, alpha=0.7)
        panel.set(
            title=f"{case} (thin: isotropic)",
            xlabel="direction",
            ylabel="share of the variance",
            yscale="log",
        )
        panel.legend()
    return figure


sgd_noise = Study(
    name="temporal/sgd-noise",
    title="One step of SGD moves features in few directions",
    source="paper 000, figures 8 and 15, appendix E",
    cases=BOTH,
    measure="undertow.studies.temporal.noise_measures:step_noise",
    options={"checkpoints": "100,200,300", "batches": 256, "inputs": 20, "draws": 1999},
    changes=small_scales(
        smoke={"checkpoints": "last", "batches": 16, "inputs": 2},
        laptop={"checkpoints": "20,50", "batches": 64, "inputs": 8},
        minutes=6,
    ),
    published=tuple(
        Published(case, "isotropy_p", 0.0, 0.001, "appendix E: typically < .001")
        for case in (MLP_CASE, RESNET_CASE)
    ),
    claims=(
        Claim(
            "few directions dominate: the top five hold more than twice what isotropic noise has there",
            _dominant,
        ),
        Claim("isotropy is rejected with p < .001 for at least 95 % of inputs and epochs", _rejected),
    ),
    figure=_spectrum_figure,
    notes=("Batch norm in evaluation mode and no dropout: a step changes weights only.",),
)

STUDIES = (label_noise, sgd_noise)
