"""What the studies of dynamics and of all lenses conclude, on rows whose truth is known."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from undertow.studies.beyond.three_lenses import PAIRS, correlation
from undertow.studies.catalogue import find_study
from undertow.studies.findings import Findings, row
from undertow.studies.outcome import StudyOutcome
from undertow.studies.temporal.by_cut import agreed
from undertow.studies.temporal.dynamics_measures import anisotropy_rows, window_rows
from undertow.studies.temporal.networks import MLP_CASE


def verdicts(name, rows):
    return [one for _, one in StudyOutcome.of(find_study(name), "paper", pd.DataFrame(rows)).verdicts()]


def over_time(measure, values, seed=0, **where):
    return [
        {**row(measure, value, checkpoint=at, layer="layer1", **where), "case": MLP_CASE, "seed": seed}
        for at, value in enumerate(values)
    ]


def test_seeds_that_can_tell_must_agree():
    assert agreed([True, None, True]) is True
    assert agreed([False]) is False
    assert agreed([True, False]) is None
    assert agreed([None, None]) is None


@pytest.mark.parametrize(
    ("window", "expected"), [([1, 2, 3, 4], True), ([4, 3, 2, 1], False), ([2, 2, 2, 2], None)]
)
def test_anisotropy_goes_with_what_rises_with_it(window, expected):
    rows = over_time("anisotropy", [0.1, 0.2, 0.4, 0.9])
    rows += over_time("consistency", [0.5, 0.6, 0.7, 0.8], split="train")
    rows += over_time("window", window, split="train")
    found = verdicts("temporal/anisotropy", rows)
    assert [one.holds for one in found[0].cases] == [True]
    assert [one.holds for one in found[1].cases] == [expected]


def test_small_steps_are_described_at_every_epoch_and_large_ones_at_most():
    """Equation 3 is of small steps: how large those of training are is another question."""
    rows = []
    for seed in range(5):
        rows += over_time("mean_error_small", [0.01] * 8, seed)
        rows += over_time("covariance_error_small", [0.01] * 7 + [0.5], seed)
        rows += over_time("mean_error", [0.01] * 7 + [0.5], seed)
        rows += over_time("covariance_error", [0.01, *[0.5] * 7], seed)
        rows += over_time("random_share", [0.02] + [0.5] * 7, seed)
    found = verdicts("temporal/step-equation", rows)
    assert [one.holds for one in found] == [True, False, True, False, True]
    assert (found[2].agree, found[2].of) == (5, 5)  # epochs of one network have one vote


def test_a_linearised_network_that_forgets_once_refutes():
    def rows(broken):
        where = {"case": MLP_CASE, "seed": 0, "layer": "layer1"}
        values = {"broken": broken, "most_broken": 0.1, "curvature": -1e-17, "linear_fit": 1.0}
        return [{**row(name, value, pairs=10), **where} for name, value in values.items()]

    assert [one.holds for one in verdicts("temporal/linearised", rows(0))] == [True, True]
    assert [one.holds for one in verdicts("temporal/linearised", rows(1))] == [True, False]


def test_isotropic_noise_has_no_strength_and_one_direction_has_much():
    generator = torch.Generator().manual_seed(0)
    flat = torch.randn(200, 16, 10, generator=generator, dtype=torch.float64)
    steep = flat * torch.tensor([10.0] + [1.0] * 9)
    strengths = [anisotropy_rows(one)[0]["value"] for one in (flat, steep)]
    assert abs(strengths[0]) < 0.2
    assert strengths[1] > 4
    assert anisotropy_rows(7 * steep)[0]["value"] == pytest.approx(strengths[1])  # scale does not matter


def test_windows_of_checkpoints_with_enough_before_them():
    seen = np.array([[1.0, 0.9, 0.5], [0.9, 1.0, 0.9], [0.5, 0.9, 1.0]])
    rows = window_rows(seen, [10, 20, 30], 0.8, 1)
    assert [(one["measure"], one["checkpoint"], one["value"]) for one in rows] == [
        ("consistency", 20, 0.9), ("window", 20, 10.0), ("consistency", 30, 0.9), ("window", 30, 10.0),
    ]  # fmt: skip


def test_lenses_go_together_where_ranks_do():
    study = find_study("beyond/three-lenses")
    rng = np.random.default_rng(0)
    rows = []
    for place, case in enumerate(study.cases):
        for seed in range(2):
            values = {"d_lr": place + 0.1 * seed, "latent_gap": -place - 0.2 * seed, "window": rng.normal()}
            rows += [{**row(name, value), "case": case.name, "seed": seed} for name, value in values.items()]
    found = Findings(study, pd.DataFrame(rows))
    assert correlation(found, "d_lr", "latent_gap").holds is True
    assert "rho -" in correlation(found, "d_lr", "latent_gap").words
    assert correlation(found, "d_lr", "window").holds is None
    assert correlation(found, "d_lr", "anisotropy").holds is None, "nothing was measured"
    assert len(PAIRS) == 10
