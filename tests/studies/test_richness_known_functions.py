"""The recipes heaviside, regression and nystrom, their claims and what they measure."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from undertow.studies import StudyOutcome, find_study
from undertow.studies.findings import row
from undertow.studies.richness.known_functions_measures import (
    by_target,
    eigenfunctions,
    heaviside,
    nystrom,
    spectrum_errors,
)
from undertow.studies.richness.last_layer_measures import LayerSight
from undertow.studies.train_and_measure import trained


def judge(study, index, rows):
    table = pd.DataFrame([{"seed": 0, **one} for one in rows])
    return StudyOutcome.of(study, "smoke", table).verdicts()[index][1]


# -- claims


def steps(quality, used, checkpoint):
    where = {"case": "step function", "split": "test", "checkpoint": checkpoint}
    return [row("best_feature_quality", quality, **where), row("best_feature_utilisation", used, **where)]


@pytest.mark.parametrize(
    ("quality", "used", "holds"), [(0.97, 0.99, True), (0.97, 0.6, False), (0.6, 0.99, False)]
)
def test_one_feature_must_fit_target_and_output(quality, used, holds):
    rows = [*steps(0.5, 0.5, 0), *steps(quality, used, 100)]
    assert judge(find_study("richness/heaviside"), 0, rows).holds is holds


def test_fewer_features_after_training():
    def curve(values, checkpoint):
        return [
            row("quality", v, case="step function", position=k, checkpoint=checkpoint)
            for k, v in enumerate(values, start=1)
        ]

    study, early, late = find_study("richness/heaviside"), [0.4, 0.7, 0.96], [0.96, 0.97, 0.98]
    assert judge(study, 2, curve(early, 0) + curve(late, 9)).holds is True
    assert judge(study, 2, curve(late, 0) + curve(early, 9)).holds is False
    never = judge(study, 2, curve(early, 0) + curve([0.1, 0.2, 0.3], 9))
    assert never.holds is False
    assert "inf at the end" in never.numbers


@pytest.mark.parametrize(("two", "holds"), [(0.99, True), (0.7, False)])
def test_two_features_for_a_scalar(two, holds):
    rows = [
        row("utilisation", two, case="scalar output", position=2),
        row("utilisation", 0.2, case="ten classes", position=2),
    ]
    assert judge(find_study("richness/regression"), 0, rows).holds is holds


def test_a_claim_without_its_case_cannot_be_told():
    rows = [row("utilisation", 0.99, case="scalar output", position=2)]
    assert judge(find_study("richness/regression"), 0, rows).holds is None


@pytest.mark.parametrize(("worst", "holds"), [(0.2, True), (0.3, False)])
def test_span_error_is_bounded_for_all_k(worst, holds):
    rows = [
        row("span_error", v, case="exponent 1", position=k)
        for k, v in enumerate((0.01, worst, 0.02), start=1)
    ]
    assert judge(find_study("richness/nystrom"), 2, rows).holds is holds


# -- measures


def test_errors_are_those_of_the_definition():
    """Would fail if the overlaps were summed over the wrong axis or the tail came first."""
    rng = torch.Generator().manual_seed(0)
    truth = torch.arange(1, 7, dtype=torch.float64) ** -1.0
    rows = torch.randn(400, 6, generator=rng, dtype=torch.float64) * truth.sqrt()
    values, functions, spans = (part.numpy() for part in spectrum_errors(rows, truth))
    _, singular, vectors = np.linalg.svd(rows.numpy() / np.sqrt(400), full_matrices=False)
    np.testing.assert_allclose(values, ((singular**2 - truth.numpy()) / truth.numpy()) ** 2, rtol=1e-9)
    np.testing.assert_allclose(functions, [1 - abs(vectors[k, k]) for k in range(6)], rtol=0, atol=1e-9)
    for k in range(1, 7):
        shared = sum(vectors[i, j] ** 2 for i in range(k) for j in range(k))
        assert spans[k - 1] == pytest.approx(1 - shared / k, abs=1e-9)


def test_more_samples_err_less():
    def worst(samples):
        rows = nystrom(None, case="", seed=0, exponent=1.0, samples=samples, features=30, draws=2)
        return max(one["value"] for one in rows if one["measure"] == "span_error")

    assert worst(20_000) < worst(300) / 4


def test_eigenfunctions_are_orthonormal_where_they_were_found():
    rng = torch.Generator().manual_seed(1)
    train = LayerSight(torch.rand(300, 8, generator=rng), torch.zeros(300, 1), torch.zeros(300))
    drawn = torch.stack(eigenfunctions(train, train, 5))  # (5, 300)
    torch.testing.assert_close(drawn @ drawn.T / 300, torch.eye(5, dtype=torch.float64), rtol=0, atol=1e-9)
    assert (drawn[:, -1] >= 0).all()


def test_the_spectrum_of_a_scalar_run_is_against_the_scalar(tmp_path):
    """Would fail if labels became ten one-hot functions: a perfect scalar feature would then score a tenth."""
    study = find_study("richness/regression").at("smoke")
    config = replace(study.case("scalar output").train, model="mlp:16", epochs=1)
    rows = by_target(trained(config, (), tmp_path), case="", seed=0, samples=200)
    first = {
        one["measure"]: one["value"] for one in rows if one.get("position") == 1 and one["value"] is not None
    }
    # Digits 0 to 9 have mean 4.5 and mean square 28.5: the constant alone expresses 4.5^2 / 28.5 = .71 of them.
    assert first["quality"] > 0.5


def test_heaviside_keeps_the_target_as_drawn(tmp_path):
    config = find_study("richness/heaviside").at("smoke").cases[0].train
    rows = pd.DataFrame(heaviside(trained(config, (), tmp_path), case="", seed=0, grid=11))
    target = rows[(rows["measure"] == "curve") & (rows["function"] == "target")]
    assert set(target["checkpoint"]) == {0, 1, 3, 5}
    assert (target["value"] == (target["x"] > 0)).all()
