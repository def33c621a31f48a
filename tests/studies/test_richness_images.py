"""Recipes of the image networks: what they declare, and claims on rows that were made up.

That they run at the smallest scale is in test_catalogue.py.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from undertow.models.catalogue import parse_spec
from undertow.studies.catalogue import find_study
from undertow.studies.findings import Findings, row
from undertow.studies.outcome import StudyOutcome
from undertow.studies.recipe import SCALES
from undertow.studies.richness.image_claims import carried, classes_of
from undertow.studies.train_and_measure import run_name
from undertow.training.config import TrainConfig

NAMES = (
    "learning-rate", "weight-decay-cifar", "architecture", "label-shuffle", "cross-entropy", "batch-norm",
    "last-layer-only",
)  # fmt: skip


def study_of(name):
    return find_study(f"richness/{name}")


# ----------------------------------------------------------------------------------------------------- recipes


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scale", SCALES)
def test_cases_can_be_trained(name, scale):
    """A model option that does not exist, or checkpoints or milestones behind the last epoch."""
    for case in study_of(name).at(scale).cases:
        parse_spec(case.train.model)
        assert all(milestone < case.train.epochs for milestone in case.train.milestones)
        assert case.train.loss == ("ce" if case.name == "cross-entropy" else "mse")


@pytest.mark.parametrize("name", NAMES)
def test_the_laptop_has_more_test_samples_than_features(name):
    """With n <= p the spectrum's curves reach 1 whatever the features are."""
    for case in study_of(name).at("laptop").cases:
        spec = parse_spec(case.train.model)
        widths = {"resnet18": 8, "vgg16": 64, "vgg16bn": 64}
        features = (
            spec.options["widths"][-1] if spec.name == "mlp"
            else spec.options["units"] if spec.name in ("cnn", "lenet")
            else widths[spec.name] * spec.options["width"]
        )  # fmt: skip
        assert case.train.test_size > features


def test_paper_scale_trains_as_the_paper_says():
    for name, epochs, alpha in (("architecture", 200, 1 / 3), ("learning-rate", 400, 1 / 10)):
        config = study_of(name).cases[0].train
        assert (config.optimiser, config.momentum, config.weight_decay) == ("sgd", 0.9, 5e-5)
        assert (config.batch_size, config.epochs, config.alpha) == (128, epochs, alpha)
        assert (config.augment, config.scaling) == ("crop-flip", "cifar")
        rates = [config.learning_rate(epoch) / config.lr for epoch in (60, 61, 121, 181)]
        np.testing.assert_allclose(rates, [1, 0.2, 0.04, 0.008])
    vgg = study_of("batch-norm").case("without").train
    assert (vgg.lr, vgg.weight_decay, vgg.schedule, vgg.epochs) == (1e-2, 1e-5, "constant", 400)


def test_published_numbers_are_those_of_tables_3_and_8():
    known = {
        (one.case, one.measure, one.where["split"]): (one.value, one.tolerance)
        for name in NAMES
        for one in study_of(name).published
    }
    assert known["large decay", "d_lr", "test"] == (0.003, pytest.approx(0.003))
    assert known["without", "d_lr", "test"] == (0.66, pytest.approx(0.03))
    assert known["MLP", "accuracy", "test"] == (pytest.approx(0.554), 0.015)
    assert known["last layer only", "accuracy", "train"] == (pytest.approx(0.997), 0.005)
    assert len(known) == 3 * (3 + 3 + 2 + 3 + 2 + 2)


def test_laptop_studies_share_the_run_that_they_have_in_common():
    """A small difference of settings would train the same network twice."""
    same = (("learning-rate", "lr 0.05"), ("cross-entropy", "squared error"))
    small = [study_of(name).at("laptop").case(case) for name, case in same]
    assert len({run_name(TrainConfig.from_dict(case.train.to_dict()), case.actions) for case in small}) == 1


# ------------------------------------------------------------------------------------------------------ claims


def made_up(
    case, d_lr, test=0.9, *, train=1.0, used=(9, 9), even=0.9, good="strong", constant=0.99, behind=1.0
):
    """Rows of a case at epochs 1 and 20; `used`: features that carry 95 % of the outputs, then.

    `behind`: the eigenvalues behind the tenth over those before.
    """
    place = np.arange(1, 101)
    rows = []
    for at, count in zip((1, 20), used, strict=True):
        falling = place[::-1] if good == "strong" else place
        quality = np.cumsum(falling).astype(float)
        curves = {
            "utilisation": np.where(place < count, 0.4, 0.97) + 1e-6 * quality, "quality": quality / quality[-1],
            "intensity": np.where(place == 1, 1.0, np.where(place < 10, 0.5, 0.5 * even)) - place * 1e-6,
        }  # fmt: skip
        curves["intensity"] *= np.where(place > 10, behind, 1.0)
        rows += [
            row("d_lr", d_lr, split="test", checkpoint=at), row("accuracy", test, split="test", checkpoint=at),
            row("constant_share", constant, split="test", checkpoint=at),
            row("accuracy", train, split="train", checkpoint=at),
        ]  # fmt: skip
        rows += [
            row(name, value, split="test", checkpoint=at, position=k)
            for name, values in curves.items()
            for k, value in zip(place, values, strict=True)
        ]
    return [{"case": case, "seed": 0, **one} for one in rows]


def five(*of, **settings):
    """The same in five seeds."""
    return [[{**one, "seed": seed} for one in made_up(*of, **settings)] for seed in range(5)]


def verdicts(name, *cases, scale="laptop"):
    rows = pd.DataFrame([one for case in cases for one in case])
    return [verdict.holds for _, verdict in StudyOutcome.of(study_of(name), scale, rows).verdicts()]


@pytest.mark.parametrize(
    ("name", "cases", "expected"),
    [
        (
            "learning-rate",
            (made_up("lr 0.005", 0.05, 0.6, used=(9, 40)), made_up("lr 0.05", 0.02, 0.8), made_up("lr 0.2", 0.03, 0.7)),
            [True] * 6,
        ),
        (
            "learning-rate",
            (
                made_up("lr 0.005", 0.05, 0.9),
                made_up("lr 0.05", 0.02, 0.8, used=(9, 40), good="weak"),
                made_up("lr 0.2", 0.03, 0.7, constant=0.9),
            ),
            [False] * 6,
        ),
        (
            "weight-decay-cifar",
            (*five("no decay", 0.05, 0.90), *five("small decay", 0.02, 0.91), *five("large decay", 0.01, 0.92)),
            [True, True, True],
        ),
        (
            "weight-decay-cifar",
            (*five("no decay", 0.15, 0.90), *five("small decay", 0.02, 0.91), *five("large decay", 0.03, 0.89)),
            [False, False, False],
        ),
        (
            "weight-decay-cifar",
            (made_up("no decay", 0.15, 0.90), made_up("small decay", 0.02, 0.91), made_up("large decay", 0.03, 0.92)),
            [False, False, None],  # one seed may have it so by chance
        ),
        ("architecture", (made_up("ResNet-18", 0.03), made_up("MLP", 0.5, 0.5, used=(9, 30))), [True] * 5),
        (
            "architecture",
            (made_up("ResNet-18", 0.03, used=(30, 9)), made_up("MLP", 0.06, 0.5, constant=0.9)),
            # The MLP has had too few updates to begin using more features: that says nothing yet.
            [False, False, False, None, False],
        ),
        (
            "label-shuffle",
            (made_up("0 % shuffled", 0.03), made_up("10 % shuffled", 0.04, 0.7), made_up("100 % shuffled", 0.03, 0.1)),
            [True, True],
        ),
        (
            "label-shuffle",
            (made_up("0 % shuffled", 0.03), made_up("10 % shuffled", 0.04, 0.7), made_up("100 % shuffled", 0.2, 0.3)),
            [False, False],
        ),
        ("cross-entropy", (made_up("cross-entropy", 0.05, even=0.1), made_up("squared error", 0.05)), [True] * 3),
        (
            "cross-entropy",
            (made_up("cross-entropy", 0.05, used=(9, 30)), made_up("squared error", 0.05, even=0.5, constant=0.9)),
            # D_LR and what the first features carry go on changing long after the laptop's run ends.
            [None, False, False],
        ),
        (
            "batch-norm",
            (made_up("without", 0.6, 0.2, behind=0.3), made_up("batch norm", 0.07, behind=0.01)),
            [True] * 4,
        ),
        (
            "batch-norm",
            (made_up("without", 0.06, 0.9), made_up("batch norm", 0.07, 0.9)),
            [False, None, False, False],
        ),
        # As the paper has it, but neither lazy nor rich by the levels of its full-size networks.
        (
            "batch-norm",
            (made_up("without", 0.28, 0.2), made_up("batch norm", 0.14, 0.9)),
            [True, None, True, False],
        ),
        (
            "last-layer-only",
            (made_up("full backpropagation", 0.04, 0.99), made_up("last layer only", 0.5, 0.96)),
            [True, True],
        ),
        (
            "last-layer-only",
            (made_up("full backpropagation", 0.2, 0.99), made_up("last layer only", 0.5, 0.94)),
            [False, False],
        ),
    ],
)  # fmt: skip
def test_claims_on_made_up_rows(name, cases, expected):
    assert verdicts(name, *cases) == expected


def test_what_trained_as_long_as_the_papers_networks_is_judged():
    """That a run is too short to tell must not excuse the paper's own setting."""
    nets = (made_up("ResNet-18", 0.03), made_up("MLP", 0.06, 0.5))
    assert verdicts("architecture", *nets, scale="paper")[3] is False
    losses = (made_up("cross-entropy", 0.2), made_up("squared error", 0.05))
    assert verdicts("cross-entropy", *losses, scale="paper")[0] is False
    norms = (made_up("without", 0.28), made_up("batch norm", 0.14))
    assert verdicts("batch-norm", *norms, scale="paper")[1] is False


def test_a_network_that_has_not_fitted_is_not_judged():
    """D_LR of an untrained network would otherwise confirm or refute what the paper says of trained ones."""
    cases = made_up("full backpropagation", 0.04, 0.99), made_up("last layer only", 0.5, 0.96, train=0.6)
    assert verdicts("last-layer-only", *cases) == [None, None]
    alone = made_up("no decay", 0.05), made_up("small decay", 0.02, train=0.5), made_up("large decay", 0.01)
    assert verdicts("weight-decay-cifar", *alone) == [
        None,
        True,
        None,
    ]  # the second needs only the first case


def test_claims_read_the_end_of_training():
    """An average over checkpoints would mix the first epoch in."""
    rows = [*made_up("no decay", 0.05), *made_up("small decay", 0.04), *made_up("large decay", 0.03)]
    early = [
        {**one, "value": 0.9} if one["checkpoint"] == 1 and one["measure"] == "d_lr" else one for one in rows
    ]
    outcome = StudyOutcome.of(study_of("weight-decay-cifar"), "laptop", pd.DataFrame(early))
    assert outcome.verdicts()[1][1].holds
    compared = outcome.comparison().set_index(["case", "measure", "where"])
    assert compared.loc[("no decay", "d_lr", "split test, checkpoint last"), "ours"] == pytest.approx(0.05)


# ------------------------------------------------------------------------------------------------------- tools


def test_what_the_first_features_carry_is_read_at_the_end_or_where_asked():
    found = Findings(study_of("architecture").at("laptop"), pd.DataFrame(made_up("MLP", 0.5, used=(3, 60))))
    assert carried(found, "MLP", checkpoint="first") > 0.95
    assert carried(found, "MLP") < 0.5


def test_classes_follow_the_data_of_the_scale():
    """The laptop's CIFAR-10 has 10 classes where the paper's CIFAR-100 has 100."""
    study = study_of("learning-rate")
    counts = [
        classes_of(Findings(study.at(scale), pd.DataFrame()), "lr 0.05") for scale in ("paper", "laptop")
    ]
    assert counts == [100, 10]
