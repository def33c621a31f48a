"""The charts of one run, section by section: what each shows and what it is called.

    charts(saved)                                  # every chart that the rows can fill
    [chart.json() for chart in charts(saved)]      # for the page; figures.py draws the same

Titles, notes and axes stand here and in charts_time.py, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import Any

import numpy as np

from undertow.report import views
from undertow.report.charts_time import time_charts
from undertow.report.description import INK, SHARE, Axis, Chart, Panel, Series
from undertow.report.saved import Saved
from undertow.report.tables import Curve, Numbers, curves, grid, in_order
from undertow.words import probe_name

OVERVIEW = {"test": (INK, 0), "fit": (1, 2), "true": (4, 1), "wrong": (3, 3)}
"""Colour and dashes of the model's own curves; probes take what is left."""
PROBE_SLOTS = (0, 2, 5, 7, 3)
POSITIONS = 96
"""Features shown of a spectrum; more are thinned, evenly on a logarithmic axis."""

MEASURES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "d_lr": ("D_LR", "0: only the directions that the output needs are left (rich). Towards 1: features as they were "
             "(lazy).", ()),
    "effective_dimension": ("Effective dimension", "How many directions the last features use.",
                            ("effective_dimension_rest",)),
    "initial_kernel_alignment": ("Likeness to the start", "1: features are as they were initialised.", ()),
    "squared_parameter_norm": ("Size of the parameters", "Norm of all weights: the root of their summed squares (the "
                               "saved rows hold the square).", ()),
    "nc1": ("NC1, spread within classes", "0: every sample of a class lies at its mean. Spread within over spread "
            "between classes; stabilised adds 0.0001 to the latter in every direction, as in the paper's tables.",
            ("nc1_stabilised",)),
    "trace_within": ("Variance within classes", "Summed over directions and classes.", ()),
    "nc2_etf": ("NC2, means at equal angles", "0: the class means form a simplex.", ()),
    "nc3": ("NC3, head like means", "0: the head's rows are the class means.", ()),
    "nc4": ("NC4, head like nearest mean", "Share of samples on which they agree; 1 in a collapsed network.", ()),
}  # fmt: skip
"""Measures of richness: title, note, and what is drawn in the same chart."""
NAMES = {
    "effective_dimension_rest": "without the first direction", "effective_dimension": "all features", "nc1": "plain",
    "nc1_stabilised": "stabilised",
}  # fmt: skip
SPECTRA = {
    "quality": ("Quality", "Share of the target that the first k features express."),
    "utilisation": ("Utilisation", "Share of the network's answers that they carry."),
    "intensity": ("Intensity", "Eigenvalues of the features over the first one."),
}


def charts(saved: Saved) -> list[Chart]:
    """Every chart that the run's rows can fill, in the order of the page."""
    makers = (accuracy, layers, dimensions, repairs, richness, spectra, time_charts, own_lenses)
    return [chart for make in makers for chart in make(saved)]


def accuracy(saved: Saved) -> Iterator[Chart]:
    """The model and its best layers over training."""
    slots = cycle(zip(PROBE_SLOTS, range(5), strict=True))
    series = [
        Series(curve.tags["name"], curve, *(OVERVIEW.get(curve.tags["role"]) or next(slots)))
        for curve in views.overview(saved)
    ]
    if series:
        yield Chart(
            id="accuracy", section="accuracy", kind="lines", title="The model and its best layers", size="most",
            note="The model itself, and the best layer of each probe. Bands are 95 % intervals of each curve alone. "
            "The interval of the best layer at the top of the page is wider, because that layer was picked. Click or "
            "slide to choose a checkpoint.",
            height=262, x=Axis(saved.unit), y=SHARE, series=series,
        )  # fmt: skip


def layers(saved: Saved) -> Iterator[Chart]:
    """Layer x checkpoint maps, and a cut through them at one checkpoint."""
    maps = layer_maps(saved)
    if any(own.first for own in maps):
        yield Chart(
            id="depth", section="accuracy", kind="moments", title="Through the layers", size="wide", height=280,
            note="What probes read from each layer at {checkpoint}, first layer on the left.",
            x=Axis(names=maps[0].grid.down), y=SHARE,
        )  # fmt: skip
    if maps:
        yield Chart(
            id="map", section="layers", kind="maps", title="Layer by layer, checkpoint by checkpoint", size="wide",
            note="Accuracy of {probe}. The top row is the model's own; layers lie beneath it, the first at the bottom.",
            x=Axis(saved.unit), y=Axis("layer"), panels=maps,
        )  # fmt: skip


def layer_maps(saved: Saved) -> list[Panel]:
    """Accuracy over layers and checkpoints of every probe, fit, split and labels, all over the same axes."""
    rows = saved.of("latent", "accuracy")
    rows = rows[rows["layer"].notna() & rows["checkpoint"].notna()]
    ys, xs = in_order(rows["layer"].unique(), saved.layers), sorted(rows["checkpoint"].unique().tolist())
    beside, slots = set(views.judged(saved).index), cycle(PROBE_SLOTS)
    found: list[Panel] = []
    for key, own in rows.groupby(["probe", "fit", "split", "labels"], sort=False, dropna=False):
        probe, fit, split, labels = (name if isinstance(name, str) else "" for name in key)
        value, low, high = (
            grid(own, down="layer", across="checkpoint", field=field, ys=ys, xs=xs)
            for field in ("value", "low", "high")
        )
        measured = [f"fitted with {fit} labels" * bool(fit), split, f"{labels} labels" * bool(labels)]
        tags = {"probe": probe_name(probe), "measured": ", ".join(filter(None, measured))}
        edges = {"low": low.value, "high": high.value} if (low.value < high.value).any() else {}
        first = own.index[0] in beside
        model = _model_row(saved, split, labels, xs)
        found.append(
            Panel(tags["probe"], value, tags, first, next(slots) if first else 0, model=model, **edges)
        )
    return found


def _model_row(saved: Saved, split: str, labels: str, at: Sequence[float]) -> Numbers | None:
    """The model's own accuracy at these checkpoints."""
    curve = views.model_curve(saved, split, labels) or (views.test_curve(saved) if split == "test" else None)
    if curve is None:
        return None
    known = dict(zip(curve.x.tolist(), curve.mean.tolist(), strict=True))
    return np.array([known.get(place, np.nan) for place in at])


def dimensions(saved: Saved) -> Iterator[Chart]:
    """How many directions per class a probe keeps, layer by layer."""
    rows = saved.of("latent", "dimension")
    found = curves(rows[~rows["fit"].isin(["shuffled", "true"])], "probe", "layer")
    order = in_order((curve.tags.get("layer", "") for curve in found), saved.layers)
    series = [
        Series(layer, curve, place, place, tags={"probe": probe_name(curve.tags.get("probe", ""))})
        for place, layer in enumerate(order)
        for curve in found
        if curve.tags.get("layer", "") == layer
    ]
    if series:
        yield Chart(
            id="dimension", section="layers", kind="lines", title="Dimensions that the probe uses", size="wide",
            note="Directions that {probe} keeps per class. A layer that needs few has sorted its classes.",
            x=Axis(saved.unit), y=Axis("dimensions"), series=series,
        )  # fmt: skip


def repairs(saved: Saved) -> Iterator[Chart]:
    """Accuracy before and after for every layer and probe."""
    found = views.repairs(saved)
    when = f" at {saved.unit} {at:g}" if found and (at := found[0]["checkpoint"]) == at else ""
    if found:
        yield Chart(
            id="repair", section="repair", kind="pairs", title="Before and after", size="wide",
            note=f"Hollow: the model as it is{when}. Full: with a head made from that layer's probe. The thin bar is "
            "the 95 % interval of the gain.",
            x=Axis("test accuracy", high=1, share=True), rows=found,
        )  # fmt: skip


def richness(saved: Saved) -> Iterator[Chart]:
    """Every measure of richness over training; those that nobody listed come last, under their own names."""
    found = views.richness(saved)
    known = {name for key, (_, _, more) in MEASURES.items() for name in (key, *more)}
    others = dict.fromkeys(curve.tags["measure"] for curve in found if curve.tags["measure"] not in known)
    listed = MEASURES | {name: (name.replace("_", " "), "", ()) for name in others}
    for name, (title, note, more) in listed.items():
        own = [curve for curve in found if curve.tags["measure"] in (name, *more)]
        if own:
            yield Chart(
                id=f"rich-{name}", section="richness", kind="lines", title=title, note=note, size="third", height=190,
                x=Axis(saved.unit), y=_reach(own, 1.0 if name == "d_lr" else None), series=_told_apart(own, title),
            )  # fmt: skip


def own_lenses(saved: Saved) -> Iterator[Chart]:
    """Measures of lenses that are not undertow's, one chart each."""
    for lens, measure in views.own_measures(saved):
        found = curves(saved.of(lens, measure), "measure", "layer")
        title = measure.replace("_", " ")
        yield Chart(
            id=f"own-{lens}-{measure}", section="own", kind="lines", title=title, note=f"Lens {lens}.", size="third",
            height=190, x=Axis(saved.unit), y=_reach(found, None), series=_told_apart(found, title),
        )  # fmt: skip


def _told_apart(found: list[Curve], title: str) -> list[Series]:
    """Curves named by what they differ in."""
    measures, places = ({curve.tags.get(name, "") for curve in found} for name in ("measure", "layer"))

    def label(tags: dict[str, str]) -> str:
        measure = NAMES.get(tags["measure"], tags["measure"]) if len(measures) > 1 else ""
        layer = tags.get("layer", "") if len(places) > 1 else ""
        return ", ".join(filter(None, [measure, layer])) or title

    return [Series(label(curve.tags), curve, place, place) for place, curve in enumerate(found)]


def _reach(found: list[Curve], high: float | None) -> Axis:
    """From zero where nothing is negative; logarithmic where curves a hundred times apart would lie flat."""
    known = [own for curve in found if len(own := curve.mean[np.isfinite(curve.mean)])]
    tops, least = [float(own.max()) for own in known], min((float(own.min()) for own in known), default=0.0)
    if least > 0 and max(tops) > 100 * min(tops):
        return Axis(log=True)
    return Axis(low=0 if least >= 0 else None, high=high)


def spectra(saved: Saved) -> Iterator[Chart]:
    """Quality, utilisation and intensity of each layer's features, over checkpoints and positions."""
    for measure, (title, note) in SPECTRA.items():
        rows = saved.of("richness", measure)
        rows = rows[rows["position"].isin(_thinned(rows["position"].max()))]
        panels = [
            Panel(str(layer), grid(own, down="checkpoint", across="position"), {"layer": str(layer)})
            for layer, own in rows.groupby("layer", sort=False)
        ]
        shape: dict[str, Any] = (
            {"log": True} if measure == "intensity" else {"low": 0, "high": 1, "share": True}
        )
        if panels:
            yield Chart(
                id=f"spectrum-{measure}", section="spectrum", kind="moments", title=title, note=note, size="third",
                height=220, x=Axis("feature", log=True), y=Axis(**shape), panels=panels, unit=saved.unit,
            )  # fmt: skip


def _thinned(most: float) -> list[float]:
    """Feature numbers to show: all of few, else whole numbers evenly on a logarithmic axis."""
    if not most > POSITIONS:
        return np.arange(0, POSITIONS + 1, dtype="float64").tolist()
    return np.unique(np.geomspace(1, most, POSITIONS).round()).tolist()
