"""Probes over training on data that comes with undertow: nothing is downloaded.

find_study("latent/no-download")
"""

from __future__ import annotations

from undertow.studies.claims import FITTED, Claim
from undertow.studies.latent.corrupted_networks import JUDGED, case_name
from undertow.studies.latent.probe_claims import (
    above_chance,
    over_cases,
    peak_and_fall,
    some_layer_follows,
    stands_above,
)
from undertow.studies.latent.probe_curves import dynamics_figure
from undertow.studies.latent.probe_dynamics import FEW_STEPS, MEASURE
from undertow.studies.recipe import Case, ScaleChange, Study
from undertow.training.config import TrainConfig

NETS = {"MLP-digits": "digits", "MLP-MNIST1D": "mnist1d:n=2000"}

no_download = Study(
    name="latent/no-download",
    title="The same on digits and MNIST-1D: wrong labels are memorised, layers still know",
    source="ours, after figures 1, 2 and 4 of paper 001",
    cases=tuple(
        Case(
            case_name(net, degree),
            TrainConfig(
                model="mlp:128-256-256-256", data=data, noise=f"{degree:g}", optimiser="sgd", lr=1e-2, momentum=0.9,
                batch_size=32, epochs=100, stop_at=1.0, test_at="checkpoints",
                checkpoints="0,1,2,5,10,20,40,60,80,100",
            ),
        )
        for net, data in NETS.items()
        for degree in JUDGED
    ),
    measure=MEASURE,
    options={"probes": ("masc", "velpic", "logistic"), "logistic_at": "10"},
    notes=("The claims are ours: the paper has neither set.",),
    changes={
        "smoke": ScaleChange(
            train={"model": "mlp:16-16", "train_size": 200, "test_size": 100, "epochs": 2},
            only=tuple(case_name(net, degree) for net in NETS for degree in (0.4, 0.6)),
            options=FEW_STEPS,
            minutes=0.2,
        ),
        "laptop": ScaleChange(because="nothing is changed: there is no larger setting of it", minutes=1),
    },
    claims=(
        Claim(
            "the model's test accuracy peaks early and falls", over_cases(peak_and_fall, "every"), FITTED, ours=True,
            cause="MNIST-1D's: at .2 and .4 its test accuracy, .5 and .4, is highest when all labels are memorised",
        ),
        Claim("MASC's best layer ends above the model", over_cases(stands_above("masc")), FITTED, ours=True),
        Claim("VeLPIC's best layer ends above the model", over_cases(stands_above("velpic")), FITTED, ours=True),
        Claim(
            "MASC beats chance at epoch 0, the model does not", over_cases(above_chance("masc"), "every"), ours=True
        ),
        Claim("a layer's logistic probe follows the model", over_cases(some_layer_follows), FITTED, ours=True),
    ),
    figure=dynamics_figure("masc"),
)  # fmt: skip

STUDIES = (no_download,)
