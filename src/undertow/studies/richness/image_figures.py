"""Figures of image networks that are followed through their training.

figure=spectra_over_training        # in a recipe: a row for each case, a line for each kept checkpoint
figure=rates_and_features           # the cases' spectra, and what single features do while one case trains
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from undertow.plots import line, panels
from undertow.studies.findings import Findings, SeedCurve
from undertow.studies.richness.image_claims import each_feature
from undertow.studies.richness.spectrum_figures import draw_bars, draw_last_spectra, draw_spectra

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def spectra_over_training(found: Findings) -> Figure:
    """Each case's spectrum at its checkpoints in a row of its own, with D_LR over training."""
    figure, axes = panels(4, len(found.cases), title=found.study.title, size=(2.9, 2.7))
    for place, case in enumerate(found.cases):
        row = axes[4 * place : 4 * place + 4]
        draw_spectra(row[:3], found, _at_checkpoints(found, case))
        row[0].set_ylabel(case, fontweight="bold")
        _draw_d_lr(row[3], found, case)
    return figure


def _draw_d_lr(axes: Axes, found: Findings, case: str) -> None:
    curve = found.curve(case, "d_lr", x="checkpoint", split="test")
    line(axes, curve, marker="o", markersize=4)
    for one in found.study.published:
        if (one.case, one.measure) == (case, "d_lr"):
            axes.plot(curve.x[-1], one.value, "D", color="#111111", markerfacecolor="white", label="paper")
            axes.legend(loc="best")
    axes.set(title="D_LR", xlabel="epoch", xscale="log", ylim=(0, 1.03))


def rates_and_features(found: Findings, case: str) -> Figure:
    """Spectra and bars of all cases; below, single features of one case while it trains."""
    figure, axes = panels(5, 2, title=found.study.title, size=(2.9, 2.7))
    draw_last_spectra(axes[:3], found)
    draw_bars(axes[3], found, "d_lr", "D_LR")
    draw_bars(axes[4], found, "accuracy", "test accuracy")
    _draw_features(axes[5:8], found, case)
    for empty in axes[8:]:
        empty.remove()
    return figure


def _draw_features(axes: Sequence[Axes], found: Findings, case: str) -> None:
    """Each feature's own quality, utilisation and intensity, each over its largest."""
    for panel, measure in zip(axes, ("quality", "utilisation", "intensity"), strict=True):
        for index, (_, name, where) in enumerate(_at_checkpoints(found, case)):
            if measure == "intensity":
                curve = found.curve(case, measure, x="position", **where)
                place, own = curve.x, curve.mean
            else:
                place, own = each_feature(found, case, measure, **where)
            # Early on the first feature is mostly the constant function, which would set the scale of all others.
            rest = np.clip(own[1:] / own[1:].max(), 1e-4, None)
            line(panel, SeedCurve(place[1:], rest, rest, rest), name, index, linewidth=1.1)
        panel.set(title=f"{case}: {measure} of a feature", xlabel="feature k", xscale="log", yscale="log")
        panel.set_xlim(left=1)
    axes[0].legend(loc="best")


def _at_checkpoints(found: Findings, case: str) -> list[tuple[str, str, dict[str, float]]]:
    kept = found.curve(case, "d_lr", x="checkpoint", split="test").x
    return [(case, f"epoch {at:g}", {"checkpoint": float(at)}) for at in kept]
