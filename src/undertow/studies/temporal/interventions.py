"""Interventions: deep layers trained again on kept shallow ones, and shallow ones frozen half way.

find_study("temporal/reinitialise"); find_study("temporal/freeze")
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from undertow.plots import line, panels
from undertow.studies.findings import Findings, number
from undertow.studies.recipe import Case, Claim, ClaimVerdict, Published, ScaleChange, Study
from undertow.studies.temporal.networks import LAPTOP_RESNET, RESNET, SMOKE_RESNET

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ACTIONS = "undertow.studies.temporal.intervention_measures"

# ------------------------------------------------------------------------------------------------ reinitialise

_BASE, _ONE, _TWO = "trained once", "first block kept", "first two blocks kept"
_AGAIN = replace(RESNET, epochs=400, restart=200, checkpoints="every:200")


def _kept(epoch: int) -> dict[str, tuple[str, ...]]:
    return {
        _ONE: (f"freeze {epoch} layer1", f"reinitialise {epoch} layer2"),
        _TWO: (f"freeze {epoch} layer2", f"reinitialise {epoch} layer3"),
    }


def _trained(settings: dict[str, Any], epochs: int, milestones: tuple[int, ...]) -> dict[str, dict[str, Any]]:
    """Once for so many epochs; and for as many again with the learning-rate schedule begun anew."""
    once = {**settings, "epochs": epochs, "milestones": milestones, "checkpoints": f"every:{epochs}"}
    return {_BASE: once, **{name: {**once, "epochs": 2 * epochs, "restart": epochs} for name in (_ONE, _TWO)}}


def _not_recovered(found: Findings) -> ClaimVerdict:
    base = found.seen(_BASE, "accuracy", checkpoint="last")
    others = {name: found.seen(name, "accuracy", checkpoint="last") for name in (_ONE, _TWO)}
    words = ", ".join(f"{name} {seen}" for name, seen in others.items())
    return ClaimVerdict(all(seen.mean < base.mean for seen in others.values()), f"{_BASE} {base}, {words}")


def _less_robust(found: Findings) -> ClaimVerdict:
    base = found.seen(_BASE, "mce")
    others = {name: found.seen(name, "mce") for name in (_ONE, _TWO)}
    words = ", ".join(f"{name} {seen}" for name, seen in others.items())
    return ClaimVerdict(
        all(seen.mean > base.mean for seen in others.values()), f"mCE {_BASE} {base}, {words}"
    )


def _reinitialise_figure(found: Findings) -> Figure:
    figure, axes = panels(2, title=found.study.title, size=(4.2, 2.8))
    for index, case in enumerate(found.cases):
        line(axes[0], found.curve(case, "accuracy", x="checkpoint"), case, index)
        rows = found.of(case, "corruption_error").groupby("layer", sort=False)["value"].mean()
        axes[1].plot(range(len(rows)), rows.to_numpy(float), "o-", markersize=3, label=case)
        axes[1].set_xticks(
            range(len(rows)), [str(name).replace("_", " ") for name in rows.index], rotation=60, fontsize=6
        )
    axes[0].set(title="test accuracy", xlabel="epoch")
    axes[0].legend()
    axes[1].set(title="error by corruption")
    return figure


reinitialise = Study(
    name="temporal/reinitialise",
    title="Deep layers trained anew on kept shallow ones do not quite recover",
    source="paper 000, appendix F.A",
    cases=(
        Case(_BASE, replace(RESNET, epochs=200, checkpoints="every:200")),
        *(Case(name, _AGAIN, actions=_kept(200)[name]) for name in (_ONE, _TWO)),
    ),
    measure=f"{ACTIONS}:robustness",
    options={"samples": 10_000},
    changes={
        "smoke": ScaleChange(
            cases=_trained(SMOKE_RESNET, 3, (2,)), actions=_kept(3), options={"samples": 20}, minutes=0.5
        ),
        "laptop": ScaleChange(
            cases=_trained(LAPTOP_RESNET, 25, (12, 20)),
            actions=_kept(25),
            options={"samples": 500},
            minutes=6,
            because="a small ResNet on 3,000 pictures, 25 epochs and 25 more; mCE on 500 pictures",
        ),
    },
    published=(
        *(
            Published(name, "accuracy", value, 0.01, "appendix F.A, one point", {"checkpoint": "last"})
            for name, value in ((_BASE, 0.92), (_ONE, 0.912), (_TWO, 0.915))
        ),
        *(
            Published(name, "mce", value, 0.03, "appendix F.A")
            for name, value in ((_BASE, 0.316), (_ONE, 0.326), (_TWO, 0.329))
        ),
    ),
    claims=(
        Claim("clean accuracy is lower than that of the network trained once", _not_recovered),
        Claim("the mean error under corruption is higher", _less_robust),
    ),
    figure=_reinitialise_figure,
    notes=("The learning-rate schedule begins anew with the retraining; the paper does not say.",),
)

# ------------------------------------------------------------------------------------------------------ freeze

_FREE = "nothing frozen"
_FROZEN = {f"frozen up to block {depth}": f"layer{depth}" for depth in (1, 2, 3)}


def _lower(found: Findings) -> ClaimVerdict:
    """Mean test accuracy of the last tenth of training."""
    means = {case: _late(found, case) for case in found.cases}
    words = ", ".join(f"{case} {number(value)}" for case, value in means.items())
    return ClaimVerdict(all(means[name] < means[_FREE] for name in _FROZEN), words)


def _late(found: Findings, case: str) -> float:
    curve = found.curve(case, "accuracy", x="checkpoint")
    return float(curve.mean[-max(1, len(curve.mean) // 10) :].mean())


def _freeze_figure(found: Findings) -> Figure:
    figure, axes = panels(1, title=found.study.title, size=(5.5, 3.2))
    for index, case in enumerate(found.cases):
        line(axes[0], found.curve(case, "accuracy", x="checkpoint"), case, index)
    axes[0].set(title="test accuracy", xlabel="epoch")
    axes[0].legend()
    return figure


def _freezing(epoch: int) -> dict[str, tuple[str, ...]]:
    return {name: (f"freeze {epoch} {layer}",) for name, layer in _FROZEN.items()}


_HALF = replace(RESNET, checkpoints="every:150")
_NAMES = (_FREE, *_FROZEN)

freeze = Study(
    name="temporal/freeze",
    title="Freezing shallow layers half way costs a little accuracy",
    source="paper 000, appendix F.B, figure 18",
    cases=(Case(_FREE, _HALF), *(Case(name, _HALF, actions=_freezing(150)[name]) for name in _FROZEN)),
    measure=f"{ACTIONS}:accuracy_curve",
    changes={
        "smoke": ScaleChange(
            cases={name: {**SMOKE_RESNET, "checkpoints": "every:3"} for name in _NAMES},
            actions=_freezing(3),
            minutes=0.2,
        ),
        "laptop": ScaleChange(
            cases={name: {**LAPTOP_RESNET, "checkpoints": "every:25"} for name in _NAMES},
            actions=_freezing(25),
            minutes=8,
            because="a small ResNet on 3,000 pictures for 50 epochs, frozen at 25",
        ),
    },
    claims=(Claim("with shallow layers frozen half way the final test accuracy is lower", _lower),),
    figure=_freeze_figure,
)

STUDIES = (reinitialise, freeze)
