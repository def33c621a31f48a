"""Linear models: what is measured, against regressions and fits done another way, and what the claims say of it."""

from __future__ import annotations

from pkgutil import resolve_name

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.integrate import quad
from sklearn.linear_model import LinearRegression

from undertow.studies import StudyOutcome, find_study
from undertow.studies.richness.gaussian_process import gp_outputs, relu_kernel
from undertow.studies.richness.linear_model_measures import learned_shares, two_spectra


def table(rows, case="a"):
    return pd.DataFrame([{"case": case, "seed": 0, **one} for one in rows])


SMALL = {"exponent": 1.0, "features": 40, "samples": "8", "draws": 3, "flow_samples": 500}


def test_drawn_losses_are_those_of_scikit_learn():
    """The same draws again, fitted by another library; fails if the map of coefficients is not regression's."""
    rows = table(learned_shares(None, case="a", seed=4, **SMALL))
    generator = torch.Generator().manual_seed(4)
    target = np.zeros(40)
    target[:10] = torch.randn(10, generator=generator, dtype=torch.float64).numpy()
    sizes, losses = np.arange(1, 41) ** -0.5, []
    for _ in range(3):
        functions = torch.randn(8, 40, generator=generator, dtype=torch.float64).numpy()
        fit = LinearRegression(fit_intercept=False).fit(functions * sizes, functions @ target)
        losses.append(np.square(fit.coef_ * sizes - target).sum())
    drawn = rows.loc[rows["measure"] == "loss_drawn", "value"].item()
    assert drawn == pytest.approx(np.mean(losses), rel=1e-8)
    assert rows.loc[rows["measure"] == "share_sum", "value"].item() == pytest.approx(8, rel=1e-9)


def test_the_fit_of_least_norm_goes_through_the_points():
    rows = table(two_spectra(None, case="a", seed=1, power=-4.0))
    points = rows[rows["measure"] == "point"]
    assert len(points) == 4
    assert rows.loc[rows["measure"] == "misfit", "value"].item() < 1e-8
    assert rows.loc[rows["measure"] == "used", "value"].sum() == pytest.approx(1)
    norms = []
    for power in (-4.0, 0.0):  # another fit of the points is larger in this model's own norm
        used = table(two_spectra(None, case="a", seed=1, power=power))
        frequency = used.loc[used["measure"] == "mean_frequency", "value"].item()
        norms.append(frequency)
    assert norms[0] < norms[1]


def test_the_points_do_not_depend_on_the_power():
    one, other = (table(two_spectra(None, case="a", seed=3, power=power)) for power in (-4.0, 4.0))
    same = [rows.loc[rows["measure"] == "point", ["x", "value"]].to_numpy() for rows in (one, other)]
    assert np.array_equal(*same)


@pytest.mark.parametrize("name", ["richness/learnability", "richness/inductive-bias"])
def test_the_studies_hold_at_smoke_scale(name):
    study = find_study(name).at("smoke")
    rows = [
        {"case": case.name, "seed": seed, **one}
        for case in study.cases
        for seed in range(2)
        for one in resolve_name(study.measure)(
            None, case=case.name, seed=seed, **{**study.options, **case.options}
        )
    ]
    outcome = StudyOutcome.of(find_study(name), "smoke", pd.DataFrame(rows))
    held = {claim.text: verdict.holds for claim, verdict in outcome.verdicts()}
    assert all(value is not False for value in held.values()), held
    assert outcome.study.figure(outcome.findings).axes


def test_shares_that_differ_refute_the_theory():
    study = find_study("richness/learnability")
    rows = []
    for name in ("share_drawn", "share_told"):
        rows += [{"measure": name, "value": 0.5 + 0.2 * (name == "share_told"), "position": 1, "n": 10}]
    rows += [
        {"measure": "loss_told", "value": 1.0, "n": 10},
        {"measure": "loss_drawn", "value": 1.3, "n": 10},
    ]
    verdicts = StudyOutcome.of(study, "smoke", table(rows, "exponent 1")).verdicts()
    assert verdicts[0][1].holds is False
    assert verdicts[2][1].holds is False


# -- the Gaussian process


def test_the_kernel_is_that_of_a_wide_network():
    """One layer against its integral: E[relu(u) relu(v)] over Gaussian weights, by quadrature over the angle."""
    a, b = np.array([0.3, -1.2, 0.5]), np.array([1.0, 0.4, -0.2])
    angle = np.arccos(a @ b / np.linalg.norm(a) / np.linalg.norm(b))
    overlap, _ = quad(lambda phi: np.cos(phi) * np.cos(phi - angle), angle - np.pi / 2, np.pi / 2)
    # Polar coordinates: the radius integrates to 2; He's weights have variance 2 / D.
    wanted = np.linalg.norm(a) * np.linalg.norm(b) / 3 * 2 * 2 * overlap / (2 * np.pi)
    rows = torch.tensor(np.stack([a, b]))
    found = relu_kernel(rows, rows, 1)
    assert float(found[0, 1]) == pytest.approx(wanted, rel=1e-10)
    np.testing.assert_allclose(found.diagonal(), (rows.square().sum(1) / 3), rtol=1e-12)


def test_the_process_interpolates_its_samples():
    random = torch.Generator().manual_seed(0)
    x = torch.randn(20, 5, generator=random, dtype=torch.float64)
    y = torch.randn(20, 3, generator=random, dtype=torch.float64)
    np.testing.assert_allclose(gp_outputs(x, y, x, layers=2), y, atol=1e-3)


def test_zeros_give_no_nan():
    x = torch.zeros(2, 4, dtype=torch.float64)
    assert torch.equal(relu_kernel(x, x, 3), torch.zeros(2, 2, dtype=torch.float64))
