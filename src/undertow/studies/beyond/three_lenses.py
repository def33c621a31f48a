"""Richness, latent knowledge, consistency and SGD noise of the same runs: which goes with which?

find_study("beyond/three-lenses")

No paper joins its lens with the others'. A grid of runs over label noise, width and samples of a class gives one number
of each lens for each run; rank correlations over runs, with intervals that draw whole settings, say which goes with
which.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

from undertow.errors import BadData
from undertow.plots import COLOURS, panels
from undertow.studies.claims import LEVEL, CaseVerdict, Claim, ClaimVerdict
from undertow.studies.findings import Findings, number
from undertow.studies.recipe import Case, ScaleChange, Study
from undertow.training.config import TrainConfig

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LENSES = {
    "d_lr": "D_LR", "latent_gap": "latent gap", "consistency": "consistency", "window": "window",
    "anisotropy": "anisotropy",
}  # fmt: skip
PAIRS = tuple(combinations(LENSES, 2))

_NOISE, _WIDTH, _EACH = (0.0, 0.2, 0.4), (32, 128), (20, 60, 200)
_BASE = TrainConfig(
    model="mlp:128-128", data="mnist", scaling="unit", optimiser="adam", lr=1e-3, batch_size=32, epochs=60,
    test_size=1000, test_at="checkpoints", checkpoints="every:5",
)  # fmt: skip


def _name(noise: float, width: int, each: int) -> str:
    return f"noise {noise:g}, width {width}, {each} a class"


def _setting(noise: float, width: int, each: int) -> dict[str, Any]:
    return {"model": f"mlp:{width}-{width}", "noise": f"{noise:g}", "train_size": 10 * each}


_GRID = {_name(*place): _setting(*place) for place in product(_NOISE, _WIDTH, _EACH)}
_SMOKE = {name: {**one, "model": "mlp:16-16", "train_size": 40} for name, one in list(_GRID.items())[::4]}


def correlation(found: Findings, one: str, other: str) -> CaseVerdict:
    """Spearman's correlation over runs; all seeds of a setting are drawn together."""
    from undertow.studies.temporal.rank_correlation import rank_correlation

    rows = found.rows[found.rows["measure"].isin([one, other])]
    table: Any = rows.pivot_table(index=["case", "seed"], columns="measure", values="value").dropna()
    name = f"{LENSES[one]} and {LENSES[other]}"
    try:
        clusters = table.index.get_level_values("case").to_numpy()
        seen = rank_correlation(table[one].to_numpy(), table[other].to_numpy(), clusters=clusters)
    except (BadData, KeyError) as reason:
        return CaseVerdict(name, None, str(reason))
    # Ten pairs are looked at: one in two hundred, not one in twenty, is chance.
    sure = (seen.low > 0 or seen.high < 0) and seen.p < LEVEL / len(PAIRS)
    words = f"rho {number(seen.rho)} ({number(seen.low)} to {number(seen.high)}), p {number(seen.p)}"
    return CaseVerdict(name, True if sure else None, words)


def _together(*pairs: tuple[str, str]) -> Any:
    """Whether each pair has a correlation whose interval leaves 0 out; where it holds 0, nobody can tell."""

    def check(found: Findings) -> ClaimVerdict:
        return ClaimVerdict.of_cases((correlation(found, *pair) for pair in pairs), "some")

    return check


def _figure(found: Findings) -> Figure:
    figure, axes = panels(5, 2, title=found.study.title, size=(2.7, 2.5))
    rows = found.rows[found.rows["measure"].isin(list(LENSES))]
    table: Any = rows.pivot_table(index=["case", "seed"], columns="measure", values="value")
    shares = sorted({str(name).split(",")[0] for name, _ in table.index})
    for panel, (one, other) in zip(axes, PAIRS, strict=True):
        for index, share in enumerate(shares):
            own = table[[str(name).startswith(f"{share},") for name, _ in table.index]]
            panel.plot(own[one], own[other], "o", color=COLOURS[index], markersize=3, label=share)
        panel.set(xlabel=LENSES[one], ylabel=LENSES[other])
    axes[0].legend()
    return figure


three_lenses = Study(
    name="beyond/three-lenses",
    title="Which lens goes with which, over label noise, width and samples of a class",
    source="no paper joins them: ours",
    cases=tuple(Case(name, replace(_BASE, **setting)) for name, setting in _GRID.items()),
    measure="undertow.studies.beyond.three_lenses_measures:three_lenses",
    options={"checkpoints": "10,20,30,40,50,60", "samples": 1000, "batches": 64, "inputs": 8},
    changes={
        "smoke": ScaleChange(
            cases=_SMOKE,
            only=tuple(_SMOKE),
            train={"data": "digits", "test_size": 60, "epochs": 4, "checkpoints": "every:1"},
            options={"checkpoints": "1,2,3,4", "samples": 60, "batches": 8, "inputs": 2},
            minutes=0.3,
        ),
        "laptop": ScaleChange(
            train={"epochs": 30, "test_size": 500},
            options={"checkpoints": "5,10,15,20,25,30", "samples": 500, "batches": 32, "inputs": 4},
            minutes=1,
            because="half of the epochs, fewer samples to measure on",
        ),
    },
    claims=(
        Claim(
            "some two of the lenses go together: their rank correlation over runs leaves 0 out (p < .005)",
            _together(*PAIRS),
            ours=True,
        ),
        Claim(
            "consistency goes with the latent gap",
            _together(("latent_gap", "consistency")),
            ours=True,
        ),
    ),
    figure=_figure,
    notes=(
        "The runs differ in noise, width and samples only; what goes together here may do so through these.",
    ),
)

STUDIES = (three_lenses,)
