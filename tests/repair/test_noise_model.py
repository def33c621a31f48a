"""The noise model: what it recovers from drawn labels, and the literal formulas."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from undertow.data.noise import LabelNoise
from undertow.repair.noise_model import (
    FIRST_RATE,
    believe,
    better_kind,
    even_matrix,
    fit_matrix,
    fit_noise,
    log_likelihood,
)

C, N = 5, 6000


def drawn(kind: str, rate: float, *, sharpness: float = 3.0, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Votes whose softmax is the chance of the true class, the true classes drawn from it, and noisy labels."""
    random = torch.Generator().manual_seed(seed)
    votes = sharpness * torch.randn(N, C, generator=random, dtype=torch.float64)
    true = votes.softmax(1).multinomial(1, generator=random)[:, 0]
    noise = LabelNoise(kind, rate)  # pyright: ignore[reportArgumentType]
    given = noise.transition(C)[true].multinomial(1, generator=random)[:, 0]
    return votes, true, given


@pytest.mark.parametrize("kind", ["pairwise", "symmetric"])
def test_temperature_and_matrix_are_found_again(kind):
    """Votes are handed over seven times too small: the temperature must undo it."""
    votes, _, given = drawn(kind, 0.3)
    fit = fit_noise(votes / 7, given, "matrix")
    assert fit.temperature == pytest.approx(7, rel=0.2)
    torch.testing.assert_close(fit.matrix, LabelNoise(kind, 0.3).transition(C), atol=0.05, rtol=0)


def test_beliefs_are_calibrated():
    """Of labels believed wrong with 80 %, 80 % are wrong."""
    said, so = [], []
    for seed in range(4):
        votes, true, given = drawn("pairwise", 0.3, seed=seed)
        said.append(1 - fit_noise(votes, given, "matrix").beliefs.gather(1, given[:, None])[:, 0])
        so.append(given != true)
    wrong, truly = torch.cat(said), torch.cat(so)
    for low in (0.0, 0.2, 0.4, 0.6, 0.8):
        inside = (wrong >= low) & (wrong < low + 0.2)
        share = float(wrong[inside].mean())
        chance = (share * (1 - share) / int(inside.sum())) ** 0.5
        assert share == pytest.approx(float(truly[inside].double().mean()), abs=3 * chance + 0.01)


def test_even_noise_has_one_rate():
    votes, true, given = drawn("symmetric", 0.35)
    fit = fit_noise(votes, given, "even")
    rate = float((given != true).double().mean())
    assert float(1 - fit.matrix[0, 0]) == pytest.approx(rate, abs=0.03)
    torch.testing.assert_close(fit.matrix, even_matrix(float(1 - fit.matrix[0, 0]), C))


@pytest.mark.parametrize(("kind", "wanted"), [("symmetric", "even"), ("pairwise", "matrix")])
def test_a_matrix_is_taken_only_where_it_foretells_labels(kind, wanted):
    votes, _, given = drawn(kind, 0.3)
    folds = [torch.arange(start, N, 5) for start in range(5)]
    pair = (fit_noise(votes, given, "even"), fit_noise(votes, given, "matrix"))
    assert better_kind([pair], given, folds) == wanted


def test_beliefs_are_bayes_rule():
    clean = torch.tensor([[0.7, 0.2, 0.1], [0.0, 1.0, 0.0]], dtype=torch.float64)
    matrix = torch.tensor([[0.8, 0.2, 0.0], [0.0, 0.9, 0.1], [0.3, 0.0, 0.7]], dtype=torch.float64)
    found = believe(clean, torch.tensor([1, 0]), matrix)
    joint = [0.7 * 0.2, 0.2 * 0.9, 0.1 * 0.0]
    torch.testing.assert_close(found[0], torch.tensor(joint, dtype=torch.float64) / sum(joint))
    assert found[1].equal(clean[1])  # a label that cannot be: the features alone speak


@pytest.mark.parametrize("kind", ["even", "matrix"])
def test_em_never_lowers_the_likelihood(kind):
    votes, _, given = drawn("pairwise", 0.4)
    clean, matrix = votes.softmax(1), even_matrix(FIRST_RATE, C)
    before = log_likelihood(clean, given, matrix)
    for _ in range(8):
        matrix = fit_matrix(clean, given, kind, matrix, 1)
        after = log_likelihood(clean, given, matrix)
        assert after >= before - 0.05  # the matrix is smoothed by one label per row
        before = after


def test_the_temperature_found_is_a_maximum():
    votes, _, given = drawn("symmetric", 0.3)
    fit = fit_noise(votes, given, "even")
    for factor in (0.7, 1.4):
        clean = (votes * fit.temperature * factor).softmax(1)
        matrix = fit_matrix(clean, given, "even", fit.matrix, 20)
        assert log_likelihood(clean, given, matrix) < fit.likelihood


def test_votes_that_say_nothing_give_no_nan():
    given = torch.arange(100) % C
    for votes in (torch.zeros(100, C, dtype=torch.float64), _one_class_missing()):
        for kind in ("even", "matrix"):
            fit = fit_noise(votes, given, kind)
            assert fit.beliefs.isfinite().all()
            torch.testing.assert_close(fit.beliefs.sum(1), torch.ones(100, dtype=torch.float64))


def _one_class_missing() -> Tensor:
    votes = torch.zeros(100, C, dtype=torch.float64)
    votes[:, 2] = -torch.inf
    return votes
