"""Probes over training: MASC, VeLPIC, logistic, their differences, and random initialisation.

find_study("latent/masc-dynamics"); find_study("latent/velpic-minus-masc"); find_study("latent/init-vs-trained")
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.plots import line, panels
from undertow.studies.findings import Findings, SeedCurve, number
from undertow.studies.latent.corrupted_networks import (
    DEGREES,
    LAPTOP,
    NETS,
    SMOKE,
    WORDS,
    case_name,
    cases,
    changes,
)
from undertow.studies.recipe import Claim, ClaimVerdict, Published, ScaleChange, Study

if TYPE_CHECKING:
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


def _best_at_end(found: Findings, case: str, probe: str) -> tuple[str, float]:
    """The best hidden layer: what a probe reads from raw pixels is no knowledge of the network's."""
    hidden = layers(found, case)[1:]
    ends = {layer: float(probe_curve(found, case, probe, layer).mean[-1]) for layer in hidden}
    best = max(ends, key=lambda layer: ends[layer])
    return best, ends[best]


def peaks_and_falls(found: Findings, probe: str) -> ClaimVerdict:
    """The model's peak is two points or more above its end, and its best hidden layer ends above it."""
    words, holds = [], True
    for case in corrupted(found):
        model = model_curve(found, case)
        layer, end = _best_at_end(found, case, probe)
        peak, last = float(model.mean.max()), float(model.mean[-1])
        holds &= peak > last + 0.02 and end > last
        words.append(
            f"{case}: model peak {number(peak)}, end {number(last)}; {layer} at the end {number(end)}"
        )
    return ClaimVerdict(holds, "; ".join(words))


def knows_at_start(found: Findings, probe: str) -> ClaimVerdict:
    """Untrained, the best hidden layer tells a class in five or better, the model ten points less."""
    words, holds = [], True
    for case in corrupted(found):
        start = max(
            float(probe_curve(found, case, probe, layer).mean[0]) for layer in layers(found, case)[1:]
        )
        model = float(model_curve(found, case).mean[0])
        holds &= start > 0.2 and start > model + 0.1
        words.append(f"{case}: best hidden layer {number(start)}, model {number(model)}")
    return ClaimVerdict(holds, "at epoch 0, " + "; ".join(words))


def dynamics_figure(probe: str) -> Any:
    """The figure of a probe's accuracy by layer over epochs, one panel for each case."""

    def draw(found: Findings) -> Figure:
        shown = found.cases[: 2 * len(DEGREES)]
        columns = min(len(shown), len(DEGREES))
        figure, axes = panels(columns, -(-len(shown) // columns), title=found.study.title, size=(2.7, 2.4))
        for panel, case in zip(axes, shown, strict=False):
            line(panel, model_curve(found, case), "model", 6, linewidth=2.2, linestyle="-")
            for index, layer in enumerate(layers(found, case)):
                line(panel, probe_curve(found, case, probe, layer), layer, index)
            panel.set(title=case, xlabel="epoch", ylim=(0, 1.02))
        axes[0].legend(fontsize=6)
        return figure

    return draw


_SCALED = {
    "smoke": ScaleChange(
        cases=changes(SMOKE), only=tuple(case_name(net, degree) for net in SMOKE for degree in (0.4, 0.6)), minutes=0.3
    ),
    "laptop": ScaleChange(
        cases=changes(LAPTOP), only=tuple(case_name(net, degree) for net in LAPTOP for degree in DEGREES),
        because=WORDS, minutes=5.5,
    ),
}  # fmt: skip
_FINAL = (  # authors, mean of 3 runs: the model at the end; its best layer by MASC
    ("MLP-MNIST 0", 0.979, "layer3", 0.971),
    ("MLP-MNIST 0.4", 0.728, "layer4", 0.960),
    ("MLP-MNIST 0.8", 0.312, "layer3", 0.803),
    ("CNN-MNIST 0.4", 0.686, "flatten", 0.954),
    ("CNN-FashionMNIST 0.4", 0.601, "flatten", 0.817),
    ("CNN-CIFAR10 0.4", 0.462, "fc3", 0.490),
)
_LAST_VELPIC = (
    ("MLP-MNIST 0", "layer4", 0.971),
    ("MLP-MNIST 0.4", "layer4", 0.932),
    ("MLP-MNIST 0.8", "layer4", 0.821),
    ("CNN-MNIST 0.4", "fc3", 0.933),
    ("CNN-FashionMNIST 0.4", "fc3", 0.815),
    ("CNN-CIFAR10 0.4", "fc3", 0.536),
)
_LOGISTIC = (  # best layer, where the authors name it, and the last one
    ("MLP-MNIST 0", "layer4", 0.980),
    ("MLP-MNIST 0.4", "layer1", 0.921),
    ("MLP-MNIST 0.4", "layer4", 0.704),
    ("MLP-MNIST 0.8", "layer1", 0.766),
    ("MLP-MNIST 0.8", "layer4", 0.297),
    ("CNN-MNIST 0.4", "fc2", 0.821),
    ("CNN-MNIST 0.4", "fc3", 0.760),
    ("CNN-FashionMNIST 0.4", "fc2", 0.741),
    ("CNN-FashionMNIST 0.4", "fc3", 0.689),
    ("CNN-CIFAR10 0.4", "flatten", 0.528),
    ("CNN-CIFAR10 0.4", "fc3", 0.458),
)


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
    changes=_SCALED,
    published=(
        *(_final(case, value, probe="model") for case, value, _, _ in _FINAL),
        *(_final(case, value, probe="masc", layer=layer) for case, _, layer, value in _FINAL),
    ),
    claims=(
        Claim(
            "the model's test accuracy peaks early and falls, while the best hidden layer ends above it",
            lambda found: peaks_and_falls(found, "masc"),
        ),
        Claim(
            "probes beat chance at epoch 0, the model does not", lambda found: knows_at_start(found, "masc")
        ),
    ),
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
    claims=(
        Claim(
            "the model's test accuracy peaks early and falls, while the best hidden layer ends above it",
            lambda found: peaks_and_falls(found, "velpic"),
        ),
        Claim(
            "probes beat chance at epoch 0, the model does not", lambda found: knows_at_start(found, "velpic")
        ),
    ),
    figure=dynamics_figure("velpic"),
)

# -------------------------------------------------------------------------------------------------- differences


def _difference(found: Findings, case: str, one: str, other: str, layer: str) -> SeedCurve:
    """Mean and range over seeds of the difference within each seed."""
    a, b = (
        found.of(case, "accuracy", probe=probe, layer=layer, **TEST).set_index(["checkpoint", "seed"])[
            "value"
        ]
        for probe in (one, other)
    )
    table = (a - b).groupby(level=0).agg(["mean", "min", "max"])
    return SeedCurve(table.index.to_numpy(float), *table.to_numpy(float).T)


def _draw_difference(one: str, other: str) -> Any:
    def draw(found: Findings) -> Figure:
        shown = found.cases[: 2 * len(DEGREES)]
        columns = min(len(shown), len(DEGREES))
        figure, axes = panels(columns, -(-len(shown) // columns), title=found.study.title, size=(2.7, 2.4))
        for panel, case in zip(axes, shown, strict=False):
            for index, layer in enumerate(layers(found, case)):
                line(panel, _difference(found, case, one, other, layer), layer, index)
            panel.axhline(0, color="#888888", linewidth=0.8)
            panel.set(title=case, xlabel="epoch", ylabel=f"{one} - {other}")
        axes[0].legend(fontsize=6)
        return figure

    return draw


def _late(found: Findings, case: str, one: str, other: str, layer: str) -> float:
    """Mean difference over the last third of checkpoints."""
    gap = _difference(found, case, one, other, layer).mean
    return float(gap[-max(1, len(gap) // 3) :].mean())


def _velpic_wins_late_layers(found: Findings) -> ClaimVerdict:
    words, gaps = [], []
    for case in (case for case in corrupted(found) if degree_of(case) > HIGH):
        gap = _late(found, case, "velpic", "masc", layers(found, case)[-1])
        gaps.append(gap)
        words.append(f"{case}: {number(gap)}")
    return ClaimVerdict(
        all(gap > 0 for gap in gaps) if gaps else None, "last layer, late in training, " + "; ".join(words)
    )


def _masc_wins_early_layers(found: Findings) -> ClaimVerdict:
    words, gaps = [], []
    for case in corrupted(found):
        gap = _late(found, case, "masc", "velpic", layers(found, case)[1])
        gaps.append(gap)
        words.append(f"{case}: {number(gap)}")
    return ClaimVerdict(
        all(gap > 0 for gap in gaps), "first hidden layer, late in training, " + "; ".join(words)
    )


velpic_minus_masc = replace(
    masc_dynamics,
    name="latent/velpic-minus-masc",
    title="Vectors win in late layers at high corruption, subspaces in early ones",
    source="paper 001, figures 3 and 12",
    options={"probes": ("masc", "velpic")},
    published=(),
    claims=(
        Claim("VeLPIC beats MASC at high corruption in the last layer", _velpic_wins_late_layers),
        Claim("MASC wins in the first hidden layer", _masc_wins_early_layers),
    ),
    figure=_draw_difference("velpic", "masc"),
)


def logistic_follows(found: Findings) -> ClaimVerdict:
    """On the last layer logistic falls as the model does, and stays nearer to it than VeLPIC."""
    words, holds = [], True
    for case in corrupted(found):
        last = layers(found, case)[-1]
        model = float(model_curve(found, case).mean[-1])
        ends = {
            probe: float(probe_curve(found, case, probe, last).mean[-1]) for probe in ("logistic", "velpic")
        }
        holds &= abs(ends["logistic"] - model) < abs(ends["velpic"] - model)
        words.append(
            f"{case}: model {number(model)}, logistic {number(ends['logistic'])}, velpic {number(ends['velpic'])}"
        )
    return ClaimVerdict(holds, f"last layer at the end, {'; '.join(words)}")


def _wins(found: Findings, probe: str) -> ClaimVerdict:
    words, gaps = [], []
    for case in (case for case in corrupted(found) if degree_of(case) > HIGH):
        mean = float(
            np.mean([_late(found, case, probe, "logistic", layer) for layer in layers(found, case)[1:]])
        )
        gaps.append(mean)
        words.append(f"{case}: {number(mean)}")
    return ClaimVerdict(
        all(gap > 0 for gap in gaps) if gaps else None, "mean over hidden layers, late, " + "; ".join(words)
    )


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

masc_minus_logistic = replace(
    masc_dynamics,
    name="latent/masc-minus-logistic",
    title="Subspaces keep what a logistic probe loses",
    source="paper 001, figures 5 and 14",
    options={"probes": ("masc", "logistic")},
    published=(),
    claims=(
        Claim("MASC beats logistic at high corruption late in training", lambda found: _wins(found, "masc")),
    ),
    figure=_draw_difference("masc", "logistic"),
)

velpic_minus_logistic = replace(
    masc_dynamics,
    name="latent/velpic-minus-logistic",
    title="Vectors keep what a logistic probe loses",
    source="paper 001, figures 6 and 15",
    options={"probes": ("velpic", "logistic")},
    published=(),
    claims=(
        Claim(
            "VeLPIC beats logistic at high corruption late in training", lambda found: _wins(found, "velpic")
        ),
    ),
    figure=_draw_difference("velpic", "logistic"),
)

# ---------------------------------------------------------------------------------------------- init vs trained


def _trained_beats_init(found: Findings) -> ClaimVerdict:
    words, holds = [], True
    for case in corrupted(found):
        curves = {layer: probe_curve(found, case, "masc", layer).mean for layer in layers(found, case)[1:]}
        start, end = (max(float(values[at]) for values in curves.values()) for at in (0, -1))
        holds &= end > start
        words.append(f"{case}: {number(start)} → {number(end)}")
    return ClaimVerdict(holds, "best hidden layer by MASC, " + "; ".join(words))


def _init_figure(found: Findings) -> Figure:
    nets = list(dict.fromkeys(case.rpartition(" ")[0] for case in found.cases))
    figure, axes = panels(len(nets), title=found.study.title, size=(3.6, 2.8))
    for panel, net in zip(axes, nets, strict=True):
        own = [case for case in found.cases if case.rpartition(" ")[0] == net]
        x = np.array([degree_of(case) for case in own])
        for index, probe in enumerate(("masc", "velpic")):
            for at, words in ((0, "at random"), (-1, "trained")):
                best = [
                    max(probe_curve(found, case, probe, layer).mean[at] for layer in layers(found, case)[1:])
                    for case in own
                ]
                line(
                    panel,
                    SeedCurve(x, *(np.array(best),) * 3),
                    f"{probe}, {words}",
                    index,
                    linestyle=":" if at == 0 else "-",
                )
        model = np.array([model_curve(found, case).mean[-1] for case in own])
        line(panel, SeedCurve(x, model, model, model), "model, trained", 6, linestyle="-")
        panel.set(title=net, xlabel="degree of corruption", ylim=(0, 1.02))
    axes[0].legend(fontsize=7)
    return figure


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
