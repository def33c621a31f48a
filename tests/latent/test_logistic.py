"""The logistic probe against torch's own layer and optimiser, and against scikit-learn's minimum."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from undertow.errors import BadData, BadValue, UnknownName
from undertow.latent import LogisticProbe, logistic

Features = Callable[..., tuple[Tensor, Tensor]]


def by_autograd(
    rows: Tensor, labels: Tensor, classes: int, *, epochs: int, batch: int, lr: float, seed: int
) -> nn.Linear:
    """The recipe with nn.Linear, cross_entropy, backward and torch.optim.Adam."""
    draw = torch.Generator().manual_seed(seed)
    layer = nn.Linear(rows.shape[1], classes, dtype=rows.dtype)
    bound = rows.shape[1] ** -0.5
    start = torch.empty(layer.weight.numel() + classes).uniform_(-bound, bound, generator=draw)
    with torch.no_grad():
        layer.weight.copy_(start[:-classes].view_as(layer.weight))
        layer.bias.copy_(start[-classes:])
    optimiser = torch.optim.Adam(layer.parameters(), lr=lr)
    for _ in range(epochs):
        for at in torch.randperm(len(rows), generator=draw).split(batch):
            optimiser.zero_grad()
            nn.functional.cross_entropy(layer(rows[at]), labels[at]).backward()
            optimiser.step()
    return layer


@pytest.mark.parametrize(("count", "batch"), [(300, 32), (301, 50), (20, 128)])
@pytest.mark.parametrize("width", [9, 512, 521, 771])  # 521 cannot be cut into panels, 771 in three
@pytest.mark.parametrize("fetch", [2**20, 2**15, 1])  # all batches at once, a few, each alone
def test_adam_equals_torch(
    features: Features, count: int, batch: int, width: int, fetch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails for a wrong gradient, a wrong moment, a lost last batch, a misplaced panel or another correction."""
    monkeypatch.setattr(logistic, "FETCH", fetch)
    rows, labels = features(count, width)
    layer = by_autograd(rows, labels, 4, epochs=5, batch=batch, lr=0.01, seed=3)
    probe = LogisticProbe(epochs=5, batch_size=batch, lr=0.01, seed=3).fit(rows, labels)
    np.testing.assert_allclose(probe.coef_, layer.weight.detach(), rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(probe.intercept_, layer.bias.detach(), rtol=1e-9, atol=1e-11)
    loss = nn.functional.cross_entropy(layer(rows), labels).detach()
    assert probe.loss_ == pytest.approx(float(loss), rel=1e-9)
    assert probe.n_iter_ == 5
    assert probe.converged_ is False


@pytest.mark.parametrize(("dtype", "near"), [(torch.float64, 1e-9), (torch.float32, 1e-5)], ids=str)
def test_fits_that_step_together_equal_torch_one_by_one(
    features: Features, dtype: torch.dtype, near: float
) -> None:
    """Fails if the softmax runs over the classes of another fit, or if fits differ in start or order."""
    rows, labels = features(301, 512)
    rows, sets = rows.to(dtype), [labels, labels.flip(0), labels.roll(1), labels.clamp(max=2)]
    probe = LogisticProbe(epochs=5, batch_size=50, lr=0.01, seed=3)
    for found, own in zip(probe.fit_each(rows, sets), sets, strict=True):
        layer = by_autograd(rows, own, len(own.unique()), epochs=5, batch=50, lr=0.01, seed=3)
        np.testing.assert_allclose(found.coef_, layer.weight.detach(), rtol=near, atol=near / 10)
        np.testing.assert_allclose(found.intercept_, layer.bias.detach(), rtol=near, atol=near / 10)
        loss = nn.functional.cross_entropy(layer(rows), own).detach()
        assert found.loss_ == pytest.approx(float(loss), rel=near)
        assert (found.n_iter_, found.converged_) == (5, False)


def test_adam_starts_like_a_linear_layer(features: Features) -> None:
    rows, labels = features(400, 25)
    probe = LogisticProbe(epochs=1, lr=1e-12, batch_size=400).fit(rows, labels)
    assert float(probe.coef_.abs().max()) <= 0.2  # 1 / sqrt(25)
    assert float(probe.coef_.std()) == pytest.approx(0.2 / 3**0.5, rel=0.15)


def test_seeds_and_nothing_else_decide(features: Features) -> None:
    rows, labels = features(200, 6)
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    one = LogisticProbe().fit(rows, labels).coef_
    assert torch.equal(before, torch.random.get_rng_state())
    torch.manual_seed(2)
    assert torch.equal(one, LogisticProbe().fit(rows, labels).coef_)
    assert not torch.equal(one, LogisticProbe(seed=1).fit(rows, labels).coef_)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("l2", [1e-2, 1e-4])
def test_lbfgs_finds_the_minimum(features: Features, l2: float, dtype: torch.dtype) -> None:
    """scikit-learn's C is 1 / (l2 * rows): the same minimum by other code."""
    rows, labels = features(400, 8, spread=1.5)
    theirs = LogisticRegression(C=1 / (l2 * 400), tol=1e-9, max_iter=10_000).fit(rows.numpy(), labels.numpy())
    probe = LogisticProbe("lbfgs", l2=l2, tol=1e-6).fit(rows.to(dtype), labels)
    assert probe.converged_
    assert probe.n_iter_ > 3
    probabilities = theirs.predict_proba(rows.numpy())
    np.testing.assert_allclose(probe.probabilities(rows.to(dtype)), probabilities, rtol=0, atol=3e-3)


def test_lbfgs_gradient_is_zero_at_its_answer(features: Features) -> None:
    rows, labels = features(300, 5, spread=2.0)
    probe = LogisticProbe("lbfgs", l2=0.01, tol=1e-7).fit(rows, labels)
    coef, intercept = probe.coef_.clone().requires_grad_(), probe.intercept_.clone().requires_grad_()
    loss = nn.functional.cross_entropy(rows @ coef.T + intercept, labels) + 0.005 * coef.square().sum()
    loss.backward()
    assert float(coef.grad.abs().max()) < 1e-6
    assert float(intercept.grad.abs().max()) < 1e-6
    plain = nn.functional.cross_entropy(rows @ probe.coef_.T + probe.intercept_, labels)
    assert probe.loss_ == pytest.approx(float(plain), rel=1e-9)


@pytest.mark.parametrize("tol", [1e-4, 1e-7])
def test_float32_rows_end_where_float64_ones_do(tol: float) -> None:
    """Fails if float32 has the last word: its gradient is noise long before 1e-7."""
    draw = torch.Generator().manual_seed(0)
    labels = torch.randint(5, (3000,), generator=draw)
    rows = torch.randn(3000, 20, generator=draw) * torch.logspace(0.5, -1, 20) + 5
    rows[torch.arange(3000), labels] += 1
    probe = LogisticProbe("lbfgs", l2=1e-3, tol=tol).fit(rows, labels)
    exact = LogisticProbe("lbfgs", l2=1e-3, tol=1e-9).fit(rows.double(), labels)
    assert probe.converged_
    # The loss is above its minimum by at most |gradient|^2 / (2 l2).
    penalised = [one.loss_ + 5e-4 * float(one.coef_.double().square().sum()) for one in (probe, exact)]
    assert -1e-9 < penalised[0] - penalised[1] < 105 * tol**2 / 2e-3 + 1e-9


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_stopping_early_is_said(features: Features, dtype: torch.dtype) -> None:
    rows, labels = features(300, 5)
    with pytest.warns(ConvergenceWarning, match="after 2 iterations the gradient is .* above tol"):
        probe = LogisticProbe("lbfgs", max_iter=2).fit(rows.to(dtype), labels)
    assert not probe.converged_
    assert probe.n_iter_ == 2


def test_probabilities_sum_to_one(features: Features) -> None:
    rows, labels = features(100, 5)
    probe = LogisticProbe().fit(rows, labels)
    np.testing.assert_allclose(probe.probabilities(rows).sum(1), np.ones(100), rtol=1e-12)
    assert isinstance(probe.probabilities(rows.numpy()), np.ndarray)


def test_features_beyond_float32_are_refused() -> None:
    rows = torch.tensor([[3e38, -3e38], [-3e38, 3e38]]).repeat(10, 1)
    with pytest.raises(
        BadData, match=r"wanted finite weights, got NaN or infinity from features as large as 3e\+38"
    ):
        LogisticProbe(lr=10.0).fit(rows, torch.arange(20) % 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lr": 0}, r"LogisticProbe\(lr=...\): wanted a number above 0, got 0"),
        ({"epochs": 0}, r"\(epochs=...\): wanted a whole number from 1 up, got 0"),
        ({"batch_size": 1.5}, "got 1.5"),
        ({"seed": -1}, "from 0 up, got -1"),
        ({"l2": -1.0}, r"\(l2=...\): wanted a number from 0 up"),
        ({"tol": 0.0}, r"\(tol=...\)"),
        ({"max_iter": 0}, r"\(max_iter=...\)"),
    ],
)
def test_settings_are_checked_in_fit(settings: dict[str, float], message: str, features: Features) -> None:
    with pytest.raises(BadValue, match=message):
        LogisticProbe(**settings).fit(*features(20, 3))


def test_an_unknown_solver_is_answered_with_near_ones(features: Features) -> None:
    with pytest.raises(UnknownName, match=r"no solver for LogisticProbe 'lbfg'. Did you mean 'lbfgs'"):
        LogisticProbe("lbfg").fit(*features(20, 3))


@pytest.mark.parametrize("setting", ["batch_size", "epochs", "max_iter"])
def test_the_smallest_settings_are_allowed(setting: str, features: Features) -> None:
    solver = "lbfgs" if setting == "max_iter" else "adam"
    with warnings.catch_warnings(action="ignore"):  # one step is no convergence
        probe = LogisticProbe(solver, **{setting: 1}).fit(*features(20, 3))
    assert np.isfinite(np.asarray(probe.coef_)).all()
