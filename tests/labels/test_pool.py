"""Pooled votes: the scale, the weights and the sums by hand, in any order."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from undertow.errors import BadData
from undertow.labels.pool import (
    ANSWERS,
    FEW_NEIGHBOURS,
    LEARNED_SAYS,
    MEMORISED,
    SCALES,
    Pool,
    tempered,
)
from undertow.labels.views import Plan, ViewSource

N, C = 900, 5


@pytest.fixture(scope="module")
def plan() -> Plan:
    return Plan.of(torch.arange(N) % C, C, 5, 0)


def votes(plan: Plan, strength: float, seed: int, size: float = 1.0) -> Tensor:
    """Noise, and so much of the given label."""
    draws = torch.Generator().manual_seed(seed)
    hot = torch.nn.functional.one_hot(plan.labels.clamp(min=0), plan.classes)
    return size * (torch.randn(len(plan.labels), plan.classes, generator=draws) + strength * hot)


def scaled(vote: Tensor, plan: Plan) -> Tensor:
    """In float64: centred rows over their spread, at the scale of the grid with the least loss."""
    rows = vote.double() - vote.double().mean(1, keepdim=True)
    rows /= rows.std()
    known = plan.labelled
    losses = [
        -(float(s) * rows[known]).log_softmax(1)[range(int(known.sum())), plan.labels[known]].mean()
        for s in SCALES
    ]
    return rows * float(SCALES[int(torch.stack(losses).argmin())])


def agreement(vote: Tensor, plan: Plan) -> float:
    return float((vote.argmax(1) == plan.labels).double().mean())


@pytest.mark.parametrize("strength", [0.0, 1.0, 3.0])
def test_the_scale_is_that_of_least_loss(plan, strength):
    vote = votes(plan, strength, 0)
    found, scale = tempered(vote.clone(), plan)
    torch.testing.assert_close(found.double(), scaled(vote, plan), atol=1e-4, rtol=1e-4)
    # Between two steps of the grid nothing is much better.
    assert scale == pytest.approx(strength * float(vote.std()), rel=0.35) if strength else scale < 0.2


@pytest.mark.parametrize("size", [1e-6, 1e6])
def test_the_size_and_place_of_votes_do_not_matter(plan, size):
    vote = votes(plan, 2.0, 0)
    wanted, _ = tempered(vote.clone(), plan)
    found, _ = tempered(vote * size + torch.arange(N)[:, None] * size, plan)
    torch.testing.assert_close(found, wanted, atol=2e-2, rtol=1e-2)


def test_unlabelled_samples_have_no_say_in_the_scale():
    labels = torch.arange(N) % C
    labels[::3] = -1
    plan = Plan.of(labels, C, 5, 0)
    vote = votes(plan, 2.0, 0)
    torch.testing.assert_close(
        tempered(vote.clone(), plan)[0].double(), scaled(vote, plan), atol=1e-4, rtol=1e-4
    )


def test_sums_and_weights_are_the_literal_ones(plan):
    """An untouched view, a late one that has memorised, neighbours and the network's answers."""
    inputs, late, near, said = (
        votes(plan, 1.0, 1),
        votes(plan, 2.0, 2),
        votes(plan, 1.5, 3),
        votes(plan, 4.0, 4),
    )
    pool = Pool(plan)
    pool.add_outputs(said, 9)
    pool.add_view([("discriminant", inputs.clone())], ViewSource("inputs"))
    pool.add_view([("discriminant", late.clone())], ViewSource("fc1", 9))
    pool.add_neighbours(near.clone(), "inputs")
    memorised = agreement(said, plan) - agreement(late, plan)
    assert memorised > MEMORISED
    most = float(plan.shares.max())
    first = ((agreement(inputs, plan) - most) / (1 - most)) ** 4
    second = max((agreement(late, plan) - memorised - most) / (1 - most), 0.01) ** 4 / (
        1 + (memorised / MEMORISED) ** 2
    )
    by_name = {(voter.name, voter.kind): voter for voter in pool.voters}
    assert by_name["inputs", "discriminant"].weight == pytest.approx(first, rel=1e-5)
    assert by_name["fc1 at epoch 9", "discriminant"].weight == pytest.approx(second, rel=1e-5)
    a, b, n, s = (scaled(one, plan) for one in (inputs, late, near, said))
    torch.testing.assert_close(pool.honest().double(), 2 * a + n, atol=1e-3, rtol=1e-3)
    probes = 2 * (first * a + second * b) / (first + second)
    answers = s * ANSWERS * (probes / 2).std() / s.std()
    torch.testing.assert_close(
        pool.everyone().double(), probes + FEW_NEIGHBOURS * n + answers, atol=2e-3, rtol=2e-3
    )


def test_directions_are_heard_as_much_as_is_said(plan):
    fine, coarse = votes(plan, 2.0, 1), votes(plan, 1.0, 2)
    pool = Pool(plan)
    pool.add_view([("discriminant", fine.clone()), ("directions", coarse.clone())], ViewSource("inputs"))
    a, b = scaled(fine, plan), scaled(coarse, plan)
    first, second = (voter.weight for voter in pool.voters)
    both = 2 * (first * a + second * b) / (first + second)
    torch.testing.assert_close(pool.honest().double(), both, atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(pool.everyone().double(), both, atol=1e-3, rtol=1e-3)
    half = 2 * (first * a + second * b / 2) / (first + second / 2)
    torch.testing.assert_close(pool.everyone(0.5).double(), half, atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(pool.everyone(0.0).double(), 2 * a, atol=1e-3, rtol=1e-3)


def test_who_learned_is_heard_less_until_all_contradict_what_is_surely_wrong(plan):
    """A late layer repeats every label, inputs contradict some: the largest say that leaves enough contradicted."""
    inputs, late, said = votes(plan, 1.5, 1), votes(plan, 9.0, 2), votes(plan, 9.0, 3)
    pool = Pool(plan)
    pool.add_outputs(said, 9)
    pool.add_view([("discriminant", inputs.clone())], ViewSource("inputs"))
    pool.add_view([("discriminant", late.clone())], ViewSource("fc1", 9))
    by_kind = {voter.name: voter.weight for voter in pool.voters}
    a, b, s = (scaled(one, plan) for one in (inputs, late, said))
    contradicted = {}
    for say in LEARNED_SAYS:
        first, second = by_kind["inputs"], say * by_kind["fc1 at epoch 9"]
        probes = 2 * (first * a + second * b) / (first + second)
        whole = probes + say * s * ANSWERS * (probes / 2).std() / s.std()
        torch.testing.assert_close(pool.everyone(1.0, say).double(), whole, atol=3e-3, rtol=3e-3)
        contradicted[say] = 1 - agreement(pool.everyone(1.0, say), plan)
    assert contradicted[1.0] < contradicted[0.0]
    assert pool.say_of_learned(contradicted[1.0]) == 1.0
    assert pool.say_of_learned(contradicted[0.0]) == max(
        say for say, share in contradicted.items() if share >= contradicted[0.0]
    )
    assert pool.say_of_learned(1.0) == 0.0  # nobody contradicts so much: honest voters alone
    alone = Pool(plan)
    alone.add_outputs(said, 9)
    assert alone.say_of_learned(1.0) == 1.0  # nobody is honest


def test_memorised_labels_are_no_skill(plan):
    """A layer that foretells much because the network knows its labels by heart weighs less than weak inputs."""
    pool = Pool(plan)
    pool.add_outputs(votes(plan, 30.0, 1), 30)  # repeats every label
    pool.add_view([("discriminant", votes(plan, 1.0, 2))], ViewSource("inputs"))
    pool.add_view([("discriminant", votes(plan, 1.0, 3))], ViewSource("flat", 30))
    pool.add_view([("discriminant", votes(plan, 6.0, 4))], ViewSource("deep", 30))
    _, inputs, _, deep = pool.voters
    assert deep.agreement > inputs.agreement + 0.2
    assert deep.weight < inputs.weight


def test_a_view_that_saw_no_label_has_memorised_nothing(plan):
    """It is heard as fully as a layer of a network that repeats nothing."""
    weights = {}
    for source in (ViewSource("inputs"), ViewSource("fc1", 9)):
        pool = Pool(plan)
        pool.add_view([("discriminant", votes(plan, 2.0, 1))], source)
        weights[source.untouched] = pool.voters[0].weight
    assert weights[True] == pytest.approx(weights[False], rel=1e-9)


def test_directions_that_repeat_nothing_are_heard_in_a_network_that_repeats_everything(plan):
    """They hardly follow what is memorised: their own agreement tells, not the network's."""
    weights = []
    for repeats in (False, True):
        pool = Pool(plan)
        if repeats:
            pool.add_outputs(votes(plan, 30.0, 3), 30)
        parts = [("discriminant", votes(plan, 3.0, 1)), ("directions", votes(plan, 1.0, 2))]
        pool.add_view(parts, ViewSource("flat", 30))
        weights.append(pool.voters[-1].weight)
    assert weights[0] == pytest.approx(weights[1], rel=1e-9)


def test_probabilities_speak_for_both_probes_of_a_view(plan):
    likely = votes(plan, 2.0, 1).softmax(1)
    pool = Pool(plan)
    pool.add_probabilities(likely, "p")
    assert pool.has_honest
    assert not pool.has_learned
    torch.testing.assert_close(pool.everyone().double(), 2 * scaled(likely.log(), plan), atol=1e-3, rtol=1e-3)
    zeros = torch.nn.functional.one_hot(plan.labels, C).float()  # probabilities of 0 are no infinite votes
    pool.add_probabilities(zeros, "certain")
    assert pool.everyone().isfinite().all()


def test_the_order_of_views_does_not_matter(plan):
    parts = [("a", 0.0, 1), ("b", 1.0, 2), ("c", 2.0, 3), ("d", 6.0, 4)]
    found = []
    for order in (parts, parts[::-1]):
        pool = Pool(plan)
        for name, epoch, seed in order:
            pool.add_view([("discriminant", votes(plan, 1.0 + seed / 4, seed))], ViewSource(name, epoch))
            pool.add_neighbours(votes(plan, 1.0, 10 + seed), name)
        found.append((pool.honest(), pool.everyone()))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_views_of_two_epochs_are_honest_and_later_ones_are_not(plan):
    pool = Pool(plan)
    pool.add_view([("discriminant", votes(plan, 1.0, 1))], ViewSource("fc", 3.0))
    pool.add_outputs(votes(plan, 1.0, 2), 1)
    assert not pool.has_honest
    assert pool.first_choices == []
    torch.testing.assert_close(pool.honest(), pool.everyone())
    pool.add_view([("discriminant", votes(plan, 1.0, 3))], ViewSource("fc", 2.0))
    assert pool.has_honest
    assert len(pool.first_choices) == 1


def test_answers_are_not_changed_in_place(plan):
    logits = votes(plan, 1.0, 1)
    before = logits.clone()
    Pool(plan).add_outputs(logits, 1)
    assert logits.equal(before)


def test_votes_that_do_not_fit_are_refused_with_their_name(plan):
    pool = Pool(plan)
    with pytest.raises(BadData, match=r"clip: wanted \(900, 5\), samples by classes, got \(900, 4\)"):
        pool.add_neighbours(torch.zeros(N, 4), "clip")
    with pytest.raises(BadData, match="answers at epoch 4: wanted finite numbers"):
        pool.add_outputs(torch.full((N, C), torch.nan), 4)
    with pytest.raises(BadData, match="got nothing to judge labels by"):
        pool.everyone()
