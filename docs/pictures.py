"""Draws the pictures of the README from a demo run: python docs/pictures.py demo/run

"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

import undertow as ut

LAYERS = {"layer1": "#56B4E9", "layer2": "#0072B2", "layer3": "#009E73"}


def spread(heights: dict[str, float], gap: float) -> dict[str, float]:
    """Heights moved apart, so that names beside lines do not overlap."""
    placed: dict[str, float] = {}
    for name, height in sorted(heights.items(), key=lambda item: -item[1]):
        placed[name] = min(height + gap / 3, min(placed.values(), default=999.0) - gap)
    return placed


def main(path: str) -> None:
    run = ut.open_run(path)
    probes = ut.probe_grid(run, probes=["velpic"], fits="given", layers=list(LAYERS))
    test = probes[(probes["measure"] == "accuracy") & (probes["split"] == "test")]
    figure, axes = plt.subplots(figsize=(7.2, 3.6), dpi=110, layout="constrained")
    for layer, colour in LAYERS.items():
        rows = test[test["layer"] == layer]
        axes.plot(rows["checkpoint"], 100 * rows["value"], color=colour, lw=1.8)
        axes.fill_between(
            rows["checkpoint"], 100 * rows["low"], 100 * rows["high"], color=colour, alpha=0.12, lw=0
        )
    metrics = run.metrics
    axes.plot(metrics["epoch"], 100 * metrics["test_accuracy"], color="#D55E00", lw=2.4)
    wrong = metrics.dropna(subset="train_wrong_fit")
    axes.plot(wrong["epoch"], 100 * wrong["train_wrong_fit"], color="0.45", lw=1.4, ls=(0, (4, 2)))
    ends = {name: 100 * test[test["layer"] == name]["value"].iloc[-1] for name in LAYERS}
    ends["the model"] = 100 * metrics["test_accuracy"].iloc[-1]
    for name, height in spread(ends, 5.0).items():
        axes.text(60.8, height, name, color=LAYERS.get(name, "#D55E00"), va="center", fontsize=9)
    axes.text(60.8, 101, "wrong labels\nrepeated", color="0.35", va="bottom", fontsize=9)
    axes.set(xlim=(0, 60), ylim=(0, 104), xlabel="epoch", ylabel="%")
    axes.set_title("Test accuracy of the model and of its layers (VeLPIC probes)", loc="left", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="0.92")
    axes.set_axisbelow(True)
    figure.savefig(Path(__file__).parent / "pictures" / "demo.png")


if __name__ == "__main__":
    main(*sys.argv[1:])
