"""The papers, and every figure, table, theorem and experiment of theirs: which study shows it, or that none does yet.

    PAPERS["latent"].title
    for item in ITEMS["latent"]:
        item.what, item.study, item.note        # "figure 3", "latent/velpic-minus-masc", ""

Studies are named by the room that they are in: temporal, latent, richness. Nothing here needs torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Paper:
    """A paper whose experiments are studies."""

    number: str
    title: str


@dataclass(frozen=True)
class Item:
    """Something that a paper shows."""

    what: str
    study: str = ""  # empty: there is none
    note: str = ""  # why there is none, or what it leaves out


PAPERS: Mapping[str, Paper] = {
    "temporal": Paper(
        "000",
        "Feature dynamics as implicit data augmentation: a depth-decomposed view on deep neural network generalization",
    ),
    "latent": Paper(
        "001", "On the dynamics and transferability of latent generalization during memorization"
    ),
    "richness": Paper(
        "002", "Decoupling dynamical richness from representation learning: towards practical measurement"
    ),
}

DRAWING = "a drawing, nothing is measured"
_TESTED = "proved in the paper; tested in tests/latent"

ITEMS: Mapping[str, tuple[Item, ...]] = {
    "temporal": (
        Item("figure 1", note=DRAWING),
        Item("figures 2 and 10", "temporal/memory"),
        Item("figure 3", "temporal/window"),
        Item("figures 4 and 12", "temporal/forgetting"),
        Item("figures 5 and 13", "temporal/transfer"),
        Item("figures 6 and 14", "temporal/induction"),
        Item("figures 7, 16 and 17, table 1", "temporal/label-noise"),
        Item("figures 8 and 15, appendix E", "temporal/sgd-noise"),
        Item("figure 9", note=DRAWING),
        Item("figure 11, late drift of parameters", "temporal/drift"),
        Item("figure 18, appendix F.B", "temporal/freeze"),
        Item("appendix F.A", "temporal/reinitialise"),
        Item("theorems 1 and 3", "temporal/bound"),
        Item("theorem 2", note="judged in temporal/memory"),
        Item("equations 1 to 3", "temporal/step-equation"),
        Item("appendix C", "temporal/balance"),
        Item("lemma 1, appendix D", "temporal/linearised"),
        Item("anisotropy of SGD noise (introduction)", "temporal/anisotropy"),
        Item("table 2, figure 19", "temporal/training-curves"),
    ),
    "latent": (
        Item("figures 1 and 10", "latent/masc-dynamics"),
        Item("figures 2 and 11", "latent/velpic-dynamics"),
        Item("figures 3 and 12", "latent/velpic-minus-masc"),
        Item("figures 4 and 13", "latent/logistic-dynamics"),
        Item("figures 5 and 14", "latent/masc-minus-logistic"),
        Item("figures 6 and 15", "latent/velpic-minus-logistic"),
        Item("figures 7, 16, 17 and 18", "latent/transfer"),
        Item("figures 8, 9 and 19", "latent/intervention"),
        Item("figure 20, appendix H", "latent/init-vs-trained"),
        Item("figures 21 to 24, appendix I", "latent/dropout"),
        Item("layer 0 (raw pixels) of figures 1 and 2", "latent/raw-pixels"),
        Item("ResNet-18 in figures 1 to 16", "latent/resnet18-modes"),
        Item("proposition 1 (MASC is quadratic)", note=_TESTED),
        Item("proposition 2 (two forms of MASC are one)", note=_TESTED),
        Item("limitations: MASC at other variances", "latent/masc-variances"),
        Item("open: transfer from early layers", "latent/early-transfer"),
        Item("limitations: transformers", "latent/vit", "of pictures"),
        Item("limitations: transformers that read", "latent/text", "of questions"),
        Item("limitations: corrupted inputs", "latent/memorised-inputs"),
    ),
    "richness": (
        Item("figure 1, table 5", "richness/encoded-labels"),
        Item("figure 2", "richness/learning-curve"),
        Item("figure 3, table 3 row 7", "richness/batch-norm"),
        Item("figures 4 and 5, table 3 row 2", "richness/learning-rate"),
        Item("figures 6 and 8", note=DRAWING),
        Item("figure 7", "richness/inductive-bias"),
        Item("equations 15, 16 and 25", "richness/learnability"),
        Item("figure 9", "richness/heaviside"),
        Item("figure 10", "richness/regression"),
        Item("figure 11, tables 2 and 7", "richness/target-scale"),
        Item("figure 12, tables 3 and 8", "richness/grokking"),
        Item("figure 13, table 3 row 3", "richness/weight-decay-cifar"),
        Item("figure 14, table 3 row 4", "richness/architecture"),
        Item("figure 15, table 3 row 5", "richness/label-shuffle"),
        Item("figure 16, table 3 row 6", "richness/last-layer-only"),
        Item("figure 17", "richness/cross-entropy"),
        Item("figures 18 to 20", "richness/layers"),
        Item("figure 21", "richness/greedy-layerwise"),
        Item("figure 22", note=DRAWING),
        Item("figures 23 and 24", "richness/nystrom"),
        Item("figure 25", "richness/qr"),
        Item("tables 1 and 6", "richness/weight-decay"),
        Item("table 4", "richness/low-rank"),
        Item("tables 9 and 10", note="settings: each recipe carries its own"),
        Item(
            "propositions 1 and 2, lemma 1, corollary 1", note="proved in the paper; tested in tests/richness"
        ),
    ),
}
