"""The numbers of one run that the page's script draws, as plain values for JSON."""

from __future__ import annotations

from typing import Any

from undertow.report import views, views_temporal
from undertow.report.gallery import suspects
from undertow.report.saved import Saved
from undertow.report.tables import Grid, plain


def charts(place: int, saved: Saved) -> dict[str, Any]:
    """Everything that the script draws of one run."""
    temporal = views_temporal
    return {
        "id": place,
        "name": saved.name,
        "unit": saved.unit,
        "classes": saved.classes,
        "overview": [curve.json() for curve in views.overview(saved)],
        "model": [curve.json() for curve in views.model_curves(saved)],
        "latent": _latent(saved),
        "repair": plain(views.repairs(saved)),
        "richness": [curve.json() for curve in views.richness(saved)],
        "spectra": [
            {**tags, **_named(own, "checkpoints", "positions")} for tags, own in views.spectra(saved)
        ],
        "composites": [
            {**tags, **_named(own, "shallow", "deep")} for tags, own in temporal.composites(saved)
        ],
        "window": [curve.json() for curve in temporal.over_time(saved, "window")],
        "drift": [curve.json() for curve in temporal.over_time(saved, "parameter_drift", "feature_drift")],
        "densities": [curve.json() for curve in temporal.densities(saved)],
        "swap": plain(temporal.swap_profile(saved)),
        "reading": _reading(saved),
        "trajectories": [_track(own) for own in temporal.trajectories(saved)],
        "suspects": suspects(saved.path, saved.classes),
    }


def _named(own: Grid, down: str, across: str) -> dict[str, Any]:
    return {down: plain(own.down), across: plain(own.across), "value": plain(own.value, 4)}


def _latent(saved: Saved) -> dict[str, Any] | None:
    found = views.latent_grids(saved)
    if not found:
        return None
    own = found[0].value
    return {"layers": own.down, "checkpoints": plain(own.across), "grids": [_grid(one) for one in found]}


def _grid(own: views.LatentGrid) -> dict[str, Any]:
    banded = bool((own.low.value < own.high.value).any())
    edges = {"low": plain(own.low.value, 4), "high": plain(own.high.value, 4)} if banded else {}
    name = views.probe_name(own.tags.get("probe", ""))
    return {**own.tags, "name": name, "value": plain(own.value.value, 4), **edges}


def _track(own: views_temporal.Trajectory) -> dict[str, Any]:
    return {
        "cut": own.cut, "checkpoints": plain(own.checkpoints), "samples": plain(own.samples), "labels": own.labels,
        "x": plain(own.x, 3), "y": plain(own.y, 3),
    }  # fmt: skip


def _reading(saved: Saved) -> str:
    """What the verdict says of where memorisation sits: the swap profile's own reading."""
    found: list[Any] = saved.audit.get("verdict") or []
    return next((str(own.get("sentence") or "") for own in found if own.get("topic") == "place"), "")
