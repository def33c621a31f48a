"""Votes out of fold: against VeLPIC itself and the literal discriminant, and blind to a sample's own label."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from undertow.errors import BadData
from undertow.labels import voters
from undertow.labels.voters import RIDGE, Discriminant, directions_votes, split_folds
from undertow.latent import VeLPIC

C, D, N = 4, 12, 240


def blobs(seed: int = 0, dim: int = D) -> tuple[Tensor, Tensor]:
    """Rows (N, dim) float64 around class means, all positive, and their labels."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.arange(N) % C
    means = 2 * torch.randn(C, dim, generator=random, dtype=torch.float64) + 5
    return means[labels] + torch.randn(N, dim, generator=random, dtype=torch.float64), labels


def others(fold: Tensor) -> Tensor:
    keep = torch.ones(N, dtype=torch.bool)
    keep[fold] = False
    return keep


def test_folds_share_every_class():
    labels = torch.tensor([0] * 50 + [1] * 23 + [2] * 7)
    folds = split_folds(labels, classes=4, count=5, seed=3)
    assert torch.cat(folds).sort().values.equal(torch.arange(80))
    counts = torch.stack([labels[fold].bincount(minlength=3) for fold in folds])
    assert ((counts.max(0).values - counts.min(0).values) <= 1).all()
    assert not folds[0].equal(split_folds(labels, classes=4, count=5, seed=4)[0])
    with pytest.raises(BadData, match=r"wanted at least 5 samples of each class.*got 3 of class 1"):
        split_folds(torch.tensor([0] * 20 + [1] * 3), classes=2, count=5, seed=0)


def test_directions_are_velpics_of_the_other_folds():
    rows, labels = blobs()
    folds = split_folds(labels, classes=C, count=3, seed=0)
    votes = directions_votes(rows, labels, folds, classes=C)
    for fold in folds:
        keep = others(fold)
        vectors = torch.as_tensor(VeLPIC().fit(rows[keep], labels[keep]).vectors_).double()
        wanted = rows[fold] @ vectors.T / rows[fold].norm(dim=1, keepdim=True)
        torch.testing.assert_close(votes[fold], wanted, atol=1e-6, rtol=0)


def literal_discriminant(rows: Tensor, labels: Tensor, fold: Tensor) -> Tensor:
    """Gaussians with one covariance: that of all rows with the ridge, less what the class means explain."""
    centred = rows - rows.mean(0)
    total = centred.T @ centred / len(rows)
    total = total + RIDGE * total.diagonal().mean() * torch.eye(rows.shape[1], dtype=torch.float64)
    keep = others(fold)
    means = torch.stack([centred[keep & (labels == c)].mean(0) for c in range(C)])
    shares = torch.stack([(keep & (labels == c)).sum() for c in range(C)]).double() / keep.sum()
    within = total - means.T @ torch.diag(shares) @ means
    density = torch.distributions.MultivariateNormal
    return torch.stack([density(mean, within).log_prob(centred[fold]) for mean in means], dim=1)


def test_discriminant_is_the_literal_one():
    rows, labels = blobs()
    folds = split_folds(labels, classes=C, count=3, seed=0)
    votes = Discriminant(rows, folds).votes(one_hot(labels, C).double())
    for fold in folds:
        wanted = literal_discriminant(rows, labels, fold)
        torch.testing.assert_close(votes[fold].log_softmax(1), wanted.log_softmax(1), atol=1e-8, rtol=1e-8)


def test_no_sample_votes_on_its_own_label():
    """Fails if a sample's label reached the vectors or means that judge it."""
    rows, labels = blobs()
    folds = split_folds(labels, classes=C, count=3, seed=0)
    changed = labels.clone()
    changed[folds[1]] = (changed[folds[1]] + 1) % C
    space = Discriminant(rows, folds)
    for before, after in (
        [directions_votes(rows, given, folds, classes=C) for given in (labels, changed)],
        [space.votes(one_hot(given, C).double()) for given in (labels, changed)],
    ):
        torch.testing.assert_close(
            before[folds[1]], after[folds[1]], atol=2e-5, rtol=0
        )  # power steps end at 1e-5
        assert (before[folds[0]] - after[folds[0]]).abs().max() > 0.01


def test_turning_and_scaling_change_nothing():
    rows, labels = blobs()
    folds = split_folds(labels, classes=C, count=3, seed=0)
    turn = torch.linalg.qr(
        torch.randn(D, D, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    ).Q
    for other in (rows @ turn, rows * 1e3, rows * 1e-3):
        assert_same_votes(other, rows, labels, folds, cosines=2e-5, chances=1e-8)


def assert_same_votes(
    one: Tensor, other: Tensor, labels: Tensor, folds: list[Tensor], *, cosines: float, chances: float
) -> None:
    said, wanted = (directions_votes(rows, labels, folds, classes=C) for rows in (one, other))
    torch.testing.assert_close(said, wanted, atol=cosines, rtol=0)
    given = one_hot(labels, C).double()
    said, wanted = (Discriminant(rows, folds).votes(given).softmax(1) for rows in (one, other))
    torch.testing.assert_close(said, wanted, atol=chances, rtol=0)


def test_float32_is_close_to_float64():
    rows, labels = blobs()
    folds = split_folds(labels, classes=C, count=3, seed=0)
    given = one_hot(labels, C).double()
    exact, single = (Discriminant(kind, folds).votes(given).softmax(1) for kind in (rows, rows.float()))
    torch.testing.assert_close(single, exact, atol=1e-3, rtol=0)


def test_constant_features_and_missing_classes_give_no_nan():
    labels = torch.arange(N) % 3  # class 3 has no sample
    folds = split_folds(labels, classes=C, count=3, seed=0)
    for rows in (torch.zeros(N, D), torch.ones(N, D)):
        assert directions_votes(rows, labels, folds, classes=C).isfinite().all()
        votes = Discriminant(rows, folds).votes(one_hot(labels, C).double())
        assert (votes[:, :3] == 0).all()
        assert (votes[:, 3] == -torch.inf).all()


def test_collapsed_features_stay_finite():
    """Every row is its class's mean: nothing is left within classes."""
    labels = torch.arange(N) % C
    folds = split_folds(labels, classes=C, count=3, seed=0)
    votes = Discriminant(torch.eye(C).repeat(1, 3)[labels], folds).votes(one_hot(labels, C).double())
    assert votes.isfinite().all()
    assert votes.argmax(1).equal(labels)


def test_nan_names_the_layer():
    rows, labels = blobs()
    rows[3, 2] = torch.nan
    folds = split_folds(labels, classes=C, count=3, seed=0)
    with pytest.raises(BadData, match=r"layer 'fc1'.*1 of 240 rows"):
        directions_votes(rows, labels, folds, classes=C, where="layer 'fc1'")
    with pytest.raises(BadData, match=r"layer 'fc1'"):
        Discriminant(rows, folds, where="layer 'fc1'")


def test_wide_rows_are_narrowed_without_loss_where_they_have_few_directions(monkeypatch):
    """30 directions in 200 dimensions: the leading 40 hold them all."""
    rows, labels = blobs(dim=30)
    turn = torch.linalg.qr(
        torch.randn(200, 30, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    ).Q
    wide = rows @ turn.T
    folds = split_folds(labels, classes=C, count=3, seed=0)
    given = one_hot(labels, C).double()
    monkeypatch.setattr(voters, "WIDEST", 100)
    monkeypatch.setattr(voters, "LEADING", 40)
    narrow = Discriminant(wide, folds)
    monkeypatch.setattr(voters, "WIDEST", 1000)
    # The ridge follows the mean variance, which 160 empty directions lower: compare in the narrow space.
    assert narrow._parts[0].shape[1] == 40
    assert narrow.votes(given).argmax(1).equal(Discriminant(rows, folds).votes(given).argmax(1))


@pytest.mark.parametrize("size", [1e-30, 1e-10, 1e8, 1e15, 1e30])
def test_the_size_of_features_does_not_matter(size):
    """Fails if norms of rows times rows overflow float32."""
    rows, labels = blobs()
    folds = split_folds(labels, classes=C, count=5, seed=0)
    plain = rows.float()
    assert_same_votes(plain * size, plain, labels, folds, cosines=1e-5, chances=1e-4)
