"""CKA, S_init, the parameter norm and the effective dimension."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from undertow.errors import BadData
from undertow.richness import (
    DLR,
    cka,
    effective_dimension,
    initial_kernel_alignment,
    squared_parameter_norm,
)


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("widths", [(4, 6), (4, 80), (80, 90)])
def test_cka_is_that_of_the_kernels(widths):
    """Fails if kernels are not centred, or wide features lose part of their kernel."""
    a, b = (draw(30, width, seed=width).numpy() + 2 for width in widths)
    centre = np.eye(30) - 1 / 30
    k, m = (centre @ x @ x.T @ centre for x in (a, b))
    wanted = (k * m).sum() / np.linalg.norm(k) / np.linalg.norm(m)
    assert cka(a, b) == pytest.approx(wanted, rel=1e-12)
    assert cka(b, a) == pytest.approx(wanted, rel=1e-12)
    assert initial_kernel_alignment(a, b) == cka(a, b)
    assert cka(a, 3 * a + 1) == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize(("count", "widths"), [(3000, (200, 150)), (400, (700, 600)), (900, (64, 1200))])
@pytest.mark.parametrize("offset", [0.0, 30.0])
def test_products_in_float32_are_exact_enough(count, widths, offset):
    """Fails for float32 sums, and if rows are rounded before they are centred: 4e-6 without an offset already."""
    a = draw(count, widths[0])
    b = torch.tanh(a @ draw(*widths, seed=1) / widths[0] ** 0.5)
    a, b = ((part + offset).float() for part in (a, b))
    exact = cka(a.double(), b.double())
    assert cka(a, b) == pytest.approx(exact, rel=2e-8)
    assert cka(a, b.double()) == pytest.approx(exact, rel=2e-8)


def test_cka_refuses_constant_features_and_other_samples():
    with pytest.raises(BadData, match="constant ones up to rounding"):
        cka(torch.full((9, 2), 0.1), draw(9, 2))
    with pytest.raises(BadData, match="got 9 and 8 rows"):
        cka(draw(9, 2), draw(8, 2))


def test_parameter_norm_counts_shared_parameters_once():
    net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 3))
    net[2].weight = net[0].weight
    wanted = sum(float(p.detach().double().square().sum()) for p in net.parameters())
    assert squared_parameter_norm(net) == pytest.approx(wanted, rel=1e-14)
    with pytest.raises(BadData, match="without any"):
        squared_parameter_norm(nn.ReLU())
    with torch.no_grad():
        net[0].weight[0, 0] = torch.nan
    with pytest.raises(BadData, match="diverged"):
        squared_parameter_norm(net)


def test_effective_dimension_of_eigenvalues():
    assert effective_dimension(np.array([2.0, 2, 2, 0])) == pytest.approx(3, rel=1e-14)
    shares = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    wanted = math.exp(-sum(s * math.log(s) for s in shares.tolist()))
    assert effective_dimension(7 * shares) == pytest.approx(wanted, rel=1e-14)
    # Eq. 9: whatever the first is, it counts as one; the order given does not matter.
    with_constant = torch.cat([7 * shares, torch.tensor([1e3], dtype=torch.float64)])
    assert effective_dimension(with_constant, leave_first=True) == pytest.approx(1 + wanted, rel=1e-14)


@pytest.mark.parametrize("leave_first", [False, True])
@pytest.mark.parametrize("width", [5, 70])
def test_effective_dimension_from_features_and_moments(width, leave_first):
    """Fails if the moments are centred, or the wrong side of a wide matrix is taken."""
    features = draw(40, width) @ torch.diag(torch.linspace(1, 3, width).double()) + 0.5
    metric = DLR()
    for part in features.split(9):
        metric.update(part, part[:, :2])
    eigenvalues = np.linalg.svd(features.numpy(), compute_uv=False) ** 2
    wanted = effective_dimension(eigenvalues, leave_first)
    assert effective_dimension(features, leave_first) == pytest.approx(wanted, rel=1e-10)
    streamed = effective_dimension(metric.kernel().eigenvalues(), leave_first)
    assert streamed == pytest.approx(wanted, rel=1e-10)


def test_collapsed_classes_have_as_many_dimensions():
    onehot = torch.eye(6, dtype=torch.float64).repeat(5, 1) + 0.7
    turned = onehot @ torch.linalg.qr(draw(20, 20)).Q[:6]
    assert effective_dimension(turned, leave_first=True) == pytest.approx(6, rel=1e-10)


@pytest.mark.parametrize(
    ("values", "leave_first", "message"),
    [
        (torch.zeros(4, 2), False, "got features of rank 0"),
        (torch.ones(4, 2), True, "a second eigenvalue above 0"),
        (torch.tensor([1.0, -0.5]), False, "got -0.5"),
        (torch.tensor([1.0, torch.nan]), False, "finite eigenvalues"),
        (torch.tensor([]), False, "got none"),
        (draw(4, 2) * torch.inf, False, "NaN or infinity"),
    ],
    ids=["zeros", "rank one", "negative", "nan", "none", "infinity"],
)
def test_degenerate_dimensions_are_refused(values, leave_first, message):
    with pytest.raises(BadData, match=message):
        effective_dimension(values, leave_first)
