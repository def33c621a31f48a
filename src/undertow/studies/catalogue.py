"""All studies by name; nothing registers itself.

    find_study("richness/target-scale")            # near names for a typo
    find_studies(["richness/*", "temporal/drift"])
    STUDIES                                        # name -> the module that declares it

Modules are imported when one of their studies is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from importlib import import_module

from undertow.errors import unknown
from undertow.studies.recipe import Study

_MODULES: Mapping[str, tuple[str, ...]] = {
    "richness.mnist_mlp": ("target-scale", "weight-decay", "encoded-labels"),
    "richness.residual_nets": (
        "learning-rate",
        "weight-decay-cifar",
        "architecture",
        "label-shuffle",
        "cross-entropy",
    ),
    "richness.plain_nets": ("batch-norm", "last-layer-only"),
    "richness.known_functions": ("heaviside", "regression", "nystrom"),
    "richness.grokking": ("grokking",),
    "richness.linear_models": ("learnability", "inductive-bias"),
    "richness.learning_curve": ("learning-curve",),
    "richness.depth": ("low-rank", "layers", "greedy-layerwise"),
    "richness.orthonormal_sums": ("qr",),
    "latent.probe_dynamics": (
        "masc-dynamics",
        "velpic-dynamics",
        "velpic-minus-masc",
        "logistic-dynamics",
        "masc-minus-logistic",
        "velpic-minus-logistic",
        "init-vs-trained",
    ),
    "latent.raw_pixels": ("raw-pixels",),
    "latent.head_edits": ("transfer", "intervention"),
    "latent.dropout": ("dropout",),
    "latent.batch_norm_modes": ("resnet18-modes",),
    "latent.no_download": ("no-download",),
    "latent.beyond": ("masc-variances", "early-transfer", "vit", "memorised-inputs"),
    "latent.text_classifier": ("text",),
    "temporal.composites": ("memory", "window", "transfer", "forgetting"),
    "temporal.feature_space": ("drift", "induction"),
    "temporal.bound": ("bound",),
    "temporal.noise": ("label-noise", "sgd-noise"),
    "temporal.interventions": ("reinitialise", "freeze"),
    "temporal.dynamics": ("step-equation", "balance", "linearised", "anisotropy"),
    "temporal.training_curves": ("training-curves",),
    "beyond.three_lenses": ("three-lenses",),
}

STUDIES: Mapping[str, str] = {
    f"{module.partition('.')[0]}/{name}": f"undertow.studies.{module}"
    for module, names in _MODULES.items()
    for name in names
}


def find_study(name: str) -> Study:
    """The study called `name`."""
    if name not in STUDIES:
        raise unknown("study", name, STUDIES, "`undertow study list` lists them.")
    declared: tuple[Study, ...] = import_module(STUDIES[name]).STUDIES
    return next(study for study in declared if study.name == name)


def find_studies(names: Sequence[str]) -> list[Study]:
    """The studies of these names or patterns, each once, in the catalogue's order within a pattern."""
    found: dict[str, None] = {}
    for name in names:
        matching = [known for known in STUDIES if fnmatchcase(known, name)]
        if not matching:
            find_study(name)  # says what is near
        found |= dict.fromkeys(matching)
    return [find_study(name) for name in found]
