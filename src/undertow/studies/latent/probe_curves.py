"""What probes knew over training: the rows of a study as curves and ends, and the figures that they make.

layers(found, case); hidden(found, case)                  # shallow to deep; without what enters the network
end(found, case, "masc", "layer2")                        # at each seed's own last checkpoint
dynamics_figure("masc"); difference_figure("velpic", "masc")
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from undertow.plots import line, panels
from undertow.studies.findings import Findings, SeedCurve
from undertow.studies.latent.corrupted_networks import DEGREES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TEST = {"split": "test"}


def layers(found: Findings, case: str) -> list[str]:
    """The probed layers of a case, shallow to deep."""
    own = found.rows.loc[found.rows["case"] == case, "layer"].dropna().unique()
    return [str(name) for name in own if name != "output"]


def model_curve(found: Findings, case: str) -> SeedCurve:
    """The model's own test accuracy over checkpoints."""
    return found.curve(case, "accuracy", x="checkpoint", probe="model", **TEST)


def probe_curve(found: Findings, case: str, probe: str, layer: str) -> SeedCurve:
    """A probe's test accuracy over checkpoints."""
    return found.curve(case, "accuracy", x="checkpoint", probe=probe, layer=layer, **TEST)


def degree_of(case: str) -> float:
    """The degree of corruption in a case's name."""
    return float(case.rpartition(" ")[2])


def corrupted(found: Findings) -> list[str]:
    """Cases where labels are wrong and something is left to learn."""
    return [case for case in found.cases if 0 < degree_of(case) < 1]


def hidden(found: Findings, case: str) -> list[str]:
    """The layers behind the input: what a probe reads from raw pixels is no knowledge of the network's."""
    return [layer for layer in layers(found, case) if layer != "input"]


def end(found: Findings, case: str, probe: str, layer: str, at: str = "last") -> float:
    """Mean over seeds at each seed's own last (or first) checkpoint."""
    return found.mean(case, "accuracy", checkpoint=at, probe=probe, layer=layer, **TEST)


def model_end(found: Findings, case: str, at: str = "last") -> float:
    """The model's own test accuracy there."""
    return found.mean(case, "accuracy", checkpoint=at, probe="model", **TEST)


def best_layer(found: Findings, case: str, probe: str, at: str = "last") -> tuple[str, float]:
    """The hidden layer that a probe reads best at the last (or first) checkpoint, and how well."""
    ends = {layer: end(found, case, probe, layer, at) for layer in hidden(found, case)}
    best = max(ends, key=lambda layer: ends[layer])
    return best, ends[best]


def net_of(case: str) -> str:
    """The network in a case's name."""
    return case.rpartition(" ")[0]


def by_case(
    found: Findings, draw: Callable[[Axes, str], None], cases: Sequence[str], size: float = 2.7
) -> Figure:
    """A panel over epochs for each case, the degrees of a network in a row."""
    columns = min(max(Counter(map(net_of, cases)).values()), len(DEGREES))
    rows = -(-len(cases) // columns)
    figure, axes = panels(columns, rows, title=found.study.title, size=(size, 2.4))
    for panel, case in zip(axes, cases, strict=False):
        draw(panel, case)
        panel.set(title=case, xlabel="epoch")
    for empty in axes[len(cases) :]:
        empty.set_visible(False)
    axes[0].legend(fontsize=6)
    return figure


def first_nets(found: Findings, most: int = 4) -> list[str]:
    """The cases of some networks: more would not fit a page."""
    nets = list(dict.fromkeys(map(net_of, found.cases)))[:most]
    return [case for case in found.cases if net_of(case) in nets]


def dynamics_figure(probe: str) -> Callable[[Findings], Figure]:
    """The figure of a probe's accuracy by layer over epochs, one panel for each case."""

    def draw(found: Findings) -> Figure:
        def panel(axes: Axes, case: str) -> None:
            line(axes, model_curve(found, case), "model", 6, linewidth=2.2, linestyle="-")
            for index, layer in enumerate(layers(found, case)):
                line(axes, probe_curve(found, case, probe, layer), layer, index)
            axes.set(ylim=(0, 1.02))

        return by_case(found, panel, first_nets(found))

    return draw


def difference(found: Findings, case: str, one: str, other: str, layer: str) -> SeedCurve:
    """Mean and range over seeds of the difference within each seed."""
    rows = (found.of(case, "accuracy", probe=probe, layer=layer, **TEST) for probe in (one, other))
    a, b = (own.set_index(["checkpoint", "seed"])["value"] for own in rows)
    table = (a - b).dropna().groupby(level=0).agg(["mean", "min", "max"])
    return SeedCurve(table.index.to_numpy(float), *table.to_numpy(float).T)


def difference_figure(one: str, other: str) -> Callable[[Findings], Figure]:
    """The figure of the difference of two probes by layer over epochs."""

    def draw(found: Findings) -> Figure:
        def panel(axes: Axes, case: str) -> None:
            for index, layer in enumerate(layers(found, case)):
                line(axes, difference(found, case, one, other, layer), layer, index)
            axes.axhline(0, color="#888888", linewidth=0.8)
            axes.set(ylabel=f"{one} - {other}")

        return by_case(found, panel, first_nets(found))

    return draw


def init_figure(found: Findings) -> Figure:
    """The best layer of random and trained networks over the degrees of corruption."""
    nets = list(dict.fromkeys(map(net_of, found.cases)))
    figure, axes = panels(len(nets), title=found.study.title, size=(3.6, 2.8))
    for panel, net in zip(axes, nets, strict=True):
        own = [case for case in found.cases if net_of(case) == net]
        for index, probe in enumerate(("masc", "velpic")):
            for at, words, dash in (("first", "at random", ":"), ("last", "trained", "-")):
                best = [best_layer(found, case, probe, at)[1] for case in own]
                _over_degrees(panel, own, best, f"{probe}, {words}", index, dash)
        model = [model_end(found, case) for case in own]
        _over_degrees(panel, own, model, "model, trained", 6, "-")
        panel.set(title=net, xlabel="degree of corruption", ylim=(0, 1.02))
    axes[0].legend(fontsize=7)
    return figure


def _over_degrees(
    axes: Axes, cases: Sequence[str], values: Sequence[float], name: str, index: int, dash: str
) -> None:
    x, y = np.array([degree_of(case) for case in cases]), np.array(values)
    line(axes, SeedCurve(x, y, y, y), name, index, linestyle=dash)
