"""The charts of the section on time: composites, trajectories, the swap profile, windows, densities and drift.

time_charts(saved)       # every one that the rows can fill
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from undertow.report.description import INK, SHARE, Axis, Chart, Panel, Series
from undertow.report.saved import Frame, Saved
from undertow.report.tables import Curve, curves, grid, in_order, prefer

SAMPLES = 300
"""Samples shown of a trajectory; more are thinned, evenly."""
SWAPS = {"swap_early_late": "early shallow, late deep", "swap_late_early": "late shallow, early deep"}
WHOLE = {"swap_early": ("early model", 2, 1), "swap_late": ("late model", INK, 2)}


def time_charts(saved: Saved) -> Iterator[Chart]:
    """All of them, in the order of the page."""
    for make in (composites, trajectories, swap, over_time):
        yield from make(saved)


def composites(saved: Saved) -> Iterator[Chart]:
    """Shallow layers of one checkpoint under deep layers of another: accuracy and consistency for each cut."""
    rows = saved.of("temporal", "accuracy", "consistency")
    rows = prefer(rows[rows["shallow"].notna()], "split", "test")
    # Consistency asks no labels, so each measure chooses for itself.
    parts = [
        (measure, prefer(rows[rows["measure"] == measure], "labels", "true", "given"))
        for measure in ("consistency", "accuracy")
    ]
    leading = next((measure for measure, part in parts if len(part)), "")
    panels = [
        Panel(
            f"cut after {cut}", grid(own, down="shallow", across="checkpoint"), {"cut": cut, "measure": measure},
            measure == leading,
        )
        for cut in in_order(rows["layer"].dropna().unique(), saved.layers)
        for measure, part in parts
        if len(own := part[part["layer"] == cut])
    ]  # fmt: skip
    if panels:
        yield Chart(
            id="composites", section="time", kind="maps", title="Layers of different ages put together",
            note="Layers up to {cut} from one checkpoint, the rest from another: {measure}. The diagonal is the model "
            "itself; below it, shallow layers are older than deep ones.",
            x=Axis(f"deep layers from {saved.unit}"), y=Axis(f"shallow layers from {saved.unit}"), panels=panels,
        )  # fmt: skip


def trajectories(saved: Saved) -> Iterator[Chart]:
    """Where samples lie in two dimensions, checkpoint by checkpoint."""
    rows = saved.of("temporal", "trajectory")
    rows = rows[rows["sample"].notna() & rows["y"].notna()]
    cuts = in_order(rows["layer"].dropna().unique(), saved.layers)
    if cuts:
        yield Chart(
            id="trajectory", section="time", kind="tracks", title="Samples on their way",
            note="Features at {cut} in two dimensions, coloured by class, with their last few checkpoints as tails. "
            "The axes fit the points of the moment. Choose a class to see it alone.",
            rows=[_track(cut, rows[rows["layer"] == cut]) for cut in cuts],
        )  # fmt: skip


def _track(cut: str, rows: Frame) -> dict[str, Any]:
    """The places of at most SAMPLES samples at every checkpoint."""
    everyone = np.sort(rows["sample"].unique())
    kept = everyone[np.unique(np.linspace(0, len(everyone) - 1, SAMPLES).round().astype(int))]
    rows = rows[rows["sample"].isin(kept)]
    across, up = (grid(rows, down="checkpoint", across="sample", field=field) for field in ("value", "y"))
    of = rows.drop_duplicates("sample").set_index("sample")["label"]
    labels = [None if np.isnan(of[sample]) else int(of[sample]) for sample in across.across]
    shape = {"cut": cut, "checkpoints": across.down, "samples": across.across, "labels": labels}
    return {**shape, "x": across.value, "y": up.value}


def swap(saved: Saved) -> Iterator[Chart]:
    """Early and late parts put together at each cut, between the whole early and the whole late model."""
    rows = saved.of("temporal", *SWAPS, *WHOLE).drop_duplicates(["layer", "measure"], keep="last")
    cuts = in_order(rows["layer"].dropna().unique(), saved.layers)

    def curve(measure: str) -> Curve:
        own = rows[rows["measure"] == measure].set_index("layer").reindex(cuts)
        return Curve(
            {},
            np.arange(len(cuts), dtype="float64"),
            *(own[field].to_numpy() for field in ("value", "low", "high")),
        )

    series = [
        Series(name, curve(measure), place, place, marker=place, whiskers=True)
        for place, (measure, name) in enumerate(SWAPS.items())
    ]
    levels = [
        Series(name, curve(measure), slot, dash)
        for measure, (name, slot, dash) in WHOLE.items()
        if (rows["measure"] == measure).any()
    ]
    said = next((str(own.get("sentence")) + " " for own in saved.findings if own.get("topic") == "place"), "")
    if cuts:
        yield Chart(
            id="swap", section="time", kind="lines", title="Where memorisation sits", size="wide", height=300,
            note=f"{said}Parts of an early and of the late model, joined after each layer. Where “late shallow, early "
            "deep” drops, late features have lost what the early head could read.",
            x=Axis("cut after", names=cuts), y=replace(SHARE, label="test accuracy"), series=series, levels=levels,
        )  # fmt: skip


def over_time(saved: Saved) -> Iterator[Chart]:
    """Windows, densities and drift, a curve for each cut or layer."""
    unit, zero = Axis(saved.unit), Axis(low=0)
    back = f"{saved.unit.capitalize()}s that shallow layers may lag behind and still be understood."
    kept = "How many samples keep their answer when shallow layers are older: at the right, all of them."
    for measure, title, note, x, y in (
        ("window", "How far back deep layers understand", back, unit, Axis(f"{saved.unit}s back", low=0)),
        ("density", "Consistency, sample by sample", kept, Axis("consistency"), Axis("density", low=0)),
        (
            "parameter_drift",
            "Drift of the parameters",
            "Distance to the end, relative to its size.",
            unit,
            zero,
        ),
        ("feature_drift", "Drift of the features", "The same for the layers' outputs.", unit, zero),
    ):
        found = layer_curves(saved, measure)
        series = [_by_layer(place, curve, title) for place, curve in enumerate(found)]
        if series:
            name = measure.replace("_", "-")
            yield Chart(
                id=name, section="time", kind="lines", title=title, note=note, x=x, y=y, series=series
            )


def layer_curves(saved: Saved, measure: str) -> list[Curve]:
    """Curves over checkpoints for each cut or layer, shallow to deep, the whole network last; densities at the end."""
    rows = prefer(saved.of("temporal", measure), "split", "test")
    if measure == "density":
        latest = rows.groupby("layer", sort=False)["checkpoint"].transform("max")
        rows = rows[rows["checkpoint"].isna() | (rows["checkpoint"] == latest)]
    found = curves(rows, "layer", over="position" if measure == "density" else "checkpoint")
    order = [*saved.layers, "all"]
    return sorted(
        found, key=lambda own: order.index(name) if (name := own.tags.get("layer")) in order else 99
    )


def _by_layer(place: int, curve: Curve, title: str) -> Series:
    layer = curve.tags.get("layer")
    if layer == "all":
        return Series("whole network", curve, INK)
    return Series(layer or title, curve, place, place)
