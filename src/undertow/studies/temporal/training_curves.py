"""Training as the paper sums it up: its settings and its curves.

find_study("temporal/training-curves")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from undertow.plots import line, panels
from undertow.studies.claims import CaseVerdict, Claim, ClaimVerdict, each_seed
from undertow.studies.findings import Findings, number
from undertow.studies.recipe import Study
from undertow.studies.temporal.by_cut import FITS
from undertow.studies.temporal.networks import (
    ALL,
    NETWORKS,
    small_scales,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEASURES = "undertow.studies.temporal.dynamics_measures"


def _settles(found: Findings) -> ClaimVerdict:
    """Training accuracy changes by at most two points in the second half of the epochs."""

    def judge(case: str) -> CaseVerdict:
        curve = found.curve(case, "train_accuracy", x="checkpoint")
        late = curve.mean[len(curve.mean) // 2 :]
        words = f"from {number(late.min())} to {number(late.max())}"
        return CaseVerdict(case, float(np.ptp(late)) <= 0.02, words)

    return ClaimVerdict.of_cases(map(judge, found.cases))


def _training_figure(found: Findings) -> Figure:
    figure, axes = panels(2, len(found.cases), title=found.study.title, size=(3.6, 2.4))
    for place, case in enumerate(found.cases):
        for panel, kind in zip(axes[2 * place :], ("loss", "accuracy"), strict=False):
            for index, split in enumerate(("train", "test")):
                line(panel, found.curve(case, f"{split}_{kind}", x="checkpoint"), split, index)
            panel.set(title=f"{case}: {kind}", xlabel="epoch")
    axes[0].legend()
    return figure


training_curves = Study(
    name="temporal/training-curves",
    title="Loss and precision during training",
    source="paper 000, table 2, figure 19",
    cases=ALL,
    measure=f"{MEASURES}:curves",
    changes=small_scales(smoke={}, laptop={}, minutes=0.1, names=tuple(NETWORKS)),
    claims=(
        Claim(
            "training metrics have stabilised in the window of late epochs (within two points)",
            each_seed(_settles, before="training accuracy in the second half, "),
            presupposes=FITS,
            place="section 1, figure 19",
        ),
    ),
    figure=_training_figure,
    notes=(
        "The settings are those of table 2. Rates drop by ten as in the two public codes that the paper names; its "
        "table has no drops. It has no decay for SVHN and 1e-3 for STL-10, the code that it names the reverse.",
    ),
)

STUDIES = (training_curves,)
