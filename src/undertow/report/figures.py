"""Figures for a paper, by matplotlib, in the style of all figures of undertow.

    draw("runs/m40", "swap")                                        # runs/m40/figures/swap.png
    draw("runs/m40", "latent-dynamics", formats=("pdf", "svg"), out=Path("paper/figures"))
    FIGURES                                                         # the names, and what each shows

They show what the page's charts of the same data show, without its controls: the last checkpoint where one must be
chosen, and all cuts beside each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.errors import BadData, BadValue, unknown
from undertow.plots import COLOURS, line, panels, save_figure, style
from undertow.report import views, views_temporal
from undertow.report.saved import Saved, read_saved
from undertow.report.tables import Curve, Grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "pdf", "svg")
ACROSS = 4
"""Panels in a row."""


def draw(
    run: str | Path, name: str, *, formats: Sequence[str] = ("png",), out: str | Path | None = None
) -> list[Path]:
    """Draw one figure of a run; the files written, in RUN/figures unless `out` names another folder."""
    if name not in FIGURES:
        raise unknown("figure", name, FIGURES)
    for ending in formats or ("none",):
        if ending not in FORMATS:
            raise BadValue("--format", f"some of {','.join(FORMATS)}", ending)
    saved = read_saved(run)
    with style():
        figure = FIGURES[name](saved)
    if figure is None:
        raise BadData(
            f"{saved.path}: its rows have nothing for the figure {name!r}. `undertow audit` measures it."
        )
    return save_figure(figure, Path(out or saved.path / "figures") / name, formats)


def latent_dynamics(saved: Saved) -> Figure | None:
    """Accuracy over training: the model, and the best layer of each probe."""
    found = views.overview(saved)
    if not found:
        return None
    figure, (axes,) = panels(1, size=(5.4, 3.4))
    for index, curve in enumerate(found):
        line(axes, curve, _name(curve.tags["name"]), index)
    axes.set(xlabel=saved.unit, ylabel="accuracy", ylim=(0, 1.02))
    axes.legend(loc="lower right")
    return figure


def heat_map(saved: Saved) -> Figure | None:
    """Layer x checkpoint accuracy of each probe."""
    found = views.latent_grids(saved, views.judged(saved))
    if not found:
        return None
    figure, axes = _panels(len(found), (3.2, 1.1 + 0.28 * len(found[0].value.down)))
    low = min(float(np.nanquantile(own.value.value, 0.08)) for own in found)
    for place, (panel, own) in enumerate(zip(axes, found, strict=True)):
        names = [_name(layer) if place % ACROSS == 0 else "" for layer in own.value.down]
        panel.set_yticks(range(len(names)), names)
        panel.set(title=_name(views.probe_name(own.tags.get("probe", ""))), xlabel=saved.unit)
        _map(
            figure, panel, own.value, (low, 1.0), key="test accuracy" if own is found[-1] else "", beside=axes
        )
    return figure


def richness(saved: Saved) -> Figure | None:
    """Every measure of richness over training."""
    found: dict[str, list[Curve]] = {}
    for curve in views.richness(saved):
        found.setdefault(curve.tags["measure"], []).append(curve)
    if not found:
        return None
    figure, axes = _panels(len(found), (2.5, 2.0))
    for panel, (measure, curves) in zip(axes, found.items(), strict=True):
        for index, curve in enumerate(curves):
            line(panel, curve, _name(curve.tags.get("layer", "")) if len(curves) > 1 else "", index)
        panel.set(title=measure.replace("_", " "), xlabel=saved.unit)
        if len(curves) > 1:
            panel.legend(loc="best")
    return figure


def spectrum(saved: Saved) -> Figure | None:
    """Quality, utilisation and intensity of the deepest layer's features, from early (pale) to late (dark)."""
    found = {tags["measure"]: own for tags, own in views.spectra(saved)}
    if not found:
        return None
    figure, axes = panels(len(found), size=(2.9, 2.5))
    for panel, (measure, own) in zip(axes, found.items(), strict=True):
        chosen = np.unique(np.linspace(0, len(own.down) - 1, 5).round().astype(int))
        for shade, place in zip(np.linspace(0.25, 1, len(chosen)), chosen, strict=True):
            panel.plot(
                own.across,
                own.value[place],
                color=COLOURS[0],
                alpha=shade,
                label=f"{saved.unit} {own.down[place]:g}",
            )
        panel.set(
            title=measure,
            xlabel="feature",
            xscale="log",
            yscale="log" if measure == "intensity" else "linear",
        )
    axes[-1].legend(loc="lower left")
    return figure


def composites(saved: Saved) -> Figure | None:
    """Consistency of composites (accuracy where there is none), a matrix for each cut."""
    every = views_temporal.composites(saved)
    measure = "consistency" if any(tags["measure"] == "consistency" for tags, _ in every) else "accuracy"
    found = [(tags["cut"], own) for tags, own in every if tags["measure"] == measure]
    if not found:
        return None
    figure, axes = _panels(len(found), (2.5, 2.4))
    for place, (panel, (cut, own)) in enumerate(zip(axes, found, strict=True)):
        ticks = _some(own.down)
        panel.set_yticks(ticks, [f"{own.down[tick]:g}" for tick in ticks])
        panel.set(title=f"cut after {_name(cut)}", xlabel=f"deep layers from {saved.unit}")
        panel.set(ylabel=f"shallow layers from {saved.unit}" if place % ACROSS == 0 else "")
        _map(figure, panel, own, (0.0, 1.0), key=measure if place == len(found) - 1 else "", beside=axes)
    return figure


def swap(saved: Saved) -> Figure | None:
    """Early and late parts put together at each cut."""
    found = views_temporal.swap_profile(saved)
    if not found:
        return None
    figure, (axes,) = panels(1, size=(4.8, 3.2))
    places = np.arange(len(found))
    names = {"swap_early_late": "early shallow, late deep", "swap_late_early": "late shallow, early deep"}
    for index, (measure, name) in enumerate(names.items()):
        value = np.array([own.get(measure, [np.nan] * 3) for own in found]).T
        reach = np.nan_to_num(np.abs(value[1:] - value[0]))
        axes.errorbar(
            places, value[0], reach, color=COLOURS[index], marker="os"[index], linestyle=("-", "--")[index], capsize=3,
            label=name,
        )  # fmt: skip
    for index, (measure, name) in enumerate([("swap_early", "early model"), ("swap_late", "late model")]):
        if whole := next((own[measure] for own in found if measure in own), None):
            axes.axhline(
                whole[0], color=(COLOURS[2], "#444444")[index], linestyle=":", linewidth=1.2, label=name
            )
    axes.set_xticks(
        places, [f"after {_name(own['cut'])}" for own in found], rotation=0 if len(found) < 5 else 25
    )
    axes.set(ylabel="test accuracy")
    figure.legend(loc="outside lower center", ncols=2)
    return figure


def drift(saved: Saved) -> Figure | None:
    """How far parameters and features still are from where they end."""
    found = {
        name: views_temporal.over_time(saved, measure)
        for name, measure in (("parameters", "parameter_drift"), ("features", "feature_drift"))
    }
    found = {name: curves for name, curves in found.items() if curves}
    if not found:
        return None
    figure, axes = panels(len(found), size=(3.4, 2.6))
    for panel, (name, curves) in zip(axes, found.items(), strict=True):
        for index, curve in enumerate(curves):
            layer = curve.tags.get("layer", "")
            line(panel, curve, "whole network" if layer == "all" else _name(layer), index)
        panel.set(title=f"drift of the {name}", xlabel=saved.unit, ylim=(0, None))
        panel.legend(loc="best")
    return figure


FIGURES: dict[str, Callable[[Saved], Any]] = {
    "latent-dynamics": latent_dynamics,
    "heat-map": heat_map,
    "richness": richness,
    "spectrum": spectrum,
    "composites": composites,
    "swap": swap,
    "drift": drift,
}
"""Figures by name."""


def _name(text: str) -> str:
    """A name from outside, not as mathematics ($) and not as a line to be left out of legends (_)."""
    return (" " if text.startswith("_") else "") + text.replace("$", r"\$")


def _panels(count: int, size: tuple[float, float]) -> tuple[Figure, list[Axes]]:
    """So many panels in rows of at most ACROSS; what is over is taken out."""
    columns = min(ACROSS, count)
    rows = -(-count // columns)
    figure, axes = panels(columns, rows, size=size)
    for spare in axes[count:]:
        spare.remove()
    return figure, axes[:count]


def _map(
    figure: Figure, axes: Axes, own: Grid, reach: tuple[float, float], key: str, beside: list[Axes]
) -> None:
    """A grid as a picture, the first row at the bottom; with `key`, the colours' scale stands beside all panels."""
    image = axes.imshow(
        own.value, origin="lower", aspect="auto", cmap="cividis", vmin=reach[0], vmax=reach[1]
    )
    ticks = _some(own.across)
    axes.set_xticks(ticks, [f"{own.across[place]:g}" for place in ticks])
    axes.grid(visible=False)
    if key:
        figure.colorbar(image, ax=beside, label=key, shrink=0.85)  # pyright: ignore[reportArgumentType]


def _some(axis: Sequence[float], most: int = 5) -> list[int]:
    return np.unique(np.linspace(0, len(axis) - 1, most).round().astype(int)).tolist()
