"""The richness studies' figures.

    figure=spectra_and_bars             # in a recipe: panels i-iii of the spectrum, D_LR and accuracy
    figure=over_checkpoints             # for one case that is followed through its training

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
    lines = [(name, name, {"checkpoint": "last"}) for name in found.cases]
    draw_spectra(axes[:3], found, lines)
    draw_bars(axes[3], found, "d_lr", "D_LR")
    draw_bars(axes[4], found, "accuracy", "test accuracy")
    return figure


def over_checkpoints(
    found: Findings, case: str, checkpoints: Sequence[float], measures: Sequence[tuple[str, str]]
) -> Figure:
    """One case's spectrum at several checkpoints, and measures over its training."""
    figure, axes = panels(3 + len(measures), title=found.study.title, size=(2.9, 2.7))
    draw_spectra(axes[:3], found, [(case, f"epoch {at:g}", {"checkpoint": at}) for at in checkpoints])
    for panel, (measure, title) in zip(axes[3:], measures, strict=True):
        line(panel, found.curve(case, measure, x="checkpoint", split="test"))
        panel.set(title=title, xlabel="epoch")
    return figure


def draw_spectra(
    axes: Sequence[Axes], found: Findings, lines: Sequence[tuple[str, str, dict[str, Any]]]
) -> None:
    """Panels i-iii; a line is (case, its name in the legend, where)."""
    for panel, (measure, title) in zip(axes, PANELS, strict=True):
        for index, (case, name, where) in enumerate(lines):
            if found.has(case, measure, **where):
                line(panel, found.curve(case, measure, x="position", **where), name, index)
        panel.set(title=title, xlabel="feature k", xscale="log")
        if measure == "intensity":
            panel.set(yscale="log", ylim=(1e-6, 1.5))
        else:
            panel.set(ylim=(-0.03, 1.03))
    axes[0].legend(loc="best")


def draw_bars(axes: Axes, found: Findings, measure: str, title: str, **where: Any) -> None:
    """One bar for each case with the range over seeds, and the paper's value where it has one."""
    names = [
        name for name in found.cases if found.has(name, measure, split="test", checkpoint="last", **where)
    ]
    seen = [found.seen(name, measure, split="test", checkpoint="last", **where) for name in names]
    paper = {
        one.case: one.value
        for one in found.study.published
        if one.measure == measure and one.where.get("split", "test") == "test"
    }
    bars(
        axes, names, [one.mean for one in seen], [one.low for one in seen], [one.high for one in seen],
        [paper.get(name) for name in names],
    )  # fmt: skip
    axes.set(title=title, ylim=(0, None))
