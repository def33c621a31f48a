"""Composites over training: memory, its window, forgetting, transferability.

find_study("temporal/memory"); find_study("temporal/window"); find_study("temporal/transfer")
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from undertow.plots import line, panels
from undertow.studies.findings import Findings, number
from undertow.studies.recipe import Case, Claim, ClaimVerdict, Study
from undertow.studies.temporal.networks import BOTH, MLP, MLP_CASE, RESNET, RESNET_CASE, small_scales

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

COLUMN = "undertow.studies.temporal.composite_measures:column"
MATRIX = "undertow.studies.temporal.composite_measures:matrix"
HIGH = 0.98
"""The paper's accuracy of composites that still fit."""
CHANCE = 0.025
"""Share of pairs without any difference whose interval lies above 0."""
NEAR_ONE = 0.95
"""Consistency that counts as near 1."""


def cuts(found: Findings, case: str) -> list[str]:
    """The cuts of a case, shallow to deep."""
    rows = found.rows
    names: Any = rows.loc[rows["case"] == case, "layer"].dropna().unique()
    return [str(name) for name in names if name not in ("output", "all")]


def each_cut(found: Findings, judge: Any) -> ClaimVerdict:
    """Judge every case and cut; the claim holds where all do, and what is said of each is kept."""
    said = [(case, cut, *judge(case, cut)) for case in found.cases for cut in cuts(found, case)]
    if not said:
        return ClaimVerdict(None, "no rows")
    answers = [holds for _, _, holds, _ in said]
    whole = None if None in answers and False not in answers else all(answers)
    return ClaimVerdict(whole, "; ".join(f"{case}, {cut}: {words}" for case, cut, _, words in said))


def _lowest(
    found: Findings, measure: str, case: str, cut: str, part: float = 1.0
) -> tuple[float, float, float]:
    """The lowest value over the nearest `part` of the window, with where it is and the deep checkpoint."""
    curve = found.curve(case, measure, x="shallow", layer=cut, split="train")
    deep = float(found.of(case, measure, layer=cut, split="train")["checkpoint"].iloc[0])
    reach = max(abs(deep - curve.x[0]), abs(deep - curve.x[-1])) * part
    near = abs(curve.x - deep) <= reach
    at = int(curve.mean[near].argmin())
    return float(curve.mean[near][at]), float(curve.x[near][at]), deep


def _accurate(found: Findings) -> ClaimVerdict:
    def judge(case: str, cut: str) -> tuple[bool, str]:
        low, at, deep = _lowest(found, "accuracy", case, cut)
        return low > HIGH, f"lowest training accuracy {number(low)} (shallow {at:g}, deep {deep:g})"

    return each_cut(found, judge)


def _as_good_as_the_model(found: Findings) -> ClaimVerdict:
    def judge(case: str, cut: str) -> tuple[bool, str]:
        low, at, deep = _lowest(found, "accuracy", case, cut)
        own = found.mean(case, "accuracy", layer="output", shallow=deep, split="train")
        return low > own - 0.02, f"{number(low)} at {at:g} against {number(own)} of the model at {deep:g}"

    return each_cut(found, judge)


def _consistent(found: Findings) -> ClaimVerdict:
    def judge(case: str, cut: str) -> tuple[bool, str]:
        low, at, _ = _lowest(found, "consistency", case, cut, part=2 / 3)
        return low > NEAR_ONE, f"lowest consistency {number(low)} (shallow {at:g})"

    return each_cut(found, judge)


def _theorem(found: Findings) -> ClaimVerdict:
    def judge(case: str, cut: str) -> tuple[bool | None, str]:
        delta = found.mean(case, "memory_delta", layer=cut, split="train")
        if not found.has(case, "theorem_2", layer=cut, split="train"):
            return None, f"delta {number(delta)}, the theorem says nothing"
        shares = found.curve(case, "memory_share", x="position", layer=cut, split="train")
        words = ", ".join(f"q {q:g}: {number(share)}" for q, share in zip(shares.x, shares.mean, strict=True))
        return found.mean(
            case, "theorem_2", layer=cut, split="train"
        ) == 1, f"delta {number(delta)}; shares {words}"

    return each_cut(found, judge)


_COLUMN_PANELS = (
    ("loss", "shallow", "cross-entropy"),
    ("accuracy", "shallow", "accuracy"),
    ("density", "position", "density"),
)


def _column_figure(found: Findings) -> Figure:
    figure, axes = panels(3, len(found.cases), title=found.study.title, size=(3.4, 2.5))
    for place, case in enumerate(found.cases):
        for panel, (measure, x, title) in zip(
            axes[3 * place :],
            _COLUMN_PANELS,
            strict=False,
        ):
            _draw_cuts(panel, found, case, measure, x)
            panel.set(
                title=f"{title}: {case}",
                xlabel="epoch of the shallow part" if x == "shallow" else "consistency",
            )
        axes[3 * place + 1].legend()
    return figure


def _draw_cuts(panel: Any, found: Findings, case: str, measure: str, x: str) -> None:
    names: Sequence[str] = cuts(found, case)
    for index, cut in enumerate(names):
        if found.has(case, measure, layer=cut, split="train"):
            line(panel, found.curve(case, measure, x=x, layer=cut, split="train"), f"cut after {cut}", index)
    if x == "shallow" and found.has(case, measure, layer="output", split="train"):
        own = found.curve(case, measure, x=x, layer="output", split="train")
        line(panel, own, "the model itself", 6, linewidth=1)


memory = Study(
    name="temporal/memory",
    title="Late deep layers still understand the shallow features of earlier epochs",
    source="paper 000, figures 2 and 10",
    cases=BOTH,
    measure=COLUMN,
    options={"deep": 300, "first": 150, "last": 300, "samples": 10_000},
    changes=small_scales(
        smoke={"deep": 6, "first": 3, "last": 6, "samples": 100},
        laptop={"deep": 50, "first": 25, "last": 50, "samples": 2000},
        minutes=4,
    ),
    claims=(
        Claim("composites stay above 98 % training accuracy in the second half of training", _accurate),
        Claim("composites are at most 2 points behind the model itself", _as_good_as_the_model),
        Claim("consistency is near 1 (above .95) over the last third of training", _consistent),
        Claim("theorem 2: more than 1 - 1/q of the samples have memory at q times the set's delta", _theorem),
    ),
    figure=_column_figure,
    notes=("The paper also shows SVHN, STL-10 and CIFAR-100; add a case with their settings to see them.",),
)

transfer = replace(
    memory,
    name="temporal/transfer",
    title="Earlier deep layers understand shallow features of later epochs",
    source="paper 000, figures 5 and 13",
    cases=(Case(MLP_CASE, replace(MLP, epochs=500)), Case(RESNET_CASE, replace(RESNET, epochs=500))),
    options={"deep": 300, "first": 300, "last": 500, "samples": 10_000},
    changes=small_scales(
        smoke={"deep": 3, "first": 3, "last": 6, "samples": 100},
        laptop={"deep": 30, "first": 30, "last": 50, "samples": 2000},
        minutes=4,
    ),
    claims=(
        Claim("composites with later shallow layers stay above 98 % training accuracy", _accurate),
        Claim("composites are at most 2 points behind the model itself", _as_good_as_the_model),
        Claim("consistency is near 1 (above .95) over the nearest two thirds", _consistent),
    ),
    notes=(),
)


def _forgets(found: Findings) -> ClaimVerdict:
    """More composites than by chance have certainly more loss than their own model: one in forty would by chance."""
    words, sure, all_of_them = [], 0, 0
    for cut in cuts(found, RESNET_CASE):
        rows = found.of(RESNET_CASE, "forgetting", layer=cut, split="train")
        larger = int((rows["verdict"] == "larger").sum())
        sure, all_of_them = sure + larger, all_of_them + len(rows)
        worst = number(float(rows["value"].max()))
        words.append(f"{cut}: {larger} of {len(rows)} composites, at most {worst} more loss")
    chance = all_of_them * CHANCE
    most = chance + 3 * (chance * (1 - CHANCE)) ** 0.5
    return ClaimVerdict(sure > most, f"{'; '.join(words)}; {sure} in all, up to {most:.0f} may be chance")


def _flatter(found: Findings) -> ClaimVerdict:
    rises = {
        case: max(_rise(found, case, cut) for cut in cuts(found, case)) for case in (MLP_CASE, RESNET_CASE)
    }
    words = ", ".join(f"{case}: {number(rise)}" for case, rise in rises.items())
    return ClaimVerdict(
        rises[MLP_CASE] < rises[RESNET_CASE], f"rise of the loss from the latest to the earliest, {words}"
    )


def _rise(found: Findings, case: str, cut: str) -> float:
    curve = found.curve(case, "loss", x="shallow", layer=cut, split="train")
    return float(curve.mean[0] - curve.mean[-1])


forgetting = replace(
    memory,
    name="temporal/forgetting",
    title="The further back the shallow layers, the more is forgotten",
    source="paper 000, figures 4 and 12",
    cases=(
        Case(MLP_CASE, replace(MLP, epochs=1000, checkpoints="every:10")),
        Case(RESNET_CASE, replace(RESNET, epochs=1000, checkpoints="every:10")),
    ),
    options={"deep": 1000, "first": 300, "last": 1000, "samples": 10_000},
    changes=small_scales(
        smoke={"deep": 6, "first": 2, "last": 6, "samples": 100},
        laptop={"deep": 50, "first": 15, "last": 50, "samples": 2000},
        minutes=4,
        train={"checkpoints": "every:1"},
    ),
    claims=(
        Claim(
            "on CIFAR-10 a late deep part does worse on early features than their own deep part did", _forgets
        ),
        Claim("on MNIST the loss is flatter than on CIFAR-10", _flatter),
    ),
    notes=("In a linearised model the loss of composite(s, t) is never above that of the model at s.",),
)


def _widens(found: Findings) -> ClaimVerdict:
    def judge(case: str, cut: str) -> tuple[bool | None, str]:
        where = {"layer": cut, "split": "train"}
        if not found.has(case, "window_widens_shallow", **where):
            reason = found.rows[
                (found.rows["measure"] == "window_tau_shallow") & (found.rows["case"] == case)
            ]
            return None, str(reason["reason"].iloc[0])
        tau, p = (found.mean(case, name, **where) for name in ("window_tau_shallow", "window_p_shallow"))
        widens = found.mean(case, "window_widens_shallow", **where)
        return bool(widens == 1), f"tau {number(tau)}, p {number(p)}"

    return each_cut(found, judge)


def _window_figure(found: Findings) -> Figure:
    figure, axes = panels(3, len(found.cases), title=found.study.title, size=(3.4, 2.6))
    for place, case in enumerate(found.cases):
        names = cuts(found, case)
        middle = names[len(names) // 2]
        _heat(figure, axes[3 * place], found, case, middle)
        times = found.curve(case, "window_shallow", x="checkpoint", layer=middle, split="train").x
        for index, at in enumerate(times[[len(times) // 3, 2 * len(times) // 3, -1]]):
            where = {"layer": middle, "split": "train", "checkpoint": at}
            line(
                axes[3 * place + 1],
                found.curve(case, "consistency_shallow", x="shallow", **where),
                f"deep {at:g}",
                index,
            )
        axes[3 * place + 1].axhline(0.8, color="#888888", linewidth=0.8)
        axes[3 * place + 1].set(title=f"consistency, cut after {middle}", xlabel="epoch of the shallow part")
        axes[3 * place + 1].legend()
        for index, cut in enumerate(names):
            curve = found.curve(case, "window_shallow", x="checkpoint", layer=cut, split="train")
            line(axes[3 * place + 2], curve, f"cut after {cut}", index)
        axes[3 * place + 2].set(title="window above 0.8, in epochs", xlabel="epoch of the deep part")
        axes[3 * place + 2].legend()
    return figure


def _heat(figure: Figure, panel: Any, found: Findings, case: str, cut: str) -> None:
    rows = found.of(case, "consistency_shallow", layer=cut, split="train")
    table: Any = rows.pivot_table(index="shallow", columns="checkpoint", values="value")
    seen = panel.pcolormesh(
        table.columns, table.index, table.to_numpy(), vmin=0, vmax=1, cmap="cividis", shading="nearest"
    )
    figure.colorbar(seen, ax=panel)
    panel.set(title=f"{case}, cut after {cut}", xlabel="epoch of the deep part", ylabel="of the shallow part")


window = Study(
    name="temporal/window",
    title="The window of epochs that a deep part understands widens",
    source="paper 000, figure 3",
    cases=BOTH,
    measure=MATRIX,
    options={"checkpoints": "every:5", "samples": 10_000, "threshold": 0.8},
    changes=small_scales(
        smoke={"checkpoints": "every:1", "samples": 60},
        laptop={"checkpoints": "every:2", "samples": 500},
        minutes=5,
    ),
    claims=(
        Claim("the window with consistency above .8 (with the model at s, figure 3) widens with t", _widens),
    ),
    figure=_window_figure,
    notes=("A window that reaches the first checkpoint is open; only pairs whose order is certain count.",),
)

STUDIES = (memory, window, transfer, forgetting)
