"""How weights and features move, whether regions follow them, and the bound on generalisation.

find_study("temporal/drift"); find_study("temporal/induction"); find_study("temporal/bound")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from undertow.plots import COLOURS, line, panels
from undertow.studies.findings import Findings, number
from undertow.studies.recipe import Case, Claim, ClaimVerdict, Published, Study
from undertow.studies.temporal.composites import cuts
from undertow.studies.temporal.networks import BOTH, LAPTOP, MLP, MLP_CASE, RESNET_CASE, SMOKE, small_scales
from undertow.training.config import TrainConfig

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SPACE = "undertow.studies.temporal.feature_space_measures"

# ------------------------------------------------------------------------------------------------------- drift


def _still_moves(found: Findings) -> ClaimVerdict:
    words, holds = [], True
    for case in found.cases:
        seen = found.seen(case, "parameter_drift", checkpoint="first", layer="all")
        holds &= seen.mean > 0.01
        words.append(f"{case}: {seen}")
    return ClaimVerdict(holds, "|theta_last - theta_first| / |theta_last|, " + "; ".join(words))


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
    options={"first": 150, "samples": 200},
    changes=small_scales(smoke={"first": 3, "samples": 20}, laptop={"first": 25}, minutes=3),
    published=(
        Published(
            RESNET_CASE,
            "parameter_drift",
            0.07,
            0.02,
            "text: about .07",
            {"checkpoint": "first", "layer": "all"},
        ),
    ),
    claims=(Claim("weights move by more than 1 % between the middle and the end of training", _still_moves),),
    figure=_drift_figure,
)

# --------------------------------------------------------------------------------------------------- induction

_PLANE, _WIDE = "features in the plane", "wide features"
_MLP2D = TrainConfig(
    model="mlp2d", data="mnist", optimiser="sgd", lr=0.1, momentum=0.0, weight_decay=1e-5, batch_size=200, epochs=200,
    checkpoints="every:1",
)  # fmt: skip


def _regions_follow(found: Findings) -> ClaimVerdict:
    share, control = found.seen(_PLANE, "region_share"), found.seen(_PLANE, "region_control")
    p = found.mean(_PLANE, "region_p")
    return ClaimVerdict(
        p < 0.05 and share.mean > control.mean,
        f"{share} of earlier features lie in their last region; exchanged classes {control}, p {number(p)}",
    )


def _robust_along(found: Findings) -> ClaimVerdict:
    kept, random = found.seen(_WIDE, "kept"), found.seen(_WIDE, "kept_random")
    return ClaimVerdict(
        kept.mean > 0.95,
        f"{kept} keep their class with noise along the main directions, {random} along random",
    )


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
        for index, (name, words) in enumerate(
            (("kept", "main directions"), ("kept_random", "random directions"))
        ):
            line(axes[1], found.curve(_WIDE, name, x="checkpoint"), words, index)
        axes[1].set(
            title="class kept under noise of unit size", xlabel="epoch of the features", ylim=(0, 1.03)
        )
        axes[1].legend()
    return figure


induction = Study(
    name="temporal/induction",
    title="The last network's regions follow the paths of earlier features",
    source="paper 000, figures 6 and 14",
    cases=(
        Case(_PLANE, _MLP2D, options={"task": "plane"}),
        Case(_WIDE, MLP, options={"task": "perturbed"}),
    ),
    measure=f"{SPACE}:induction",
    options={"first": 51, "samples": 1000},
    changes=small_scales(
        smoke={"first": 3, "samples": 60},
        laptop={"first": 20},
        minutes=3,
        cases=(
            {
                _PLANE: {"data": "digits", "train_size": 300, "test_size": 100, "epochs": 6},
                _WIDE: SMOKE[MLP_CASE],
            },
            {_PLANE: {"train_size": 10_000, "test_size": 2000, "epochs": 100}, _WIDE: LAPTOP[MLP_CASE]},
        ),
    ),
    claims=(
        Claim("earlier features lie in the last region of their class more than by chance", _regions_follow),
        Claim(
            "noise of unit size along the main directions of late features keeps the class (above 95 %)",
            _robust_along,
        ),
    ),
    figure=_induction_figure,
)

# ------------------------------------------------------------------------------------------------------- bound

_SURROGATES = {"mmd": "MMD", "wasserstein": "sliced Wasserstein", "tv_lower": "lower bound of TV"}


def _correlates(found: Findings) -> ClaimVerdict:
    """One of the stand-ins rises with the gap beyond doubt in every network: in one of them alone it may be luck."""
    words, rising = [], dict.fromkeys(_SURROGATES, True)
    for case in found.cases:
        for name, title in _SURROGATES.items():
            if not found.has(case, f"correlation_{name}"):
                words.append(f"{case}, {title}: no correlation, one side is constant")
                rising[name] = False
                continue
            rows = found.of(case, f"correlation_{name}")
            rho, low, high = (float(rows[column].mean()) for column in ("value", "low", "high"))
            rising[name] &= low > 0
            words.append(f"{case}, {title}: rho {number(rho)} ({number(low)} to {number(high)})")
    return ClaimVerdict(any(rising.values()), "; ".join(words))


def _bound_figure(found: Findings) -> Figure:
    figure, axes = panels(3, len(found.cases), title=found.study.title, size=(3.3, 2.6))
    for place, case in enumerate(found.cases):
        for panel, (name, title) in zip(axes[3 * place :], _SURROGATES.items(), strict=False):
            for index, cut in enumerate(cuts(found, case)):
                gap = found.curve(case, "gap", x="position", layer=cut).mean
                panel.plot(
                    found.curve(case, name, x="position", layer=cut).mean,
                    gap,
                    "o",
                    color=COLOURS[index],
                    label=cut,
                )
            panel.set(title=f"{case}", xlabel=title, ylabel="gap of a class")
        axes[3 * place].legend()
    return figure


bound = Study(
    name="temporal/bound",
    title="Does feature shift over time go with the generalisation gap?",
    source="paper 000, theorem 1; the stand-ins for total variation are ours",
    cases=BOTH,
    measure=f"{SPACE}:bound",
    options={"first": 200, "samples": 5000, "permutations": 199},
    changes=small_scales(
        smoke={"first": 4, "samples": 100, "permutations": 9},
        laptop={"first": 40, "samples": 2000, "permutations": 99},
        minutes=4,
    ),
    claims=(
        Claim(
            "a stand-in for total variation rises with the gap over classes and cuts in every network",
            _correlates,
        ),
    ),
    figure=_bound_figure,
)

STUDIES = (drift, induction, bound)
