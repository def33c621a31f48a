"""ResNet-18 on CIFAR: learning rate, weight decay, architecture, shuffled labels, cross-entropy.

    find_study("richness/learning-rate"); find_study("richness/weight-decay-cifar")
    find_study("richness/architecture"); find_study("richness/label-shuffle"); find_study("richness/cross-entropy")

Rows 2 to 5 of table 3 and figure 17. The networks without residual blocks are in plain_nets.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from undertow.studies.claims import CaseVerdict, Claim, ClaimVerdict
from undertow.studies.cost import updates
from undertow.studies.findings import Findings, number
from undertow.studies.recipe import Case, ScaleChange, Study
from undertow.studies.richness.image_claims import (
    CARRIED,
    CONSTANT_FIRST,
    RICH,
    carried,
    classes_of,
    compared,
    each_feature,
    higher,
    judged,
    listed,
    seen,
    table_3,
)
from undertow.studies.richness.image_figures import rates_and_features, spectra_over_training
from undertow.studies.richness.spectrum_figures import spectra_and_bars
from undertow.studies.richness.training_settings import CIFAR10, CIFAR100, SMOKE

MEASURE = "undertow.studies.richness.last_layer_measures:last_layer"
OPTIONS: Mapping[str, Any] = {"samples": 10_000, "checkpoints": "last"}

# What is followed through its training keeps early checkpoints; studies with the same settings share their runs.
FOLLOW: Mapping[str, Any] = {**OPTIONS, "checkpoints": "all"}
EARLY = "1,5,30"
_CIFAR10, _CIFAR100 = replace(CIFAR10, checkpoints=EARLY), replace(CIFAR100, checkpoints=EARLY)

_SMOKE = {**SMOKE, "checkpoints": "1"}
NOTHING_LEARNED = "two epochs show that everything runs, nothing more"
_SMOKE_CHANGE = ScaleChange(train=_SMOKE, options={"samples": 200}, because=NOTHING_LEARNED, minutes=0.1)
_LAPTOP: Mapping[str, Any] = {
    "model": "resnet18:preact,closed,width=16,pool", "augment": "none", "train_size": 2000, "test_size": 1000,
    "batch_size": 64, "epochs": 30, "milestones": (18, 26), "checkpoints": "1,5",
}  # fmt: skip
_NARROW = "a quarter of the width with a pool behind the stem"
_SMALLER = (
    f"{_NARROW}, 2,000 pictures without augmentation, 30 epochs: the network fits them, "
    "but knows too little to reach the paper's test accuracy"
)

_LOOKS = {"checkpoints": "13,20"}
_FIRST_LOOK = "the first look is after 416 updates, about as many as the paper's first epoch has"

# ----------------------------------------------------------------------------------------------- learning rate

_RATES = ("lr 0.005", "lr 0.05", "lr 0.2")


def _follows_intensity(measure: str) -> Callable[[Findings], ClaimVerdict]:
    """Whether what a feature adds falls with its number (features are ordered by intensity), at each checkpoint."""

    def check(found: Findings) -> ClaimVerdict:
        from scipy.stats import spearmanr

        case, judged = _RATES[1], list[CaseVerdict]()
        for at in found.curve(case, "d_lr", x="checkpoint", split="test").x:
            place, own = each_feature(found, case, measure, checkpoint=float(at))
            tested: Any = spearmanr(-place, own, alternative="greater")
            words = f"rank correlation {number(tested.statistic)} (p {number(tested.pvalue)})"
            judged.append(CaseVerdict(f"epoch {at:g}", bool(tested.pvalue < 0.001), words))
        return ClaimVerdict.of_cases(judged)

    return check


learning_rate = Study(
    name="richness/learning-rate",
    title="The best learning rate is the richest",
    source="paper 002, table 3 row 2, figures 4 and 5",
    cases=tuple(
        Case(name, replace(_CIFAR100, lr=rate)) for name, rate in zip(_RATES, (0.005, 0.05, 0.2), strict=True)
    ),
    measure=MEASURE,
    changes={
        "smoke": _SMOKE_CHANGE,
        "laptop": ScaleChange(
            train={**_LAPTOP, **_LOOKS, "data": "cifar10", "alpha": 1 / 3},
            because=f"{_SMALLER}; ten classes, because 128 features leave 100 no room to be lazy; {_FIRST_LOOK}",
            minutes=1.7,
        ),
    },
    published=table_3(
        _RATES, ((0.053, 0.01), (0.025, 0.004), (0.039, 0.007)), (66.3, 78.3, 74.5), (100, 100, 100)
    ),
    claims=(
        Claim(
            "the most accurate rate has the smallest D_LR",
            compared(_RATES, lambda d, test: d.index(min(d)) == test.index(max(test)), "d_lr", "accuracy"),
        ),
        Claim(
            "the smallest rate has the largest D_LR and the lowest test accuracy",
            compared(_RATES, lambda d, test: d[0] == max(d) and test[0] == min(test), "d_lr", "accuracy"),
        ),
        Claim(
            "the smallest rate uses more than the fewest features: its first C carry less than with the others",
            compared(_RATES, lambda share: share[0] < min(share[1:]), "carried"),
            place="figure 4",
        ),
        Claim(
            "larger intensity features exhibit higher quality during training (p < .001)",
            _follows_intensity("quality"),
            place="figure 5",
        ),
        Claim(
            "larger intensity features exhibit higher utilisation during training (p < .001)",
            _follows_intensity("utilisation"),
            place="figure 5",
        ),
        CONSTANT_FIRST,
    ),
    figure=lambda found: rates_and_features(found, _RATES[1]),
    options=FOLLOW,
)

# ------------------------------------------------------------------------------------------------ weight decay

_DECAYS = ("no decay", "small decay", "large decay")


weight_decay_cifar = Study(
    name="richness/weight-decay-cifar",
    title="Weight decay makes training richer, but it is rich without",
    source="paper 002, table 3 row 3, figure 13",
    cases=tuple(
        Case(name, replace(_CIFAR10, weight_decay=decay))
        for name, decay in zip(_DECAYS, (0.0, 1e-4, 1e-3), strict=True)
    ),
    measure=MEASURE,
    changes={
        "smoke": _SMOKE_CHANGE,
        "laptop": ScaleChange(
            train=_LAPTOP,
            cases={"small decay": {"weight_decay": 3e-4}, "large decay": {"weight_decay": 3e-3}},
            because=f"{_SMALLER}; three times the decay, since rate x steps is seventy times less than the paper's; "
            "with 1e-2 the network no longer fits all its pictures, as the paper's do",
            minutes=1.7,
        ),
    },
    published=table_3(
        _DECAYS, ((0.05, 0.003), (0.015, 0.003), (0.003, 0.001)), (93.5, 94.1, 94.8), (100, 100, 100)
    ),
    claims=(
        Claim("D_LR falls as weight decay grows", compared(_DECAYS, lambda d: d[0] > d[1] > d[2], "d_lr")),
        Claim(
            "training is rich (D_LR < .1) without any weight decay",
            compared(_DECAYS[:1], lambda d: d[0] < RICH, "d_lr"),
        ),
        Claim(
            "test accuracy is higher with the largest weight decay than without",
            higher(_DECAYS[2], _DECAYS[0], "accuracy"),
            place="table 3",
        ),
    ),
    figure=spectra_and_bars,
    options=OPTIONS,
    seeds=5,
    notes=(
        "Decays of 0, 1e-4 and 1e-3. Figure 13 calls them relative to the rate of 0.05: a step shrinks weights by "
        "rate x decay.",
    ),
)

# ------------------------------------------------------------------------------------------------ architecture

_NETS = ("ResNet-18", "MLP")


def _resnet_stays_low(found: Findings) -> ClaimVerdict:
    """At every kept checkpoint, from the first epoch on, the first C features carry most of the outputs."""
    case = _NETS[0]
    shares = found.curve(case, "utilisation", x="checkpoint", position=classes_of(found, case))
    words = [f"epoch {at:g}: {number(share)}" for at, share in zip(shares.x, shares.mean, strict=True)]
    return judged(
        found, [case], bool((shares.mean > 0.9).all()), f"carried by the first C: {', '.join(words)}"
    )


_SPREADS = updates(CIFAR10, epochs=30)
"""After so many the paper's MLP begins to use more features."""


def _mlp_spreads(found: Findings) -> ClaimVerdict:
    """At the end the first C features carry less than at their best; a shorter run has not come to it."""
    case = _NETS[1]
    config = found.study.case(case).train
    assert config is not None  # both are trained
    shares = found.curve(case, "utilisation", x="checkpoint", position=classes_of(found, case))
    best, last = float(shares.mean[:-1].max()), float(shares.mean[-1])
    words = f"carried by the first C: {number(best)} at best, {number(last)} at the end"
    if last >= best and updates(config) < _SPREADS:
        return ClaimVerdict(None, f"{words}; it ends after {updates(config)} updates, wanted {_SPREADS}")
    return judged(found, [case], last < best, words)


architecture = Study(
    name="richness/architecture",
    title="The architecture decides: a ResNet trains richly, an MLP lazily",
    source="paper 002, table 3 row 4, figure 14",
    cases=(Case(_NETS[0], _CIFAR10), Case(_NETS[1], replace(_CIFAR10, model="mlp:512-512-512,init=lecun"))),
    measure=MEASURE,
    changes={
        "smoke": replace(_SMOKE_CHANGE, cases={_NETS[1]: {"model": "mlp:32-32-32"}}),
        "laptop": ScaleChange(
            train={**_LAPTOP, "train_size": 5000, "epochs": 16, "milestones": (10, 14), "checkpoints": "5"},
            cases={
                _NETS[1]: {
                    "model": "mlp:512-512-512,init=lecun",
                    "epochs": 30,
                    "milestones": (20, 26),
                    "checkpoints": "5,15",
                }
            },
            because=f"{_NARROW}, 5,000 pictures without augmentation: both networks fit them, the MLP in more epochs; "
            "the first look is after 395 updates, as many as the paper's first epoch has",
            minutes=1.3,
        ),
    },
    published=table_3(_NETS, ((0.026, 0.003), (0.48, 0.07)), (94.8, 55.4), (100, 99.8)),
    claims=(
        Claim(
            "the ResNet is rich (D_LR < .1) and more accurate; the MLP's D_LR is over three times as large",
            compared(
                _NETS,
                lambda d, test: d[0] < RICH and d[1] > 3 * d[0] and test[0] > test[1],
                "d_lr",
                "accuracy",
            ),
        ),
        Claim(
            "the ResNet's first C features carry over 90 % of its outputs from the paper's first epoch on",
            _resnet_stays_low,
            place="figure 14",
        ),
        Claim(
            "the MLP's first C features carry less of its outputs than the ResNet's",
            compared(_NETS, lambda share: share[1] < share[0], "carried"),
            place="figure 14",
        ),
        Claim("the MLP begins to use more features late in training", _mlp_spreads, place="figure 14"),
        replace(
            CONSTANT_FIRST,
            cause="the MLP's: the ResNet has it throughout; the MLP has .4 to .9 however its weights are drawn, with "
            "and without biases, with pixels from 0 to 1, with 20,000 augmented pictures",
        ),
    ),
    figure=spectra_over_training,
    options=FOLLOW,
    notes=(
        "The MLP starts as that of table 2 does, N(0, 1/fan_in) and no biases: the paper's other 4-layer MLP, whose "
        "norms tell it.",
    ),
)

# -------------------------------------------------------------------------------------------- shuffled labels

_SHUFFLED = ("0 % shuffled", "10 % shuffled", "100 % shuffled")


def _accuracy_falls(found: Findings) -> ClaimVerdict:
    accuracy, chance = seen(found, _SHUFFLED, "accuracy"), 1 / classes_of(found, _SHUFFLED[0])
    holds = accuracy[0] > accuracy[1] > accuracy[2] and accuracy[2] < 1.5 * chance
    return judged(found, _SHUFFLED, holds, listed("test accuracy", _SHUFFLED, accuracy))


label_shuffle = Study(
    name="richness/label-shuffle",
    title="Training is rich even on shuffled labels",
    source="paper 002, table 3 row 5, figure 15",
    cases=tuple(
        Case(name, replace(_CIFAR10, train_size=10_000, noise=noise))
        for name, noise in zip(_SHUFFLED, ("0", "0.1", "1"), strict=True)
    ),
    measure=MEASURE,
    changes={
        "smoke": _SMOKE_CHANGE,
        "laptop": ScaleChange(train=_LAPTOP, because=_SMALLER, minutes=1.1),
    },
    published=table_3(
        _SHUFFLED, ((0.031, 0.004), (0.042, 0.003), (0.034, 0.004)), (95.0, 66.1, 9.5), (100, 100, 100)
    ),
    claims=(
        Claim("all three are rich: D_LR < .1", compared(_SHUFFLED, lambda d: max(d) < RICH, "d_lr")),
        Claim("test accuracy falls with shuffling, to chance when all labels are shuffled", _accuracy_falls),
    ),
    figure=spectra_and_bars,
    options=OPTIONS,
    notes=(
        "Shuffled labels are drawn anew from all classes, the same one included: like a shuffle among themselves, "
        "but for the exact count of each class. 10 % shuffled are 9 % wrong.",
        "The paper names 10,000 samples, but 95.0 % without shuffling is what all 50,000 give.",
    ),
)

# ----------------------------------------------------------------------------------------------- cross-entropy

_LOSSES = ("cross-entropy", "squared error")


def _ce_is_rich(found: Findings) -> ClaimVerdict:
    """D_LR falls all through training: what ends long before the paper's networks cannot tell that it stays large."""
    case = _LOSSES[0]
    config = found.study.case(case).train
    assert config is not None  # both are trained
    [d_lr], share = seen(found, [case], "d_lr"), carried(found, case)
    words = f"D_LR {number(d_lr)}, carried by the first C {number(share)}"
    holds, ours, theirs = d_lr < RICH and share > CARRIED, updates(config), updates(_CIFAR10)
    if not holds and ours < theirs:
        return ClaimVerdict(None, f"{words}, after {ours} updates; the paper's networks have {theirs}")
    return judged(found, [case], holds, words)


def _ce_starts_uneven(found: Findings) -> ClaimVerdict:
    """rho_C / rho_2 at the first kept checkpoint: 1 if the first features grow alike; rho_1 is the constant."""
    last = classes_of(found, _LOSSES[0])
    evenness = [
        found.mean(case, "intensity", position=last, checkpoint="first")
        / found.mean(case, "intensity", position=2, checkpoint="first")
        for case in _LOSSES
    ]
    return judged(
        found,
        _LOSSES,
        evenness[0] < evenness[1],
        listed("least over largest of the first C", _LOSSES, evenness),
    )


cross_entropy = Study(
    name="richness/cross-entropy",
    title="Cross-entropy trains richly too",
    source="paper 002, figure 17",
    cases=(Case(_LOSSES[0], replace(_CIFAR10, loss="ce", alpha=1.0)), Case(_LOSSES[1], _CIFAR10)),
    measure=MEASURE,
    changes={
        "smoke": _SMOKE_CHANGE,
        "laptop": ScaleChange(train={**_LAPTOP, **_LOOKS}, because=f"{_SMALLER}; {_FIRST_LOOK}", minutes=0.8),
    },
    claims=(
        Claim(
            "with cross-entropy D_LR is small (< .1) and the first C features carry the outputs (95 %)",
            _ce_is_rich,
            place="figure 17",
            cause="ours: D_LR still falls when the laptop's run ends; .70, .42 and .20 after 1, 5 and 20 epochs, .16 "
            "after 60 of a longer one",
        ),
        Claim("early on its first C features grow less evenly than with squared error", _ce_starts_uneven),
        CONSTANT_FIRST,
    ),
    figure=spectra_over_training,
    options=FOLLOW,
    notes=("The figure has no number for D_LR. Squared error is trained beside it to compare the start.",),
)

STUDIES = (learning_rate, weight_decay_cifar, architecture, label_shuffle, cross_entropy)
