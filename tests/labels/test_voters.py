"""Votes out of fold against float64 by hand, scikit-learn and eigh; no sample speaks for its own label."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from undertow.errors import BadData
from undertow.labels import neighbours
from undertow.labels.neighbours import NEIGHBOURS, PRIOR, neighbour_votes
from undertow.labels.views import Plan
from undertow.labels.voters import (
    COARSE,
    FEW,
    RIDGES,
    are_few,
    coarsest,
    direction_votes,
    discriminant_votes,
    least_losses,
    narrowed,
)
from undertow.latent import VeLPIC

C = 4


def others(plan: Plan, at: int) -> Tensor:
    """(N,) bool: who teaches the judges of a fold."""
    keep = plan.labelled.clone()
    keep[plan.folds[at]] = False
    return keep


def by_hand(rows: Tensor, plan: Plan, at: int, ridge: float) -> Tensor:
    """Log densities of Gaussians with one covariance: that of all rows and a ridge, less what class means explain."""
    centred = rows.double() - rows.double().mean(0)
    total = centred.T @ centred / len(rows)
    total += ridge * total.diagonal().mean() * torch.eye(rows.shape[1], dtype=torch.float64)
    keep = others(plan, at)
    of = [keep & (plan.labels == one) for one in range(plan.classes)]
    means = torch.stack([centred[mine].mean(0) for mine in of])
    shares = torch.stack([mine.sum() for mine in of]).double() / keep.sum()
    within = total - means.T @ torch.diag(shares) @ means
    density = torch.distributions.MultivariateNormal
    return torch.stack([density(mean, within).log_prob(centred[plan.folds[at]]) for mean in means], 1)


def test_folds_hold_each_labelled_sample_once_and_every_class_alike():
    labels = torch.tensor([0] * 50 + [1] * 23 + [2] * 7 + [-1] * 5 + [3] * 2)
    plan = Plan.of(labels, 5, 5, seed=3)
    assert len(plan.folds) == 6
    assert torch.cat(plan.folds).sort().values.equal(torch.arange(len(labels)))
    assert (labels[plan.folds[-1]] == -1).all()
    counts = torch.stack([labels[fold].bincount(minlength=4) for fold in plan.folds[:5]])
    assert ((counts.max(0).values - counts.min(0).values) <= 1).all()
    for at, fold in enumerate(plan.folds):
        assert (plan.fold_of()[fold] == at).all()
    assert plan.judged.equal((labels >= 0) & (labels != 3))  # two samples are too few to judge by
    torch.testing.assert_close(plan.shares, torch.tensor([50, 23, 7, 2, 0]) / 82)
    assert not plan.folds[0].equal(Plan.of(labels, 5, 5, seed=4).folds[0])


@pytest.mark.parametrize(
    ("labels", "classes", "message"),
    [
        ([[0, 1]], 2, "one class number per sample"),
        ([0, 1], 1, "two classes or more"),
        ([0, 1, 5], 3, "0 to 2, or -1 where missing, got 5 at 2"),
        ([0, -2], 3, "got -2 at 1"),
        ([1, 1, -1], 3, "got one: nothing can be told apart"),
    ],
)
def test_labels_that_cannot_be_judged_are_refused(labels, classes, message):
    with pytest.raises(BadData, match=message):
        Plan.of(torch.tensor(labels), classes, 5, 0)


def test_discriminants_are_the_literal_ones(blobs):
    rows, labels = blobs([70, 60, 50, 60], shift=5.0)
    plan = Plan.of(labels, C, 3, 0)
    votes = discriminant_votes(rows, plan).double().log_softmax(1)
    whole = {ridge: torch.empty(len(rows), C, dtype=torch.float64) for ridge in RIDGES}
    for ridge, wanted in whole.items():
        for at in range(3):
            wanted[plan.folds[at]] = by_hand(rows, plan, at, ridge)
    best = min(RIDGES, key=lambda ridge: float(least_losses(whole[ridge], labels).mean()))
    torch.testing.assert_close(votes, whole[best].log_softmax(1), atol=2e-3, rtol=1e-4)


def test_few_samples_of_many_classes_want_a_larger_ridge(blobs):
    """Fails if either ridge is always taken: the one that foretells given labels better, out of fold, is."""
    rows, labels = blobs([2000] * 2, dim=30, apart=0.3)
    many = rows * torch.logspace(0, -1.5, 30), labels  # what tells classes apart lies in small directions too
    few = blobs([30] * 20, dim=60, apart=0.25)
    chosen = []
    for rows, labels in (many, few):
        classes = int(labels.max()) + 1
        plan = Plan.of(labels, classes, 5, 0)
        votes = discriminant_votes(rows, plan).double()
        fits = []
        for ridge in RIDGES:
            wanted = torch.empty_like(votes)
            for at in range(5):
                wanted[plan.folds[at]] = by_hand(rows, plan, at, ridge)
            fits.append(float((votes.log_softmax(1) - wanted.log_softmax(1)).abs().max()))
        chosen.append(RIDGES[int(np.argmin(fits))])
    assert chosen == list(RIDGES)


def test_fewer_samples_than_a_covariance_needs_want_a_larger_ridge(few_samples):
    """Independent float64: the vote is that of the largest ridge whose loss is the least but for luck."""
    rows, given, true = few_samples
    assert are_few(rows)
    plan = Plan.of(given, 10, 5, 0)
    whole = dict[float, Tensor]()
    for ridge in (*RIDGES, COARSE):
        whole[ridge] = torch.empty(300, 10, dtype=torch.float64)
        for at in range(5):
            whole[ridge][plan.folds[at]] = by_hand(rows, plan, at, ridge)
    losses = {ridge: least_losses(votes, given).numpy() for ridge, votes in whole.items()}
    best = min(losses, key=lambda ridge: losses[ridge].mean())
    beyond = {ridge: loss - losses[best] for ridge, loss in losses.items()}
    level = [one for one, more in beyond.items() if more.mean() <= more.std(ddof=1) / 300**0.5]
    assert max(level) == COARSE
    votes = discriminant_votes(rows, plan, few=True).double().log_softmax(1)
    torch.testing.assert_close(votes, whole[max(level)].log_softmax(1), atol=2e-3, rtol=1e-4)
    plain = discriminant_votes(rows, plan)
    named, before = (float((one.argmax(1) == true).float().mean()) for one in (votes, plain))
    assert named > before + 0.05


def test_the_losses_of_votes_are_those_at_their_best_scale():
    draws = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 4, (500,), generator=draws)
    votes = 7 * torch.randn(500, 4, generator=draws) + 9 * torch.eye(4)[labels] + 100
    centred = (votes - votes.mean(1, keepdim=True)).double().numpy()
    centred /= centred.std(ddof=1)
    each = []
    for scale in (0.5, 1.0, 2.0, 4.0):
        chances = np.exp(scale * centred) / np.exp(scale * centred).sum(1, keepdims=True)
        each.append(-np.log(chances[np.arange(500), labels.numpy()]))
    wanted = min(each, key=np.mean)
    np.testing.assert_allclose(least_losses(votes, labels).numpy(), wanted, rtol=1e-4, atol=1e-5)


def test_a_coarser_one_is_taken_if_it_is_worse_by_luck_alone():
    draws = torch.Generator().manual_seed(0)
    losses = torch.rand(400, generator=draws)
    noise = torch.randn(400, generator=draws)
    noise = (noise - noise.mean()) / noise.std()  # 0.05 is one standard error
    near, far = losses + noise + 0.049, losses + noise + 0.051
    assert coarsest([losses, near], luck=1.0) == 1
    assert coarsest([losses, far], luck=1.0) == 0
    assert coarsest([losses, near], luck=0.0) == 0
    assert coarsest([near, losses, far], luck=1.0) == 1
    assert coarsest([losses + 1, losses + 2, losses], luck=1.0) == 2


def test_samples_are_few_by_the_width_of_their_features():
    assert are_few(torch.zeros(FEW * 10 - 1, 10))
    assert not are_few(torch.zeros(FEW * 10, 10))


def test_discriminants_name_what_scikit_learn_names(blobs):
    rows, labels = blobs([200] * C, apart=0.7)
    plan = Plan.of(labels, C, 5, 0)
    votes = discriminant_votes(rows, plan)
    agree = []
    for at in range(5):
        keep, mine = others(plan, at).numpy(), plan.folds[at].numpy()
        probe = LinearDiscriminantAnalysis(priors=np.full(C, 1 / C)).fit(rows[keep], labels[keep])
        agree.append(probe.predict(rows[mine]) == votes[mine].argmax(1).numpy())
    assert np.concatenate(agree).mean() > 0.97  # its covariance has no ridge


def test_directions_are_the_leading_eigenvectors_of_the_other_folds(blobs):
    rows, labels = blobs([70, 60, 50, 60], shift=3.0)
    plan = Plan.of(labels, C, 3, 0)
    votes, exact = direction_votes(rows, plan).double(), rows.double()
    for at in range(3):
        keep, mine = others(plan, at), plan.folds[at]
        for one in range(C):
            part = exact[keep & (labels == one)]
            vector = torch.linalg.eigh(part.T @ part).eigenvectors[:, -1]
            vector = vector * torch.sign(vector @ part.mean(0))
            wanted = exact[mine] @ vector / exact[mine].norm(dim=1)
            torch.testing.assert_close(votes[mine, one], wanted, atol=3e-5, rtol=0)  # power steps end at 1e-5
        vectors = torch.as_tensor(VeLPIC().fit(exact[keep], labels[keep]).vectors_).double()
        wanted = exact[mine] @ vectors.T / exact[mine].norm(dim=1, keepdim=True)
        torch.testing.assert_close(votes[mine], wanted, atol=3e-5, rtol=0)


def test_neighbours_are_those_of_brute_force(blobs, monkeypatch):
    """In blocks of a few rows; fails if a sample is its own neighbour or if a block is shifted."""
    rows, labels = blobs([90, 80, 70, 60], shift=2.0)
    labels[:20] = -1
    plan = Plan.of(labels, C, 5, 0)
    monkeypatch.setattr(neighbours, "BLOCK_CELLS", 17 * 280)
    votes = neighbour_votes(rows, plan, 0).votes.double()
    centred = (rows.double() - rows.double().mean(0)).numpy()
    pool = plan.labelled.numpy()
    search = NearestNeighbors(n_neighbors=NEIGHBOURS + 1, metric="cosine", algorithm="brute")
    given, numbers = labels[plan.labelled].numpy(), np.flatnonzero(pool)
    for at, found in enumerate(search.fit(centred[pool]).kneighbors(centred, return_distance=False)):
        near = [one for one in found if numbers[one] != at][:NEIGHBOURS]
        shares = (np.bincount(given[near], minlength=C) + PRIOR * plan.shares.numpy()) / (NEIGHBOURS + PRIOR)
        np.testing.assert_allclose(votes[at], np.log(shares), atol=1e-5)


def test_samples_that_are_there_twice_are_counted(blobs):
    rows, labels = blobs([60, 60])
    plan = Plan.of(torch.cat([labels, labels[:15]]), 2, 5, 0)
    assert neighbour_votes(torch.cat([rows, rows[:15]]), plan, 0).twins == 30
    assert neighbour_votes(rows, Plan.of(labels, 2, 5, 0), 0).twins == 0


@pytest.mark.parametrize("vote", [discriminant_votes, direction_votes])
def test_no_sample_takes_part_in_its_own_judgement(blobs, vote):
    """Fails if a label reached the means or vectors that judge its sample."""
    rows, labels = blobs([60] * C, shift=2.0)
    plan = Plan.of(labels, C, 3, 0)
    changed = labels.clone()
    changed[7] = (labels[7] + 1) % C
    before, after = vote(rows, plan), vote(rows, replace(plan, labels=changed))
    torch.testing.assert_close(before[7], after[7], atol=1e-4, rtol=1e-5)
    elsewhere = plan.fold_of() != plan.fold_of()[7]
    assert (before - after)[elsewhere].abs().max() > 1e-3


def test_no_sample_is_its_own_neighbour(blobs):
    rows, labels = blobs([60] * C, shift=2.0)
    plan = Plan.of(labels, C, 3, 0)
    changed = labels.clone()
    changed[7] = (labels[7] + 1) % C
    before, after = (neighbour_votes(rows, replace(plan, labels=one), 0).votes for one in (labels, changed))
    # The shares of classes, which every vote has a little of, move by one label of 240; a neighbour moves by 1 of 28.
    assert (before[7].exp() - after[7].exp()).abs().max() < PRIOR / 240 / (NEIGHBOURS + PRIOR) + 1e-6
    assert (before.exp() - after.exp()).abs().max() > 0.03


def test_unlabelled_samples_teach_nobody_and_are_judged_by_all(blobs):
    rows, labels = blobs([60] * C, shift=2.0)
    some = labels.clone()
    some[:30] = -1
    plan = Plan.of(some, C, 3, 0)
    for vote in (discriminant_votes, direction_votes):
        assert (vote(rows, plan)[:30].argmax(1) == labels[:30]).float().mean() > 0.9
    moved = rows.clone()
    moved[:30] += 40.0
    torch.testing.assert_close(direction_votes(moved, plan)[30:], direction_votes(rows, plan)[30:])


@pytest.mark.parametrize("shift", [0.0, 5.0])
def test_a_class_that_nobody_learned_gets_the_lowest_vote(blobs, shift):
    """Fails for directions of centred rows if an absent class has the cosine 0: others are below it."""
    rows, labels = blobs([60] * C, shift=shift)
    labels = torch.where(torch.arange(len(labels)) == 3, C, labels)  # one sample of its own class
    plan = Plan.of(labels, C + 2, 3, 0)
    for votes in (discriminant_votes(rows, plan), direction_votes(rows, plan)):
        assert votes.isfinite().all()
        assert votes[:, C + 1].equal(votes[:, : C + 1].amin(1))
        assert votes[3, C] == votes[3, :C].min()


def test_turning_features_changes_no_vote(blobs):
    rows, labels = blobs([60] * C, shift=2.0)
    plan = Plan.of(labels, C, 3, 0)
    turned = rows @ torch.linalg.qr(torch.randn(12, 12, generator=torch.Generator().manual_seed(1))).Q
    for vote, atol in ((discriminant_votes, 5e-3), (direction_votes, 3e-5)):
        torch.testing.assert_close(vote(turned, plan), vote(rows, plan), atol=atol, rtol=1e-3)
    near, again = (neighbour_votes(one, plan, 0).votes for one in (rows, turned))
    assert (near - again).abs().amax(1).gt(1e-6).float().mean() < 0.05  # ties at the 25th neighbour


@pytest.mark.parametrize("size", [1e-30, 1e-10, 1e8, 1e15, 1e30])
def test_the_size_of_features_does_not_matter(blobs, size):
    """Fails if norms of rows times rows overflow float32."""
    rows, labels = blobs([60] * C, shift=2.0)
    plan = Plan.of(labels, C, 3, 0)
    for vote in (discriminant_votes, direction_votes):
        votes = vote(narrowed(rows * size), plan)
        torch.testing.assert_close(votes, vote(narrowed(rows), plan), atol=1e-3, rtol=1e-3)


def test_wide_rows_keep_their_geometry_where_they_have_few_directions(blobs):
    rows, _ = blobs([40] * C, dim=30, shift=1.0)
    turn = torch.linalg.qr(torch.randn(1500, 30, generator=torch.Generator().manual_seed(1))).Q
    narrow = narrowed(rows @ turn.T)
    assert narrow.shape[1] < 1024
    ratio = float(rows[0].norm() / narrow[0].norm())
    torch.testing.assert_close(ratio**2 * narrow @ narrow.T, rows @ rows.T, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("rows", [torch.zeros(120, 5), torch.ones(120, 5)], ids=["zeros", "ones"])
def test_constant_features_say_nothing(rows):
    plan = Plan.of(torch.arange(120) % 3, 3, 5, 0)
    for votes in (direction_votes(rows, plan), neighbour_votes(rows, plan, 0).votes):
        assert votes.isfinite().all()
    assert discriminant_votes(rows, plan).abs().max() < 1e-6


def test_collapsed_features_stay_finite():
    """Every row is its class's mean: nothing is left within classes."""
    labels = torch.arange(240) % C
    votes = discriminant_votes(torch.eye(C).repeat(1, 3)[labels], Plan.of(labels, C, 3, 0))
    assert votes.isfinite().all()
    assert votes.argmax(1).equal(labels)
