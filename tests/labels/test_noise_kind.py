"""What kind of noise it looks like: planted kinds, and the arithmetic."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from sklearn.metrics import average_precision_score

from undertow.labels.honest import HonestCounts
from undertow.labels.judge import judge_labels
from undertow.labels.noise_kind import BLIND, LOOKED, NoiseKind
from undertow.labels.noise_model import even_matrix, peakedness
from undertow.labels.views import View

STEADY, RISING = (0.3, 0.3, 0.31), (0.05, 0.15, 0.25)


def counts(sure: tuple[float, ...], blind: float, doubt: float | None = 0.01) -> HonestCounts:
    return HonestCounts(sure, doubt, 0.4, blind)


def test_noise_of_classes_is_known_by_its_course():
    assert NoiseKind.of(counts(STEADY, 0.02), 0.1).of_classes == 1
    assert NoiseKind.of(counts(RISING, 0.02), 0.1).of_classes == 0
    assert NoiseKind.of(counts(STEADY, 0.02, doubt=0.4), 0.1).of_classes == 0.5  # voters differ: nobody knows
    assert NoiseKind.of(counts(STEADY, 0.02, doubt=None), 0.1).of_classes == 0.5


def test_a_steady_share_of_runner_ups_is_overlap_unless_all_go_into_one_class():
    """With many classes voters err on their surest samples too, so that overlap is as steady as noise of classes."""
    steady = counts(STEADY, 0.02)
    of = [
        NoiseKind.of(replace(steady, depth=depth, into_one=into_one), 0.1).of_classes
        for depth, into_one in ((0.1, 0.2), (0.175, 0.2), (0.3, 0.2), (0.1, 0.7), (0.1, 0.525))
    ]
    assert of == pytest.approx([0, 0.5, 1, 1, 0.5])


def test_margins_are_heard_where_labels_follow_the_input():
    """At borders; mistakes that lie deep too, as people's do, are ranked by beliefs."""

    def margins(sure, blind, doubt=0.01, depth=0.15):
        return NoiseKind.of(replace(counts(sure, blind, doubt), depth=depth), 0.1).margins

    assert margins(RISING, 0.1) == 1
    assert margins(RISING, 0.4 / 3) == pytest.approx(0.5)
    assert margins(RISING, 0.4) == 0
    assert margins(STEADY, 0.02, depth=0.22) == pytest.approx(0)
    assert margins(RISING, 0.1, depth=0.255) == pytest.approx(0.5)
    assert margins(RISING, 0.1, depth=0.3) == 0
    assert NoiseKind.of(None, 0.1).margins == 0


def test_what_is_heard_does_not_jump_where_trust_ends():
    """Fails for a border: a hundredth more doubt once took the directions' whole say."""
    even = even_matrix(0.3, 10)
    doubts = [0.06, 0.07, 0.1, 0.15, 0.19, 0.21]
    kinds = [NoiseKind.of(counts(STEADY, 0.02, doubt=doubt), 0.1) for doubt in doubts]
    says = [kind.directions for kind in kinds]
    assert says == sorted(says, reverse=True)
    assert (says[0], says[-1]) == (1, 0.5)
    assert says[1] > 0.95
    assert [kind.sharpness(even) for kind in kinds] == pytest.approx([LOOKED - 2 * say for say in says])


@pytest.mark.parametrize(
    ("blind", "looked"), [(0.4, BLIND), (0.2, 2.0), (0.4 / 3, 3.0), (0.1, LOOKED), (0.0, LOOKED)]
)
def test_few_blind_labels_are_sharpened_more_and_heard_from_discriminants(blind, looked):
    kind = NoiseKind.of(counts(RISING, blind), 0.1)
    even = even_matrix(0.3, 10)
    assert kind.looked == pytest.approx(looked)
    assert kind.sharpness(even) == kind.looked
    assert kind.directions == pytest.approx((LOOKED - looked) / (LOOKED - BLIND))


def test_nobody_honest_is_taken_for_blind_noise():
    kind = NoiseKind.of(None, 0.1)
    assert (kind.of_classes, kind.directions, kind.sharpness(even_matrix(0.3, 10))) == (False, 1.0, BLIND)


def test_peakedness_of_even_of_paired_and_of_two_classes():
    paired = 0.7 * torch.eye(5) + 0.3 * torch.eye(5).roll(1, 1)
    assert peakedness(even_matrix(0.3, 10)) == pytest.approx(0, abs=1e-9)
    assert peakedness(paired) == pytest.approx(1)
    assert peakedness((paired + even_matrix(0.3, 5)) / 2) == pytest.approx(0.5)
    assert peakedness(even_matrix(0.3, 2)) == 0
    assert peakedness(torch.eye(4)) == 0
    assert NoiseKind(of_classes=1.0).sharpness(paired) == 1
    assert NoiseKind(of_classes=1.0).sharpness(even_matrix(0.3, 5)) == BLIND


def test_labels_at_borders_are_ranked_at_least_as_well_as_by_their_margins(blobs):
    """The nearer two classes are, the likelier the label is the other one: what a discriminant's margin ranks."""
    rows, true = blobs([400] * 6, apart=1.3)
    means = torch.stack([rows[true == one].mean(0) for one in range(6)])
    far = torch.cdist(rows, means)
    other = far.scatter(1, true[:, None], torch.inf).min(1)
    gap = other.values - far.gather(1, true[:, None])[:, 0]
    draws = torch.Generator().manual_seed(3)
    flip = torch.rand(len(true), generator=draws) < 0.5 * torch.exp(-gap.clamp(min=0))
    given = torch.where(flip, other.indices, true)
    wrong = given != true
    found = judge_labels(given, 6, [View(rows=rows)])
    own = (-far).gather(1, given[:, None])[:, 0]
    margin = own - (-far).scatter(1, given[:, None], -torch.inf).amax(1)
    mine = average_precision_score(wrong, found.scores)
    assert mine >= average_precision_score(wrong, -margin) - 0.02  # its means are those of true classes
