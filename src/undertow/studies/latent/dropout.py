"""Dropout: whether it changes what layers know.

find_study("latent/dropout")
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from undertow.plots import line
from undertow.studies.claims import FITTED, CaseVerdict, Claim, ClaimVerdict, each_seed
from undertow.studies.findings import Findings, number
from undertow.studies.latent.corrupted_networks import (
    DEGREES,
    LAPTOP,
    MEMORISED_FAST,
    NETS,
    SMOKE,
    case_name,
    cases,
)  # fmt: skip
from undertow.studies.latent.probe_claims import CNNS, NEAR
from undertow.studies.latent.probe_curves import (
    best_layer,
    by_case,
    corrupted,
    degree_of,
    layers,
    model_curve,
    net_of,
    probe_curve,
)
from undertow.studies.latent.probe_dynamics import MEASURE
from undertow.studies.recipe import Case, ScaleChange, Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DROPOUT_NETS = ("CNN-MNIST", "CNN-FashionMNIST", "CNN-CIFAR10", "ResNet18-CIFAR10")
_SMALL_NET = "CNN-FashionMNIST"
EARLY = 10
"""Epochs that count as early."""


def _dropout_case(net: str, degree: float) -> str:
    return f"{net} with dropout {degree:g}"


def _dropout_models(model: str) -> str:
    return f"{model},dropout=0.2" if ":" in model else f"{model}:dropout=0.2"


def _twins(found: Findings) -> list[tuple[str, str]]:
    """Corrupted cases without dropout, each with its twin."""
    plain = [case for case in corrupted(found) if "dropout" not in case]
    twins = [(case, _dropout_case(net_of(case), degree_of(case))) for case in plain]
    return [pair for pair in twins if pair[1] in found.cases]


def _same(probe: str) -> Callable[[Findings], ClaimVerdict]:
    """With and without dropout the best hidden layer ends near the same accuracy."""

    def check(found: Findings) -> ClaimVerdict:
        ends = [
            (case, *(best_layer(found, one, probe)[1] for one in (case, twin)))
            for case, twin in _twins(found)
        ]
        return ClaimVerdict.of_cases(
            (
                CaseVerdict(case, abs(a - b) <= NEAR, f"without {number(a)}, with {number(b)}")
                for case, a, b in ends
            ),
            "most",
        )

    return check


def _distances(found: Findings, probe: str) -> list[tuple[str, float, float]]:
    """How far the last layer is from the model early in training, without and with dropout, of the CNNs on 28x28."""

    def distance(found: Findings, case: str) -> float:
        model, read = model_curve(found, case), probe_curve(found, case, probe, layers(found, case)[-1])
        early = (model.x >= 1) & (model.x <= EARLY)
        return float(np.abs(model.mean - read.mean)[early].mean())

    pairs = [pair for pair in _twins(found) if net_of(pair[0]) in CNNS]
    return [(case, distance(found, case), distance(found, twin)) for case, twin in pairs]


def _deviates(probe: str, more: bool) -> Callable[[Findings], ClaimVerdict]:
    """Early in training the last layer is further from the model with dropout than without, or not by five points."""

    def check(found: Findings) -> ClaimVerdict:
        return ClaimVerdict.of_cases(
            (
                CaseVerdict(case, (b - a > NEAR) is more, f"without {number(a)}, with {number(b)}")
                for case, a, b in _distances(found, probe)
            ),
            "most",
            f"mean distance from the model in epochs 1 to {EARLY}, ",
        )

    return check


def _dropout_figure(found: Findings) -> Figure:
    def panel(axes: Axes, case: str) -> None:
        twin = _dropout_case(case.rpartition(" ")[0], degree_of(case))
        for index, (name, words) in enumerate(((case, "plain"), (twin, "dropout"))):
            masc = probe_curve(found, name, "masc", layers(found, name)[-1])
            line(axes, model_curve(found, name), f"model, {words}", index)
            line(axes, masc, f"MASC, last layer, {words}", index, linewidth=0.9)
        axes.set(ylim=(0, 1.02))

    return by_case(found, panel, [case for case in found.cases if "dropout" not in case], 3.0)


_DROPPED = (0.2, 0.4, 0.8)
"""The degrees of the smaller scales."""


def _small(settings: Mapping[str, object]) -> tuple[dict[str, Mapping[str, object]], tuple[str, ...]]:
    """The settings of the smaller scales' cases, and their names."""
    plain = {case_name(_SMALL_NET, degree): settings for degree in _DROPPED}
    with_dropout = {**settings, "model": _dropout_models(str(settings.get("model", NETS[_SMALL_NET].model)))}
    dropped = {_dropout_case(_SMALL_NET, degree): with_dropout for degree in _DROPPED}
    found = {**plain, **dropped}
    return found, tuple(found)


_SMOKE_CASES, _SMOKE_NAMES = _small(SMOKE[_SMALL_NET])
_LAPTOP_CASES, _LAPTOP_NAMES = _small(LAPTOP[_SMALL_NET])

dropout = Study(
    name="latent/dropout",
    title="Dropout does not change what layers know",
    source="paper 001, figures 21 to 24",
    cases=(
        *cases(_DROPOUT_NETS),
        *(
            Case(
                _dropout_case(net, degree),
                replace(NETS[net], noise=f"{degree:g}", model=_dropout_models(NETS[net].model)),
            )
            for net in _DROPOUT_NETS
            for degree in DEGREES
        ),
    ),
    measure=MEASURE,
    options={"probes": ("masc", "velpic")},
    changes={
        "smoke": ScaleChange(cases=_SMOKE_CASES, only=_SMOKE_NAMES, minutes=0.3),
        "laptop": ScaleChange(cases=_LAPTOP_CASES, only=_LAPTOP_NAMES, because=MEMORISED_FAST, minutes=3.8),
    },
    claims=(
        Claim(
            "with dropout the MASC dynamics remain largely similar (best layers end within five points)",
            each_seed(_same("masc")),
            FITTED,
            "appendix I, figures 21 and 22",
        ),
        Claim(
            "VeLPIC shows no significant difference (best layers end within five points)",
            each_seed(_same("velpic")),
            FITTED,
            "appendix I, figures 23 and 24",
        ),
        Claim(
            "with dropout MASC deviates from the model early in training, in later layers of CNN-(Fashion-)MNIST",
            each_seed(_deviates("masc", more=True)),
            None,
            "appendix I, figure 21",
        ),
        Claim(
            "VeLPIC's plots do not show this deviation (no more than five points)",
            each_seed(_deviates("velpic", more=False)),
            None,
            "appendix I, figure 23",
        ),
    ),
    figure=_dropout_figure,
)

STUDIES = (dropout,)
