"""What the sections on time show: composites, windows, drift, the swap profile, trajectories.

composites(saved)        # accuracy and consistency of composite(shallow, deep), a matrix for each cut
swap_profile(saved)      # early and late parts put together, for each cut
trajectories(saved)      # where samples lie in two dimensions, checkpoint by checkpoint
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from undertow.report.saved import Frame, Saved
from undertow.report.tables import Curve, Grid, Numbers, curves, grid, in_order, prefer

SAMPLES = 300
"""Samples shown of a trajectory; more are thinned, evenly."""
SWAPS = ("swap_early_late", "swap_late_early", "swap_early", "swap_late")


@dataclass(frozen=True, eq=False)
class Trajectory:
    """Places of the same samples at every checkpoint."""

    cut: str
    checkpoints: list[float]
    samples: list[float]
    labels: list[int | None]
    x: Numbers  # (T, N)
    y: Numbers  # (T, N)


def composites(saved: Saved) -> list[tuple[dict[str, str], Grid]]:
    """Shallow x deep checkpoint matrices of accuracy and consistency, shallow cuts first."""
    rows = saved.of("temporal", "accuracy", "consistency")
    rows = prefer(rows[rows["shallow"].notna()], "split", "test")
    # Consistency asks no labels, so each measure chooses for itself.
    chosen = {
        measure: prefer(rows[rows["measure"] == measure], "labels", "true", "given")
        for measure in ("accuracy", "consistency")
    }
    return [
        ({"cut": cut, "measure": measure}, grid(own, down="shallow", across="checkpoint"))
        for cut in in_order(rows["layer"].dropna().unique(), saved.layers)
        for measure, part in chosen.items()
        if len(own := part[part["layer"] == cut])
    ]


def over_time(saved: Saved, *measures: str) -> list[Curve]:
    """Curves over checkpoints for each cut or layer, shallow to deep, the whole network last."""
    parts = [prefer(saved.of("temporal", measure), "split", "test") for measure in measures]
    found = [curve for rows in parts for curve in curves(rows, "measure", "layer")]
    order = [*saved.layers, "all"]
    return sorted(
        found, key=lambda curve: order.index(own) if (own := curve.tags.get("layer")) in order else 99
    )


def densities(saved: Saved) -> list[Curve]:
    """The density of consistency at the last checkpoint that has one, for each cut."""
    rows = prefer(saved.of("temporal", "density"), "split", "test")
    latest = rows.groupby("layer", sort=False)["checkpoint"].transform("max")
    return curves(rows[rows["checkpoint"].isna() | (rows["checkpoint"] == latest)], "layer", over="position")


def swap_profile(saved: Saved) -> list[dict[str, Any]]:
    """For each cut, shallow to deep: the four accuracies with their intervals."""
    rows = saved.of("temporal", *SWAPS).drop_duplicates(["layer", "measure"], keep="last")
    found: list[dict[str, Any]] = []
    for cut in in_order(rows["layer"].dropna().unique(), saved.layers):
        own = rows[rows["layer"] == cut].set_index("measure")
        parts = {
            str(measure): [float(row["value"]), float(row["low"]), float(row["high"])]
            for measure, row in own.iterrows()
        }
        found.append({"cut": cut, **parts})
    return found


def trajectories(saved: Saved) -> list[Trajectory]:
    """Trajectories of at most SAMPLES samples for each cut."""
    rows = saved.of("temporal", "trajectory")
    rows = rows[rows["sample"].notna() & rows["y"].notna()]
    names = in_order(rows["layer"].dropna().unique(), saved.layers)
    return [_trajectory(cut, rows[rows["layer"] == cut]) for cut in names]


def _trajectory(cut: str, rows: Frame) -> Trajectory:
    everyone = np.sort(rows["sample"].unique())
    kept = everyone[np.unique(np.linspace(0, len(everyone) - 1, SAMPLES).round().astype(int))]
    rows = rows[rows["sample"].isin(kept)]
    across, up = (grid(rows, down="checkpoint", across="sample", field=field) for field in ("value", "y"))
    of = rows.drop_duplicates("sample").set_index("sample")["label"]
    labels = [None if np.isnan(of[sample]) else int(of[sample]) for sample in across.across]
    return Trajectory(cut, across.down, across.across, labels, across.value, up.value)
