"""The gate: a paired bootstrap, with clean labels and with noisy ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from undertow.errors import BadData, BadValue
from undertow.repairing import clean_accuracy, judge

C = 10


def answers(labels: Tensor, accuracy: float, seed: int) -> Tensor:
    """Predictions that are right for exactly that share of the samples, and wrong elsewhere."""
    random = torch.Generator().manual_seed(seed)
    wrong = (labels + torch.randint(1, C, labels.shape, generator=random)) % C
    order = torch.randperm(len(labels), generator=random)
    said = wrong.clone()
    right = order[: round(accuracy * len(labels))]
    said[right] = labels[right]
    return said


def truth(count: int, seed: int = 0) -> Tensor:
    return torch.randint(0, C, (count,), generator=torch.Generator().manual_seed(seed))


def corrupted(labels: Tensor, noise: float, seed: int) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    chosen = torch.rand(len(labels), generator=random) < noise
    return torch.where(chosen, torch.randint(0, C, labels.shape, generator=random), labels)


def test_interval_is_the_bootstrap_over_samples():
    """Fails if the multinomial shortcut were not the paired bootstrap, or if samples were not paired."""
    labels = truth(400)
    before, after = answers(labels, 0.6, 1), answers(labels, 0.7, 2)
    found = judge(before, after, labels, classes=C)

    gains = ((after == labels).double() - (before == labels).double()).numpy()
    rng = np.random.default_rng(9)
    means = [gains[rng.integers(0, 400, 400)].mean() for _ in range(4000)]
    np.testing.assert_allclose(
        (found.low, found.high), np.quantile(means, [0.025, 0.975]), rtol=0, atol=0.006
    )
    assert found.gain == pytest.approx(0.1)
    assert (found.before, found.after) == (0.6, 0.7)


@pytest.mark.parametrize(
    ("gain", "verdict"), [(0.1, "better"), (0.0, "not worth it"), (-0.1, "not worth it")]
)
@pytest.mark.parametrize("noise", [0.0, 0.4, None])
def test_a_gain_is_told_from_none_and_from_a_loss(gain, verdict, noise):
    labels = truth(3000)
    given = corrupted(labels, 0.4 if noise is None else noise, 5)
    found = judge(answers(labels, 0.7, 1), answers(labels, 0.7 + gain, 2), given, classes=C, noise=noise)
    assert (found.verdict, found.accepted) == (verdict, gain > 0)
    assert verdict in found.reason or "accepted" in found.reason
    assert "before" in found.reason


@pytest.mark.parametrize("noise", [0.2, 0.4, 0.8])
def test_noise_is_taken_out_of_the_accuracies(noise):
    """Fails if p / C were left out: a replaced label is right once in C times."""
    labels = truth(200_000)
    given = corrupted(labels, noise, 3)
    found = judge(answers(labels, 0.6, 1), answers(labels, 0.9, 2), given, classes=C, noise=noise)
    assert found.before == pytest.approx(0.6, abs=0.01)
    assert found.after == pytest.approx(0.9, abs=0.01)
    assert found.low < 0.3 < found.high
    unknown = judge(answers(labels, 0.6, 1), answers(labels, 0.9, 2), given, classes=C, noise=None)
    assert unknown.gain == pytest.approx(0.3 * (1 - noise), abs=0.01)  # a bound from below


def test_false_acceptance_is_rare():
    """Equal models are accepted about 1 time in 40: the upper half of a 95 % interval's misses."""
    taken = 0
    for seed in range(300):
        labels = truth(500, seed)
        given = corrupted(labels, 0.4, 1000 + seed)
        random = torch.Generator().manual_seed(seed)
        # Each model errs by itself, so that their accuracies scatter around the same 0.7.
        both = [
            torch.where(torch.rand(500, generator=random) < 0.7, labels, (labels + 1) % C) for _ in range(2)
        ]
        taken += judge(both[0], both[1], given, classes=C, noise=0.4).accepted
    assert 1 <= taken <= 18  # expected 7.5, standard deviation 2.7


def test_least_moves_the_bar():
    labels = truth(3000)
    before, after = answers(labels, 0.7, 1), answers(labels, 0.8, 2)
    assert judge(before, after, labels, classes=C, least=0.05).accepted
    refused = judge(before, after, labels, classes=C, least=0.2)
    assert not refused.accepted
    assert "+20.0 wanted" in refused.reason


def test_what_cannot_be_told():
    labels = truth(29)
    few = judge(answers(labels, 0.1, 1), labels, labels, classes=C)
    assert (few.verdict, few.accepted) == ("cannot tell", False)
    assert "29 held-out samples are too few" in few.reason
    labels = truth(500)
    assert judge(labels, labels, labels, classes=C, noise=1.0).verdict == "cannot tell"


def test_an_impossible_rate_is_said():
    labels = truth(500)
    found = judge(answers(labels, 0.7, 1), labels, labels, classes=C, noise=0.5)
    assert found.after > 1
    assert "this rate is wrong" in found.reason


def test_bad_input():
    labels = truth(50)
    with pytest.raises(BadData, match="50, 49 and 50"):
        judge(labels, labels[1:], labels, classes=C)
    with pytest.raises(BadValue, match=r"got 1\.4"):
        judge(labels, labels, labels, classes=C, noise=1.4)
    with pytest.raises(BadValue, match="confidence"):
        judge(labels, labels, labels, classes=C, confidence=95)
    with pytest.raises(BadValue, match="below 1"):
        clean_accuracy(0.5, 1.0, C)
