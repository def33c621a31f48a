"""The richness studies' figures.

    figure=spectra_and_bars             # in a recipe: panels i-iii of the spectrum, D_LR and accuracy
    draw_spectra(axes[:3], found, [(case, f"epoch {at}", {"checkpoint": at}) for at in (0, 10)])

The spectrum panels are the paper's: (i) quality, (ii) utilisation, (iii) intensity, over the number of features.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from undertow.plots import bars, line, panels
from undertow.studies.findings import Findings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS = (
    ("quality", "i. quality: target expressed"),
    ("utilisation", "ii. utilisation: output expressed"),
    ("intensity", "iii. intensity"),
)


def spectra_and_bars(found: Findings) -> Figure:
    """Each case's spectrum at its last checkpoint, and its D_LR and test accuracy beside the paper's."""
    figure, axes = panels(5, title=found.study.title, size=(2.9, 2.7))
    draw_last_spectra(axes[:3], found)
    draw_bars(axes[3], found, "d_lr", "D_LR")
    draw_bars(axes[4], found, "accuracy", "test accuracy")
    return figure


def draw_spectra(
    axes: Sequence[Axes], found: Findings, lines: Sequence[tuple[str, str, dict[str, Any]]]
) -> None:
    """Panels i-iii; a line is (case, its name in the legend, where)."""
    for panel, (measure, title) in zip(axes, PANELS, strict=True):
        for index, (case, name, where) in enumerate(lines):
            if found.has(case, measure, **where):
                line(panel, found.curve(case, measure, x="position", **where), name, index)
        set_axes(panel, measure, title)
    if axes[0].lines:
        axes[0].legend(loc="best")


def draw_last_spectra(axes: Sequence[Axes], found: Findings) -> None:
    """Panels i-iii of all cases at the end of training."""
    draw_spectra(axes, found, [(name, name, {"checkpoint": "last"}) for name in found.cases])


def set_axes(panel: Axes, measure: str, title: str) -> None:
    """Shares from 0 to 1, intensity on a log axis; over the number of features."""
    panel.set(title=title, xlabel="feature k", xscale="log", ylim=(-0.03, 1.03))
    if measure == "intensity":
        panel.set(yscale="log", ylim=(1e-6, 1.5))


def draw_bars(axes: Axes, found: Findings, measure: str, title: str, **where: Any) -> None:
    """One bar for each case with the range over seeds, and the paper's value where it has one."""
    end = {"split": "test", "checkpoint": "last", **where}
    names = [name for name in found.cases if found.has(name, measure, **end)]
    seen = [found.seen(name, measure, **end) for name in names]
    paper = {
        one.case: one.value
        for one in found.study.published
        if one.measure == measure and one.where.get("split", "test") == "test"
    }
    means, lows, highs = ([getattr(one, part) for one in seen] for part in ("mean", "low", "high"))
    bars(axes, names, means, lows, highs, [paper.get(name) for name in names])
    axes.set(title=title, ylim=(0, None))
