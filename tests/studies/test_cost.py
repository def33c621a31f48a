"""What a study costs is counted, not guessed; estimates say that they are."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from undertow.data.catalogue import DATA
from undertow.models.build import build_model
from undertow.studies.catalogue import STUDIES, find_study
from undertow.studies.cost import MEGAFLOP, cost_words, gpu_hours
from undertow.studies.recipe import SCALES


def trained():
    return {
        (case.train.model, case.train.data.partition(":")[0])
        for name in STUDIES
        for case in find_study(name).cases
        if case.train and case.train.epochs
    }


def test_every_network_of_the_papers_is_counted_and_no_other():
    assert set(MEGAFLOP) == trained()


@pytest.mark.parametrize("pair", sorted(MEGAFLOP), ids=" ".join)
def test_operations_are_those_that_torch_counts(pair):
    model, name = pair
    entry = DATA[name]
    tokens = entry.kind == "tokens"
    net = build_model(
        model, entry.shape, entry.classes, seed=0, vocabulary=entry.classes + 2 if tokens else None
    )
    x = torch.zeros(1, *entry.shape, dtype=torch.long if tokens else torch.float)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        net.eval()(x)
    assert MEGAFLOP[pair] == pytest.approx(counter.get_total_flops() / 1e6, rel=1e-3)


def test_an_estimate_worked_by_hand():
    """Two ResNet-18 of 500 epochs, 50,000 samples in batches of 32: launching kernels is what takes the time."""
    study = find_study("latent/resnet18-modes")
    updates = 2 * 500 * 1563
    work = 2 * 500 * 50_000 * 3 * 280.4e6 / 10e12
    assert updates * 2e-3 < work
    assert gpu_hours(study) == pytest.approx(work / 3600)
    small = find_study("richness/grokking")
    config = small.cases[0].train
    assert gpu_hours(small) == pytest.approx(len(small.cases) * config.epochs * 10 * 2e-3 / 3600)


@pytest.mark.parametrize("name", sorted(STUDIES))
def test_every_scale_has_a_cost(name):
    study = find_study(name)
    words = [cost_words(study, scale) for scale in SCALES]
    assert all(word.endswith((" min", " GPU h")) for word in words)
    assert words[0].endswith("min")


def test_what_is_the_same_as_laptop_costs_the_same():
    same = find_study("richness/nystrom")
    assert cost_words(same, "paper") == cost_words(same, "laptop") == "0.5 min"
    assert gpu_hours(find_study("richness/nystrom")) is None
    assert cost_words(find_study("richness/learning-rate"), "paper").startswith("≈ ")
