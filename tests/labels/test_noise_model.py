"""Anchors, the noise matrix and beliefs, each by hand in float64."""

from __future__ import annotations

import pytest
import torch

from undertow.labels.noise_model import (
    LEAST_RATE,
    MATRIX_SHARE,
    PRIOR,
    SHARPER,
    Anchors,
    believe,
    even_matrix,
    given_log_belief,
    margins,
    reordered,
    true_chances,
)
from undertow.labels.views import Plan

POOLED = torch.tensor(
    [[5.0, 1, 0], [3.0, 1, 0], [2.0, 1, 0], [1.5, 1, 0], [0, 4.0, 1], [0, 2.0, 1], [1, 0, 9.0], [1, 0, 3.0]]
)


def test_anchors_are_the_surest_of_each_named_class():
    anchors = Anchors.of(POOLED)
    assert anchors.named.tolist() == [0, 0, 0, 0, 1, 1, 2, 2]
    assert anchors.rank.tolist() == [0, 0.25, 0.5, 0.75, 0, 0.5, 0, 0.5]
    assert anchors.among(0.5).tolist() == [True, True, False, False, True, False, True, False]
    order = torch.randperm(8, generator=torch.Generator().manual_seed(0))
    again = Anchors.of(POOLED[order])
    assert again.rank.equal(anchors.rank[order])


def test_disagreement_counts_judged_anchors_only():
    labels = torch.tensor([0, 2, 0, 0, 1, 1, -1, 2])
    plan = Plan(labels, 3, (), judged=labels >= 0)
    anchors = Anchors.of(POOLED)
    assert anchors.disagreement(0.5, plan) == pytest.approx(1 / 3)
    assert anchors.disagreement(1.0, plan) == pytest.approx(1 / 7)
    nobody = Plan(labels, 3, (), judged=torch.zeros(8, dtype=torch.bool))
    assert anchors.disagreement(0.5, nobody) == 0


@pytest.mark.parametrize("trust", [0.0, 0.5, 1.0])
def test_the_matrix_is_counted_on_anchors(trust):
    draws = torch.Generator().manual_seed(0)
    labels, pooled = torch.arange(600) % 4, torch.randn(600, 4, generator=draws)
    pooled += 2 * torch.nn.functional.one_hot((labels + (torch.arange(600) % 7 == 0)) % 4, 4)
    plan = Plan.of(labels, 4, 5, 0)
    counts = torch.zeros(4, 4, dtype=torch.float64)
    for one in range(4):
        mine = (pooled.argmax(1) == one).nonzero()[:, 0].tolist()
        sure = {i: float(pooled[i].sort(descending=True).values[:2].diff().neg()) for i in mine}
        ranked = sorted(mine, key=lambda i: -sure[i])
        for place, i in enumerate(ranked):
            counts[one, labels[i]] += place / len(mine) < MATRIX_SHARE
    rate = 1 - counts.trace() / counts.sum()
    even = even_matrix(float(rate), 4)
    wanted = counts + PRIOR * even
    wanted = trust * wanted / wanted.sum(1, keepdim=True) + (1 - trust) * even
    found = Anchors.of(pooled).matrix(plan, trust)
    torch.testing.assert_close(found, wanted, atol=1e-9, rtol=0)
    torch.testing.assert_close(found.sum(1), torch.ones(4, dtype=torch.float64))


def test_a_matrix_of_clean_labels_leaves_a_little_doubt():
    labels = torch.arange(300) % 3
    pooled = 5 * torch.nn.functional.one_hot(labels, 3).float()
    matrix = Anchors.of(pooled).matrix(Plan.of(labels, 3, 5, 0), 1.0)
    assert (matrix > 0).all()
    off = 1 - matrix.diagonal()
    # 20 samples' worth of the least rate, among 75 anchors.
    torch.testing.assert_close(off, torch.full((3,), PRIOR * LEAST_RATE / (75 + PRIOR), dtype=torch.float64))


def test_beliefs_are_bayes_rule_by_hand():
    clean = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8], [0.3, 0.3, 0.4]])
    matrix = torch.tensor([[0.8, 0.1, 0.1], [0.05, 0.9, 0.05], [0.3, 0.0, 0.7]], dtype=torch.float64)
    found = believe(clean, torch.tensor([1, 0, -1]), matrix)
    for row, given in ((0, 1), (1, 0)):
        joint = [float(clean[row, k]) * float(matrix[k, given]) for k in range(3)]
        wanted = torch.tensor([one / sum(joint) for one in joint])
        torch.testing.assert_close(found[row], wanted, atol=1e-6, rtol=0)
    torch.testing.assert_close(found[2], clean[2])  # no label: as the features say


def test_the_log_belief_in_the_given_label_is_the_literal_one():
    draws = torch.Generator().manual_seed(0)
    pooled = 3 * torch.randn(200, 4, generator=draws)
    labels = torch.randint(-1, 4, (200,), generator=draws)
    matrix = torch.rand(4, 4, generator=draws, dtype=torch.float64) + 0.1
    matrix /= matrix.sum(1, keepdim=True)
    found = given_log_belief(pooled, labels, matrix)
    for i in range(200):
        if labels[i] < 0:
            assert found[i] == 0
            continue
        joint = (SHARPER * pooled[i].double()).softmax(0) * matrix[:, labels[i]]
        assert float(found[i].exp()) == pytest.approx(float(joint[labels[i]] / joint.sum()), rel=1e-9)


def test_the_surest_errors_keep_their_order():
    """Fails in float32, or outside logarithms: chances of e-100 and e-110 would both be 0."""
    pooled = torch.tensor([[50.0, 0.0], [55.0, 0.0], [400.0, 0.0]])
    found = given_log_belief(pooled, torch.tensor([1, 1, 1]), even_matrix(0.2, 2))
    assert found.isfinite().all()
    assert found[2] < found[1] < found[0] < -90


def test_true_chances_are_a_softmax_in_place():
    pooled = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    wanted = (SHARPER * pooled.double()).softmax(1)
    found = true_chances(pooled)
    assert found is pooled
    torch.testing.assert_close(found.double(), wanted, atol=1e-6, rtol=0)


def test_even_noise():
    matrix = even_matrix(0.3, 4)
    assert matrix[1].tolist() == pytest.approx([0.1, 0.7, 0.1, 0.1])


def test_margins_are_differences_of_chances():
    draws = torch.Generator().manual_seed(4)
    votes, labels = torch.randn(300, 5, generator=draws), torch.arange(300) % 6 - 1
    chances = votes.double().softmax(1)
    for at, found in enumerate(margins(votes, labels).tolist()):
        if labels[at] < 0:
            assert found == -1
            continue
        others = [float(chances[at, one]) for one in range(5) if one != labels[at]]
        assert found == pytest.approx(max(others) - float(chances[at, labels[at]]), abs=1e-9)
    assert margins(votes + 7, labels).tolist() == pytest.approx(margins(votes, labels).tolist(), abs=1e-6)


def test_scores_are_handed_out_in_the_order_of_both_ranks():
    scores, by = torch.tensor([0.1, 0.9, 0.5, 0.7]), torch.tensor([3.0, 0.0, 2.0, 1.0])
    assert reordered(scores, by, 0.0).equal(scores)
    assert reordered(scores, by, 1.0).tolist() == pytest.approx([0.9, 0.1, 0.7, 0.5])
    mixed = reordered(scores, torch.tensor([0.0, 9.0, 5.0, 1.0]), 0.5)
    assert mixed.sort().values.equal(scores.sort().values)  # no score is made up
    assert mixed.argmax() == 1
    assert mixed.argmin() == 0
