"""The charts of one run, section by section: what each shows and what it is called.

    charts(saved)                          # every chart that the rows can fill
    [chart.json() for chart in charts(saved)]      # for the page; figures.py draws the same

Rows become curves and grids in views.py and views_temporal.py; titles, notes and axes stand here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import cycle

import numpy as np

from undertow.report import views, views_temporal
from undertow.report.description import INK, SHARE, Axis, Chart, Panel, Series
from undertow.report.saved import Saved
from undertow.report.tables import Curve
from undertow.words import probe_name

OVERVIEW = {"test": (INK, 0), "fit": (1, 2), "true": (4, 1), "wrong": (3, 3)}
"""Colour and dashes of the model's own curves; probes take what is left."""
PROBE_SLOTS = (0, 2, 5, 7, 3)

MEASURES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "d_lr": (
        "D_LR",
        "0: only the directions that the output needs are left (rich). Towards 1: features as they were (lazy).",
        (),
    ),
    "effective_dimension": (
        "Effective dimension", "How many directions the last features use.", ("effective_dimension_rest",),
    ),
    "initial_kernel_alignment": ("Likeness to the start", "1: features are as they were initialised.", ()),
    "squared_parameter_norm": (
        "Size of the parameters",
        "Norm of all weights: the root of their summed squares (the saved rows hold the square).",
        (),
    ),
    "nc1": (
        "NC1, spread within classes",
        "0: every sample of a class lies at its mean. Spread within over spread between classes; stabilised adds "
        "0.0001 to the latter in every direction, as in the paper's tables.",
        ("nc1_stabilised",),
    ),
    "trace_within": ("Variance within classes", "Summed over directions and classes.", ()),
    "nc2_etf": ("NC2, means at equal angles", "0: the class means form a simplex.", ()),
    "nc3": ("NC3, head like means", "0: the head's rows are the class means.", ()),
    "nc4": (
        "NC4, head like nearest mean", "Share of samples on which they agree; 1 in a collapsed network.", (),
    ),
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
SWAPS = {"swap_early_late": "early shallow, late deep", "swap_late_early": "late shallow, early deep"}
WHOLE = {"swap_early": ("early model", 2, 1), "swap_late": ("late model", INK, 2)}


def charts(saved: Saved) -> list[Chart]:
    """Every chart that the run's rows can fill, in the order of the page."""
    makers = (accuracy, layers, repairs, richness, spectra, composites, trajectories, swap, over_time)
    return [chart for make in makers for chart in make(saved)]


def accuracy(saved: Saved) -> Iterator[Chart]:
    """The model and its best layers over training."""
    found = views.overview(saved)
    if not found:
        return
    probes = 0
    series: list[Series] = []
    for curve in found:
        slot, dash = OVERVIEW.get(curve.tags["role"], (PROBE_SLOTS[probes % 5], probes % 4))
        probes += curve.tags["role"] == "probe"
        series.append(Series(curve.tags["name"], curve, slot, dash, tags={"role": curve.tags["role"]}))
    yield Chart(
        id="accuracy", section="accuracy", kind="lines", title="The model and its best layers", size="most", height=340,
        note="The model itself, and the best layer of each probe. Bands are 95 % intervals of each curve alone. The "
        "interval of the best layer at the top of the page is wider, because that layer was picked. Click or slide to "
        "choose a checkpoint.",
        x=Axis(saved.unit), y=SHARE, series=series,
    )  # fmt: skip


def layers(saved: Saved) -> Iterator[Chart]:
    """Layer x checkpoint maps, a cut through them at one checkpoint, and the dimensions that probes use."""
    found = views.latent_grids(saved)
    shown = [own for own in found if own.tags["measure"] == "accuracy"]
    slots = dict(zip((id(own) for own in shown if own.judged), cycle(PROBE_SLOTS), strict=False))
    maps = [_layer_panel(saved, own, slots.get(id(own), 0)) for own in shown]
    if maps:
        names = maps[0].grid.down
        if any(own.first for own in maps):
            yield Chart(
                id="depth", section="accuracy", kind="moments", title="Through the layers", size="less", height=340,
                note="What probes read from each layer at {checkpoint}, first layer on the left.",
                x=Axis(names=names), y=SHARE,
            )  # fmt: skip
        yield Chart(
            id="map", section="layers", kind="maps", title="Layer by layer, checkpoint by checkpoint", size="wide",
            note="Accuracy of {probe}. The top row is the model's own; layers lie beneath it, the first at the bottom.",
            x=Axis(saved.unit), y=Axis("layer"), panels=maps,
        )  # fmt: skip
    used = [
        Series(
            str(layer),
            Curve({}, np.array(own.value.across), row, row, row),
            place,
            place % 4,
            tags=_probe(own),
        )
        for own in found
        if own.tags["measure"] == "dimension" and own.tags.get("fit") not in ("shuffled", "true")
        for place, (layer, row) in enumerate(zip(own.value.down, own.value.value, strict=True))
        if not np.isnan(row).all()
    ]
    if used:
        yield Chart(
            id="dimension", section="layers", kind="lines", title="Dimensions that the probe uses", size="wide",
            note="Directions that {probe} keeps per class. A layer that needs few has sorted its classes.",
            x=Axis(saved.unit), y=Axis("dimensions"), series=used,
        )  # fmt: skip


def _probe(own: views.LatentGrid) -> dict[str, str]:
    return {"probe": probe_name(own.tags.get("probe", ""))}


def _layer_panel(saved: Saved, own: views.LatentGrid, slot: int) -> Panel:
    fit, split, labels = (own.tags.get(name, "") for name in ("fit", "split", "labels"))
    measured = [f"fitted with {fit} labels" * bool(fit), split, f"{labels} labels" * bool(labels)]
    tags = {**_probe(own), "measured": ", ".join(filter(None, measured))}
    low, high = own.low.value, own.high.value
    edges = {"low": low, "high": high} if (low < high).any() else {}
    curve = views.model_curve(saved, split, labels) or (views.test_curve(saved) if split == "test" else None)
    model = None if curve is None else _aligned(curve, own.value.across)
    return Panel(tags["probe"], own.value, tags, own.judged, slot, model=model, **edges)


def _aligned(curve: Curve, at: Sequence[float]) -> np.ndarray:
    known = dict(zip(curve.x.tolist(), curve.mean.tolist(), strict=True))
    return np.array([known.get(float(place), np.nan) for place in at])


def repairs(saved: Saved) -> Iterator[Chart]:
    """Accuracy before and after for every layer and probe."""
    found = views.repairs(saved)
    if not found:
        return
    at = found[0]["checkpoint"]
    when = f" at {saved.unit} {at:g}" if at == at else ""
    yield Chart(
        id="repair", section="repair", kind="pairs", title="Before and after", size="wide",
        note=f"Hollow: the model as it is{when}. Full: with a head made from that layer's probe. The thin bar is the "
        "95 % interval of the gain.",
        x=Axis("test accuracy", high=1, share=True), rows=found,
    )  # fmt: skip


def richness(saved: Saved) -> Iterator[Chart]:
    """Every measure of richness over training; those that nobody listed come last, under their own names."""
    found = views.richness(saved)
    beside = {extra for _, _, more in MEASURES.values() for extra in more}
    others = dict.fromkeys(curve.tags["measure"] for curve in found)
    listed = MEASURES | {
        name: (name.replace("_", " "), "", ())
        for name in others
        if name not in MEASURES and name not in beside
    }
    for name, (title, note, more) in listed.items():
        own = [curve for curve in found if curve.tags["measure"] in (name, *more)]
        if own:
            yield Chart(
                id=f"rich-{name}", section="richness", kind="lines", title=title, note=note, size="third", height=190,
                x=Axis(saved.unit), y=_reach(own, 1.0 if name == "d_lr" else None), series=_told_apart(own, title),
            )  # fmt: skip


def _told_apart(found: list[Curve], title: str) -> list[Series]:
    """Curves named by what they differ in."""
    several = {name: len({curve.tags.get(name) for curve in found}) > 1 for name in ("measure", "layer")}

    def label(curve: Curve) -> str:
        measure = curve.tags["measure"]
        parts = [
            NAMES.get(measure, measure) * several["measure"],
            curve.tags.get("layer", "") * several["layer"],
        ]
        return ", ".join(filter(None, parts)) or title

    return [Series(label(curve), curve, place, place % 4) for place, curve in enumerate(found)]


def _reach(found: list[Curve], high: float | None) -> Axis:
    """From zero where nothing is negative; logarithmic where curves a hundred times apart would lie flat."""
    known = [own for curve in found if len(own := curve.mean[np.isfinite(curve.mean)])]
    tops = [float(own.max()) for own in known]
    if tops and min(float(own.min()) for own in known) > 0 and max(tops) > 100 * min(tops):
        return Axis(log=True)
    return Axis(low=0 if all((own >= 0).all() for own in known) else None, high=high)


def spectra(saved: Saved) -> Iterator[Chart]:
    """Quality, utilisation and intensity of each layer's features."""
    found = views.spectra(saved)
    for measure, (title, note) in SPECTRA.items():
        panels = [
            Panel(tags["layer"], own, {"layer": tags["layer"]})
            for tags, own in found
            if tags["measure"] == measure
        ]
        if panels:
            yield Chart(
                id=f"spectrum-{measure}", section="spectrum", kind="moments", title=title, note=note, size="third",
                height=220, x=Axis("feature", log=True), panels=panels, unit=saved.unit,
                y=Axis(log=True) if measure == "intensity" else Axis(low=0, high=1, share=True),
            )  # fmt: skip


def composites(saved: Saved) -> Iterator[Chart]:
    """Shallow layers of one checkpoint under deep layers of another."""
    found = views_temporal.composites(saved)
    if not found:
        return
    leading = max(tags["measure"] for tags, _ in found)  # consistency where there is one
    panels = [Panel(f"cut after {tags['cut']}", own, tags, tags["measure"] == leading) for tags, own in found]
    yield Chart(
        id="composites", section="time", kind="maps", title="Layers of different ages put together",
        note="Layers up to {cut} from one checkpoint, the rest from another: {measure}. The diagonal is the model "
        "itself; below it, shallow layers are older than deep ones.",
        x=Axis(f"deep layers from {saved.unit}"), y=Axis(f"shallow layers from {saved.unit}"), panels=panels,
    )  # fmt: skip


def trajectories(saved: Saved) -> Iterator[Chart]:
    """Where samples lie in two dimensions, checkpoint by checkpoint."""
    found = views_temporal.trajectories(saved)
    if found:
        yield Chart(
            id="trajectory", section="time", kind="tracks", title="Samples on their way",
            note="Features at {cut} in two dimensions, coloured by class, with their last few checkpoints as tails. "
            "The axes fit the points of the moment. Choose a class to see it alone.",
            rows=[vars(own) for own in found],
        )  # fmt: skip


def swap(saved: Saved) -> Iterator[Chart]:
    """Early and late parts put together at each cut."""
    found = views_temporal.swap_profile(saved)
    if not found:
        return
    places = np.arange(len(found), dtype="float64")

    def curve(measure: str) -> Curve:
        value = np.array([own.get(measure, [np.nan] * 3) for own in found]).T
        return Curve({}, places, *value)

    series = [
        Series(name, curve(measure), place, place, marker=place, whiskers=True)
        for place, (measure, name) in enumerate(SWAPS.items())
    ]
    levels = [
        Series(name, level, slot, dash)
        for measure, (name, slot, dash) in WHOLE.items()
        if not np.isnan((level := curve(measure)).mean).all()
    ]
    yield Chart(
        id="swap", section="time", kind="lines", title="Where memorisation sits", size="wide", height=300,
        note=f"{_verdict_on(saved, 'place')} Parts of an early and of the late model, joined after each layer. Where "
        "“late shallow, early deep” drops, late features have lost what the early head could read.".strip(),
        x=Axis("cut after", names=[own["cut"] for own in found]), y=replace(SHARE, label="test accuracy"),
        series=series, levels=levels,
    )  # fmt: skip


def _verdict_on(saved: Saved, topic: str) -> str:
    """What the verdict says of a topic."""
    return next((str(own.get("sentence") or "") for own in saved.findings if own.get("topic") == topic), "")


def over_time(saved: Saved) -> Iterator[Chart]:
    """Windows, densities and drift, a curve for each cut or layer."""
    unit, from_zero = Axis(saved.unit), Axis(low=0)
    made = [
        (
            "window", "How far back deep layers understand",
            f"{saved.unit.capitalize()}s that shallow layers may lag behind and still be understood.",
            views_temporal.over_time(saved, "window"), unit, Axis(f"{saved.unit}s back", low=0),
        ),
        (
            "density", "Consistency, sample by sample",
            "How many samples keep their answer when shallow layers are older. All mass at the right: nothing was "
            "forgotten.",
            views_temporal.densities(saved), Axis("consistency"), Axis("density", low=0),
        ),
        (
            "parameter-drift", "Drift of the parameters", "Distance to the end, relative to its size.",
            views_temporal.over_time(saved, "parameter_drift"), unit, from_zero,
        ),
        (
            "feature-drift", "Drift of the features", "The same for the layers' outputs.",
            views_temporal.over_time(saved, "feature_drift"), unit, from_zero,
        ),
    ]  # fmt: skip
    for name, title, note, curves, x, y in made:
        if curves:
            yield Chart(
                id=name, section="time", kind="lines", title=title, note=note, x=x, y=y,
                series=[_by_layer(place, curve, title) for place, curve in enumerate(curves)],
            )  # fmt: skip


def _by_layer(place: int, curve: Curve, title: str) -> Series:
    layer = curve.tags.get("layer")
    if layer == "all":
        return Series("whole network", curve, INK)
    return Series(layer or title, curve, place, place % 4)
