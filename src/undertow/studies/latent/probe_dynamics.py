"""Probes over training: MASC, VeLPIC, logistic, their differences, and random initialisation.

find_study("latent/masc-dynamics"); find_study("latent/velpic-minus-masc"); find_study("latent/init-vs-trained")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from undertow.plots import line, panels
from undertow.studies.findings import Findings, SeedCurve, number
from undertow.studies.latent.corrupted_networks import DEGREES, NETS, cases, scaled
from undertow.studies.recipe import Claim, ClaimVerdict, Published, Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MEASURE = "undertow.studies.latent.probe_measures:grid"
TEST = {"split": "test"}
HIGH = 0.5
"""Degrees of corruption from here on count as high."""


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
    """The layers behind the first: what a probe reads from raw pixels is no knowledge of the network's."""
    return layers(found, case)[1:]


def best_hidden(found: Findings, case: str, probe: str, at: int) -> float:
    """The best hidden layer's accuracy at the first (0) or last (-1) checkpoint."""
    return max(float(probe_curve(found, case, probe, layer).mean[at]) for layer in hidden(found, case))


def peaks_and_falls(found: Findings, probe: str) -> ClaimVerdict:
    """The model's peak is two points or more above its end, and its best hidden layer ends above it."""

    def judge(case: str) -> tuple[bool, str]:
        model = model_curve(found, case).mean
        ends = {
            layer: float(probe_curve(found, case, probe, layer).mean[-1]) for layer in hidden(found, case)
        }
        layer = max(ends, key=lambda name: ends[name])
        peak, last = float(model.max()), float(model[-1])
        words = f"model peak {number(peak)}, end {number(last)}; {layer} at the end {number(ends[layer])}"
        return peak > last + 0.02 and ends[layer] > last, f"{case}: {words}"

    return ClaimVerdict.of_each(corrupted(found), judge)


def knows_at_start(found: Findings, probe: str) -> ClaimVerdict:
    """Untrained, the best hidden layer tells a class in five or better, the model ten points less."""

    def judge(case: str) -> tuple[bool, str]:
        start, model = best_hidden(found, case, probe, 0), float(model_curve(found, case).mean[0])
        words = f"{case}: best hidden layer {number(start)}, model {number(model)}"
        return start > 0.2 and start > model + 0.1, words

    return ClaimVerdict.of_each(corrupted(found), judge, "at epoch 0, ")


def knowledge_claims(probe: str) -> tuple[Claim, ...]:
    """What the paper says of a probe that reads what the model has forgotten, or has yet to learn."""
    return (
        Claim(
            "the model's test accuracy peaks early and falls, while the best hidden layer ends above it",
            lambda found: peaks_and_falls(found, probe),
        ),
        Claim(
            "probes beat chance at epoch 0, the model does not", lambda found: knows_at_start(found, probe)
        ),
    )


def by_case(
    found: Findings, draw: Callable[[Axes, str], None], cases: Sequence[str], size: float = 2.7
) -> Figure:
    """A panel over epochs for each case, the degrees of a network in a row."""
    columns = min(len(cases), len(DEGREES))
    rows = -(-len(cases) // columns)
    figure, axes = panels(columns, rows, title=found.study.title, size=(size, 2.4))
    for panel, case in zip(axes, cases, strict=False):
        draw(panel, case)
        panel.set(title=case, xlabel="epoch")
    axes[0].legend(fontsize=6)
    return figure


def first_two(found: Findings) -> tuple[str, ...]:
    """The cases of two networks: more would not fit a page."""
    return found.cases[: 2 * len(DEGREES)]


def dynamics_figure(probe: str) -> Callable[[Findings], Figure]:
    """The figure of a probe's accuracy by layer over epochs, one panel for each case."""

    def draw(found: Findings) -> Figure:
        def panel(axes: Axes, case: str) -> None:
            line(axes, model_curve(found, case), "model", 6, linewidth=2.2, linestyle="-")
            for index, layer in enumerate(layers(found, case)):
                line(axes, probe_curve(found, case, probe, layer), layer, index)
            axes.set(ylim=(0, 1.02))

        return by_case(found, panel, first_two(found))

    return draw


_FINAL = (  # authors, mean of 3 runs: the model at the end; its best layer by MASC
    ("MLP-MNIST 0", 0.979, "layer3", 0.971), ("MLP-MNIST 0.4", 0.728, "layer4", 0.960),
    ("MLP-MNIST 0.8", 0.312, "layer3", 0.803), ("CNN-MNIST 0.4", 0.686, "flatten", 0.954),
    ("CNN-FashionMNIST 0.4", 0.601, "flatten", 0.817), ("CNN-CIFAR10 0.4", 0.462, "fc3", 0.490),
)  # fmt: skip
_LAST_VELPIC = (
    ("MLP-MNIST 0", "layer4", 0.971), ("MLP-MNIST 0.4", "layer4", 0.932), ("MLP-MNIST 0.8", "layer4", 0.821),
    ("CNN-MNIST 0.4", "fc3", 0.933), ("CNN-FashionMNIST 0.4", "fc3", 0.815), ("CNN-CIFAR10 0.4", "fc3", 0.536),
)  # fmt: skip
_LOGISTIC = (  # best layer, where the authors name it, and the last one
    ("MLP-MNIST 0", "layer4", 0.980), ("MLP-MNIST 0.4", "layer1", 0.921), ("MLP-MNIST 0.4", "layer4", 0.704),
    ("MLP-MNIST 0.8", "layer1", 0.766), ("MLP-MNIST 0.8", "layer4", 0.297), ("CNN-MNIST 0.4", "fc2", 0.821),
    ("CNN-MNIST 0.4", "fc3", 0.760), ("CNN-FashionMNIST 0.4", "fc2", 0.741), ("CNN-FashionMNIST 0.4", "fc3", 0.689),
    ("CNN-CIFAR10 0.4", "flatten", 0.528), ("CNN-CIFAR10 0.4", "fc3", 0.458),
)  # fmt: skip


def _final(case: str, value: float, **where: str) -> Published:
    return Published(
        case, "accuracy", value, 0.02, "authors' logs, 2 points", {"checkpoint": "last", **TEST, **where}
    )


masc_dynamics = Study(
    name="latent/masc-dynamics",
    title="While the model memorises, subspaces of its layers still tell the true class",
    source="paper 001, figures 1 and 10",
    cases=cases(NETS),
    measure=MEASURE,
    options={"probes": ("masc",)},
    changes=scaled(smoke=0.3, laptop=5.5),
    published=(
        *(_final(case, value, probe="model") for case, value, _, _ in _FINAL),
        *(_final(case, value, probe="masc", layer=layer) for case, _, layer, value in _FINAL),
    ),
    claims=knowledge_claims("masc"),
    figure=dynamics_figure("masc"),
    notes=("ResNet-18 is probed in evaluation mode; the authors took one image at a time in training mode.",),
)

velpic_dynamics = replace(
    masc_dynamics,
    name="latent/velpic-dynamics",
    title="One vector per class is enough to read what layers still know",
    source="paper 001, figures 2 and 11",
    options={"probes": ("velpic",)},
    published=tuple(_final(case, value, probe="velpic", layer=layer) for case, layer, value in _LAST_VELPIC),
    claims=knowledge_claims("velpic"),
    figure=dynamics_figure("velpic"),
)

# -------------------------------------------------------------------------------------------------- differences


def _difference(found: Findings, case: str, one: str, other: str, layer: str) -> SeedCurve:
    """Mean and range over seeds of the difference within each seed."""
    rows = (found.of(case, "accuracy", probe=probe, layer=layer, **TEST) for probe in (one, other))
    a, b = (own.set_index(["checkpoint", "seed"])["value"] for own in rows)
    table = (a - b).groupby(level=0).agg(["mean", "min", "max"])
    return SeedCurve(table.index.to_numpy(float), *table.to_numpy(float).T)


def _draw_difference(one: str, other: str) -> Callable[[Findings], Figure]:
    def draw(found: Findings) -> Figure:
        def panel(axes: Axes, case: str) -> None:
            for index, layer in enumerate(layers(found, case)):
                line(axes, _difference(found, case, one, other, layer), layer, index)
            axes.axhline(0, color="#888888", linewidth=0.8)
            axes.set(ylabel=f"{one} - {other}")

        return by_case(found, panel, first_two(found))

    return draw


def _late(found: Findings, case: str, one: str, other: str, layer: str) -> float:
    """Mean difference over the last third of checkpoints."""
    gap = _difference(found, case, one, other, layer).mean
    return float(gap[-max(1, len(gap) // 3) :].mean())


def _wins(found: Findings, one: str, other: str, where: str) -> ClaimVerdict:
    """Late in training one probe beats another: in the last layer, the first hidden one, or hidden ones on average.

    The first hidden layer is looked at in all corrupted cases, the others where corruption is high.
    """

    def judge(case: str) -> tuple[bool, str]:
        own = hidden(found, case)
        chosen = {"last layer": own[-1:], "first hidden layer": own[:1], "mean over hidden layers": own}[
            where
        ]
        gap = float(np.mean([_late(found, case, one, other, layer) for layer in chosen]))
        return gap > 0, f"{case}: {number(gap)}"

    cases = corrupted(found)
    if where != "first hidden layer":
        cases = [case for case in cases if degree_of(case) > HIGH]
    return ClaimVerdict.of_each(cases, judge, f"{where}, late in training, ")


velpic_minus_masc = replace(
    masc_dynamics,
    name="latent/velpic-minus-masc",
    title="Vectors win in late layers at high corruption, subspaces in early ones",
    source="paper 001, figures 3 and 12",
    options={"probes": ("masc", "velpic")},
    published=(),
    claims=(
        Claim(
            "VeLPIC beats MASC at high corruption in the last layer",
            lambda found: _wins(found, "velpic", "masc", "last layer"),
        ),
        Claim(
            "MASC wins in the first hidden layer",
            lambda found: _wins(found, "masc", "velpic", "first hidden layer"),
        ),
    ),
    figure=_draw_difference("velpic", "masc"),
)


def logistic_follows(found: Findings) -> ClaimVerdict:
    """On the last layer logistic falls as the model does, and stays nearer to it than VeLPIC."""

    def judge(case: str) -> tuple[bool, str]:
        last, model = layers(found, case)[-1], float(model_curve(found, case).mean[-1])
        logistic, velpic = (
            float(probe_curve(found, case, probe, last).mean[-1]) for probe in ("logistic", "velpic")
        )
        words = f"{case}: model {number(model)}, logistic {number(logistic)}, velpic {number(velpic)}"
        return abs(logistic - model) < abs(velpic - model), words

    return ClaimVerdict.of_each(corrupted(found), judge, "last layer at the end, ")


logistic_dynamics = replace(
    masc_dynamics,
    name="latent/logistic-dynamics",
    title="A logistic probe follows the model down",
    source="paper 001, figures 4 and 13",
    options={"probes": ("logistic", "velpic")},
    published=tuple(_final(case, value, probe="logistic", layer=layer) for case, layer, value in _LOGISTIC),
    claims=(Claim("on the last layer logistic ends nearer to the model than VeLPIC", logistic_follows),),
    figure=dynamics_figure("logistic"),
)


def _minus_logistic(probe: str, name: str, title: str, source: str) -> Study:
    claim = Claim(
        f"{name} beats logistic at high corruption late in training",
        lambda found: _wins(found, probe, "logistic", "mean over hidden layers"),
    )
    return replace(
        masc_dynamics,
        name=f"latent/{probe}-minus-logistic",
        title=title,
        source=source,
        options={"probes": (probe, "logistic")},
        published=(),
        claims=(claim,),
        figure=_draw_difference(probe, "logistic"),
    )


masc_minus_logistic = _minus_logistic(
    "masc", "MASC", "Subspaces keep what a logistic probe loses", "paper 001, figures 5 and 14"
)
velpic_minus_logistic = _minus_logistic(
    "velpic", "VeLPIC", "Vectors keep what a logistic probe loses", "paper 001, figures 6 and 15"
)

# ---------------------------------------------------------------------------------------------- init vs trained


def _trained_beats_init(found: Findings) -> ClaimVerdict:
    def judge(case: str) -> tuple[bool, str]:
        start, end = (best_hidden(found, case, "masc", at) for at in (0, -1))
        return end > start, f"{case}: {number(start)} → {number(end)}"

    return ClaimVerdict.of_each(corrupted(found), judge, "best hidden layer by MASC, ")


def _init_figure(found: Findings) -> Figure:
    nets = list(dict.fromkeys(case.rpartition(" ")[0] for case in found.cases))
    figure, axes = panels(len(nets), title=found.study.title, size=(3.6, 2.8))
    for panel, net in zip(axes, nets, strict=True):
        own = [case for case in found.cases if case.rpartition(" ")[0] == net]
        for index, probe in enumerate(("masc", "velpic")):
            for at, words, dash in ((0, "at random", ":"), (-1, "trained", "-")):
                best = [best_hidden(found, case, probe, at) for case in own]
                _over_degrees(panel, own, best, f"{probe}, {words}", index, dash)
        model = [float(model_curve(found, case).mean[-1]) for case in own]
        _over_degrees(panel, own, model, "model, trained", 6, "-")
        panel.set(title=net, xlabel="degree of corruption", ylim=(0, 1.02))
    axes[0].legend(fontsize=7)
    return figure


def _over_degrees(
    axes: Axes, cases: Sequence[str], values: Sequence[float], name: str, index: int, dash: str
) -> None:
    x, y = np.array([degree_of(case) for case in cases]), np.array(values)
    line(axes, SeedCurve(x, y, y, y), name, index, linestyle=dash)


init_vs_trained = replace(
    masc_dynamics,
    name="latent/init-vs-trained",
    title="Random features tell much already, trained ones more",
    source="paper 001, figure 20",
    options={"probes": ("masc", "velpic")},
    published=(),
    claims=(
        Claim("the best hidden layer of the trained model beats that of the random one", _trained_beats_init),
    ),
    figure=_init_figure,
)

STUDIES = (
    masc_dynamics,
    velpic_dynamics,
    velpic_minus_masc,
    logistic_dynamics,
    masc_minus_logistic,
    velpic_minus_logistic,
    init_vs_trained,
)
