"""Which labels are flagged, and what is proposed."""

from __future__ import annotations

import pytest
import torch

from undertow.labels.decide import proposals, suspects

SCORES = torch.tensor([0.9, 0.2, 0.9, 0.5, 0.9, 0.1], dtype=torch.float64)
ALL = torch.ones(6, dtype=torch.bool)


@pytest.mark.parametrize(
    ("share", "flagged"),
    [(0.0, []), (1 / 6, [0]), (2 / 6, [0, 2]), (4 / 6, [0, 2, 3, 4]), (1.0, list(range(6)))],
)
def test_as_many_are_flagged_as_are_guessed_and_ties_go_to_the_first(share, flagged):
    assert suspects(SCORES, ALL, share).nonzero()[:, 0].tolist() == flagged


def test_what_is_not_judged_is_never_flagged_and_not_counted():
    judged = torch.tensor([False, True, True, True, False, True])
    assert suspects(SCORES, judged, 0.5).nonzero()[:, 0].tolist() == [2, 3]
    assert suspects(SCORES, judged, 1.0).equal(judged)


def test_proposals_are_another_class_that_stands_out_or_none():
    beliefs = torch.tensor(
        [
            [
                0.90,
                0.06,
                0.02,
                0.02,
            ],  # the given label is believed, but it is flagged: 0.6 of the rest is class 1
            [0.10, 0.30, 0.30, 0.30],  # flagged, nothing stands out: a third each
            [0.10, 0.80, 0.05, 0.05],  # not flagged
            [0.10, 0.60, 0.20, 0.10],  # no label, a class stands out
            [0.30, 0.30, 0.20, 0.20],  # no label, none does
        ]
    )
    labels = torch.tensor([0, 0, 0, -1, -1])
    flagged = torch.tensor([True, True, False, False, False])
    assert proposals(beliefs, labels, flagged).tolist() == [1, -1, -1, 1, -1]


def test_the_given_label_is_never_proposed():
    draws = torch.Generator().manual_seed(0)
    beliefs = torch.rand(500, 3, generator=draws).softmax(1)
    labels = torch.randint(0, 3, (500,), generator=draws)
    proposed = proposals(beliefs, labels, torch.ones(500, dtype=torch.bool))
    assert (proposed != labels).all()
    assert (proposed >= 0).all()  # the better of two others always has half of what is left
