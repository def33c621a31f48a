"""Probes over training: MASC, VeLPIC, logistic, their differences, and random initialisation.

find_study("latent/masc-dynamics"); find_study("latent/velpic-minus-masc"); find_study("latent/init-vs-trained")

All of them read the same rows: what is trained and measured for one is there for the others.
"""

from __future__ import annotations

from dataclasses import replace

from undertow.studies.claims import FITTED, Claim, each_seed
from undertow.studies.latent.corrupted_networks import MANY, NETS, cases, scaled
from undertow.studies.latent.probe_claims import (
    CNNS,
    HIGH,
    MLPS,
    above_chance,
    best_is_widest,
    clearly_above,
    ends_above,
    later_layers_too,
    logistic_behind_both,
    more_at_high_degrees,
    often_not_always,
    over_cases,
    peak_and_fall,
    rises_with_model,
    some_layer_follows,
    trained_beats_random,
    wins,
    with_pictures,
)  # fmt: skip
from undertow.studies.latent.probe_curves import TEST, difference_figure, dynamics_figure, init_figure
from undertow.studies.recipe import Published, Study

MEASURE = "undertow.studies.latent.probe_measures:grid"
FEW_STEPS = {"logistic_steps": 200}
"""Smoke shows that everything runs; its logistic probes are not converged."""
LOGISTIC_AT = "8"
"""A laptop fits logistic probes on the model's way down and at the end, which claims are about."""

# The authors' logs, mean of three runs. These are accuracies of full-size networks on full sets.
_FINAL = (  # authors, mean of 3 runs: the model at the end; its best layer by MASC
    ("MLP-MNIST 0", 0.979, "layer3", 0.971), ("MLP-MNIST 0.4", 0.728, "layer4", 0.960),
    ("MLP-MNIST 0.8", 0.312, "layer3", 0.803), ("CNN-MNIST 0.4", 0.686, "flatten", 0.954),
    ("CNN-FashionMNIST 0.4", 0.601, "flatten", 0.817), ("CNN-CIFAR10 0.4", 0.462, "fc3", 0.490),
)  # fmt: skip
_LAST_VELPIC = (
    ("MLP-MNIST 0", "layer4", 0.971), ("MLP-MNIST 0.4", "layer4", 0.932), ("MLP-MNIST 0.8", "layer4", 0.821),
    ("CNN-MNIST 0.4", "fc3", 0.933), ("CNN-FashionMNIST 0.4", "fc3", 0.815), ("CNN-CIFAR10 0.4", "fc3", 0.536),
)  # fmt: skip
_LOGISTIC = (  # best layer, where the authors name it, and the last one
    ("MLP-MNIST 0", "layer4", 0.980), ("MLP-MNIST 0.4", "layer1", 0.921), ("MLP-MNIST 0.4", "layer4", 0.704),
    ("MLP-MNIST 0.8", "layer1", 0.766), ("MLP-MNIST 0.8", "layer4", 0.297), ("CNN-MNIST 0.4", "fc2", 0.821),
    ("CNN-MNIST 0.4", "fc3", 0.760), ("CNN-FashionMNIST 0.4", "fc2", 0.741), ("CNN-FashionMNIST 0.4", "fc3", 0.689),
    ("CNN-CIFAR10 0.4", "flatten", 0.528), ("CNN-CIFAR10 0.4", "fc3", 0.458),
)  # fmt: skip


def _final(case: str, value: float, **where: str) -> Published:
    return Published(
        case,
        "accuracy",
        value,
        0.02,
        "authors' logs, 2 points",
        {"checkpoint": "last", **TEST, **where},
        ("paper",),
    )


FALLS = Claim(
    "with wrong labels the model's test accuracy rises early to a peak and falls after it",
    over_cases(peak_and_fall, "every"), FITTED, "section 4, figure 1",
)  # fmt: skip


def knowledge_claims(probe: str, place: str) -> tuple[Claim, ...]:
    """What the paper says of a probe that reads what the model has forgotten, or has yet to learn."""
    return (
        FALLS,
        Claim(
            "in most cases the best layers lose less than the model after its peak and plateau at a higher level",
            over_cases(ends_above(probe)), FITTED, place,
        ),
        Claim(
            "in most cases the probe follows the rise of the model up to its peak", over_cases(rises_with_model(probe)),
            None, place,
        ),
        Claim(
            "at epoch 0 the model is roughly at chance, and the probe significantly above it",
            over_cases(above_chance(probe), "every"), None, place,
        ),
    )  # fmt: skip


masc_dynamics = Study(
    name="latent/masc-dynamics",
    title="While the model memorises, subspaces of its layers still tell the true class",
    source="paper 001, figures 1 and 10",
    cases=cases(NETS),
    measure=MEASURE,
    options={"probes": ("masc", "velpic", "logistic"), "logistic_at": "all"},
    changes=scaled(smoke=0.2, laptop=15, smoke_options=FEW_STEPS, many=MANY, logistic_at=LOGISTIC_AT),
    published=(
        *(_final(case, value, probe="model") for case, value, _, _ in _FINAL),
        *(_final(case, value, probe="masc", layer=layer) for case, _, layer, value in _FINAL),
    ),
    claims=(
        *knowledge_claims("masc", "section 4, figure 1"),
        Claim(
            "the best-performing layers tend to be those with the highest dimensionality, in most cases",
            over_cases(best_is_widest("masc")),
            FITTED,
            "section 4, figure 1",
        ),
    ),
    figure=dynamics_figure("masc"),
    notes=(
        "ResNet-18 is probed in evaluation mode; the authors took one image at a time in training mode.",
        "Logistic probes take 9,400 steps at laptop scale too: twenty epochs of the paper's 60,000 pictures.",
        "The paper's text has the MLPs' pixels divided by 255; the authors' own raw-pixel numbers need -1 to 1.",
    ),
)

velpic_dynamics = replace(
    masc_dynamics,
    name="latent/velpic-dynamics",
    title="One vector per class is enough to read what layers still know",
    source="paper 001, figures 2 and 11",
    published=tuple(_final(case, value, probe="velpic", layer=layer) for case, layer, value in _LAST_VELPIC),
    claims=(
        *(replace(one, ours=True) for one in knowledge_claims("velpic", "figure 2")[1:]),
        Claim(
            "for many layers VeLPIC plateaus at significantly higher levels than MASC",
            clearly_above("velpic", "masc"),
            FITTED,
            "section 6.1, figure 2",
        ),
    ),
    figure=dynamics_figure("velpic"),
    changes=scaled(smoke=0.2, laptop=0, smoke_options=FEW_STEPS, many=MANY, logistic_at=LOGISTIC_AT),
)

velpic_minus_masc = replace(
    velpic_dynamics,
    name="latent/velpic-minus-masc",
    title="Vectors often win, subspaces in early layers of CNNs and late ones of MLPs",
    source="paper 001, figures 3 and 12",
    published=(),
    claims=(
        Claim("VeLPIC is often, but not always, better than MASC", often_not_always, FITTED, "section 6.1, figure 3"),
        Claim(
            "VeLPIC wins especially at higher degrees of corruption",
            each_seed(more_at_high_degrees, before="VeLPIC minus MASC, "), FITTED, "contributions",
            cause="ours: with 1,000 pictures of CIFAR-10 the leads are within the scatter of test samples; in "
            "MLP-MNIST's first three layers the lead grows by .03 to .2",
        ),
        Claim(
            "in cases MASC wins in the later layers of MLP-MNIST and MLP-CIFAR-10",
            with_pictures(clearly_above("masc", "velpic", "some", "last", nets=MLPS)), FITTED, "section 6.1",
        ),
        Claim(
            "in cases MASC wins in the early layers of CNN-MNIST and CNN-Fashion-MNIST",
            with_pictures(clearly_above("masc", "velpic", "some", "first", nets=CNNS)), FITTED, "section 6.1",
        ),
        Claim(
            "VeLPIC wins in CNN-CIFAR-10's flatten layer",
            with_pictures(wins("velpic", "masc", "first", nets=("CNN-CIFAR10",))), FITTED, "section 6.1",
        ),
        Claim(
            "with CNN-Fashion-MNIST VeLPIC still reads later layers where MASC does not",
            with_pictures(over_cases(later_layers_too, nets=("CNN-FashionMNIST",))), FITTED, "section 6.1",
        ),
    ),
    figure=difference_figure("velpic", "masc"),
)  # fmt: skip

logistic_dynamics = replace(
    velpic_dynamics,
    name="latent/logistic-dynamics",
    title="A logistic probe follows the model down",
    source="paper 001, figures 4 and 13",
    published=tuple(_final(case, value, probe="logistic", layer=layer) for case, layer, value in _LOGISTIC),
    claims=(
        Claim(
            "in most cases there is a layer or two whose logistic probe follows the model, after its peak too",
            over_cases(some_layer_follows), FITTED, "section 7, figure 4",
        ),
        Claim(
            "for many layers the logistic probe is behind both MASC and VeLPIC", logistic_behind_both, FITTED,
            "section 7",
        ),
    ),
    figure=dynamics_figure("logistic"),
)  # fmt: skip

_LOGISTIC_FIRST = (*MLPS, "CNN-CIFAR10", "AlexNet-TinyImageNet")
_MASC_FIRST = (*CNNS, "ResNet18-CIFAR10")

masc_minus_logistic = replace(
    velpic_dynamics,
    name="latent/masc-minus-logistic",
    title="Subspaces against a logistic probe: it depends on network and depth",
    source="paper 001, figures 5 and 14",
    published=(),
    claims=(
        Claim(
            "in MLPs, CNN-CIFAR-10 and AlexNet logistic wins early layers",
            with_pictures(wins("logistic", "masc", "first", nets=_LOGISTIC_FIRST)), FITTED,
            "section 7, figure 5",
        ),
        Claim(
            "and MASC later ones",
            with_pictures(wins("masc", "logistic", "last", nets=_LOGISTIC_FIRST)), FITTED,
            "section 7, figure 5",
        ),
        Claim(
            "in CNN-MNIST, CNN-Fashion-MNIST and ResNet-18 MASC wins early layers",
            with_pictures(wins("masc", "logistic", "first", nets=_MASC_FIRST)), FITTED,
            "section 7, figure 5",
        ),
        Claim(
            "and logistic later ones",
            with_pictures(wins("logistic", "masc", "last", nets=_MASC_FIRST)), FITTED,
            "section 7, figure 5",
        ),
    ),
    figure=difference_figure("masc", "logistic"),
)  # fmt: skip

velpic_minus_logistic = replace(
    velpic_dynamics,
    name="latent/velpic-minus-logistic",
    title="Vectors keep what a logistic probe loses",
    source="paper 001, figures 6 and 15",
    published=(),
    claims=(
        Claim(
            "at higher degrees and late in training VeLPIC almost always beats the logistic probe",
            wins("velpic", "logistic", "every", above=HIGH), FITTED, "section 7, figure 6",
        ),
        Claim(
            "at low degrees VeLPIC beats it in most layers too", wins("velpic", "logistic", "every", below=HIGH),
            FITTED, "section 7, figure 6",
        ),
    ),
    figure=difference_figure("velpic", "logistic"),
)  # fmt: skip

init_vs_trained = replace(
    velpic_dynamics,
    name="latent/init-vs-trained",
    title="Random features tell much already, trained ones more unless corruption is high",
    source="paper 001, figure 20",
    published=(),
    claims=(
        Claim(
            "at lower degrees MASC's best layer of the trained network beats that of the random one, in all cases",
            over_cases(trained_beats_random("masc"), "every", below=HIGH), FITTED, "appendix H, figure 20",
        ),
        Claim(
            "at lower degrees VeLPIC's does too, in all cases",
            over_cases(trained_beats_random("velpic"), "every", below=HIGH), FITTED, "appendix H, figure 20",
        ),
        Claim(
            "at 80 % MASC reads the random network better, of MLP-MNIST, MLP-CIFAR-10 and AlexNet",
            over_cases(
                trained_beats_random("masc", reverse=True), "every", nets=(*MLPS, "AlexNet-TinyImageNet"), above=0.7
            ),
            FITTED, "appendix H",
        ),
        Claim(
            "at higher degrees VeLPIC reads the trained network better (AlexNet at 80 % is the one exception)",
            with_pictures(
                over_cases(trained_beats_random("velpic"), "every", above=HIGH, without=("AlexNet-TinyImageNet 0.8",))
            ),
            FITTED, "appendix H",
        ),
    ),
    figure=init_figure,
)  # fmt: skip

STUDIES = (
    masc_dynamics,
    velpic_dynamics,
    velpic_minus_masc,
    logistic_dynamics,
    masc_minus_logistic,
    velpic_minus_logistic,
    init_vs_trained,
)
