"""How weights and features move, and whether regions follow them.

find_study("temporal/drift"); find_study("temporal/induction")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from undertow.plots import COLOURS, line, panels
from undertow.studies.claims import LEVEL, CaseVerdict, Claim, ClaimVerdict, Presupposes
from undertow.studies.cost import updates
from undertow.studies.findings import Findings, number
from undertow.studies.recipe import Case, Published, Study
from undertow.studies.temporal.by_cut import FITS, by_cut, by_seed, cuts
from undertow.studies.temporal.networks import (
    BOTH,
    LAPTOP,
    NETWORKS,
    RESNET,
    RESNET_CASE,
    SMOKE,
    small_scales,
)
from undertow.training.config import TrainConfig

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SPACE = "undertow.studies.temporal.feature_space_measures"
STILL = 0.01
"""What moves by more, relative to its size, does not stand still."""

# ------------------------------------------------------------------------------------------------------- drift


def _still_moves(found: Findings) -> ClaimVerdict:
    """What moves less in fewer steps than the paper's, all taken at the last rate, says nothing."""

    def judge(case: str) -> tuple[bool | None, str]:
        seen = found.seen(case, "parameter_drift", checkpoint="first", layer="all")
        moves, (ours, theirs) = seen.low > STILL, _late_steps(found, case)
        short = not moves and ours < theirs
        return None if short else moves, f"{case}: {seen}" + (f" in {ours} steps, wanted {theirs}" * short)

    return ClaimVerdict.of_each(found.cases, judge, "|theta_last - theta_first| / |theta_last|, ")


def _late_steps(found: Findings, case: str) -> tuple[int, int]:
    """Updates between the two moments, ours and the paper's."""
    config, options = found.study.case(case).train, found.study.options
    assert config is not None  # both are trained
    return (
        updates(config, options["last"] - options["first"]),
        updates(NETWORKS[case], drift.options["last"] - drift.options["first"]),
    )


def _features_vary(found: Findings) -> ClaimVerdict:
    def judge(case: str, cut: str) -> tuple[bool | None, str]:
        if not found.has(case, "feature_drift", layer=cut):
            return None, "no features were followed"
        seen = found.seen(case, "feature_drift", checkpoint="first", layer=cut)
        return seen.low > STILL, str(seen)

    followed = [one for one in by_cut(found, judge) if one.words != "no features were followed"]
    return ClaimVerdict.of_cases(followed)


def _drift_figure(found: Findings) -> Figure:
    figure, axes = panels(3, len(found.cases), title=found.study.title, size=(3.4, 2.7))
    for place, case in enumerate(found.cases):
        weights, features, paths = axes[3 * place : 3 * place + 3]
        line(weights, found.curve(case, "parameter_drift", x="checkpoint", layer="all"), "all", 6)
        names = cuts(found, case)
        for index, cut in enumerate(name for name in names if found.has(case, "parameter_drift", layer=name)):
            line(weights, found.curve(case, "parameter_drift", x="checkpoint", layer=cut), cut, index)
        for index, cut in enumerate(name for name in names if found.has(case, "feature_drift", layer=name)):
            line(
                features, found.curve(case, "feature_drift", x="checkpoint", layer=cut), f"after {cut}", index
            )
        weights.set(title=f"{case}: weights from the last", xlabel="epoch")
        features.set(title="features from the last", xlabel="epoch")
        weights.legend(fontsize=6, ncols=2)
        features.legend()
        _draw_paths(paths, found.of(case, "trajectory", layer=_followed(found, case)))
        paths.set(title=f"trajectories after {_followed(found, case)} (PCA)")
    return figure


def _followed(found: Findings, case: str) -> str:
    return [cut for cut in cuts(found, case) if found.has(case, "trajectory", layer=cut)][-1]


def _draw_paths(panel: Any, rows: Any) -> None:
    first = rows[rows["seed"] == rows["seed"].min()]
    for _, path in first.groupby("sample"):
        colour = COLOURS[int(path["label"].iloc[0]) % len(COLOURS)]
        panel.plot(path["value"], path["y"], color=colour, linewidth=0.6, alpha=0.7)
        panel.plot(path["value"].iloc[-1], path["y"].iloc[-1], "o", color=colour, markersize=2.2)


drift = Study(
    name="temporal/drift",
    title="Weights and features go on moving late in training",
    source="paper 000, section 4 (text), figure 11",
    cases=BOTH,
    measure=f"{SPACE}:drift",
    options={"first": 150, "last": 300, "every": 5, "samples": 200},
    changes=small_scales(
        smoke={"first": 3, "last": 6, "every": 1, "samples": 20},
        laptop={"first": 30, "last": 60},
        minutes=0.1,
    ),
    published=(
        Published(
            RESNET_CASE,
            "parameter_drift",
            0.07,
            0.02,
            "text: about .07",
            {"checkpoint": "first", "layer": "all"},
            ("paper",),
            "the drift after the last rate drop depends on how many steps follow it",
        ),
    ),
    claims=(
        Claim(
            "late parameters drift at a non-negligible scale (more than 1 % from 150 to 300)",
            _still_moves,
            presupposes=FITS,
            place="section 4.2",
        ),
        Claim(
            "feature variation is non-negligible even after loss and accuracy appear stable (more than 1 %)",
            _features_vary,
            presupposes=FITS,
            place="section 4.2, figure 11",
        ),
    ),
    figure=_drift_figure,
)

# --------------------------------------------------------------------------------------------------- induction

_PLANE, _WIDE = "features in the plane", RESNET_CASE
_MLP2D = TrainConfig(
    model="mlp2d", data="mnist", scaling="unit", optimiser="sgd", lr=0.1, momentum=0.0, weight_decay=1e-5,
    batch_size=200, epochs=200, checkpoints="every:1",
)  # fmt: skip
_TRAINED = Presupposes("train_fit", 0.9, "fits {} of its training labels")


def _regions_follow(found: Findings) -> ClaimVerdict:
    """Every seed has its own test: earlier features lie in the last region of their class more than by exchange."""
    share, control, p = (by_seed(found, _PLANE, f"region_{name}") for name in ("share", "control", "p"))
    return ClaimVerdict.of_cases(
        CaseVerdict(
            f"seed {seed}", p[seed] < LEVEL and share[seed] > control[seed],
            f"{number(share[seed])} in their last region, exchanged {number(control[seed])}, p {number(p[seed])}",
        )
        for seed in share
    )  # fmt: skip


def _robust_along(found: Findings) -> ClaimVerdict:
    kept, random = (by_seed(found, _WIDE, name) for name in ("kept", "kept_random"))
    spread = float(found.of(_WIDE, "kept")["spread"].mean())
    return ClaimVerdict.of_cases(
        (
            CaseVerdict(
                f"seed {seed}", kept[seed] > 0.95, f"{number(kept[seed])} keep their class, {number(random[seed])} "
                "with noise along random directions",
            )
            for seed in kept
        ),
        before=f"features have a standard deviation of {number(spread)}; ",
    )  # fmt: skip


def _induction_figure(found: Findings) -> Figure:
    figure, axes = panels(2, title=found.study.title, size=(4.2, 3.6))
    rows: Any = found.of(_PLANE, "region")
    first = rows[rows["seed"] == rows["seed"].min()]
    grid = first.pivot_table(index="y", columns="x", values="value")
    axes[0].pcolormesh(
        grid.columns, grid.index, grid.to_numpy(), cmap="tab10", alpha=0.35, vmin=0, vmax=9, shading="nearest"
    )
    _draw_paths(axes[0], found.of(_PLANE, "trajectory"))
    axes[0].set(title="regions of the last deep part, earlier features")
    axes[0].grid(visible=False)
    if _WIDE in found.cases:
        dots: Any = found.of(_WIDE, "dot")
        own = dots[dots["seed"] == dots["seed"].min()]
        for noisy, size, shade in ((True, 5, 0.35), (False, 14, 1.0)):
            part = own[own["noisy"] == noisy]
            colours = [COLOURS[int(label) % len(COLOURS)] for label in part["value"]]
            axes[1].scatter(part["x"], part["y"], s=size, c=colours, alpha=shade, linewidths=0)
        axes[1].set(title="paths of five samples, noise of unit size (pale)", xlabel="first direction")
    return figure


induction = Study(
    name="temporal/induction",
    title="The last network's regions follow the paths of earlier features",
    source="paper 000, figures 6 and 14",
    cases=(
        Case(_PLANE, _MLP2D, options={"task": "plane", "first": 51, "last": 200}),
        Case(_WIDE, RESNET, options={"task": "perturbed", "first": 250, "last": 300}),
    ),
    measure=f"{SPACE}:induction",
    options={"samples": 1000},
    changes=small_scales(
        smoke={"samples": 60},
        laptop={"samples": 300},
        minutes=0.3,
        cases=(
            {
                _PLANE: {
                    "data": "digits",
                    "train_size": 300,
                    "test_size": 100,
                    "epochs": 6,
                    "first": 3,
                    "last": 6,
                },
                _WIDE: {**SMOKE[RESNET_CASE], "first": 4, "last": 6},
            },
            {
                _PLANE: {
                    "train_size": 2000,
                    "test_size": 500,
                    "epochs": 100,
                    "batch_size": 20,
                    "first": 26,
                    "last": 100,
                    "every": 2,
                },
                _WIDE: {**LAPTOP[RESNET_CASE], "first": 50, "last": 60},
            },
        ),
        names=(_PLANE, _WIDE),
    ),
    claims=(
        Claim(
            "MNIST: the regions of the last network align with the paths of earlier features, more than by chance",
            _regions_follow,
            presupposes=_TRAINED,
            place="section 4.5, figure 6",
        ),
        Claim(
            "CIFAR-10: features of epochs 250 to 300 keep their class (above 95 %) under noise of about unit size "
            "along the two principal directions",
            _robust_along,
            presupposes=_TRAINED,
            place="section 4.5, figure 14",
        ),
    ),
    figure=_induction_figure,
)

STUDIES = (drift, induction)
