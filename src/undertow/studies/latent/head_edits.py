"""Editing and regularising: VeLPIC written into the head, in mid-training too, and dropout.

find_study("latent/transfer"); find_study("latent/intervention"); find_study("latent/dropout")
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

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
from undertow.studies.latent.probe_dynamics import degree_of, layers, model_curve, probe_curve
from undertow.studies.recipe import Case, Claim, ClaimVerdict, ScaleChange, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEASURES = "undertow.studies.latent.probe_measures"

# ----------------------------------------------------------------------------------------------------- transfer


def _curve(found: Findings, case: str, who: str, split: str = "test") -> SeedCurve:
    return found.curve(case, "accuracy", x="checkpoint", probe=who, split=split)


def _edit_helps(found: Findings) -> ClaimVerdict:
    words, holds = [], True
    for case in (case for case in found.cases if 0 < degree_of(case) < 1):
        model, edited = (float(_curve(found, case, who).mean[-1]) for who in ("model", "edited"))
        holds &= edited > model
        words.append(f"{case}: {number(model)} → {number(edited)}")
    return ClaimVerdict(holds, "test accuracy at the end, " + "; ".join(words))


def _edit_unlearns(found: Findings) -> ClaimVerdict:
    """The edited model repeats fewer of the corrupted training labels."""
    words, holds = [], True
    for case in (case for case in found.cases if 0 < degree_of(case) < 1):
        model, edited = (float(_curve(found, case, who, "train").mean[-1]) for who in ("model", "edited"))
        holds &= edited < model
        words.append(f"{case}: {number(model)} → {number(edited)}")
    return ClaimVerdict(holds, "accuracy on the corrupted training labels, " + "; ".join(words))


def _transfer_figure(found: Findings) -> Figure:
    shown = found.cases[: 2 * len(DEGREES)]
    columns = min(len(shown), len(DEGREES))
    figure, axes = panels(columns, -(-len(shown) // columns), title=found.study.title, size=(2.7, 2.4))
    for panel, case in zip(axes, shown, strict=False):
        for index, (who, split, words) in enumerate(
            (
                ("model", "test", "model"),
                ("edited", "test", "edited"),
                ("model", "train", "model, training labels"),
            )
        ):
            line(panel, _curve(found, case, who, split), words, index)
        panel.set(title=case, xlabel="epoch", ylim=(0, 1.02))
    axes[0].legend(fontsize=6)
    return figure


transfer = Study(
    name="latent/transfer",
    title="Writing the probe into the head gives the model what its last layer knows",
    source="paper 001, figures 7, 16, 17 and 18",
    cases=cases(NETS),
    measure=f"{MEASURES}:transfer",
    changes={
        "smoke": ScaleChange(
            cases=changes(SMOKE),
            only=tuple(case_name(net, degree) for net in SMOKE for degree in (0.4, 0.6)),
            minutes=0.2,
        ),
        "laptop": ScaleChange(
            cases=changes(LAPTOP),
            only=tuple(case_name(net, degree) for net in LAPTOP for degree in DEGREES),
            because=WORDS,
            minutes=5,
        ),
    },
    claims=(
        Claim("the edited model is better on test samples at the end of training", _edit_helps),
        Claim("and repeats fewer of the corrupted training labels", _edit_unlearns),
    ),
    figure=_transfer_figure,
)

# ------------------------------------------------------------------------------------------------- intervention

_LEFT, _EDITED = "left alone", "edited"
_DEGREE = 0.4


def _names(net: str) -> tuple[str, str]:
    return f"{net}, {_LEFT} {_DEGREE:g}", f"{net}, {_EDITED} {_DEGREE:g}"


def _at_once(found: Findings) -> ClaimVerdict:
    """The epoch after the edit is better than the same epoch of the run that was left alone."""
    words, holds = [], True
    for left, edited, at in _pairs(found):
        values = [found.mean(case, "epoch_accuracy", checkpoint=at + 1) for case in (left, edited)]
        holds &= values[1] > values[0]
        words.append(f"{edited}: {number(values[0])} alone, {number(values[1])} edited, an epoch later")
    return ClaimVerdict(holds, "; ".join(words))


def _lasts(found: Findings) -> ClaimVerdict:
    words, holds = [], True
    for left, edited, _ in _pairs(found):
        values = [found.mean(case, "epoch_accuracy", checkpoint="last") for case in (left, edited)]
        holds &= values[1] > values[0] + 0.01
        words.append(f"{edited}: {number(values[0])} alone, {number(values[1])} edited, at the end")
    return ClaimVerdict(holds, "; ".join(words))


def _pairs(found: Findings) -> list[tuple[str, str, int]]:
    """Both cases of each net, and the epoch of the edit."""
    pairs = [_names(net) for net in NETS]
    there = [pair for pair in pairs if set(pair) <= set(found.cases)]
    return [(left, edited, int(found.study.case(edited).actions[0].split()[1])) for left, edited in there]


def _intervention_figure(found: Findings) -> Figure:
    pairs = _pairs(found)
    figure, axes = panels(2, len(pairs), title=found.study.title, size=(4.0, 2.7))
    for place, (left, edited, at) in enumerate(pairs):
        for index, case in enumerate((left, edited)):
            line(
                axes[2 * place],
                found.curve(case, "epoch_accuracy", x="checkpoint"),
                case.partition(", ")[2],
                index,
            )
        for index, layer in enumerate(layers(found, edited)):
            line(axes[2 * place + 1], probe_curve(found, edited, "velpic", layer), layer, index)
        for panel in axes[2 * place : 2 * place + 2]:
            panel.axvline(at, color="#888888", linewidth=0.8)
            panel.set(xlabel="epoch", ylim=(0, 1.02))
            panel.legend(fontsize=7)
        axes[2 * place].set(title=f"{left.partition(',')[0]}: model")
        axes[2 * place + 1].set(title="VeLPIC by layer, edited run")
    return figure


def _edit_cases(epoch: int) -> dict[str, tuple[str, ...]]:
    return {_names(net)[1]: (f"edit {epoch} velpic",) for net in NETS}


def _pair_changes(settings: dict[str, dict[str, object]]) -> dict[str, dict[str, object]]:
    return {name: own for net, own in settings.items() for name in _names(net)}


intervention = Study(
    name="latent/intervention",
    title="Editing the head in mid-training",
    source="paper 001, figures 8, 9 and 19",
    cases=tuple(
        Case(name, replace(NETS[net], noise=f"{_DEGREE:g}", epochs=100, stop_at=None), actions)
        for net in NETS
        for name, actions in zip(_names(net), ((), ("edit 40 velpic",)), strict=True)
    ),
    measure=f"{MEASURES}:intervention",
    changes={
        "smoke": ScaleChange(
            cases=_pair_changes({"MLP-MNIST": {**SMOKE["MLP-MNIST"], "epochs": 4}}),
            actions={
                name: actions for name, actions in _edit_cases(2).items() if name.startswith("MLP-MNIST")
            },
            only=_names("MLP-MNIST"),
            minutes=0.1,
        ),
        "laptop": ScaleChange(
            cases=_pair_changes(
                {
                    net: {**own, "epochs": 60, "checkpoints": "0,5,10,20,25,30,40,50,60"}
                    for net, own in LAPTOP.items()
                }
            ),
            actions={
                name: actions for name, actions in _edit_cases(25).items() if name.partition(",")[0] in LAPTOP
            },
            only=tuple(name for net in LAPTOP for name in _names(net)),
            because=WORDS + "; edited at epoch 25 of 60",
            minutes=2.5,
        ),
    },
    claims=(
        Claim("an epoch after the edit the model is better than the one left alone", _at_once),
        Claim("it is still better at the end (by more than a point)", _lasts),
    ),
    figure=_intervention_figure,
    notes=(
        "Batch size and optimiser go on as they were. The authors went on with a fresh optimiser and batches of one, "
        "which confounds their finding of little degradation.",
    ),
)

# ------------------------------------------------------------------------------------------------------ dropout

_DROPOUT_NETS = ("CNN-MNIST", "CNN-FashionMNIST", "CNN-CIFAR10", "ResNet18-CIFAR10")
_SMALL_NET = "CNN-FashionMNIST"


def _dropout_case(net: str, degree: float) -> str:
    return f"{net} with dropout {degree:g}"


def _dropout_models(model: str) -> str:
    return f"{model},dropout=0.2" if ":" in model else f"{model}:dropout=0.2"


def _same_dynamics(found: Findings) -> ClaimVerdict:
    """With dropout the best hidden layer still ends above the model."""
    words, holds = [], True
    for case in (case for case in found.cases if "dropout" in case and 0 < degree_of(case) < 1):
        model = float(model_curve(found, case).mean[-1])
        hidden = layers(found, case)[1:]
        best = max(float(probe_curve(found, case, "masc", layer).mean[-1]) for layer in hidden)
        holds &= best > model
        words.append(f"{case}: model {number(model)}, best hidden layer {number(best)}")
    return ClaimVerdict(holds, "; ".join(words))


def _dropout_figure(found: Findings) -> Figure:
    plain = [case for case in found.cases if "dropout" not in case]
    columns = min(len(plain), len(DEGREES))
    figure, axes = panels(columns, -(-len(plain) // columns), title=found.study.title, size=(3.0, 2.6))
    for panel, case in zip(axes, plain, strict=False):
        twin = _dropout_case(case.rpartition(" ")[0], degree_of(case))
        for index, name in enumerate((case, twin)):
            last = layers(found, name)[-1]
            words = "dropout" if "dropout" in name else "plain"
            line(panel, model_curve(found, name), f"model, {words}", index)
            line(
                panel,
                probe_curve(found, name, "masc", last),
                f"MASC, last layer, {words}",
                index,
                linewidth=0.9,
            )
        panel.set(title=case, xlabel="epoch", ylim=(0, 1.02))
    axes[0].legend(fontsize=6)
    return figure


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
    measure=f"{MEASURES}:grid",
    options={"probes": ("masc", "velpic")},
    changes={
        "smoke": ScaleChange(cases=_SMOKE_CASES, only=_SMOKE_NAMES, minutes=0.3),
        "laptop": ScaleChange(cases=_LAPTOP_CASES, only=_LAPTOP_NAMES, because=WORDS, minutes=3.5),
    },
    claims=(Claim("with dropout the best hidden layer still ends above the model", _same_dynamics),),
    figure=_dropout_figure,
)

STUDIES = (transfer, intervention, dropout)
