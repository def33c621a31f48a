"""The eigenvector solver: partial against whole, and the matrices that break solvers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from undertow.errors import BadData
from undertow.features import wide
from undertow.features.wide import TensorRows
from undertow.latent import spectrum
from undertow.latent.spectrum import eigenvectors, eigenvectors_of_each, eigenvectors_of_rows, eigh


def planted(values: Tensor, seed: int = 0, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """A symmetric matrix with the given eigenvalues (falling), and its eigenvectors."""
    draw = torch.Generator().manual_seed(seed)
    square = torch.randn(len(values), len(values), generator=draw, dtype=torch.float64)
    vectors = torch.linalg.qr(square)[0]
    return ((vectors * values) @ vectors.T).to(dtype), vectors


def like_relu(size: int, seed: int = 0) -> Tensor:
    """Eigenvalues as they are after a ReLU: one has most of the trace, the others fall off slowly."""
    rank = torch.arange(1, size + 1, dtype=torch.float64)
    noise = torch.rand(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    values = rank**-1.6 * (1 + 0.2 * noise)
    values[0] = 4 * values[1:].sum()
    return values.sort(descending=True).values


def smallest_cosine(one: Tensor, other: Tensor) -> float:
    """Of the principal angles between two subspaces of one dimension: 1 if they are the same."""
    return float(torch.linalg.svdvals(one.T.double() @ other.double()).min())


def wanted_count(values: Tensor, share: float) -> int:
    """The rule, word by word: the smallest k whose cumulative share is above `share`."""
    total, held = float(values.sum()), 0.0
    for k, value in enumerate(values.tolist(), 1):
        held += value
        if held / total > share:
            return k
    return len(values)


@pytest.fixture
def never_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails a test that was meant for the partial solver when the whole decomposition steps in."""

    def refuse(*_: object) -> None:
        raise AssertionError("the whole decomposition stepped in")

    monkeypatch.setattr(spectrum, "_whole", refuse)


@pytest.mark.usefixtures("never_whole")
@pytest.mark.parametrize("share", [0.5, 0.9, 0.97])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_partial_equals_whole(share: float, dtype: torch.dtype) -> None:
    """Fails if the space stops growing before the vectors hold still, or the count is off by one."""
    values = like_relu(600)
    k = wanted_count(values, share)
    values[:k] *= 1.02  # a gap at the cut, without which the subspace is not defined
    k = wanted_count(values, share)
    moment, vectors = planted(values, dtype=dtype)
    found = eigenvectors(moment, share=share)

    assert found.vectors.shape == (600, k)
    assert found.vectors.dtype == dtype
    np.testing.assert_allclose(found.values, values[:k], rtol=1e-10 if dtype == torch.float64 else 1e-3)
    gap = float(values[k - 1] - values[k]) / float(values.sum())
    assert gap > 1e-6
    assert smallest_cosine(vectors[:, :k], found.vectors) > 1 - (1e-9 if dtype == torch.float64 else 1e-4)
    # The captured share is what counts where eigenvalues lie close together.
    held = float((found.vectors.double() * (moment.double() @ found.vectors.double())).sum())
    assert held == pytest.approx(float(values[:k].sum()), rel=1e-12 if dtype == torch.float64 else 2e-6)


@pytest.mark.usefixtures("never_whole")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_count_of_vectors(dtype: torch.dtype) -> None:
    values = like_relu(600)
    moment, vectors = planted(values, dtype=dtype)
    for count in (1, 5, 40):
        found = eigenvectors(moment, count=count)
        assert found.vectors.shape == (600, count)
        near = 1e-9 if dtype == torch.float64 else 1e-4
        assert smallest_cosine(vectors[:, :count], found.vectors) > 1 - near


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("size", [40, 300, 700])
def test_vectors_are_orthonormal_and_total_is_the_trace(size: int, dtype: torch.dtype) -> None:
    moment, _ = planted(like_relu(size), dtype=dtype)
    found = eigenvectors(moment, share=0.98)
    overlap = found.vectors.double().T @ found.vectors.double()
    tolerance = 1e-10 if dtype == torch.float64 else 3e-5
    np.testing.assert_allclose(overlap, np.eye(len(overlap)), rtol=0, atol=tolerance)
    assert found.total == pytest.approx(float(like_relu(size).sum()), rel=1e-6)


def test_share_at_a_step_takes_one_more() -> None:
    """Fails for a rule that stops when the share is reached; it must be exceeded."""
    moment = torch.diag(torch.tensor([4.0, 2.0, 1.0, 1.0], dtype=torch.float64))
    assert [eigenvectors(moment, share=s).values.tolist() for s in (0.49, 0.5, 0.75, 0.8)] == [
        [4.0],
        [4.0, 2.0],
        [4.0, 2.0, 1.0],
        [4.0, 2.0, 1.0],
    ]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("size", [60, 500])
def test_zero_eigenvalues_never_enter(size: int, dtype: torch.dtype) -> None:
    """Fails if rounding noise of a rank-deficient product counts as a direction."""
    draw = torch.Generator().manual_seed(1)
    rows = torch.relu(torch.randn(7, size, generator=draw, dtype=dtype)).repeat(
        5, 1
    )  # rank 7, each row 5 times
    moment = rows.T @ rows
    assert len(eigenvectors(moment, share=1.0).values) == 7
    assert len(eigenvectors(moment, count=30).values) == 7


@pytest.mark.parametrize("share", [0.93, 0.95, 0.97])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_repeated_eigenvalues_are_not_missed(dtype: torch.dtype, share: float) -> None:
    """Fails for a Krylov space that is believed: it sees only a block of equal eigenvalues."""
    copies = torch.full((100,), 0.005, dtype=torch.float64)
    values = torch.cat([like_relu(800), copies]).sort(descending=True).values
    moment, _ = planted(values, dtype=dtype)
    k = wanted_count(values, share)
    found = eigenvectors(moment, share=share)
    assert len(found.values) == k
    held = float((found.vectors.double() * (moment.double() @ found.vectors.double())).sum())
    assert held == pytest.approx(float(values[:k].sum()), rel=1e-12 if dtype == torch.float64 else 2e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_white_matrix_needs_nearly_all(dtype: torch.dtype) -> None:
    """Equal eigenvalues throughout: nothing to gain, the count must still be right."""
    found = eigenvectors(torch.eye(400, dtype=dtype) * 3, share=0.99)
    assert found.vectors.shape == (400, 397)  # 396 / 400 is 0.99: one more


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_scale_changes_nothing_but_the_values(scale: float) -> None:
    moment, _ = planted(like_relu(400))
    plain, far = eigenvectors(moment, share=0.95), eigenvectors(moment * scale, share=0.95)
    np.testing.assert_allclose(far.values / scale, plain.values, rtol=1e-10)
    assert smallest_cosine(plain.vectors, far.vectors) > 1 - 1e-9


def test_nothing_has_no_directions() -> None:
    found = eigenvectors(torch.zeros(300, 300), share=0.99)
    assert found.vectors.shape == (300, 0)
    assert found.total == 0


@pytest.mark.parametrize("size", [200, 700])
def test_a_small_eigenvector_survives_float32_beside_a_large_one(size: int) -> None:
    """Fails if float32 rounding, which is relative to the largest eigenvalue, blurs the small ones."""
    values = like_relu(size)
    values[0] *= 5
    k = wanted_count(values, 0.998)
    values[:k] *= 1.05
    k = wanted_count(values, 0.998)
    moment, vectors = planted(values, dtype=torch.float32)
    found = eigenvectors(moment, share=0.998)
    assert len(found.values) == k
    assert float(values[k - 1] / values[0]) < 1e-4
    assert smallest_cosine(vectors[:, :k], found.vectors) > 1 - 1e-4


def difficult(size: int, dtype: torch.dtype) -> list[Tensor]:
    """Matrices of one size that a solver takes different ways with."""
    steep = torch.arange(1, size + 1, dtype=torch.float64) ** -3.0
    low = torch.randn(7, size, generator=torch.Generator().manual_seed(1), dtype=dtype)
    return [
        planted(like_relu(size), dtype=dtype)[0],
        low.T @ low,  # of rank 7: its space ends at once
        torch.zeros(size, size, dtype=dtype),
        planted(like_relu(size, seed=3), seed=4, dtype=dtype)[0] * 1e6,
        torch.eye(size, dtype=dtype),  # nothing to gain: the whole decomposition
        planted(steep, seed=5, dtype=dtype)[0],
    ]


@pytest.mark.parametrize("wanted", [{"share": 0.9}, {"share": 0.97}, {"count": 1}, {"count": 20}])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_several_at_once_are_as_each_alone(dtype: torch.dtype, wanted: dict[str, float]) -> None:
    """Fails if one that ends early, gives up or is empty changes the others or takes their place."""
    moments = difficult(400, dtype)
    for found, moment in zip(eigenvectors_of_each(torch.stack(moments), **wanted), moments, strict=True):
        alone = eigenvectors(moment, **wanted)
        assert len(found.values) == len(alone.values)
        assert found.total == pytest.approx(alone.total)
        near = 1e-9 if dtype == torch.float64 else 1e-4
        np.testing.assert_allclose(found.values, alone.values, rtol=near)
        held = [float((one.vectors * (moment @ one.vectors)).sum()) for one in (found, alone)]
        assert held[0] == pytest.approx(held[1], rel=1e-10 if dtype == torch.float64 else 2e-6)
        overlap = found.vectors.double().T @ found.vectors.double()
        np.testing.assert_allclose(overlap, np.eye(len(overlap)), rtol=0, atol=near)


def test_a_flat_matrix_in_the_group_does_not_blur_the_others() -> None:
    """Fails if large eigenvectors stay in float32 matrices because another of the group has none to take off."""
    rank = torch.arange(1, 501, dtype=torch.float64)
    steep = rank**-1.2
    steep[0] = 9 * steep[1:].sum()
    spectra = [steep, rank**-0.3, rank**-1.0]
    moments = [planted(values, seed=seed) for seed, values in enumerate(spectra)]
    found = eigenvectors_of_each(torch.stack([moment.float() for moment, _ in moments]), share=0.99)
    for one, values, (_, vectors) in zip(found, spectra, moments, strict=True):
        k = wanted_count(values, 0.99)
        assert len(one.values) == k
        assert smallest_cosine(vectors[:, :k], one.vectors) > 1 - 1e-4


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_moments_that_are_not_finite_are_refused(bad: float) -> None:
    moment = torch.eye(300)
    moment[5, 5] = bad
    with pytest.raises(BadData, match="finite second moments"):
        eigenvectors(moment, share=0.9)


def test_lapack_giving_up_on_one_of_several_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    real, values = torch.linalg.eigh, like_relu(400)
    moments = torch.stack([planted(values, seed=seed, dtype=torch.float32)[0] for seed in range(3)])
    trouble = [0]

    def stubborn(matrix: Tensor) -> tuple[Tensor, Tensor]:
        if matrix.dtype == torch.float32 and (matrix.ndim == 3 and len(matrix) > 1):
            trouble[0] += 1
            raise torch.linalg.LinAlgError("linalg.eigh: The algorithm failed to converge")
        return real(matrix)

    monkeypatch.setattr(torch.linalg, "eigh", stubborn)
    monkeypatch.setattr(spectrum, "_whole", None)  # one after the other, and each by its space
    found = eigenvectors_of_each(moments, share=0.9)
    assert trouble == [1]
    assert [len(one.values) for one in found] == [wanted_count(values, 0.9)] * 3


def test_lapack_giving_up_in_float32_is_survived(monkeypatch: pytest.MonkeyPatch) -> None:
    """LAPACK was seen to fail on float32 moments of ReLU features: float64 must step in everywhere."""
    real, tried = torch.linalg.eigh, []

    def stubborn(matrix: Tensor) -> tuple[Tensor, Tensor]:
        tried.append(matrix.dtype)
        if matrix.dtype == torch.float32:
            raise torch.linalg.LinAlgError("linalg.eigh: The algorithm failed to converge")
        return real(matrix)

    monkeypatch.setattr(torch.linalg, "eigh", stubborn)
    values = like_relu(400)
    moment, _ = planted(values, dtype=torch.float32)
    assert len(eigenvectors(moment, share=0.9).values) == wanted_count(values, 0.9)
    assert torch.float32 in tried
    assert torch.float64 in tried


def test_lapack_giving_up_in_float64_is_survived_once(monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = torch.linalg.eigh, []

    def fails_first(matrix: Tensor) -> tuple[Tensor, Tensor]:
        calls.append(matrix)
        if len(calls) == 1:
            raise torch.linalg.LinAlgError("linalg.eigh: The algorithm failed to converge")
        return real(matrix)

    monkeypatch.setattr(torch.linalg, "eigh", fails_first)
    moment, _ = planted(like_relu(30))
    values, vectors = eigh(moment)
    np.testing.assert_allclose((vectors * values) @ vectors.T, moment, rtol=0, atol=1e-12)
    assert len(calls) == 2


@pytest.mark.parametrize("rows", [30, 900])
def test_rank_deficient_relu_moments_in_float32(rows: int) -> None:
    """Dead units, repeated rows, one class: the matrices on which float32 `eigh` was seen to fail."""
    draw = torch.Generator().manual_seed(2)
    inputs = torch.randn(rows, 6, generator=draw)
    features = torch.relu(inputs @ torch.randn(6, 640, generator=draw) - 2.0)
    features[:, 100:300] = 0
    features[rows // 2 :] = features[: rows - rows // 2]
    found = eigenvectors(features.T @ features, share=0.99)
    assert torch.isfinite(found.vectors).all()
    exact = torch.linalg.eigvalsh(features.double().T @ features.double()).flip(0)
    assert len(found.values) == wanted_count(exact, 0.99)


def rows_with(values: Tensor, count: int, dtype: torch.dtype) -> tuple[TensorRows, Tensor]:
    """Rows (count, D) whose X^T X has the given eigenvalues, and its eigenvectors."""
    draw = torch.Generator().manual_seed(7)
    left = torch.linalg.qr(torch.randn(count, len(values), generator=draw, dtype=torch.float64))[0]
    right = torch.linalg.qr(torch.randn(len(values), len(values), generator=draw, dtype=torch.float64))[0]
    return TensorRows(((left * values.sqrt()) @ right.T).to(dtype), torch.arange(count)), right


@pytest.mark.parametrize("wanted", [{"share": 0.9}, {"share": 0.97}, {"count": 1}, {"count": 20}], ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_rows_in_blocks_have_the_eigenvectors_of_their_moment(
    dtype: torch.dtype, wanted: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails if a block is lost, the leading ones are taken off twice, or the count is off by one."""
    monkeypatch.setattr(wide, "READ_BYTES", 4 * 700 * 111)
    values = like_relu(700)
    k = int(wanted.get("count", 0)) or wanted_count(values, wanted["share"])
    values[:k] *= 1.02  # a gap at the cut, without which the subspace is not defined
    k = int(wanted.get("count", 0)) or wanted_count(values, wanted["share"])
    rows, vectors = rows_with(values, 900, dtype)
    found = eigenvectors_of_rows(rows, **wanted)
    assert found is not None
    assert found.vectors.shape == (700, k)
    assert found.vectors.dtype == dtype
    assert found.total == pytest.approx(float(values.sum()), rel=1e-6)
    np.testing.assert_allclose(found.values, values[:k], rtol=1e-10 if dtype == torch.float64 else 1e-3)
    near = 1e-9 if dtype == torch.float64 else 1e-4
    assert smallest_cosine(vectors[:, :k], found.vectors) > 1 - near


@pytest.mark.parametrize("rank", [1, 7, 32, 40, 100])
@pytest.mark.parametrize("wanted", [{"share": 1.0}, {"count": 200}], ids=str)
def test_rows_in_blocks_of_low_rank(rank: int, wanted: dict[str, float]) -> None:
    """Fails if a space that ends within a block is taken for the whole, or rounding for a direction."""
    values = torch.zeros(600, dtype=torch.float64)
    values[:rank] = torch.arange(rank, 0, -1)
    rows, vectors = rows_with(values, 700, torch.float32)
    found = eigenvectors_of_rows(rows, **wanted)
    assert found is not None
    assert len(found.values) == rank
    assert smallest_cosine(vectors[:, :rank], found.vectors) > 1 - 1e-4


def test_rows_of_zeros_have_no_directions() -> None:
    nothing = eigenvectors_of_rows(TensorRows(torch.zeros(30, 20), torch.arange(30)), share=0.9)
    assert nothing is not None
    assert nothing.vectors.shape == (20, 0)


def test_more_than_a_thin_space_holds_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails if what was found within the limit is passed off as what was asked for."""
    monkeypatch.setattr(spectrum, "DIRECTIONS", 192)
    rows, _ = rows_with(torch.ones(400, dtype=torch.float64), 500, torch.float32)
    assert eigenvectors_of_rows(rows, share=0.9) is None
    rows, _ = rows_with(like_relu(700), 900, torch.float32)
    assert eigenvectors_of_rows(rows, share=0.999) is None
    assert eigenvectors_of_rows(rows, share=0.5) is not None
