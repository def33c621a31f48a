"""Probes over training on data that comes with undertow: nothing is downloaded.

find_study("latent/no-download")
"""

from __future__ import annotations

from undertow.studies.latent.corrupted_networks import DEGREES, case_name
from undertow.studies.latent.probe_dynamics import (
    MEASURE,
    dynamics_figure,
    knows_at_start,
    logistic_follows,
    peaks_and_falls,
)
from undertow.studies.recipe import Case, Claim, ScaleChange, Study
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
                batch_size=32, epochs=100, stop_at=1.0, checkpoints="0,1,2,5,10,20,40,60,80,100",
            ),
        )
        for net, data in NETS.items()
        for degree in DEGREES
    ),
    measure=MEASURE,
    options={"probes": ("masc", "velpic", "logistic")},
    changes={
        "smoke": ScaleChange(
            train={"model": "mlp:16-16", "train_size": 200, "test_size": 100, "epochs": 2},
            only=tuple(case_name(net, degree) for net in NETS for degree in (0.4, 0.6)),
            minutes=0.2,
        ),
        "laptop": ScaleChange(because="nothing is changed: there is no larger setting of it", minutes=2),
    },
    claims=(
        Claim(
            "the model's test accuracy peaks early and falls, while the best hidden layer by MASC ends above it",
            lambda found: peaks_and_falls(found, "masc"),
        ),
        Claim(
            "and the best hidden layer by VeLPIC ends above it too", lambda found: peaks_and_falls(found, "velpic")
        ),
        Claim("MASC beats chance at epoch 0, the model does not", lambda found: knows_at_start(found, "masc")),
        Claim("on the last layer logistic ends nearer to the model than VeLPIC", logistic_follows),
    ),
    figure=dynamics_figure("masc"),
)  # fmt: skip

STUDIES = (no_download,)
