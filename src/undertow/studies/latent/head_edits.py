"""VeLPIC written into the head, at the end of training and in the middle of it.

find_study("latent/transfer"); find_study("latent/intervention")
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from operator import gt, lt
from typing import TYPE_CHECKING, Any

from undertow.plots import line, panels
from undertow.studies.findings import Findings, SeedCurve, number
from undertow.studies.latent.corrupted_networks import LAPTOP, MEMORISED_FAST, NETS, SMOKE, cases, scaled
from undertow.studies.latent.probe_dynamics import by_case, corrupted, first_two, layers, probe_curve
from undertow.studies.recipe import Case, Claim, ClaimVerdict, ScaleChange, Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MEASURES = "undertow.studies.latent.probe_measures"

# ----------------------------------------------------------------------------------------------------- transfer


def _curve(found: Findings, case: str, who: str, split: str = "test") -> SeedCurve:
    return found.curve(case, "accuracy", x="checkpoint", probe=who, split=split)


def _edit(found: Findings, split: str, before: str, better: Callable[[float, float], bool]) -> ClaimVerdict:
    """Compares the edited model with the model at the end of training, in corrupted cases."""

    def judge(case: str) -> tuple[bool, str]:
        model, edited = (float(_curve(found, case, who, split).mean[-1]) for who in ("model", "edited"))
        return better(edited, model), f"{case}: {number(model)} → {number(edited)}"

    return ClaimVerdict.of_each(corrupted(found), judge, before)


def _edit_helps(found: Findings) -> ClaimVerdict:
    return _edit(found, "test", "test accuracy at the end, ", gt)


def _edit_unlearns(found: Findings) -> ClaimVerdict:
    """The edited model repeats fewer of the corrupted training labels."""
    return _edit(found, "train", "accuracy on the corrupted training labels, ", lt)


def _transfer_figure(found: Findings) -> Figure:
    curves = (
        ("model", "test", "model"), ("edited", "test", "edited"), ("model", "train", "model, training labels"),
    )  # fmt: skip

    def panel(axes: Axes, case: str) -> None:
        for index, (who, split, words) in enumerate(curves):
            line(axes, _curve(found, case, who, split), words, index)
        axes.set(ylim=(0, 1.02))

    return by_case(found, panel, first_two(found))


transfer = Study(
    name="latent/transfer",
    title="Writing the probe into the head gives the model what its last layer knows",
    source="paper 001, figures 7, 16, 17 and 18",
    cases=cases(NETS),
    measure=f"{MEASURES}:transfer",
    changes=scaled(smoke=0.2, laptop=5),
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


def _edited_wins(found: Findings, when: str, by: float, moment: Callable[[int], int | str]) -> ClaimVerdict:
    """The edited run is better, by more than `by`, than the one left alone; `moment` tells when from the edit's."""
    pairs = {edited: (left, at) for left, edited, at in _pairs(found)}

    def judge(edited: str) -> tuple[bool, str]:
        left, at = pairs[edited]
        alone, changed = (
            found.mean(case, "epoch_accuracy", checkpoint=moment(at)) for case in (left, edited)
        )
        words = f"{edited}: {number(alone)} alone, {number(changed)} edited, {when}"
        return changed > alone + by, words

    return ClaimVerdict.of_each(pairs, judge)


def _at_once(found: Findings) -> ClaimVerdict:
    return _edited_wins(found, "an epoch later", 0, lambda at: at + 1)


def _lasts(found: Findings) -> ClaimVerdict:
    return _edited_wins(found, "at the end", 0.01, lambda at: "last")


def _pairs(found: Findings) -> list[tuple[str, str, int]]:
    """Both cases of each net, and the epoch of the edit."""
    pairs = [_names(net) for net in NETS]
    there = [pair for pair in pairs if set(pair) <= set(found.cases)]
    return [(left, edited, int(found.study.case(edited).actions[0].split()[1])) for left, edited in there]


def _intervention_figure(found: Findings) -> Figure:
    pairs = _pairs(found)
    figure, axes = panels(2, len(pairs), title=found.study.title, size=(4.0, 2.7))
    for place, (left, edited, at) in enumerate(pairs):
        own = axes[2 * place : 2 * place + 2]
        for index, case in enumerate((left, edited)):
            curve = found.curve(case, "epoch_accuracy", x="checkpoint")
            line(own[0], curve, case.partition(", ")[2], index)
        for index, layer in enumerate(layers(found, edited)):
            line(own[1], probe_curve(found, edited, "velpic", layer), layer, index)
        titles = (f"{left.partition(',')[0]}: model", "VeLPIC by layer, edited run")
        for panel, title in zip(own, titles, strict=True):
            panel.axvline(at, color="#888888", linewidth=0.8)
            panel.set(title=title, xlabel="epoch", ylim=(0, 1.02))
            panel.legend(fontsize=7)
    return figure


def _edited(nets: Mapping[str, Mapping[str, object]], epoch: int, **settings: object) -> dict[str, Any]:
    """What a scale changes: settings of both cases of each of its nets, and the epoch of the edit."""
    return {
        "cases": {name: {**own, **settings} for net, own in nets.items() for name in _names(net)},
        "actions": {_names(net)[1]: (f"edit {epoch} velpic",) for net in nets},
        "only": tuple(name for net in nets for name in _names(net)),
    }


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
        "smoke": ScaleChange(**_edited({"MLP-MNIST": SMOKE["MLP-MNIST"]}, 2, epochs=4), minutes=0.1),
        "laptop": ScaleChange(
            **_edited(LAPTOP, 25, epochs=60, checkpoints="0,5,10,20,25,30,40,50,60"),
            because=f"{MEMORISED_FAST}; edited at epoch 25 of 60",
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

STUDIES = (transfer, intervention)
