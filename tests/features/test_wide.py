"""The Gram and randomised routes against the plain eigendecomposition in float64."""

from __future__ import annotations

import pytest
import torch

from undertow.errors import BadValue
from undertow.features.wide import TensorRows, gram, leading, mean_of, project, trace_of


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def spectrum_rows(n, dim, decay, offset=0.0, dtype=torch.float64):
    """Rows whose second moment has known eigenvalues j^-2decay."""
    g = generator()
    u = torch.linalg.qr(torch.randn(n, min(n, dim), generator=g, dtype=torch.float64))[0]
    v = torch.linalg.qr(torch.randn(dim, min(n, dim), generator=g, dtype=torch.float64))[0]
    sizes = torch.arange(1, min(n, dim) + 1, dtype=torch.float64) ** -decay
    return ((u * sizes) @ v.T + offset).to(dtype)


def exact(rows):
    values, vectors = torch.linalg.eigh(rows.double().T @ rows.double())
    return values.flip(0).clamp(min=0), vectors.flip(1)


def count_for(values, share):
    return int((values.cumsum(0) / values.sum() <= share).sum()) + 1


@pytest.mark.parametrize("block", [None, 3, 16])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_gram_against_the_product(dtype, block):
    rows = torch.randn(40, 2100, generator=generator()).to(dtype)  # more than two runs of columns
    expected = rows.double() @ rows.double().T
    got = gram(TensorRows(rows), block=block)
    scale = expected.diagonal().sqrt()
    error = ((got - expected).abs() / torch.outer(scale, scale)).max()
    assert error < (1e-14 if dtype == torch.float64 else 1e-6)
    assert torch.equal(got, got.T)


def test_gram_route_and_covariance_route_give_one_subspace():
    """Fails if weights are not paired with the rows they belong to."""
    rows = spectrum_rows(30, 80, 1.0)
    values, weights = torch.linalg.eigh(gram(TensorRows(rows), block=7))
    basis = project(TensorRows(rows), weights[:, -5:] / values[-5:].sqrt(), block=7)
    torch.testing.assert_close(basis.T @ basis, torch.eye(5, dtype=torch.float64), rtol=0, atol=1e-10)
    _, vectors = exact(rows)
    top = vectors[:, :5]
    torch.testing.assert_close(basis @ basis.T, top @ top.T, rtol=0, atol=1e-9)


def test_trace_and_mean():
    rows = torch.randn(50, 7, generator=generator()) + 1e4
    assert trace_of(TensorRows(rows), block=8) == pytest.approx(float((rows.double() ** 2).sum()), rel=1e-12)
    torch.testing.assert_close(mean_of(TensorRows(rows), block=8), rows.double().mean(0), rtol=1e-12, atol=0)
    with pytest.raises(BadValue, match="at least one row"):
        mean_of(TensorRows(rows[:0]))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize(("decay", "share"), [(1.0, 0.9), (0.5, 0.8), (2.0, 0.99)])
def test_randomised_directions_hold_what_they_claim(decay, share, dtype):
    """Fails if `share` is estimated instead of measured, or if many more directions than needed are taken."""
    rows = spectrum_rows(300, 400, decay, dtype=dtype)
    found = leading(TensorRows(rows), share=share, generator=generator(1), width=16, block=64)
    values, _ = exact(rows)
    k = found.vectors.shape[1]
    total = float(values.sum())

    identity = torch.eye(k, dtype=torch.float64)
    torch.testing.assert_close(found.vectors.T @ found.vectors, identity, rtol=0, atol=1e-12)
    held = float((rows.double() @ found.vectors).square().sum()) / float(rows.double().square().sum())
    assert found.share == pytest.approx(held, rel=1e-12)  # measured, to float64
    assert found.share <= float(values[:k].sum()) / total + 1e-12  # a lower bound of the best
    assert found.share > share
    assert found.reached
    best = count_for(values, share)
    assert best <= k <= best + max(1, best // 50)


def test_a_number_of_directions_may_be_asked_for():
    rows = spectrum_rows(200, 300, 1.0)
    found = leading(
        TensorRows(rows), components=6, generator=generator(1), width=16, tolerance=1e-9, precise=True
    )
    values, vectors = exact(rows)
    torch.testing.assert_close(found.values, values[:6], rtol=1e-6, atol=0)
    overlap = (vectors[:, :6].T @ found.vectors).square().sum()
    assert float(overlap) == pytest.approx(6, abs=1e-5)


def test_a_low_rank_is_found_exactly_and_then_it_stops():
    """Fails if rounding noise is taken for directions: the space would grow to its limit."""
    g = generator()
    rows = torch.randn(400, 5, generator=g) @ torch.randn(5, 500, generator=g)
    found = leading(TensorRows(rows), share=0.999999, generator=generator(1), width=16)
    assert found.vectors.shape[1] <= 5
    assert found.share > 0.999999
    assert found.passes < 8


def test_more_directions_than_there_are():
    rows = spectrum_rows(10, 50, 0.0)  # ten equal eigenvalues
    found = leading(TensorRows(rows), components=10, generator=generator(1))
    assert found.share == pytest.approx(1, abs=1e-9)
    short = leading(TensorRows(rows), components=11, generator=generator(1))
    assert not short.reached
    assert short.vectors.shape[1] == 10


def test_an_eigenvalue_with_more_directions_than_a_block():
    """Fails if an invariant block is taken for the whole: its images never leave it."""
    rows = spectrum_rows(60, 90, 0.0)  # sixty equal eigenvalues
    found = leading(TensorRows(rows), share=0.99, generator=generator(1), width=16)
    assert found.reached
    assert found.vectors.shape[1] == 60


def test_a_limit_is_kept_and_told():
    """Fails if what was found within the limit is passed off as what was asked for."""
    rows = spectrum_rows(200, 300, 0.0)  # flat: every direction holds 1/200
    found = leading(TensorRows(rows), share=0.9, generator=generator(1), width=16, limit=64)
    assert not found.reached
    assert found.vectors.shape[1] == 64
    assert found.share == pytest.approx(64 / 200, abs=0.01)


def test_the_same_seed_gives_the_same_directions():
    rows = TensorRows(spectrum_rows(100, 120, 1.0))
    one, two = (leading(rows, share=0.9, generator=generator(3)) for _ in range(2))
    assert torch.equal(one.vectors, two.vectors)


def test_zeros_have_no_directions():
    found = leading(TensorRows(torch.zeros(20, 30)), share=0.9, generator=generator())
    assert found.vectors.shape == (30, 0)
    assert found.share == 0
    assert not found.reached


@pytest.mark.parametrize(
    "wrong", [{}, {"share": 0.9, "components": 3}, {"share": 1.0}, {"share": 0.0}, {"components": 0}], ids=str
)
def test_bad_requests_are_refused(wrong):
    with pytest.raises(BadValue, match="leading: wanted"):
        leading(TensorRows(torch.ones(4, 5)), generator=generator(), **wrong)
    with pytest.raises(BadValue, match=r"weights \(4, k\), got \(3, 2\)"):
        project(TensorRows(torch.ones(4, 5)), torch.ones(3, 2))
