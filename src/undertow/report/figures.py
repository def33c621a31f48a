"""Figures for a paper, by matplotlib, in the style of all figures of undertow.

    draw("runs/m40", "swap")                                        # runs/m40/figures/swap.png
    draw("runs/m40", "latent-dynamics", formats=("pdf", "svg"), out=Path("paper/figures"))
    FIGURES                                                         # the names, and the charts that each shows

They draw the page's charts (charts.py) without its controls: what the page shows first, the last layer and a few
checkpoints where one must be chosen, and all cuts beside each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.errors import BadData, UnknownName, unknown
from undertow.outputs import as_path, check_output_folder
from undertow.plots import COLOURS, DASHES, line, panels, save_figure, style
from undertow.report.charts import charts
from undertow.report.description import INK, Axis, Chart, Panel, Series
from undertow.report.saved import read_saved

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FIGURES: dict[str, tuple[str, ...]] = {
    "latent-dynamics": ("accuracy",),
    "heat-map": ("map",),
    "richness": ("rich-",),
    "spectrum": ("spectrum-",),
    "composites": ("composites",),
    "swap": ("swap",),
    "drift": ("parameter-drift", "feature-drift"),
}
"""Figures by name: how the ids of their charts begin."""
FORMATS = ("png", "pdf", "svg")
ACROSS = 4
"""Panels in a row."""
BLACK = "#222222"
Cell = tuple[Chart, Panel | None]
"""What stands in one panel of a figure."""


def draw(
    run: str | Path, name: str, *, formats: Sequence[str] = ("png",), out: str | Path | None = None
) -> list[Path]:
    """Draw one figure of a run; the files written, in RUN/figures unless `out` names another folder."""
    if name not in FIGURES:
        raise unknown("figure", name, FIGURES)
    if not formats:
        raise UnknownName(f"--format names no format. Choose some of {', '.join(FORMATS)}.")
    for ending in formats:
        if ending not in FORMATS:
            raise unknown("format", ending, FORMATS)
    check_output_folder("figure", "out", None if out is None else as_path(out, "figure"))
    saved = read_saved(run)
    found = [chart for chart in charts(saved) if chart.id.startswith(FIGURES[name])]
    if not found:
        audit = f"`undertow audit {quote(str(saved.path))}`"
        raise BadData(f"{saved.path} has nothing for the figure {name!r}. {audit} measures it.")
    with style():
        figure = _figure([cell for chart in found for cell in _cells(chart)])
    return save_figure(figure, Path(out or saved.path / "figures") / name, formats)


def _cells(chart: Chart) -> list[Cell]:
    if chart.kind == "maps":
        return [(chart, own) for own in chart.panels if own.first]
    return [(chart, chart.panels[-1] if chart.panels else None)]


def _figure(cells: list[Cell]) -> Figure:
    """All cells in rows of at most ACROSS; places that are left over are taken out."""
    columns = min(ACROSS, len(cells))
    figure, axes = panels(columns, -(-len(cells) // columns), size=_size(cells))
    for spare in axes[len(cells) :]:
        spare.remove()
    for place, ((chart, panel), own) in enumerate(zip(cells, axes, strict=False)):
        DRAWN[chart.kind](own, chart, panel)
        own.set(
            title=_name(panel.title if panel and chart.kind == "maps" else chart.title), xlabel=chart.x.label
        )
        own.set(ylabel=chart.y.label if place % columns == 0 else "")
    if cells[0][0].kind == "maps":
        _colours(figure, cells, axes[: len(cells)])
    return figure


def _size(cells: list[Cell]) -> tuple[float, float]:
    chart, panel = cells[0]
    if panel is not None and isinstance(panel.grid.down[0], str):
        return 3.2, 1.1 + 0.28 * len(panel.grid.down)
    return (
        (5.2 + 2 * (len(chart.series) > 5), 3.3) if len(cells) == 1 and chart.kind == "lines" else (3.0, 2.5)
    )


def _lines(axes: Axes, chart: Chart, panel: Panel | None) -> None:
    for own in chart.series:
        if own.whiskers:
            reach = np.nan_to_num(np.abs(np.stack([own.curve.low, own.curve.high]) - own.curve.mean))
            axes.errorbar(
                own.curve.x, own.curve.mean, reach, marker="osD^"[own.marker or 0], capsize=3, **_look(own)
            )
        else:
            look = _look(own)
            line(axes, own.curve, look.pop("label"), **look)
    for own in chart.levels:
        look: dict[str, Any] = {**_look(own), "linestyle": ":", "linewidth": 1.2}
        axes.axhline(float(np.nanmax(own.curve.mean)), **look)
    _scaled(axes, chart.x, chart.y)
    if len(chart.series) > 5:
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    elif len(chart.series) > 1 or chart.series[0].name != chart.title:
        axes.legend(loc="best")


def _look(own: Series) -> dict[str, Any]:
    colour = BLACK if own.slot == INK else COLOURS[own.slot % len(COLOURS)]
    return {"color": colour, "linestyle": DASHES[own.dash % len(DASHES)], "label": _name(own.name)}


def _scaled(axes: Axes, x: Axis, y: Axis) -> None:
    if x.names:
        axes.set_xticks(
            range(len(x.names)), [_name(name) for name in x.names], rotation=25 if len(x.names) > 4 else 0
        )
    if x.log:
        axes.set_xscale("log")
    if y.log:
        axes.set_yscale("log")
    else:
        # A line along the edge stays whole.
        low, high = axes.get_ylim()
        axes.set_ylim(low - 0.03 * (high - low) if y.low is None else y.low, y.high and 1.02 * y.high)


def _moments(axes: Axes, chart: Chart, panel: Panel | None) -> None:
    """Five checkpoints from early (pale) to late (dark)."""
    if panel is None:
        return
    chosen = _some(panel.grid.down)
    for shade, place in zip(np.linspace(0.25, 1, len(chosen)), chosen, strict=True):
        label = f"{panel.grid.down[place]:g}"
        axes.plot(panel.grid.across, panel.grid.value[place], color=COLOURS[0], alpha=shade, label=label)
    _scaled(axes, chart.x, chart.y)
    axes.legend(loc="best", title=chart.unit)


def _map(axes: Axes, chart: Chart, panel: Panel | None) -> None:
    """A grid as a picture, the first row at the bottom."""
    if panel is None:
        return
    grid = panel.grid
    axes.imshow(grid.value, origin="lower", aspect="auto", cmap="cividis")
    named = isinstance(grid.down[0], str)
    ticks = list(range(len(grid.down))) if named else _some(grid.down)
    axes.set_yticks(ticks, [_name(grid.down[tick]) if named else f"{grid.down[tick]:g}" for tick in ticks])
    across = _some(grid.across)
    axes.set_xticks(across, [f"{grid.across[place]:g}" for place in across])
    axes.grid(visible=False)


def _colours(figure: Figure, cells: list[Cell], axes: list[Axes]) -> None:
    """One scale of colours for all maps; the lowest twelfth shares a colour, for the start knows nothing."""
    values = np.concatenate([panel.grid.value.ravel() for _, panel in cells if panel is not None])
    for own in axes:
        own.images[0].set_clim(float(np.nanquantile(values, 0.08)), 1.0)
    key = (cells[0][1].tags if cells[0][1] else {}).get("measure", "test accuracy")
    figure.colorbar(axes[-1].images[0], ax=axes, label=key, shrink=0.85)  # pyright: ignore[reportArgumentType]


DRAWN: dict[str, Callable[[Axes, Chart, Panel | None], None]] = {
    "lines": _lines,
    "moments": _moments,
    "maps": _map,
}


def _name(text: str) -> str:
    """A name from outside, not as mathematics ($) and not as a line to be left out of legends (_)."""
    return (" " if text.startswith("_") else "") + text.replace("$", r"\$")


def _some(axis: Sequence[float], most: int = 5) -> list[int]:
    return np.unique(np.linspace(0, len(axis) - 1, most).round().astype(int)).tolist()
