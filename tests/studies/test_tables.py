"""Every row of the three papers' tables of studies is a recipe."""

from __future__ import annotations

import pytest

from undertow.studies.catalogue import STUDIES, find_study

WANTED = {
    "latent": {
        "masc-dynamics": (1, 10), "velpic-dynamics": (2, 11), "velpic-minus-masc": (3, 12),
        "logistic-dynamics": (4, 13), "masc-minus-logistic": (5, 14), "velpic-minus-logistic": (6, 15),
        "transfer": (7, 16, 17, 18), "intervention": (8, 9, 19), "init-vs-trained": (20,), "dropout": (21, 24),
        "resnet18-modes": (), "no-download": (), "masc-variances": (), "early-transfer": (), "vit": (),
        "memorised-inputs": (), "text": (), "raw-pixels": (1, 2, 10, 11),
    },
    "richness": dict.fromkeys(
        (
            "weight-decay", "target-scale", "encoded-labels", "grokking", "learning-rate", "weight-decay-cifar",
            "architecture", "label-shuffle", "last-layer-only", "batch-norm", "learning-curve", "heaviside",
            "regression", "low-rank", "cross-entropy", "layers", "greedy-layerwise", "nystrom",
            "learnability", "inductive-bias", "qr",
        ),
        (),
    ),
    "temporal": dict.fromkeys(
        (
            "memory", "window", "forgetting", "transfer", "drift", "induction", "label-noise", "sgd-noise",
            "reinitialise", "freeze", "bound", "step-equation", "balance", "linearised", "anisotropy",
            "training-curves",
        ),
        (),
    ),
    "beyond": {"three-lenses": ()},
}  # fmt: skip
NAMES = [(f"{paper}/{name}", figures) for paper, own in WANTED.items() for name, figures in own.items()]


@pytest.mark.parametrize(("name", "figures"), NAMES, ids=[name for name, _ in NAMES])
def test_every_row_is_a_recipe_that_names_its_figures(name, figures):
    study = find_study(name)
    words = study.source.replace(",", " ").split()
    assert all(str(figure) in words for figure in figures)


def test_there_are_no_others():
    assert set(STUDIES) == {name for name, _ in NAMES}
