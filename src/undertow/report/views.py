"""The curves that the head of the page and its charts share, cut from a run's saved rows.

    overview(saved)              # the model's accuracy and the best layer of every probe, over training
    repairs(saved)               # before and after, for every layer and probe
    richness(saved)              # every measure over training

A view is empty where its rows are missing; sections.py says why.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from undertow.report.saved import INPUT, Frame, Saved
from undertow.report.tables import Curve, curves, prefer
from undertow.words import layer_name, probe_name


def model_curve(
    saved: Saved, split: str, labels: str, fallback: str = "", measure: str = "accuracy"
) -> Curve | None:
    """The model's own accuracy; from metrics.parquet's column `fallback` where the audit has none."""
    rows = saved.of("model", measure)
    found = curves(rows[(rows["split"] == split) & (rows["labels"] == labels)])
    if found:
        return found[0]
    metrics = saved.metrics
    if not {fallback, saved.unit} <= set(metrics.columns):
        return None
    known = metrics[[saved.unit, fallback]].dropna().astype("float64")
    y = known[fallback].to_numpy()
    return Curve({}, known[saved.unit].to_numpy(), y, y, y) if len(known) else None


def memorised(saved: Saved) -> Curve | None:
    """The share of wrong training labels that the model repeats."""
    return model_curve(saved, "train", "given", "train_wrong_fit", measure="memorised")


def test_curve(saved: Saved) -> Curve | None:
    """Test accuracy, by true labels where they are known."""
    return (
        model_curve(saved, "test", "true")
        or model_curve(saved, "test", "given")
        or model_curve(saved, "test", "", "test_accuracy")
    )


def judged(saved: Saved) -> Frame:
    """Accuracies of probes that may be set beside the model's: fitted with the given labels, on test samples."""
    rows = saved.of("latent", "accuracy")
    rows = rows[rows["split"] == "test"]
    return prefer(prefer(rows, "fit", "given", "true"), "labels", "true", "given")


def best_layers(saved: Saved) -> list[Curve]:
    """For each probe, the curve of the layer that is best at the last checkpoint; the input is no layer."""
    chosen: dict[str, Curve] = {}
    rows = judged(saved)
    for curve in curves(rows[rows["layer"] != INPUT], "probe", "layer"):
        probe = curve.tags.get("probe", "")
        if probe not in chosen or curve.mean[-1] > chosen[probe].mean[-1]:
            chosen[probe] = curve
    return list(chosen.values())


def overview(saved: Saved) -> list[Curve]:
    """The curves of the first chart, each with its name and its role."""
    known = [
        ("test", "model, test", test_curve(saved)),
        ("fit", "model, training labels as given", model_curve(saved, "train", "given", "train_fit")),
        ("true", "model, true training labels", model_curve(saved, "train", "true", "train_true")),
        ("wrong", "wrong training labels that it repeats", memorised(saved)),
    ]
    named = [replace(curve, tags={"role": role, "name": name}) for role, name, curve in known if curve]
    for curve in best_layers(saved):
        probe, layer = curve.tags.get("probe", ""), curve.tags.get("layer", "")
        name = f"{probe_name(probe)} at {layer_name(layer)}, test"
        named.append(replace(curve, tags={"role": "probe", "name": name, "probe": probe, "layer": layer}))
    return named


def repairs(saved: Saved) -> list[dict[str, Any]]:
    """Accuracy before and after for every layer and probe, at the last checkpoint that was repaired."""
    rows = saved.of("repair")
    rows = rows[rows["checkpoint"].isna() | (rows["checkpoint"] == rows["checkpoint"].max())]
    found: list[dict[str, Any]] = []
    for (layer, probe), own in rows.groupby(["layer", "probe"], sort=False, dropna=False):
        at = own.drop_duplicates("measure", keep="last").set_index("measure")
        if not {"accuracy_before", "accuracy_after"} <= set(at.index):
            continue
        value, gain = at["value"], at.loc["difference"] if "difference" in at.index else None
        found.append(
            {
                "layer": _text(layer), "probe": _text(probe), "name": probe_name(_text(probe)),
                "checkpoint": float(own["checkpoint"].iloc[-1]),
                "before": float(value["accuracy_before"]), "after": float(value["accuracy_after"]),
                "count": int(at["n"]["accuracy_after"]),
                "low": float(gain["low"]) if gain is not None else None,
                "high": float(gain["high"]) if gain is not None else None,
            }
        )  # fmt: skip
    order = saved.layers
    return sorted(found, key=lambda row: order.index(row["layer"]) if row["layer"] in order else len(order))


def _text(name: Any) -> str:
    return name if isinstance(name, str) else ""


SQUARED = "squared_parameter_norm"
"""The measure whose rows hold the square of what its name says."""


BUILT_IN = ("model", "latent", "richness", "temporal", "repair", "labels")


def own_measures(saved: Saved) -> list[tuple[str, str]]:
    """Lens and measure of rows that lenses of the user's own gave."""
    rows = saved.rows[~saved.rows["lens"].isin(BUILT_IN) & saved.rows["value"].notna()]
    return list(dict.fromkeys(zip(rows["lens"], rows["measure"], strict=True)))


def richness(saved: Saved) -> list[Curve]:
    """Curves over training of every measure of richness, one for each layer; the parameters' norm as a norm."""
    rows = saved.of("richness")
    rows = rows[rows["position"].isna()]  # the others are spectra
    return [
        _rooted(curve) if measure == SQUARED else curve
        for measure in dict.fromkeys(rows["measure"])
        for curve in curves(prefer(rows[rows["measure"] == measure], "split", "test"), "measure", "layer")
    ]


def _rooted(curve: Curve) -> Curve:
    mean, low, high = (np.sqrt(np.maximum(own, 0.0)) for own in (curve.mean, curve.low, curve.high))
    return replace(curve, mean=mean, low=low, high=high)
