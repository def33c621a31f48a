"""The generalisation bound: both sides of theorems 1 and 3, and what may stand in for its total variation.

find_study("temporal/bound")
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from undertow.plots import COLOURS, panels
from undertow.studies.claims import CaseVerdict, Claim, ClaimVerdict, each_seed
from undertow.studies.findings import Findings, number
from undertow.studies.recipe import Study
from undertow.studies.temporal.by_cut import agreed, by_cut, by_seed, cuts
from undertow.studies.temporal.networks import ALL, HUNDRED_CASE, NETWORKS, small_scales

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SURROGATES = {"mmd": "MMD", "wasserstein": "sliced Wasserstein", "tv_lower": "lower bound of TV"}
NAMES = tuple(NETWORKS)


def _of_classes(measure: str, *, stronger: bool = False) -> Callable[[Findings], ClaimVerdict]:
    """True for every class, cut and seed; what is stronger than the theorem confirms it, and cannot refute it."""

    def check(found: Findings) -> ClaimVerdict:
        def judge(case: str, cut: str) -> tuple[bool | None, str]:
            holds = found.of(case, measure, layer=cut)["value"]
            gap, right = (found.mean(case, name, layer=cut) for name in ("gap", "right"))
            told = f"{int(holds.sum())} of {len(holds)} classes; mean gap {number(gap)}, right side {number(right)}"
            whole = bool((holds == 1).all())
            return None if stronger and not whole else whole, told

        return ClaimVerdict.of_cases(by_cut(found, judge))

    return check


def _overall(found: Findings) -> ClaimVerdict:
    def judge(case: str, cut: str) -> tuple[bool, str]:
        gap, right = (by_seed(found, case, f"overall_{name}", layer=cut) for name in ("gap", "right"))
        parts = {name: found.mean(case, f"overall_{name}", layer=cut) for name in ("seen", "delta", "labels")}
        words = ", ".join(f"{name} {number(value)}" for name, value in parts.items())
        told = f"gap {number(max(gap.values()))} against {number(max(right.values()))} ({words})"
        return all(gap[seed] <= right[seed] + 1e-9 for seed in gap), told

    return ClaimVerdict.of_cases(by_cut(found, judge))


def _correlates(found: Findings) -> ClaimVerdict:
    """A stand-in whose rank correlation with the gap is above 0 beyond doubt, network by network."""
    judged: list[CaseVerdict] = []
    for case in found.cases:
        for name, title in _SURROGATES.items():
            if not found.has(case, f"correlation_{name}"):
                judged.append(
                    CaseVerdict(f"{case}, {title}", None, "no correlation, one side is constant", case)
                )
                continue
            rows: Any = found.of(case, f"correlation_{name}")
            words = ", ".join(
                f"{number(rho)} ({number(low)} to {number(high)})"
                for rho, low, high in zip(rows["value"], rows["low"], rows["high"], strict=True)
            )
            signs = (
                True if low > 0 else False if high < 0 else None
                for low, high in zip(rows["low"], rows["high"], strict=True)
            )
            judged.append(CaseVerdict(f"{case}, {title}", agreed(signs), words, case))
    return ClaimVerdict.of_cases(judged)


def _bound_figure(found: Findings) -> Figure:
    figure, axes = panels(4, len(found.cases), title=found.study.title, size=(3.1, 2.6))
    for place, case in enumerate(found.cases):
        for panel, (name, title) in zip(
            axes[4 * place :], {"right": "right side (seen + delta)", **_SURROGATES}.items(), strict=False
        ):
            for index, cut in enumerate(cuts(found, case)):
                gap, other = (found.curve(case, one, x="position", layer=cut).mean for one in ("gap", name))
                panel.plot(other, gap, "o", color=COLOURS[index], label=cut, markersize=3)
            panel.set(title=case, xlabel=title, ylabel="gap of a class")
        edge = axes[4 * place].get_xlim()
        axes[4 * place].plot(edge, edge, color="#888888", linewidth=0.8)
        axes[4 * place].legend()
    return figure


bound = Study(
    name="temporal/bound",
    title="The bound on the generalisation gap, both sides",
    source="paper 000, theorems 1 and 3, section 7; the stand-ins for total variation are ours",
    cases=ALL,
    measure="undertow.studies.temporal.feature_space_measures:bound",
    options={"at": 250, "reach": 50, "samples": 5000, "permutations": 199},
    changes=small_scales(
        smoke={"at": 5, "reach": 1, "samples": 100, "permutations": 9},
        laptop={"at": 50, "reach": 10, "samples": 500, "permutations": 49},
        minutes=1.5,
        names=NAMES,
        without=(HUNDRED_CASE,),
    ),
    claims=(
        Claim(
            "the gap of a class is at most its total variation plus delta (the set's delta; the part of the variation "
            "that the deep part sees)",
            _of_classes("as_printed", stronger=True),
            place="theorems 1 and 3",
        ),
        Claim(
            "the gap of a class is at most the total variation that the deep part sees plus the class's delta",
            _of_classes("chain_holds"),
            place="theorem 3, its proof link by link",
            proved=True,
        ),
        Claim(
            "the set's delta is enough for each class: the window moves no class's error by more than delta",
            _of_classes("step_holds"),
            place="theorem 3, step (2)",
            cause="empirical-level memory is a mean over classes; one class may forget more than the mean",
        ),
        Claim(
            "the gap over all classes is at most sum nu(i) TV_i + delta + TV(nu, nu-bar)",
            _overall,
            place="appendix G, after theorem 3",
            proved=True,
        ),
        Claim(
            "surrogates such as MMD or Wasserstein distances go with the gap of classes",
            each_seed(_correlates, before="rank correlation with the gap, "),
            place="sections 1 and 8 (proposed, not tried)",
            ours=True,
        ),
    ),
    figure=_bound_figure,
    notes=(
        "Literally Omega has finitely many points, so that its total variation to features without atoms is 1; "
        "`seen` is the part of it that the proof uses.",
    ),
)

STUDIES = (bound,)
