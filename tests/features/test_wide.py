"""Products of rows that are read in blocks against the plain ones in float64."""

from __future__ import annotations

import pytest
import torch

from undertow.errors import BadValue
from undertow.features import wide
from undertow.features.wide import TensorRows, blocks, gram, mean_of, moment_of, project, trace_of


def drawn(n, dim, dtype=torch.float64, offset=0.0):
    rows = torch.randn(n, dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + offset
    return rows.to(dtype)


@pytest.fixture(params=[None, 3, 16], ids=str)
def read(request, monkeypatch):
    """Reads so many rows of a matrix at a time, or as many as usual; the places are out of order."""

    def rows_of(rows):
        if request.param:
            monkeypatch.setattr(wide, "READ_BYTES", 4 * rows.shape[1] * request.param)
        places = torch.randperm(len(rows), generator=torch.Generator().manual_seed(1))
        return TensorRows(rows[places.argsort()], places)

    return rows_of


DTYPES = pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str
)


@DTYPES
@pytest.mark.parametrize("product", [gram, moment_of], ids=["gram", "moment"])
def test_products_against_the_whole(dtype, product, read):
    rows = drawn(40, 2100 if product is gram else 90, dtype)  # more than two runs of columns
    whole = rows.double() if product is gram else rows.double().T
    expected = whole @ whole.T
    got = product(read(rows))
    scale = expected.diagonal().sqrt()
    error = ((got - expected).abs() / torch.outer(scale, scale)).max()
    assert error < (1e-14 if dtype == torch.float64 else 1e-6)
    assert torch.equal(got, got.T)


def test_gram_route_and_covariance_route_give_one_subspace(read):
    """Fails if weights are not paired with the rows they belong to."""
    rows = drawn(30, 80) * torch.arange(1, 81).double() ** -1.0
    values, weights = torch.linalg.eigh(gram(read(rows)))
    basis = project(read(rows), weights[:, -5:] / values[-5:].sqrt())
    torch.testing.assert_close(basis.T @ basis, torch.eye(5, dtype=torch.float64), rtol=0, atol=1e-10)
    top = torch.linalg.eigh(rows.T @ rows)[1][:, -5:]
    torch.testing.assert_close(basis @ basis.T, top @ top.T, rtol=0, atol=1e-9)


def test_trace_and_mean(read):
    rows = drawn(50, 7, torch.float32, offset=1e4)
    assert trace_of(read(rows)) == pytest.approx(float((rows.double() ** 2).sum()), rel=1e-12)
    torch.testing.assert_close(mean_of(read(rows)), rows.double().mean(0), rtol=1e-12, atol=0)


def test_no_rows_have_no_products():
    nothing = TensorRows(drawn(5, 4), torch.arange(0))
    assert gram(nothing).shape == (0, 0)
    assert trace_of(nothing) == 0
    assert mean_of(nothing).tolist() == [0.0] * 4
    assert not list(blocks(nothing))


def test_weights_must_fit_the_rows():
    with pytest.raises(BadValue, match=r"weights \(4, k\), got \(3, 2\)"):
        project(TensorRows(torch.ones(4, 5), torch.arange(4)), torch.ones(3, 2))
