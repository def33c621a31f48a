"""Depth: low-rank features, intermediate layers, greedy layer-wise training.

find_study("richness/low-rank"); find_study("richness/layers"); find_study("richness/greedy-layerwise")
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from undertow.data.catalogue import DATA
from undertow.plots import COLOURS, panels
from undertow.studies.claims import Claim, ClaimVerdict
from undertow.studies.cost import updates
from undertow.studies.findings import Findings, number
from undertow.studies.recipe import Case, Published, ScaleChange, Study
from undertow.studies.richness.depth_figures import layer_names, layers_figure
from undertow.studies.richness.image_claims import CARRIED, FITTED, FULL_SIZE, all_rich, judged
from undertow.studies.richness.spectrum_figures import draw_bars, draw_last_spectra
from undertow.studies.richness.training_settings import (
    CIFAR10,
    CIFAR100,
    COLLAPSED,
    LAPTOP_PLAIN_VGG,
    LAPTOP_VGG,
    LONGER,
    MNIST,
    NARROW_VGG,
    POOLED,
    RESNET_LAYERS,
    SMOKE,
    vgg,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MEASURES = "undertow.studies.richness.depth_measures"
TEST = {"split": "test"}

# ---------------------------------------------------------------------------------------------------- low rank

_RANKS = {
    "ResNet-18 on MNIST": (MNIST, 10, (10.1, 10.0, 4.4e-3, 0.997)),
    "VGG-16 on MNIST": (replace(vgg(MNIST), model="vgg16bn:pad=2"), 10, (10.0, 10.0, 1.8e-2, 0.994)),
    "ResNet-18 on CIFAR-10": (replace(CIFAR10, weight_decay=1e-3), 10, (10.4, 10.0, 3.1e-3, 0.948)),
    "VGG-16 on CIFAR-10": (vgg(CIFAR10), 10, (10.0, 10.0, 1.1e-3, 0.933)),
    "ResNet-18 on CIFAR-100": (CIFAR100, 100, (99.9, 99.7, 2.5e-2, 0.783)),
    "VGG-16 on CIFAR-100": (vgg(CIFAR100), 100, (95.8, 99.4, 7.4e-2, 0.719)),
}
_TABLE = (
    ("effective_dimension_rest", "train"), ("used_dimension", "test"), ("d_lr", "test"), ("accuracy", "test"),
)  # fmt: skip


def _as_many_as_classes(found: Findings) -> ClaimVerdict:
    """Features go on collapsing: more dimensions than classes after fewer updates than the paper's cannot tell."""

    def judge(name: str) -> tuple[bool | None, str]:
        papers, classes, _ = _RANKS[name]
        dimension, fit = (
            found.seen(name, measure, split="train").mean
            for measure in ("effective_dimension_rest", "accuracy")
        )
        if fit < FITTED:
            return None, f"{name} fits {fit:.0%} only, {number(dimension)}"
        if abs(dimension - classes) <= 0.1 * classes:
            return True, f"{name} {number(dimension)}"
        config = found.study.case(name).train
        if config and dimension > classes and updates(config) < updates(papers):
            return (
                None,
                f"{name} {number(dimension)} after {updates(config)} updates, the paper's has {updates(papers)}",
            )
        return False, f"{name} {number(dimension)}"

    return ClaimVerdict.of_each(found.cases, judge, "effective dimension: ")


def _rank_figure(found: Findings) -> Figure:
    figure, axes = panels(5, title=found.study.title, size=(3.1, 2.9))
    draw_last_spectra(axes[:3], found)
    axes[0].legend(loc="best", fontsize=6)
    ratios = [
        [found.mean(name, measure, split=split) / _RANKS[name][1] for name in found.cases]
        for measure, split in _TABLE[:2]
    ]
    for index, (values, label) in enumerate(zip(ratios, ("features", "use of them"), strict=True)):
        axes[3].plot(range(len(values)), values, "os"[index], color=COLOURS[index], label=label)
    axes[3].axhline(1, color="#999999", linewidth=1)
    top = 1.15 * max(1.0, *ratios[0], *ratios[1])
    axes[3].set(title="dimension / classes", ylim=(0, top), xlim=(-0.5, len(found.cases) - 0.5))
    axes[3].set_xticks(range(len(found.cases)), found.cases, rotation=30, ha="right", fontsize=6)
    axes[3].legend(loc="best")
    draw_bars(axes[4], found, "d_lr", "D_LR")
    axes[4].set_xticks(range(len(found.cases)), found.cases, rotation=30, ha="right", fontsize=6)
    return figure


low_rank = Study(
    name="richness/low-rank",
    title="As many significant features as classes",
    source="paper 002, table 4",
    cases=tuple(Case(name, config) for name, (config, _, _) in _RANKS.items()),
    measure=f"{_MEASURES}:used_dimensions",
    claims=(
        Claim("the features' effective dimension is the number of classes (to a tenth)", _as_many_as_classes),
        Claim("training is rich everywhere (D_LR < .1)", lambda found: all_rich(found, found.cases)),
    ),
    figure=_rank_figure,
    changes={
        "smoke": ScaleChange(
            train={**SMOKE, "train_size": 400},
            only=("ResNet-18 on MNIST",),
            because="digits of 8x8 pixels, which VGG-16 does not take",
            minutes=0.1,
        ),
        "laptop": ScaleChange(
            train=COLLAPSED,
            cases={
                "ResNet-18 on CIFAR-10": {"weight_decay": 3e-3},
                "VGG-16 on CIFAR-10": LAPTOP_VGG,
                "VGG-16 on MNIST": {
                    **LAPTOP_VGG,
                    "model": "vgg16bn:width=8,dropout=0,pad=2",
                    "data": "mnist",
                },
            },
            only=("ResNet-18 on MNIST", "VGG-16 on MNIST", "ResNet-18 on CIFAR-10", "VGG-16 on CIFAR-10"),
            because=f"{LONGER}; on CIFAR-10 it has three times the decay, so that rate x decay over all steps is a "
            f"third of the paper's; {NARROW_VGG}; CIFAR-100 is left out: a minute of one core is far from enough",
            minutes=1.5,
        ),
    },
    published=tuple(
        Published(name, measure, value, within, "table 4", {"split": split}, FULL_SIZE)
        for name, (_, classes, values) in _RANKS.items()
        for (measure, split), value, within in zip(
            _TABLE, values, (0.05 * classes, 0.05 * classes, values[2] / 5, 0.02), strict=True
        )
    ),
    notes=(
        "Effective dimension as in eq. 9, without the first eigenvalue and 1 added, of training features; for the "
        "utilisation likewise. VGG-16 has batch norm (its value for CIFAR-100 is that of table 3 with it) and the "
        "settings of figure 3.",
        "VGG-16 needs pictures of 32x32, and the paper does not say how it enlarged MNIST's of 28x28: ours get a black "
        "border.",
    ),
)

# ------------------------------------------------------------------------------------------------------ layers

_RESNET, _WITH, _WITHOUT = "ResNet-18", "VGG-16 with batch norm", "VGG-16 without batch norm"
_STAND_IN = {"model": "cnn:width=4,units=32", "milestones": (), "layers": "block1,block2,fc3"}
_VGG_LAYERS = {"layers": "block1,block2,block3,block4,block5,fc2"}


def _in_first(found: Findings, case: str, measure: str = "utilisation") -> dict[str, float]:
    """For each layer, the share that its first C features express, C the number of classes."""
    names = layer_names(found, case, measure)
    config = found.study.case(case).train
    classes = DATA[config.data].classes if config else 0
    return {name: found.mean(case, measure, layer=name, position=classes) for name in names}


def _shares(shares: dict[str, float]) -> str:
    return ", ".join(f"{layer} {number(share)}" for layer, share in shares.items())


def _fewer_with_depth(found: Findings) -> ClaimVerdict:
    shares = _in_first(found, _RESNET)
    values = list(shares.values())
    rises = all(one < other for one, other in pairwise(values))
    return ClaimVerdict(rises, f"share of the output in the first C features: {_shares(shares)}")


def _norm_concentrates(found: Findings) -> ClaimVerdict:
    with_norm, without = (_in_first(found, name) for name in (_WITH, _WITHOUT))
    rise, flat = ((values := list(shares.values()))[-1] - values[0] for shares in (with_norm, without))
    words = f"with: {_shares(with_norm)}; without: {_shares(without)}"
    return _if_lazy(found, rise > 2 * max(flat, 0), f"rises by {number(rise)} and {number(flat)}; {words}")


def _most_at_last(found: Findings) -> ClaimVerdict:
    with_norm, without = (_in_first(found, name) for name in (_WITH, _WITHOUT))
    gaps = {layer: abs(share - without[layer]) for layer, share in with_norm.items()}
    words = f"difference between with and without: {_shares(gaps)}"
    return _if_lazy(found, max(gaps, key=lambda layer: gaps[layer]) == next(reversed(gaps)), words)


def _if_lazy(found: Findings, holds: bool, words: str) -> ClaimVerdict:
    """The paper's VGG-16 without batch norm is lazy: it uses many of its 4,096 features (figure 3)."""
    verdict = judged(found, (_WITH, _WITHOUT), holds, words, where={"split": "train"})
    share = list(_in_first(found, _WITHOUT).values())[-1]
    config = found.study.case(_WITHOUT).train
    if verdict.holds is False and share > CARRIED and config and "width" in config.model:
        told = f"without batch norm the narrow network's first C features carry {share:.0%}: it is not lazy"
        return ClaimVerdict(None, f"{told}; {verdict.numbers}")
    return verdict


layers = Study(
    name="richness/layers",
    title="Deeper layers use fewer and better aligned features",
    source="paper 002, figures 18 to 20",
    cases=(
        Case(_RESNET, CIFAR100, options=RESNET_LAYERS),
        Case("ResNet-18 at rate .005", replace(CIFAR100, lr=0.005), options=RESNET_LAYERS),
        Case("ResNet-18 at rate .2", replace(CIFAR100, lr=0.2), options=RESNET_LAYERS),
        Case(_WITH, vgg(CIFAR100), options=_VGG_LAYERS),
        Case(_WITHOUT, vgg(CIFAR100, norm=False), options=_VGG_LAYERS),
    ),
    measure=f"{_MEASURES}:layer_spectra",
    claims=(
        Claim(
            "the first C features express more of the output from layer to layer (ResNet-18)",
            _fewer_with_depth,
        ),
        Claim("VGG-16 shows that rise with batch norm, and no comparable one without", _norm_concentrates),
        Claim("with and without batch norm differ most in the last layer", _most_at_last),
    ),
    figure=lambda found: layers_figure(
        found, ((_RESNET, "ResNet-18 at rate .005", "ResNet-18 at rate .2"), (_WITH, _WITHOUT))
    ),
    options={"samples": 10_000, "map_side": None},
    changes={
        "smoke": ScaleChange(
            train={**SMOKE, "train_size": 400},
            cases={_WITH: _STAND_IN, _WITHOUT: _STAND_IN},
            only=(_RESNET, _WITH, _WITHOUT),
            because="VGG-16 does not take digits of 8x8 pixels: a small CNN stands in for both",
            minutes=0.1,
        ),
        "laptop": ScaleChange(
            train={**COLLAPSED, "data": "cifar10", "alpha": 1 / 3},
            cases={
                _WITH: {**LAPTOP_VGG, "map_side": 4},
                _WITHOUT: {**LAPTOP_PLAIN_VGG, "map_side": 4},
            },
            only=(_RESNET, _WITH, _WITHOUT),
            options={"map_side": 8},
            because=f"{LONGER}; {NARROW_VGG}; {POOLED}",
            minutes=0.5,
        ),
    },
    notes=(
        "Intermediate layers are seen linearly only; D_LR is not given for them.",
        "Flattened maps have up to 65,536 features: with 10,000 samples the curves of such layers reach 1 whatever "
        "the features (the paper's appendix J), and their decomposition wants some 30 GB.",
    ),
)

# -------------------------------------------------------------------------------------------- greedy layerwise

_FULL, _GREEDY = "full backpropagation", "layer by layer"


def _collapse_earlier(found: Findings) -> ClaimVerdict:
    full, greedy = (_in_first(found, name) for name in (_FULL, _GREEDY))
    words = f"share of the output in the first C features: {_shares(greedy)}; full {_shares(full)}"
    if found.has(_GREEDY, "stage_fit", layer="layer2"):
        fit = found.mean(_GREEDY, "stage_fit", layer="layer2")
        words = f"layer 2 fits {fit:.0%} under its own head; {words}"
        if fit < FITTED:  # what has not fitted cannot have collapsed
            return ClaimVerdict(None, f"{words}; wanted {FITTED:.0%}")
    return ClaimVerdict(greedy["layer2"] > full["layer2"], words)


def _quality_stands(found: Findings) -> ClaimVerdict:
    """What the layers behind layer 2 add to the share of the target in the first C features."""
    full, greedy = (_in_first(found, name, "quality") for name in (_FULL, _GREEDY))
    gains = [shares["avg_pool"] - shares["layer2"] for shares in (greedy, full)]
    words = f"gain behind layer 2: {number(gains[0])}, full {number(gains[1])}"
    return ClaimVerdict(gains[0] < gains[1], f"{words}; quality {_shares(greedy)}; full {_shares(full)}")


def _worse(found: Findings) -> ClaimVerdict:
    full, greedy = (found.seen(name, "accuracy", **TEST) for name in (_FULL, _GREEDY))
    return ClaimVerdict(greedy.mean < full.mean, f"test accuracy {greedy}, full {full}")


greedy_layerwise = Study(
    name="richness/greedy-layerwise",
    title="Layer-by-layer training collapses features earlier",
    source="paper 002, figure 21",
    cases=(
        Case(_FULL, CIFAR10, options=RESNET_LAYERS),
        Case(_GREEDY, replace(CIFAR10, greedy=True, epochs=1000, restart=200), options=RESNET_LAYERS),
    ),
    measure=f"{_MEASURES}:layer_spectra",
    claims=(
        Claim(
            "layer 2 is more collapsed: its first C features express more of the output", _collapse_earlier
        ),
        Claim("behind layer 2 quality gains less than with full backpropagation", _quality_stands),
        Claim("the network does worse", _worse),
    ),
    figure=lambda found: layers_figure(found, ((_FULL, _GREEDY),)),
    options={"samples": 10_000, "map_side": None},
    changes={
        "smoke": ScaleChange(
            train={**SMOKE, "train_size": 400}, cases={_GREEDY: {"epochs": 5, "restart": 1}}, minutes=0.1
        ),
        "laptop": ScaleChange(
            train={**COLLAPSED, "data": "mnist", "scaling": "unit"},
            cases={_GREEDY: {"lr": 5e-2, "epochs": 60, "restart": 12, "milestones": (8, 10), "clip": 1.0}},
            options={"map_side": 8},
            because=f"MNIST, which a small network knows on test pictures too, where features are looked at; {LONGER}; "
            f"layer by layer, each has 12 epochs at the paper's rate, clipped; {POOLED}",
            minutes=0.8,
        ),
    },
    notes=(
        "The paper names neither data nor settings of this figure: CIFAR-10 and those of its other CIFAR networks are "
        "taken, with 200 epochs and the whole schedule of the rate for each of the five layers.",
        "Intermediate layers are seen linearly only.",
    ),
)

STUDIES = (low_rank, layers, greedy_layerwise)
