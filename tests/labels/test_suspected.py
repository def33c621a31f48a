"""How many labels are suspected: counts of even draws, and beliefs beside sure samples."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from undertow.labels.honest import MOST_DOUBT, NO_TRUST
from undertow.labels.judge import judge_labels
from undertow.labels.rate import LabelEvidence, rate_answer
from undertow.labels.views import View

STEADY = LabelEvidence(
    count=5000, classes=10, sure=(0.20, 0.20, 0.20), doubt=0.01, honest=0.24, commonest=0.1, everyone=0.22,
    learned=False, ruled_out=0.2,
)  # fmt: skip


def test_even_draws_are_the_middle_of_two_counts():
    """That by likelihood errs low, that of labels below the median high; where the second is lower, it says nothing."""
    draws = replace(STEADY, sure=(0.3, 0.3, 0.3), doubt=0.3, drawn=0.3, everyone=0.5, ruled_out=0.4)
    assert draws.trust == 0
    assert draws.blindness == 1
    assert draws.guess == pytest.approx(0.35)
    assert replace(draws, ruled_out=0.1).guess == pytest.approx(0.3)


def test_beliefs_have_half_a_say_where_noise_is_of_classes():
    scores = torch.tensor([0.9, 0.6, 0.51, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0, 0.0])  # three in ten above a half
    guess = STEADY.guess
    assert STEADY.of_classes == 1
    assert STEADY.suspected(scores) == pytest.approx((guess + 0.3) / 2)
    assert STEADY.suspected(scores, margins=0.6) == pytest.approx(guess + 0.2 * (0.3 - guess))
    # What has learned labels by heart believes too few of them wrong.
    learned = replace(STEADY, learned=True)
    assert learned.suspected(scores) == learned.guess
    doubtful = replace(STEADY, doubt=(MOST_DOUBT + NO_TRUST) / 2)
    assert doubtful.suspected(scores) == pytest.approx(doubtful.guess + (0.3 - doubtful.guess) / 4)
    half = replace(STEADY, sure=(0.16, 0.18, 0.20), ruled_out=0.0)  # .8: half-way, which is no sign
    assert half.of_classes == pytest.approx(0.5)
    assert half.suspected(scores) == pytest.approx(half.guess)
    answer = rate_answer(STEADY, 0.21)
    assert answer.value == pytest.approx(0.21)
    assert rate_answer(STEADY, 0.9).value == answer.high


def test_beliefs_mend_a_guess_that_voters_taught_wrong(blobs, flipped):
    """Fails by the guess of the first round: classes that overlap, three in ten of each given as the next one."""
    rows, true = blobs([300] * 6, apart=0.7)
    given = flipped(true, 0.3, 6, pairwise=True)
    found = judge_labels(given, 6, [View(rows=rows)])
    wrong = float((given != true).float().mean())
    assert found.evidence.guess > wrong + 0.03
    assert float(found.flagged.float().mean()) == pytest.approx(wrong, abs=0.02)
