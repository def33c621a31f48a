"""Dropout: whether it changes what layers know.

find_study("latent/dropout")
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from undertow.plots import line
from undertow.studies.findings import Findings, number
from undertow.studies.latent.corrupted_networks import (
    DEGREES,
    LAPTOP,
    MEMORISED_FAST,
    NETS,
    SMOKE,
    case_name,
    cases,
)
from undertow.studies.latent.probe_dynamics import (
    MEASURE,
    best_hidden,
    by_case,
    corrupted,
    degree_of,
    layers,
    model_curve,
    probe_curve,
)
from undertow.studies.recipe import Case, Claim, ClaimVerdict, ScaleChange, Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DROPOUT_NETS = ("CNN-MNIST", "CNN-FashionMNIST", "CNN-CIFAR10", "ResNet18-CIFAR10")
_SMALL_NET = "CNN-FashionMNIST"


def _dropout_case(net: str, degree: float) -> str:
    return f"{net} with dropout {degree:g}"


def _dropout_models(model: str) -> str:
    return f"{model},dropout=0.2" if ":" in model else f"{model}:dropout=0.2"


def _same_dynamics(found: Findings) -> ClaimVerdict:
    """With dropout the best hidden layer still ends above the model."""

    def judge(case: str) -> tuple[bool, str]:
        model, best = float(model_curve(found, case).mean[-1]), best_hidden(found, case, "masc", -1)
        return best > model, f"{case}: model {number(model)}, best hidden layer {number(best)}"

    return ClaimVerdict.of_each((case for case in corrupted(found) if "dropout" in case), judge)


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
    with_dropout = {**settings, "model": _dropout_models(str(settings["model"]))}
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
        "laptop": ScaleChange(cases=_LAPTOP_CASES, only=_LAPTOP_NAMES, because=MEMORISED_FAST, minutes=3.5),
    },
    claims=(Claim("with dropout the best hidden layer still ends above the model", _same_dynamics),),
    figure=_dropout_figure,
)

STUDIES = (dropout,)
