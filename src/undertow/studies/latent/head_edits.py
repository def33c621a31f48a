"""VeLPIC written into the head, at the end of training and in the middle of it.

find_study("latent/transfer"); find_study("latent/intervention")
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import gt, lt
from typing import TYPE_CHECKING, Any

from undertow.plots import line, panels
from undertow.studies.claims import FITTED, CaseVerdict, Claim, ClaimVerdict, each_seed
from undertow.studies.findings import Findings, SeedCurve, number
from undertow.studies.latent.corrupted_networks import (
    JUDGED,
    LAPTOP,
    MEMORISED_FAST,
    NETS,
    SMOKE,
    cases,
    scaled,
)
from undertow.studies.latent.probe_claims import Judge, over_cases, scatter
from undertow.studies.latent.probe_curves import by_case, degree_of, first_nets, layers, probe_curve
from undertow.studies.recipe import Case, ScaleChange, Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MEASURES = "undertow.studies.latent.probe_measures"

# ----------------------------------------------------------------------------------------------------- transfer


def _curve(found: Findings, case: str, who: str, split: str = "test") -> SeedCurve:
    return found.curve(case, "accuracy", x="checkpoint", probe=who, split=split)


LATTER = 0.5
"""From this part of the epochs on training is in its latter phase."""


def _edit(split: str, better: Callable[[float, float], bool]) -> Judge:
    """Compares the edited model with the model at every checkpoint of the latter half of training."""

    def judge(found: Findings, case: str) -> tuple[bool, str]:
        model, edited = (_curve(found, case, who, split) for who in ("model", "edited"))
        late = [at for at in range(len(model.x)) if model.x[at] >= LATTER * model.x[-1]]
        words = f"{number(float(model.mean[-1]))} → {number(float(edited.mean[-1]))} at the end"
        if len(late) > 1:
            words += f", {len(late)} checkpoints"
        return all(better(float(edited.mean[at]), float(model.mean[at])) for at in late), words

    return judge


def _transfer_figure(found: Findings) -> Figure:
    curves = (
        ("model", "test", "model"), ("edited", "test", "edited"), ("model", "train", "model, training labels"),
    )  # fmt: skip

    def panel(axes: Axes, case: str) -> None:
        for index, (who, split, words) in enumerate(curves):
            line(axes, _curve(found, case, who, split), words, index)
        axes.set(ylim=(0, 1.02))

    return by_case(found, panel, first_nets(found))


transfer = Study(
    name="latent/transfer",
    title="Writing the probe into the head gives the model what its last layer knows",
    source="paper 001, figures 7, 16, 17 and 18",
    cases=cases(NETS),
    measure=f"{MEASURES}:transfer",
    changes=scaled(smoke=0.2, laptop=0.8),
    claims=(
        Claim(
            "in most cases the edit improves generalisation at once, in every epoch of the latter phase of training",
            over_cases(_edit("test", gt)),
            FITTED,
            "section 8, figure 7",
        ),
        Claim(
            "the edited model repeats fewer of the corrupted training labels",
            over_cases(_edit("train", lt)),
            FITTED,
            "appendix F, figures 17 and 18",
            ours=True,
        ),
    ),
    figure=_transfer_figure,
)

# ------------------------------------------------------------------------------------------------- intervention

_LEFT, _EDITED = "left alone", "edited"
_DEGREES = (0.0, 0.2, 0.4, 0.6, 0.8)


def _names(net: str, degree: float) -> tuple[str, str]:
    return f"{net}, {_LEFT} {degree:g}", f"{net}, {_EDITED} {degree:g}"


def _edited_wins(moment: Callable[[int], int | str]) -> Callable[[Findings], ClaimVerdict]:
    """The edited run is better than the one left alone; `moment` tells when from the edit's epoch."""

    def check(found: Findings) -> ClaimVerdict:
        judged: list[CaseVerdict] = []
        for left, edited, at in _pairs(found):
            alone, changed = (
                found.mean(one, "epoch_accuracy", checkpoint=moment(at)) for one in (left, edited)
            )
            words, unsure = (
                f"{number(alone)} alone, {number(changed)} edited",
                scatter(found, edited, alone, changed),
            )
            near = abs(changed - alone) <= unsure
            words += f", less apart than test samples scatter ({number(unsure)})" * near
            if degree_of(edited) > 0:
                told = None if near else changed > alone
                judged.append(CaseVerdict(edited.replace(f", {_EDITED}", ""), told, words))
        return ClaimVerdict.of_cases(judged, "most")

    return check


def _rises_at_once(found: Findings) -> ClaimVerdict:
    """At the epoch of the edit VeLPIC on the last layer, which is what the edited model says, beats the model."""
    judged: list[CaseVerdict] = []
    for _, edited, at in _pairs(found):
        if degree_of(edited) > 0:
            where = {"checkpoint": at, "split": "test"}
            last = layers(found, edited)[-1]
            model = found.mean(edited, "accuracy", probe="model", **where)
            now = found.mean(edited, "accuracy", probe="velpic", layer=last, labels="true", **where)
            words = f"{number(model)} to {number(now)}"
            judged.append(CaseVerdict(edited.replace(f", {_EDITED}", ""), now > model, words))
    return ClaimVerdict.of_cases(judged, "most")


def _degrades(found: Findings) -> ClaimVerdict:
    """From an epoch after the edit to the end the edited model falls, by more than test samples scatter."""
    judged = [
        CaseVerdict(
            edited.replace(f", {_EDITED}", ""),
            soon - last > scatter(found, edited, soon, last),
            f"{number(soon)} to {number(last)}",
        )
        for _, edited, at in _pairs(found)
        if degree_of(edited) > 0
        for soon, last in [
            tuple(found.mean(edited, "epoch_accuracy", checkpoint=one) for one in (at + 1, "last"))
        ]
    ]
    return ClaimVerdict.of_cases(judged, "many")


def _pairs(found: Findings) -> list[tuple[str, str, int]]:
    """Both cases of each net and degree, and the epoch of the edit."""
    pairs = [_names(net, degree) for net in NETS for degree in _DEGREES]
    there = [pair for pair in pairs if set(pair) <= set(found.cases)]
    return [(left, edited, int(found.study.case(edited).actions[0].split()[1])) for left, edited in there]


def _intervention_figure(found: Findings) -> Figure:
    pairs = [pair for pair in _pairs(found) if degree_of(pair[1]) in (0.4, 0.8)] or _pairs(found)
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


def _edited(
    nets: Mapping[str, Mapping[str, object]], degrees: Sequence[float], epoch: int, **settings: object
) -> dict[str, Any]:
    """What a scale changes: settings of both cases of each of its nets and degrees, and the epoch of the edit."""
    pairs = {net: [_names(net, degree) for degree in degrees] for net in nets}
    cases = {name: {**nets[net], **settings} for net, own in pairs.items() for pair in own for name in pair}
    edits = {edited: (f"edit {epoch} velpic",) for own in pairs.values() for _, edited in own}
    return {"cases": cases, "actions": edits, "only": tuple(cases)}


intervention = Study(
    name="latent/intervention",
    title="Editing the head in mid-training",
    source="paper 001, figures 8, 9 and 19",
    cases=tuple(
        Case(
            name, replace(NETS[net], noise=f"{degree:g}", epochs=100, stop_at=None, test_at="epochs"), actions
        )
        for net in NETS
        for degree in _DEGREES
        for name, actions in zip(_names(net, degree), ((), ("edit 40 velpic",)), strict=True)
    ),
    measure=f"{MEASURES}:intervention",
    changes={
        "smoke": ScaleChange(
            **_edited({"MLP-MNIST": SMOKE["MLP-MNIST"]}, _DEGREES, 2, epochs=4), minutes=0.1
        ),
        "laptop": ScaleChange(
            **_edited(
                {net: LAPTOP[net] for net in ("MLP-MNIST", "CNN-FashionMNIST")},
                JUDGED,
                24,
                epochs=60,
                stop_at=None,
                test_at="checkpoints",
                checkpoints="0,1,2,4,8,12,18,24,25,30,40,50,60",
            ),
            because=f"{MEMORISED_FAST}; 60 epochs whatever was fitted, edited at 24 as the paper at 40 of 100",
            minutes=5,
        ),
    },
    claims=(
        Claim(
            "upon the edit there is typically a rise in model generalisation",
            each_seed(_rises_at_once),
            None,
            "section 9, figure 8",
        ),
        Claim("in many cases it degrades subsequently", _degrades, None, "section 9, figure 8"),
        Claim(
            "typically not to the degree that it would have without the edit; there are exceptions",
            each_seed(_edited_wins(lambda at: "last"), before="at the end, "),
            None,
            "section 9, figure 8",
        ),
    ),
    figure=_intervention_figure,
    notes=(
        "Batch size and optimiser go on as they were. The authors went on with a fresh optimiser and batches of one, "
        "which confounds their finding of little degradation.",
    ),
)

STUDIES = (transfer, intervention)
