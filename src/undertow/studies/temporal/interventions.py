"""Interventions: deep layers trained again on kept shallow ones, and shallow ones frozen half way.

find_study("temporal/reinitialise"); find_study("temporal/freeze")
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from undertow.plots import line, panels
from undertow.studies.claims import CaseVerdict, Claim, ClaimVerdict
from undertow.studies.findings import Findings, number
from undertow.studies.recipe import Case, Published, ScaleChange, Study
from undertow.studies.temporal.by_cut import by_seed
from undertow.studies.temporal.networks import LAPTOP, RESNET, RESNET_CASE, SMOKE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ACTIONS = "undertow.studies.temporal.intervention_measures"

# ------------------------------------------------------------------------------------------------ reinitialise

_FEW_PICTURES = "a small network on few pictures"
_BASE, _ONE, _TWO = "trained once", "first block kept", "first two blocks kept"
_AGAIN = replace(RESNET, epochs=400, restart=200, checkpoints="every:200")


def _kept(epoch: int) -> dict[str, tuple[str, ...]]:
    return {
        _ONE: (f"freeze {epoch} layer1", f"reinitialise {epoch} layer2"),
        _TWO: (f"freeze {epoch} layer2", f"reinitialise {epoch} layer3"),
    }


def _trained(
    settings: Mapping[str, Any], epochs: int, milestones: tuple[int, ...]
) -> dict[str, dict[str, Any]]:
    """Once for so many epochs; and for as many again with the learning-rate schedule begun anew."""
    once = {**settings, "epochs": epochs, "milestones": milestones, "checkpoints": f"every:{epochs}"}
    return {_BASE: once, **{name: {**once, "epochs": 2 * epochs, "restart": epochs} for name in (_ONE, _TWO)}}


def _worse(measure: str, sign: int, **where: Any) -> Callable[[Findings], ClaimVerdict]:
    """Both retrained networks do worse than the one trained once, seed by seed."""

    def check(found: Findings) -> ClaimVerdict:
        return ClaimVerdict.of_cases(
            beside(found, name, _BASE, lambda case: by_seed(found, case, measure, **where), sign)
            for name in (_ONE, _TWO)
        )

    return check


def beside(
    found: Findings, case: str, base: str, numbers: Callable[[str], dict[int, float]], sign: int
) -> CaseVerdict:
    """Whether a case's numbers differ from the base's by more than chance; few seeds cannot tell."""
    own, other = numbers(case), numbers(base)
    seeds = sorted(own.keys() & other.keys())
    verdict = ClaimVerdict.of_paired([sign * (own[seed] - other[seed]) for seed in seeds])
    means = " and ".join(number(fmean(one[seed] for seed in seeds)) for one in (other, own))
    return CaseVerdict(case, verdict.holds, f"{means}, worse by {verdict.numbers}")


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
            cases=_trained(SMOKE[RESNET_CASE], 3, (2,)),
            actions=_kept(3),
            options={"samples": 20},
            minutes=0.5,
        ),
        "laptop": ScaleChange(
            cases=_trained(LAPTOP[RESNET_CASE], 40, (20, 30)),
            actions=_kept(40),
            options={"samples": 300},
            minutes=3,
            because="a small ResNet on 600 pictures, 40 epochs and 40 more; mCE on 300 pictures",
        ),
    },
    published=(
        *(
            Published(
                name,
                "accuracy",
                value,
                0.01,
                "appendix F.A, one point",
                {"checkpoint": "last"},
                ("paper",),
                _FEW_PICTURES,
            )
            for name, value in ((_BASE, 0.92), (_ONE, 0.912), (_TWO, 0.915))
        ),
        *(
            Published(
                name,
                "mce",
                value,
                0.005,
                "appendix F.A, half of what differs",
                {},
                ("paper",),
                _FEW_PICTURES,
            )
            for name, value in ((_BASE, 0.316), (_ONE, 0.326), (_TWO, 0.329))
        ),
    ),
    claims=(
        Claim(
            "with the first or the first two blocks retained clean accuracy does not fully recover",
            _worse("accuracy", -1, checkpoint="last"),
            place="appendix F.A",
        ),
        Claim("mCE increases with either", _worse("mce", 1), place="appendix F.A"),
    ),
    figure=_reinitialise_figure,
    seeds=5,
    notes=("The learning-rate schedule begins anew with the retraining; the paper does not say.",),
)

# ------------------------------------------------------------------------------------------------------ freeze

_FREE = "nothing frozen"
_FROZEN = {f"frozen up to block {depth}": f"layer{depth}" for depth in (1, 2, 3)}


def _lower(found: Findings) -> ClaimVerdict:
    """Mean test accuracy of the last tenth of training."""
    late = _late(found, lambda values: float(values.mean()))
    return ClaimVerdict.of_cases(beside(found, name, _FREE, late, -1) for name in _FROZEN)


def _less_stable(found: Findings) -> ClaimVerdict:
    """Standard deviation of test accuracy over the epochs after the freeze."""
    after = _late(found, lambda values: float(values.std()), part=2)
    return ClaimVerdict.of_cases(beside(found, name, _FREE, after, 1) for name in _FROZEN)


def _late(
    found: Findings, number_of: Callable[[Any], float], part: int = 10
) -> Callable[[str], dict[int, float]]:
    """A number of each seed's test accuracies over the last `part`-th of the epochs."""

    def numbers(case: str) -> dict[int, float]:
        rows: Any = found.of(case, "accuracy").sort_values("checkpoint")
        return {
            int(seed): number_of(own["value"].to_numpy(float)[-max(2, len(own) // part) :])
            for seed, own in rows.groupby("seed")
        }

    return numbers


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
            cases={name: {**SMOKE[RESNET_CASE], "checkpoints": "every:3"} for name in _NAMES},
            actions=_freezing(3),
            minutes=0.2,
        ),
        "laptop": ScaleChange(
            cases={name: {**LAPTOP[RESNET_CASE], "epochs": 60, "checkpoints": "every:30"} for name in _NAMES},
            actions=_freezing(30),
            minutes=2,
            because="a small ResNet on 300 pictures for 60 epochs, frozen at 30",
        ),
    },
    claims=(
        Claim(
            "with shallow layers frozen at epoch 150 test accuracy is slightly lower",
            _lower,
            place="appendix F.B, figure 18",
        ),
        Claim("and less stable", _less_stable, place="appendix F.B, figure 18"),
    ),
    seeds=5,
    figure=_freeze_figure,
)

STUDIES = (reinitialise, freeze)
