"""Grokking: a transformer that fits modular division long before it understands it.

find_study("richness/grokking")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from undertow.plots import line, panels
from undertow.studies.claims import FITTED, Claim, ClaimVerdict
from undertow.studies.findings import Findings
from undertow.studies.recipe import Case, Published, ScaleChange, Study
from undertow.studies.richness.image_claims import FULL_SIZE
from undertow.studies.richness.spectrum_figures import draw_spectra
from undertow.training.config import TrainConfig

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_CASE = "division mod 97"
_NET = TrainConfig(
    model="transformer", data="mod-division", loss="mse", optimiser="adam", lr=1e-3, beta2=0.98, batch_size=512,
    epochs=4000, test_at="checkpoints", checkpoints="every:100",
)  # fmt: skip

TEST = {"split": "test"}
_DECAYED = "weight decay and larger targets make the laptop's network grok sooner, and richer"
_CURVES = (("d_lr", "D_LR", None), ("accuracy", "accuracy", 1.03))


def _groks(found: Findings) -> ClaimVerdict:
    words, holds = [], True
    for moment, good in (("before", lambda test: test < 0.2), ("after", lambda test: test > 0.95)):
        train, test = (found.seen(_CASE, f"accuracy_{moment}", split=split) for split in ("train", "test"))
        at = found.seen(_CASE, "epoch", moment=moment)
        holds &= train.mean > 0.98 and good(test.mean)
        words.append(f"{moment} (epoch {at}): train {train}, test {test}")
    return ClaimVerdict(holds, "; ".join(words))


def _richer(found: Findings) -> ClaimVerdict:
    before, after = (found.seen(_CASE, f"d_lr_{moment}", split="test") for moment in ("before", "after"))
    understood = found.mean(_CASE, "accuracy_after", split="test") > 0.95
    return ClaimVerdict(
        after.mean < before.mean if understood else None, f"D_LR {before} before, {after} after"
    )


def _figure(found: Findings) -> Figure:
    figure, axes = panels(5, title=found.study.title, size=(2.9, 2.7))
    lines = [(_CASE, f"{moment} grokking", {"moment": moment}) for moment in ("before", "after")]
    draw_spectra(axes[:3], found, lines)
    for panel, (measure, title, top) in zip(axes[3:], _CURVES, strict=True):
        for index, split in enumerate(("test", "train")):
            line(panel, found.curve(_CASE, measure, x="checkpoint", split=split), f"{split} samples", index)
        panel.set(title=title, xlabel="epoch", ylim=(0, top))
        panel.legend()
    return figure


grokking = Study(
    name="richness/grokking",
    title="Features become rich when the network groks",
    source="paper 002, tables 3 and 8, figure 12",
    cases=(Case(_CASE, _NET),),
    measure="undertow.studies.richness.grokking_measures:grokking",
    changes={
        "smoke": ScaleChange(
            train={
                "data": "mod-division:p=13", "model": "transformer:width=16", "epochs": 60, "checkpoints": "every:20",
                "optimiser": "adamw", "lr": 1e-2, "alpha": 0.1, "batch_size": 64,
            },
            minutes=0.1,
        ),
        "laptop": ScaleChange(
            train={
                "optimiser": "adamw", "weight_decay": 0.3, "lr": 2e-3, "alpha": 0.1, "epochs": 320,
                "checkpoints": "every:20", "test_size": 1940,
            },
            because="weight decay, targets ten times as large and twice the rate: it groks within 320 epochs",
            minutes=2.8,
        ),
    },
    published=(
        Published(_CASE, "d_lr_before", 0.51, 0.12, "table 8, 3 s.d.", TEST, FULL_SIZE, _DECAYED),
        Published(_CASE, "d_lr_after", 0.11, 0.03, "table 8, 3 s.d.", TEST, FULL_SIZE, _DECAYED),
        Published(_CASE, "accuracy_before", 0.052, 0.05, "table 3, 5 points", TEST, FULL_SIZE, _DECAYED),
        Published(_CASE, "accuracy_after", 0.998, 0.02, "table 3, 2 points", TEST),
    ),
    claims=(
        Claim("it fits the training pairs first and understands the others later", _groks, FITTED, "table 3"),
        Claim("D_LR falls when it groks", _richer, FITTED, "table 3, figure 12"),
    ),
    figure=_figure,
    notes=(
        "Before: the first checkpoint that fits the training pairs. After: the one with the best test accuracy.",
        "The paper's setting (Adam, no weight decay, targets of 1) takes hours on a laptop.",
        "With cross-entropy and weight decay D_LR was seen to rise, from .41 to .63, when it groks.",
    ),
)  # fmt: skip

STUDIES = (grokking,)
