"""Figures of the studies on depth and data.

    over_sizes(found, "error")                         # a curve over training-set sizes
    layers_figure(found, (("ResNet-18",), ("VGG-16 with batch norm", "VGG-16 without")))

A row of `layers_figure` is a group of cases: colours are layers, the first case is solid and the second dashed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from undertow.errors import BadData
from undertow.plots import COLOURS, line, panels
from undertow.studies.findings import Findings, SeedCurve
from undertow.studies.richness.spectrum_figures import PANELS, set_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def over_sizes(found: Findings, measure: str) -> SeedCurve:
    """A measure on test samples over the sizes of the training set; one case is one size."""
    points = [
        (found.seen(name, measure, split="test"), found.of(name, measure, split="test"))
        for name in found.cases
        if found.has(name, measure, split="test")
    ]
    if not points:
        raise BadData(f"{found.study.name}: no row has {measure} on test samples.")
    sizes = [float(rows["size"].iloc[0]) for _, rows in points]
    parts = ([getattr(seen, part) for seen, _ in points] for part in ("mean", "low", "high"))
    return SeedCurve(np.array(sizes), *(np.array(part) for part in parts))


def layer_names(found: Findings, case: str, measure: str) -> list[str]:
    """The layers of a case that have the measure, shallow to deep."""
    rows = found.of(case, measure)
    return rows.sort_values("depth")["layer"].drop_duplicates().tolist()


def layers_figure(found: Findings, groups: Sequence[Sequence[str]]) -> Figure:
    """Panels i-iii for each group of cases that has rows."""
    shown = [kept for group in groups if (kept := [name for name in group if name in found.cases])]
    figure, axes = panels(3, len(shown), title=found.study.title)
    for place, group in enumerate(shown):
        _draw_layers(axes[3 * place : 3 * place + 3], found, group)
    return figure


def _draw_layers(axes: Sequence[Axes], found: Findings, group: Sequence[str]) -> None:
    for panel, (measure, title) in zip(axes, PANELS, strict=True):
        for case, dash in zip(group, ("-", "--", ":"), strict=False):
            for index, layer in enumerate(layer_names(found, case, measure)):
                curve = found.curve(case, measure, x="position", layer=layer)
                name = layer if case == group[0] else ""
                line(panel, curve, name, color=COLOURS[index % len(COLOURS)], linestyle=dash)
        set_axes(panel, measure, title)
    marks = zip(("solid", "dashed", "dotted"), group, strict=False)
    title = "\n".join(f"{mark}: {name}" for mark, name in marks) if len(group) > 1 else group[0]
    axes[0].legend(loc="upper left", fontsize=7, title=title, title_fontsize=7, alignment="left")
