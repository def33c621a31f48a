"""Judging labels as a whole: what may not matter does not, and hard cases get a clear answer."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score
from torch import Tensor

from undertow.errors import BadData
from undertow.labels import voters
from undertow.labels.judge import Judge, LabelBeliefs, ViewVotes, judge_labels, put_right, view_votes
from undertow.labels.views import Plan, View


def quality(found: LabelBeliefs, true: Tensor) -> tuple[float, float, float]:
    """Average precision, and recall and precision of what is flagged."""
    wrong = (found.labels != true) & found.judged
    hits = float((wrong & found.flagged).sum())
    precision = float(average_precision_score(wrong[found.judged], found.scores[found.judged]))
    return precision, hits / float(wrong.sum()), hits / max(1.0, float(found.flagged.sum()))


@pytest.mark.parametrize("pairwise", [False, True], ids=["any", "next"])
def test_planted_errors_are_ranked_flagged_and_mended(blobs, flipped, pairwise):
    rows, true = blobs([300] * 6, apart=1.5)
    found = judge_labels(flipped(true, 0.25, 6, pairwise=pairwise), 6, [View(rows=rows)])
    ap, recall, precision = quality(found, true)
    assert min(ap, recall, precision) > 0.95
    hit = found.flagged & (found.labels != true)
    assert (found.proposed[hit] == true[hit]).float().mean() > 0.95
    assert (found.proposed[found.flagged] != found.labels[found.flagged]).all()
    assert (found.proposed[~found.flagged] == -1).all()
    if pairwise:
        following = found.matrix[range(6), [1, 2, 3, 4, 5, 0]]
        torch.testing.assert_close(following, torch.full((6,), 0.25, dtype=torch.float64), atol=0.06, rtol=0)


def first_round(rows: Tensor, given: Tensor, classes: int) -> tuple[LabelBeliefs, Plan]:
    plan = Plan.of(given, classes, 5, 0)
    judge = Judge(plan)
    judge.look(View(rows=rows), 0)
    return judge.conclude(), plan


def test_labels_that_are_surely_wrong_are_put_right_for_a_second_lesson(blobs, flipped):
    rows, true = blobs([300] * 6, apart=1.5)
    given = flipped(true, 0.3, 6)
    found, plan = first_round(rows, given, 6)
    taught = put_right(found, plan)
    assert taught is not None
    changed = taught.labels != given
    assert int(changed.sum()) == round(found.evidence.to_put_right * len(given))
    assert (
        0.1 < found.evidence.to_put_right <= float((given != true).float().mean())
    )  # never more than are wrong
    assert (taught.labels[changed] == true[changed]).float().mean() > 0.97
    assert found.scores[changed].min() >= found.scores[~changed].max()
    assert all(one.equal(other) for one, other in zip(taught.folds, plan.folds, strict=True))


def test_a_second_lesson_ranks_overlapping_classes_better(blobs, flipped):
    """Fails where probes are not taught again: nearly a third of each class is given as the next one."""
    rows, true = blobs([300] * 6, apart=0.7)
    given = flipped(true, 0.3, 6, pairwise=True)
    once, _ = first_round(rows, given, 6)
    twice = judge_labels(given, 6, [View(rows=rows)])
    assert quality(twice, true)[0] > quality(once, true)[0] + 0.01
    bounds = [replace(one.rate, value=None) for one in (once, twice)]
    assert bounds[0] == bounds[1]  # those of the first round
    assert twice.evidence == once.evidence
    assert len(twice.voters) == len(once.voters)


def test_few_samples_are_ranked_better_with_a_larger_ridge(few_samples, monkeypatch):
    """Fails where ridges are those of many samples; what has learned labels keeps these."""
    rows, given, true = few_samples
    plan = Plan.of(given, 10, 5, 0)

    def found() -> tuple[float, Tensor, ViewVotes, ViewVotes]:
        learned = Judge(plan)
        learned.look(View("fc", 9.0, rows=rows), 0)
        kept = [view_votes(rows, plan, 0, untouched=one, ask_neighbours=False) for one in (True, False)]
        precision = quality(judge_labels(given, 10, [View(rows=rows)]), true)[0]
        return precision, learned.pool.everyone(), *kept

    now = found()
    monkeypatch.setattr(voters, "FEW", 0)
    before = found()
    assert now[0] > before[0] + 0.01
    assert now[1].equal(before[1])
    assert np.abs(now[2].discriminant - before[2].discriminant).max() > 0.1
    assert np.array_equal(now[3].discriminant, before[3].discriminant)


def test_clean_labels_are_not_put_right(blobs):
    rows, true = blobs([300] * 6, apart=0.7)
    assert put_right(*first_round(rows, true, 6)) is None


def test_what_is_returned_is_what_it_says(blobs, flipped):
    rows, true = blobs([100] * 4)
    found = judge_labels(flipped(true, 0.2, 4), 4, [View(rows=rows)])
    ones = torch.ones(400)
    torch.testing.assert_close(found.pred_probs.sum(1), ones)
    torch.testing.assert_close(found.beliefs.sum(1), ones)
    torch.testing.assert_close(found.matrix.sum(1), torch.ones(4, dtype=torch.float64))
    own = found.beliefs.gather(1, found.labels[:, None])[:, 0]
    torch.testing.assert_close(found.scores.float(), 1 - own, atol=1e-5, rtol=0)
    assert int(found.flagged.sum()) == round(found.evidence.suspected(found.scores) * 400)
    assert found.scores[found.flagged].min() >= found.scores[~found.flagged].max()


def test_renaming_classes_renames_the_answer(blobs, flipped):
    rows, true = blobs([300] * 5, apart=1.5)
    given = flipped(true, 0.3, 5, pairwise=True)
    names = torch.tensor([3, 0, 4, 1, 2])
    plain, renamed = (judge_labels(one, 5, [View(rows=rows)]) for one in (given, names[given]))
    assert (plain.flagged == renamed.flagged).float().mean() > 0.99  # folds are drawn anew
    both = plain.flagged & renamed.flagged
    assert (names[plain.proposed[both]] == renamed.proposed[both]).float().mean() > 0.99
    torch.testing.assert_close(renamed.matrix[names][:, names], plain.matrix, atol=0.02, rtol=0)
    assert renamed.rate.low == pytest.approx(plain.rate.low, abs=0.02)


def test_the_order_of_samples_moves_with_them(blobs, flipped):
    rows, true = blobs([300] * 5, apart=1.5)
    given = flipped(true, 0.3, 5)
    order = torch.randperm(1500, generator=torch.Generator().manual_seed(5))
    plain, moved = (
        judge_labels(given, 5, [View(rows=rows)]),
        judge_labels(given[order], 5, [View(rows=rows[order])]),
    )
    assert (plain.flagged[order] == moved.flagged).float().mean() > 0.99
    assert moved.rate.high == pytest.approx(plain.rate.high, abs=0.02)


@pytest.mark.parametrize("size", [1e-12, 1e12])
def test_scaling_and_turning_features_change_next_to_nothing(blobs, flipped, size):
    rows, true = blobs([200] * 5, apart=1.5)
    given = flipped(true, 0.3, 5)
    turn = torch.linalg.qr(torch.randn(12, 12, generator=torch.Generator().manual_seed(1))).Q
    plain, other = (judge_labels(given, 5, [View(rows=one)]) for one in (rows, size * (rows @ turn)))
    torch.testing.assert_close(plain.scores, other.scores, atol=0.05, rtol=0)
    assert (plain.flagged == other.flagged).float().mean() > 0.995


def test_own_labels_move_no_probability_of_their_own(blobs):
    """A label decides who is in its fold; beyond that it has no say in what features say of its sample."""
    rows, true = blobs([200] * 4, apart=1.5)
    changed = true.clone()
    changed[5] = (true[5] + 1) % 4
    before, after = (judge_labels(one, 4, [View(rows=rows)]) for one in (true, changed))
    assert before.pred_probs[5, true[5]] > 0.99
    assert after.pred_probs[5, true[5]] > 0.99
    assert after.scores[5] > 0.9 > 0.1 > before.scores[5]
    assert after.flagged[5]


def test_useless_views_do_no_harm(blobs, flipped):
    rows, true = blobs([200] * 5, apart=1.5)
    given = flipped(true, 0.3, 5)
    noise = torch.randn(1000, 20, generator=torch.Generator().manual_seed(2))
    alone = quality(judge_labels(given, 5, [View(rows=rows)]), true)
    beside = quality(judge_labels(given, 5, [View("a", rows=rows), View("b", rows=noise)]), true)
    assert beside[0] > alone[0] - 0.02


def test_two_classes(blobs, flipped):
    rows, true = blobs([300, 300])
    found = judge_labels(flipped(true, 0.2, 2), 2, [View(rows=rows)])
    assert min(quality(found, true)) > 0.95
    hit = found.flagged
    assert found.proposed[hit].equal(1 - found.labels[hit])


def test_a_class_of_one_sample_is_not_judged_and_said(blobs, flipped):
    rows, true = blobs([200] * 4)
    given = flipped(true, 0.1, 4)
    given[17] = 4
    found = judge_labels(given, 5, [View(rows=rows)])
    assert not found.judged[17]
    assert not found.flagged[17]
    assert found.scores[17] == 0
    assert "1 label is of a class with fewer than 3 samples and is not judged." in found.notes
    assert (found.proposed != 4).all()


def test_missing_labels_are_proposed_for_and_not_judged(blobs, flipped):
    rows, true = blobs([200] * 4)
    given = flipped(true, 0.2, 4)
    given[:60] = -1
    found = judge_labels(given, 4, [View(rows=rows)])
    assert not found.judged[:60].any()
    assert not found.flagged[:60].any()
    assert (found.proposed[:60] == true[:60]).float().mean() > 0.95
    assert any(note.startswith("60 samples have no label") for note in found.notes)
    assert found.rate.low <= float((given != true)[60:].float().mean()) <= found.rate.high


def test_a_few_of_one_class_among_very_many(blobs):
    """Clean labels of a rare class are not taken for errors."""
    rows, true = blobs([20_000, 10], apart=3.0)
    found = judge_labels(true, 2, [View(rows=rows)])
    assert found.rate.low == 0
    assert int(found.flagged.sum()) < 0.005 * len(true)
    assert int((found.flagged & (true == 1)).sum()) <= 2


def test_wrong_labels_are_found_where_ten_are_among_a_hundred_thousand(blobs):
    rows, true = blobs([100_000, 10], dim=6, apart=3.0)
    labels, few = true.clone(), (true == 1).nonzero()[:, 0]
    labels[few[:3]] = 0  # three of the ten are called common
    labels[(true == 0).nonzero()[:5, 0]] = 1  # five of the many are called rare
    wrong = labels != true
    found = judge_labels(labels, 2, [View(rows=rows)])
    assert wrong[found.scores.topk(8).indices].all()
    assert int(found.flagged.sum()) <= 100
    assert found.rate.low <= 8e-5 <= found.rate.high


def test_twins_are_told(blobs, flipped):
    rows, true = blobs([100] * 4)
    twice, labels = torch.cat([rows, rows[:40]]), torch.cat([true, true[:40]])
    found = judge_labels(labels, 4, [View("clip", rows=twice)])
    assert any(
        note.startswith("80 samples have a twin, with the same numbers in clip.") for note in found.notes
    )
    assert not judge_labels(true, 4, [View(rows=rows)]).notes


@pytest.mark.parametrize("rows", [torch.zeros(400, 3), torch.ones(400, 3)], ids=["zeros", "ones"])
def test_constant_features_tell_nothing_and_break_nothing(rows):
    found = judge_labels(torch.arange(400) % 4, 4, [View(rows=rows)])
    assert found.rate.value is None
    assert found.scores.isfinite().all()
    assert found.pred_probs.isfinite().all()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (torch.full((400, 3), torch.nan), "got NaN or infinity in 400 of 400 rows, first in row 0"),
        (torch.ones(10, 3), r"wanted features of shape \(400, D\), one row for each label, got \(10, 3\)"),
        (torch.ones(400), r"got \(400,\)"),
    ],
)
def test_features_that_are_none_get_one_sentence(rows, message):
    with pytest.raises(BadData, match=message):
        judge_labels(torch.arange(400) % 4, 4, [View("clip", rows=rows)])


def test_nothing_to_judge_by_is_refused():
    with pytest.raises(BadData, match="got nothing to judge labels by"):
        judge_labels(torch.arange(400) % 4, 4)


def test_views_may_come_one_after_the_other(blobs, flipped):
    """A generator is read once; fails if views are kept or counted first."""
    rows, true = blobs([200] * 4)
    given = flipped(true, 0.2, 4)
    listed = [View("a", rows=rows), View("b", rows=rows + 1)]
    one, other = judge_labels(given, 4, listed), judge_labels(given, 4, (view for view in listed))
    assert one.scores.equal(other.scores)


@pytest.mark.slow
def test_fifty_thousand_samples_of_a_hundred_classes_take_less_than_a_gigabyte():
    """Measured in a process of its own: the peak of this one is of other tests."""
    code = (
        "import resource, torch; from undertow.labels.judge import View, judge_labels;"
        "g = torch.Generator().manual_seed(0); y = torch.randint(0, 100, (50_000,), generator=g);"
        "x = 1.5 * torch.randn(100, 64, generator=g)[y] + torch.randn(50_000, 64, generator=g);"
        "found = judge_labels(y, 100, [View(rows=x)]); print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    unit = 1 if sys.platform == "darwin" else 1024
    assert int(done.stdout) * unit < 1e9


def test_flags_are_called_suspicions_where_the_rate_cannot_be_told(blobs, flipped):
    rows, true = blobs([300] * 6, apart=0.5)
    unsure = judge_labels(true, 6, [View(rows=rows)])
    assert not unsure.rate.told
    assert unsure.rate.low == 0
    count = int(unsure.flagged.sum())
    assert count > 0
    assert unsure.notes[-1].startswith(
        f"{count} labels are flagged as the most suspicious, not as wrong: perhaps none"
    )
    rows, true = blobs([300] * 6, apart=2.0)
    sure = judge_labels(flipped(true, 0.2, 6), 6, [View(rows=rows)])
    assert sure.rate.told
    assert not sure.notes
