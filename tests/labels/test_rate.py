"""How many labels are wrong: bounds on planted data, and the arithmetic of the evidence."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from undertow.labels.honest import (
    ALLOWANCE,
    LEAST_SKILL,
    MOST_DOUBT,
    NO_TRUST,
    HonestCounts,
    blindly_wrong,
    depth_of,
    differing,
    drawn_evenly,
)
from undertow.labels.judge import judge_labels
from undertow.labels.rate import REACHES, LabelEvidence, rate_answer
from undertow.labels.views import Plan, View

FLAT = LabelEvidence(
    count=5000, classes=10, sure=(0.20, 0.20, 0.20), doubt=0.01, honest=0.24, commonest=0.1, everyone=0.22,
    learned=False, ruled_out=0.2,
)  # fmt: skip


def test_only_the_surest_samples_are_a_sign_of_noise():
    """Where the surest three tenths differ, less is guessed to be noise; what the next tenths do says nothing."""
    rising = replace(FLAT, sure=(0.1, 0.2, 0.3), ruled_out=0.0)
    agree, differ = (0.1, 0.0), (0.1, 0.1)

    def guess(*tenths):
        return replace(rising, tenths=tenths).guess

    alone = guess(*[agree] * 3, *[differ] * 7)
    assert alone == guess(*[agree] * 10)
    assert alone > guess(*[differ] * 3, *[agree] * 7)


@pytest.mark.parametrize("rate", [0.0, 0.05, 0.2, 0.4])
@pytest.mark.parametrize("pairwise", [False, True], ids=["any", "next"])
@pytest.mark.parametrize("apart", [1.0, 2.0], ids=["overlap", "apart"])
def test_the_interval_holds_planted_rates(blobs, flipped, rate, pairwise, apart):
    rows, true = blobs([300] * 6, apart=apart)
    given = flipped(true, rate, 6, pairwise=pairwise)
    answer = judge_labels(given, 6, [View(rows=rows)]).rate
    wrong = float((given != true).float().mean())
    assert answer.low <= wrong <= answer.high
    if apart == 2.0:
        assert answer.told
        assert answer.high - answer.low <= 0.25
        assert answer.value == pytest.approx(wrong, abs=0.05)
    if rate == 0:
        assert answer.low == 0


def test_noise_that_follows_the_input_is_not_called_small(blobs):
    """Wrong near the border to the nearest other class: as overlap looks. The range must reach to it."""
    rows, true = blobs([300] * 6, apart=1.0)
    far = torch.cdist(rows, torch.stack([rows[true == one].mean(0) for one in range(6)]))
    far = far.scatter(1, true[:, None], torch.inf)
    near = far.min(1)
    hit = near.values < near.values.quantile(0.3)
    given = torch.where(hit, near.indices, true)
    answer = judge_labels(given, 6, [View(rows=rows)]).rate
    assert answer.low <= 0.3 <= answer.high


def test_features_that_tell_nothing_cannot_tell(flipped):
    draws = torch.Generator().manual_seed(0)
    true = torch.arange(1000) % 4
    found = judge_labels(flipped(true, 0.3, 4), 4, [View(rows=torch.randn(1000, 10, generator=draws))])
    assert found.rate.value is None
    assert not found.rate.told
    assert (found.rate.low, found.rate.high) == (0.0, 0.75)
    assert str(found.rate).startswith(
        "cannot tell: 0.0 to 75.0 % of the labels may be wrong (the features hardly tell"
    )


def test_what_has_learned_the_labels_alone_cannot_tell(blobs, flipped):
    rows, true = blobs([200] * 5)
    found = judge_labels(flipped(true, 0.3, 5), 5, [View("fc", 30, rows=rows)])
    assert found.rate.value is None
    assert (found.rate.low, found.rate.high) == (0.0, 0.8)
    assert "give inputs or frozen features" in found.rate.reason


def test_one_voter_cannot_be_checked(blobs, flipped):
    rows, true = blobs([200] * 5)
    far = torch.cdist(rows, torch.stack([rows[true == one].mean(0) for one in range(5)]))
    found = judge_labels(flipped(true, 0.3, 5), 5, probabilities=[(-far).softmax(1)])
    assert found.rate.value is None
    assert "only one voter" in found.rate.reason


def error(share: float, count: float) -> float:
    """Half of Agresti and Coull's interval."""
    middle = (share * count + 2) / (count + 4)
    return 1.96 * (middle * (1 - middle) / (count + 4)) ** 0.5 + abs(middle - share)


def test_bounds_of_even_noise_by_hand():
    answer = rate_answer(FLAT)
    assert answer.told
    # Voters differ on a hundredth and may be wrong together on two; part of the overlap beyond the sure may reach them.
    by_sure = 0.2 - error(0.2, 1500) - 0.02 - REACHES * 0.04 - ALLOWANCE
    assert answer.low == pytest.approx(by_sure)
    assert rate_answer(replace(FLAT, drawn=0.1)).low == pytest.approx(by_sure)
    # No overlap looks like an even draw: those count less the doubt alone, and never more than the sure.
    assert rate_answer(replace(FLAT, drawn=0.19)).low == pytest.approx(
        0.19 - error(0.19, 1500) - 0.01 - ALLOWANCE
    )
    assert rate_answer(replace(FLAT, drawn=0.5)).low == pytest.approx(
        0.2 - error(0.2, 1500) - 0.01 - ALLOWANCE
    )
    # The surest tenth is contradicted less often: what is beyond it may be overlap.
    surest = replace(FLAT, tenths=((0.15, 0.0),) + ((0.2, 0.0),) * 9)
    assert rate_answer(surest).low == pytest.approx(
        0.15 - error(0.15, 1500) - 0.02 - REACHES * 0.04 - ALLOWANCE
    )
    assert answer.high == pytest.approx(0.24 + error(0.24, 5000))
    assert rate_answer(replace(FLAT, if_of_classes=0.21)).high == pytest.approx(0.21 + error(0.24, 5000))
    assert answer.low <= answer.value <= answer.high
    assert str(answer).startswith(f"{100 * answer.value:.1f} % of the labels are wrong (")


def test_a_rate_that_rises_with_doubt_is_followed_to_where_none_is_left():
    rising = replace(FLAT, sure=(0.06, 0.10, 0.14))
    # Through (.3, .06) and (.7, .14): 0 where no doubt is left.
    assert rising.sure_rate == pytest.approx(0.0)
    assert replace(FLAT, sure=(0.10, 0.12, 0.14)).sure_rate == pytest.approx(0.07)
    assert replace(FLAT, sure=(0.14, 0.12, 0.10)).sure_rate == pytest.approx(0.10)
    answer = rate_answer(rising)
    assert answer.low == 0
    assert answer.high == pytest.approx(1.25 * 0.24 + error(0.24, 5000))  # a quarter of what is seen may hide
    assert not answer.told  # 31 points from none on: a value would be made up
    assert answer.value is None
    steadier = rate_answer(replace(FLAT, sure=(0.16, 0.18, 0.20), if_of_classes=0.22, ruled_out=0.0))
    half = 0.5 * 0.24 + 0.5 * 0.22  # .8 is half-way from what follows the input to noise of classes
    assert steadier.high == pytest.approx(half + 0.1 * 0.24 + error(0.24, 5000))


def test_trust_and_what_the_matrix_is_worth():
    assert FLAT.trusted
    assert FLAT.matrix_trust == 1.0
    assert replace(FLAT, sure=(0.06, 0.10, 0.14)).matrix_trust == 0.5
    assert replace(FLAT, sure=(0.0, 0.01, 0.02)).matrix_trust == 0.5
    for untrusted in (
        replace(FLAT, doubt=NO_TRUST), replace(FLAT, doubt=None), replace(FLAT, honest=None),
        replace(FLAT, honest=0.9 - LEAST_SKILL / 2),
    ):  # fmt: skip
        assert not untrusted.trusted
        assert untrusted.matrix_trust == 0.0
        answer = rate_answer(untrusted)
        assert answer.low == 0
        assert answer.value is None
        assert 0 <= untrusted.guess <= 1
    between = replace(FLAT, doubt=(MOST_DOUBT + NO_TRUST) / 2)
    assert not between.trusted
    assert between.matrix_trust == pytest.approx(
        0.5
    )  # fades: a little more doubt does not make all of it worthless
    doubtful = rate_answer(replace(FLAT, doubt=0.2))
    assert "voters differ on 20 %" in doubtful.reason
    assert doubtful.high == pytest.approx(
        0.24 + 0.76 / 2, abs=0.02
    )  # half of what is agreed with may be wrong


def test_the_guess_lies_between_the_sure_rate_and_what_all_contradict():
    """The less of the overlap is resolved by learning, the more of it is noise."""
    rising = replace(FLAT, sure=(0.10, 0.12, 0.14), honest=0.30, learned=True)
    guesses = [replace(rising, everyone=everyone).guess for everyone in (0.08, 0.15, 0.20, 0.30)]
    assert guesses == sorted(guesses)
    assert guesses[-1] == pytest.approx(0.30)  # nothing resolved: all noise
    for guess, everyone in zip(guesses, (0.08, 0.15, 0.20, 0.30), strict=True):
        assert 0.07 - 1e-9 <= guess <= max(0.14, everyone) + 1e-9
    assert FLAT.guess == pytest.approx(0.2 + 0.15 * 0.02)  # steady: what is beyond the sure rate is overlap
    # The surest few may be wrong more often by chance: never more are flagged than honest voters contradict.
    assert replace(FLAT, sure=(0.30, 0.28, 0.26), everyone=0.24).guess == pytest.approx(0.24)


def test_labels_that_agree_better_than_voters_do_may_follow_a_rule():
    """TREC's rules: voters differ on 9 % of the surer half, labels contradict 4 % of it, and half of all are wrong."""
    ruled = replace(FLAT, sure=(0.03, 0.04, 0.06), doubt=0.09, honest=0.13, everyone=0.13, ruled_out=0.0)
    assert ruled.by_rules == 1
    assert rate_answer(ruled).high == pytest.approx(0.13 + 0.87 / 2 + error(0.13, 5000))
    assert replace(ruled, sure=(0.3, 0.3, 0.3)).by_rules == 0  # labels contradict far more: that is noise
    assert replace(ruled, doubt=0.03).by_rules == 0  # sure voters agree
    assert replace(ruled, sure=(0.0, 0.0, 0.0), doubt=0.0).by_rules == 0
    assert replace(ruled, doubt=None).by_rules == 0


def test_a_rule_that_every_view_has_learned_goes_unseen():
    """Half the labels are a rule's, and a network that learned it for an epoch vouches for each of them."""
    draw = torch.Generator().manual_seed(0)
    true = torch.randint(4, (1200,), generator=draw)
    ruled = torch.where(torch.rand(1200, generator=draw) < 0.5, (true + 1) % 4, true)
    rows = 4 * torch.eye(4)[ruled].repeat(1, 3) + torch.randn(1200, 12, generator=draw)
    taught, untaught = (judge_labels(ruled, 4, [View(rows=rows, epoch=epoch)]).rate for epoch in (1.0, 0.0))
    assert not taught.told
    assert taught.low == 0
    assert taught.high >= float((ruled != true).float().mean())
    assert "made by a rule" in taught.reason
    assert untaught.told  # features that saw no label cannot have been bent to a rule
    # Noise of classes is no rule: views that are taught for a short time count it as others do.
    assert rate_answer(replace(FLAT, only_taught=True)) == rate_answer(FLAT)


def test_no_wrong_label_in_few_samples_is_not_certainty():
    few = replace(FLAT, count=60, sure=(0.0, 0.0, 0.0), honest=0.0, everyone=0.0)
    answer = rate_answer(few)
    assert answer.low == 0
    assert 0.03 < answer.high < 0.15


def test_counts_of_honest_voters_by_hand():
    labels = torch.arange(400) % 4
    plan = Plan.of(labels, 4, 5, 0)
    draws = torch.Generator().manual_seed(0)
    pooled = torch.randn(400, 4, generator=draws) + 2 * torch.nn.functional.one_hot(labels, 4)
    named = pooled.argmax(1)
    other = torch.where(torch.arange(400) % 10 == 0, (named + 1) % 4, named).int()
    counts = HonestCounts.of(pooled, plan, [named.int(), other])
    assert counts.contradicted == pytest.approx(float((named != labels).float().mean()))
    top = pooled.topk(2, 1).values
    margin = top[:, 0] - top[:, 1]
    half = torch.zeros(400, dtype=torch.bool)
    for one in range(4):
        mine = (named == one).nonzero()[:, 0]
        half[mine[margin[mine].argsort(descending=True)[: -(-len(mine) // 2)]]] = True
    assert counts.doubt == pytest.approx(float((other[half] != named[half]).float().mean()) / 2, abs=1e-6)
    assert HonestCounts.of(pooled, plan, [other]).doubt is None


def test_differing_voters_are_counted_by_pairs():
    draws = torch.Generator().manual_seed(0)
    choices = [torch.randint(0, 3, (50,), generator=draws, dtype=torch.int32) for _ in range(4)]
    pairs = [(a, b) for a in range(4) for b in range(a)]
    wanted = [sum(float(choices[a][i] != choices[b][i]) for a, b in pairs) / 6 for i in range(50)]
    assert differing(choices, 3).tolist() == pytest.approx(wanted)


def test_tenths_and_the_bound_of_class_noise_by_hand():
    """An independent count in float64: ranks within named classes, and the formula of each voter with the pool."""
    draws = torch.Generator().manual_seed(1)
    true = torch.arange(600) % 3
    labels = torch.where(torch.rand(600, generator=draws) < 0.3, (true + 1) % 3, true)
    pooled = (torch.randn(600, 3, generator=draws) + 2 * torch.nn.functional.one_hot(true, 3)).double()
    named = pooled.argmax(1)
    other = torch.where(torch.rand(600, generator=draws) < 0.2, (named + 2) % 3, named)
    found = HonestCounts.of(pooled.float(), Plan.of(labels, 3, 5, 0), [named.int(), other.int()])
    top = pooled.float().double().topk(2, 1).values
    margin = top[:, 0] - top[:, 1]
    tenth, counts = [0] * 600, torch.zeros(3, 3).double()
    for one in range(3):
        mine = sorted((named == one).nonzero()[:, 0].tolist(), key=lambda i: -float(margin[i]))
        for place, i in enumerate(mine):
            tenth[i] = 10 * place // len(mine)
            if place / len(mine) < 0.75:
                counts[one, labels[i]] += 1
    for at, (wrong, differ) in enumerate(found.tenths):
        mine = [i for i in range(600) if tenth[i] == at]
        assert wrong == pytest.approx(sum(bool(named[i] != labels[i]) for i in mine) / len(mine))
        assert differ == pytest.approx(sum(bool(named[i] != other[i]) for i in mine) / len(mine))
    rate = 1 - float(counts.trace() / counts.sum())
    counts += 20 * torch.full((3, 3), rate / 2).double().fill_diagonal_(1 - rate)  # the matrix's even prior
    wrongs = counts.fill_diagonal_(0)
    into_one = float((wrongs.amax(1) / wrongs.sum(1)).mean())
    first, second = (float((one != labels).double().mean()) for one in (named, other))
    half = float((named != other).double().mean()) / 2
    bound = ((first + second) / 2 - half) / (1 - half * (1 + into_one))
    assert found.if_of_classes == pytest.approx(min(first, bound), abs=1e-6)
    assert HonestCounts.of(pooled.float(), Plan.of(labels, 3, 5, 0), [named.int()]).tenths == ()


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.6])
def test_labels_given_blindly_are_counted(rate, flipped):
    true = torch.arange(4000) % 8
    given = flipped(true, rate, 8)
    draws = torch.Generator().manual_seed(0)
    pooled = torch.randn(4000, 8, generator=draws) + 6 * torch.nn.functional.one_hot(true, 8)
    assert blindly_wrong(pooled, Plan.of(given, 8, 5, 0)) == pytest.approx(
        float((given != true).float().mean()), abs=0.03
    )


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.5])
@pytest.mark.parametrize("sharp", [1.0, 3.0], ids=["overlap", "apart"])
def test_even_draws_are_counted_beside_overlap_of_any_size(rate, sharp):
    """Labels drawn from the voters' own chances, at a scale that is not known, and then some drawn evenly."""
    draws = torch.Generator().manual_seed(2)
    votes = torch.randn(5000, 10, generator=draws)
    true = (2 * sharp * votes).softmax(1).multinomial(1, generator=draws)[:, 0]
    hit = torch.rand(5000, generator=draws) < rate
    given = torch.where(hit, torch.randint(0, 10, (5000,), generator=draws), true)
    for size in (0.01, 1.0, 100.0):
        found = drawn_evenly(size * votes, Plan.of(given, 10, 5, 0))
        assert found == pytest.approx(0.9 * rate, abs=0.05)


def test_the_runner_up_is_shallow_and_a_blind_label_is_deep():
    draws = torch.Generator().manual_seed(3)
    votes = torch.randn(4000, 8, generator=draws)
    order = votes.argsort(1, descending=True)
    hit = torch.arange(4000) % 3 == 0
    second = torch.where(hit, order[:, 1], order[:, 0])
    assert depth_of(votes, Plan.of(second, 8, 5, 0)) == 0
    place = torch.randint(1, 8, (4000, 1), generator=draws)
    blind = torch.where(hit, order.gather(1, place)[:, 0], order[:, 0])
    assert depth_of(votes, Plan.of(blind, 8, 5, 0)) == pytest.approx(1, abs=0.05)
    assert depth_of(votes, Plan.of(order[:, 0], 8, 5, 0)) == 1  # nothing is contradicted
    two = torch.arange(4000) % 2
    assert depth_of(votes[:, :2], Plan.of(two, 2, 5, 0)) == 1


def test_even_draws_are_suspected_by_their_count():
    """Voters that err where they are sure contradict .4 of the surest; overlap cannot explain .2 of all labels."""
    erring = replace(
        FLAT,
        sure=(0.40, 0.42, 0.44),
        doubt=0.06,
        honest=0.58,
        everyone=0.58,
        tenths=((0.4, 0.1),) * 10,
        drawn=0.2,
    )
    assert erring.sure_rate == pytest.approx(0.37)
    # What voters differ is their own error: draws need not account for it.
    assert replace(erring, drawn=0.15).blindness == pytest.approx((0.15 / 0.34 - 0.35) / 0.15)
    assert replace(erring, sure=(0.3, 0.4, 0.5)).blindness == pytest.approx(
        0.5
    )  # rises: draws are not all there is
    full = replace(erring, drawn=0.3)
    assert full.blindness == 1
    assert full.guess == pytest.approx(0.3 + error(0.3, 1500))
    # No further down than voters may be wrong together.
    agreed = replace(full, doubt=0.01)
    assert agreed.guess == pytest.approx(0.37 - 0.02)
    assert agreed.matrix_trust == 0  # an even draw has an even matrix
    clean = replace(erring, sure=(0.0, 0.01, 0.02), drawn=0.005, ruled_out=0.0)
    assert clean.blindness == 0  # next to nothing of next to nothing


def test_more_is_suspected_where_overlap_cannot_explain_what_the_surest_contradict():
    """Rising with doubt: what the surest contradict beyond what voters differ there is the sign of noise."""

    def seen(surest: float, differ: float, ruled_out: float) -> LabelEvidence:
        return replace(
            FLAT, sure=(surest, 0.24, 0.32), honest=0.41, everyone=0.4, tenths=((surest, differ),) * 10,
            ruled_out=ruled_out,
        )  # fmt: skip

    clean = seen(0.1, 0.1, 0.1)
    assert clean.sure_rate == 0
    assert clean.guess == pytest.approx(0.15 * 0.4)
    borders = seen(
        0.11, 0.01, 0.41 * 0.2
    )  # half of what is contradicted would be blind, were it not for looks
    blind = (0.41 * 0.2 / 0.11 - 0.7) / 0.3
    assert borders.of_classes == pytest.approx(blind)
    assert borders.guess == pytest.approx(blind * 0.15 * 0.4 + (1 - blind) * 0.32)
    looked = seen(0.11, 0.01, 0.0)  # no label looks blind: half of what the least sure add
    assert looked.guess == pytest.approx((0.32 + 0.41) / 2)
    between = seen(0.11, 0.06, 0.0)
    assert between.guess == pytest.approx((looked.guess + 0.15 * 0.4) / 2)


def test_blind_noise_is_noise_of_classes_unless_too_much_looks_blind():
    rising = replace(FLAT, sure=(0.1, 0.15, 0.2))
    found = [replace(rising, ruled_out=blind).of_classes for blind in (0.07, 0.085, 0.1, 0.13, 0.165, 0.2)]
    assert found == pytest.approx([0, 0.5, 1, 1, 0.5, 0])


def test_clean_classes_that_overlap_in_themselves_are_not_called_wrong(blobs):
    """All good voters agree there, and are wrong together: fails if their agreement counts as knowledge."""
    rows, true = blobs([300] * 6, apart=0.5)
    answer = judge_labels(true, 6, [View(rows=rows)]).rate
    assert answer.low == 0
    assert not answer.told


def test_the_guess_does_not_jump_where_trust_ends():
    """Noise that is not blind: half a point more doubt must not change thirty suspects in a hundred to three."""
    steady = replace(FLAT, sure=(0.4, 0.4, 0.4), honest=0.45, everyone=0.42, ruled_out=0.01)
    at, beyond = (replace(steady, doubt=MOST_DOUBT + more) for more in (0.0, 0.005))
    assert at.trusted
    assert not beyond.trusted
    assert beyond.guess == pytest.approx(at.guess, rel=0.05)
    assert replace(steady, doubt=0.5).guess == pytest.approx((0.01 * 0.42) ** 0.5)
