"""Networks without residual blocks: VGG-16 with and without batch norm, a CNN trained whole or by its last layer.

find_study("richness/batch-norm"); find_study("richness/last-layer-only")
"""

from __future__ import annotations

from dataclasses import replace

from undertow.studies.claims import Claim, ClaimVerdict
from undertow.studies.findings import Findings
from undertow.studies.recipe import Case, ScaleChange, Study
from undertow.studies.richness.image_claims import RICH, compared, table_3
from undertow.studies.richness.residual_nets import MEASURE, NOTHING_LEARNED, OPTIONS
from undertow.studies.richness.spectrum_figures import spectra_and_bars
from undertow.studies.richness.training_settings import (
    CIFAR100,
    LAPTOP_PLAIN_VGG,
    LAPTOP_VGG,
    NARROW_VGG,
    vgg,
)
from undertow.training.config import TrainConfig

LAZY = 0.3
"""Above this D_LR is called lazy here; the paper's lazy cases lie at .48 to .66."""

# -------------------------------------------------------------------------------------------------- batch norm

_NORMS = ("without", "batch norm")


def _levels(found: Findings) -> ClaimVerdict:
    """Table 3's levels are those of a full-size VGG-16: a narrow one has levels of its own."""
    verdict = compared(_NORMS, lambda d: d[0] > LAZY and d[1] < RICH, "d_lr")(found)
    nets = [case.train.model for case in found.study.cases if case.train]
    if verdict.holds is False and any("width" in net for net in nets):
        return replace(
            verdict, holds=None, numbers=f"the levels are those of a full-size VGG-16; {verdict.numbers}"
        )
    return verdict


batch_norm = Study(
    name="richness/batch-norm",
    title="Batch norm turns VGG-16 from lazy to rich",
    source="paper 002, table 3 row 7, figure 3",
    cases=(Case(_NORMS[0], vgg(CIFAR100, norm=False)), Case(_NORMS[1], vgg(CIFAR100))),
    measure=MEASURE,
    changes={
        "smoke": ScaleChange(
            train={
                "data": "digits", "scaling": "half", "augment": "none", "train_size": 200, "test_size": 100,
                "batch_size": 50, "epochs": 2,
            },
            cases={"without": {"model": "cnn:width=4,units=32"}, "batch norm": {"model": "resnet18:width=4"}},
            options={"samples": 100},
            because="VGG-16 wants images of 32x32: a CNN without and a ResNet with batch norm stand in; "
            f"{NOTHING_LEARNED}",
            minutes=0.1,
        ),
        "laptop": ScaleChange(
            cases={"without": LAPTOP_PLAIN_VGG, "batch norm": LAPTOP_VGG},
            because=f"{NARROW_VGG}; ten classes",
            minutes=2.2,
        ),
    },
    published=tuple(
        replace(one, cause="an eighth of the width and 2,500 updates") if one.case == _NORMS[0] else one
        for one in table_3(_NORMS, ((0.66, 0.01), (0.073, 0.002)), (21.7, 72.0), (99.5, 100))
    ),
    claims=(
        Claim(
            "batch norm shifts training towards rich: D_LR is lower with it",
            compared(_NORMS, lambda d: d[1] < d[0], "d_lr"),
            place="section 4.2",
        ),
        Claim(
            "lazy without batch norm (D_LR > .3), rich with it (D_LR < .1)", _levels, place="section 4.2, table 3",
        ),
        Claim("test accuracy is higher with batch norm", compared(_NORMS, lambda test: test[1] > test[0], "accuracy")),
        Claim(
            "with batch norm only C features are significant, without it eigenvalues decay slowly: they fall further "
            "behind the C-th with it",
            compared(_NORMS, lambda fall: fall[1] < fall[0], "fall"),
            place="figure 3",
        ),
    ),
    figure=spectra_and_bars,
    options=OPTIONS,
)  # fmt: skip

# ---------------------------------------------------------------------------------------------- last layer only

_PARTS = ("full backpropagation", "last layer only")
_TRAINED = "split train, checkpoint last"
_NOT_SO_FAR = (
    "too few epochs: the exact solution for the last layer, by least squares, fits 97.8 % of so many pictures"
)
_CNN = TrainConfig(
    model="lenet", data="mnist", scaling="unit", loss="mse", alpha=1 / 3, optimiser="adam", lr=1e-3,
    batch_size=128, epochs=100, test_at="checkpoints", checkpoints="every:1000",
)  # fmt: skip


last_layer_only = Study(
    name="richness/last-layer-only",
    title="A lazy network can do nearly as well as a rich one",
    source="paper 002, table 3 row 6, figure 16",
    cases=(Case(_PARTS[0], _CNN), Case(_PARTS[1], replace(_CNN, last_layer_only=True))),
    measure=MEASURE,
    changes={
        "smoke": ScaleChange(
            train={
                "data": "digits", "train_size": 200, "test_size": 100, "batch_size": 50, "epochs": 2,
                "model": "cnn:width=4,units=32",
            },
            options={"samples": 100},
            because=NOTHING_LEARNED,
            minutes=0.1,
        ),
        "laptop": ScaleChange(
            train={"test_size": 5000},
            cases={
                "full backpropagation": {"train_size": 3000, "batch_size": 64, "epochs": 16},
                "last layer only": {"train_size": 12_000, "epochs": 12, "lr": 5e-2, "schedule": "cosine"},
            },
            because="fewer pictures and epochs; the last layer alone needs larger steps to get there in so few",
            minutes=3,
        ),
    },
    published=tuple(
        replace(one, cause=_NOT_SO_FAR) if (one.case, one.place) == (_PARTS[1], _TRAINED) else one
        for one in table_3(_PARTS, ((0.043, 0.005), (0.51, 0.008)), (99.1, 96.8), (100, 99.7))
    ),
    claims=(
        Claim(
            "rich when the whole network is trained (D_LR < .1), lazy otherwise (D_LR > .3)",
            compared(_PARTS, lambda d: d[0] < RICH and d[1] > LAZY, "d_lr"),
        ),
        Claim(
            "both are right on over 95 % of the test samples",
            compared(_PARTS, lambda test: min(test) > 0.95, "accuracy"),
            place="figure 16",
        ),
    ),
    figure=spectra_and_bars,
    options=OPTIONS,
    notes=(
        "The paper gives no layers, optimiser or epochs for this CNN, only its width of 1,024: two convolutions of 32 "
        "and 64 maps and a layer of 1,024 units, as TensorFlow's first tutorial had them for MNIST. It is trained as "
        "the paper's MNIST networks are (Adam, 1e-3, 100 epochs, alpha 1/3, pixels from 0 to 1).",
    ),
)  # fmt: skip

STUDIES = (batch_norm, last_layer_only)
