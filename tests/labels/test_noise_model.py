"""The noise model: what it recovers from drawn labels, and the literal formulas."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from undertow.data.noise import LabelNoise
from undertow.labels.noise_model import (
    Noise,
    believe,
    better_kind,
    even_matrix,
    fit_noise,
    improve,
    log_likelihood,
    true_chances,
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
    odds, noise = votes.softmax(1).T, Noise.first_guess(given, C)

    before = log_likelihood(odds, given, noise)
    for _ in range(8):
        noise = improve(odds, given, noise, kind, 1)
        after = log_likelihood(odds, given, noise)
        assert after >= before - 0.05  # the matrix is smoothed by one label per row
        before = after


def believed_counts(odds: Tensor, given: Tensor, noise: Noise) -> Tensor:
    """(C, C): samples of true class k, by Bayes' rule, given as g; sample by sample."""
    counts = torch.zeros(C, C, dtype=torch.float64)
    for i in range(N):
        chances = [float(noise.shares[k] * odds[k, i] * noise.matrix[k, given[i]]) for k in range(C)]
        for k in range(C):
            counts[k, given[i]] += chances[k] / sum(chances)
    return counts


def test_one_step_of_em_for_a_matrix_is_the_literal_one():
    votes, _, given = drawn("pairwise", 0.3)
    odds, first = votes.softmax(1).T, Noise.first_guess(given, C)
    found = improve(odds, given, first, "matrix", 1)
    counts = believed_counts(odds, given, first) + 1 / C
    torch.testing.assert_close(found.matrix, counts / counts.sum(1, keepdim=True), atol=1e-12, rtol=0)
    assert found.shares.equal(first.shares)


def test_one_step_of_em_for_even_noise_is_the_literal_one():
    votes, _, given = drawn("symmetric", 0.3)
    shares = torch.tensor([0.4, 0.3, 0.1, 0.1, 0.1], dtype=torch.float64)
    odds, first = votes.softmax(1).T, Noise(even_matrix(0.2, C), shares)
    found = improve(odds, given, first, "even", 1)
    rate = 1 - float(believed_counts(odds, given, first).diagonal().sum()) / N
    torch.testing.assert_close(found.matrix, even_matrix(rate, C), atol=1e-12, rtol=0)
    seen = torch.bincount(given, minlength=C) / N
    mixed = even_matrix(rate, C).T @ shares  # the shares of given labels that these shares would bring
    behind = [
        sum(float(shares[k] * found.matrix[k, g] / mixed[g] * seen[g]) for g in range(C)) for k in range(C)
    ]
    torch.testing.assert_close(found.shares, torch.tensor(behind, dtype=torch.float64), atol=1e-7, rtol=0)


def test_the_likelihood_is_the_literal_one():
    votes, _, given = drawn("pairwise", 0.3)
    shares = torch.tensor([0.4, 0.3, 0.1, 0.1, 0.1], dtype=torch.float64)
    odds, noise = votes.softmax(1).T, Noise(even_matrix(0.2, C), shares)
    clean = true_chances(odds, shares).T
    literal = (clean @ noise.matrix).gather(1, given[:, None]).log().sum()
    assert log_likelihood(odds, given, noise) == pytest.approx(float(literal), rel=1e-12)


def test_shares_behind_even_noise_are_found():
    """Classes at 80 to 5 %, flattened by noise in the labels."""
    true_shares = torch.tensor([0.8, 0.05, 0.05, 0.05, 0.05], dtype=torch.float64)
    random = torch.Generator().manual_seed(0)
    true = true_shares.multinomial(N, replacement=True, generator=random)
    given = even_matrix(0.3, C)[true].multinomial(1, generator=random)[:, 0]
    odds = torch.nn.functional.one_hot(true, C).T.double() * 0.96 + 0.01
    found = improve(odds, given, Noise.first_guess(given, C), "even", 60)
    torch.testing.assert_close(found.shares, true_shares, atol=0.03, rtol=0)
    assert float(found.matrix[0, 0]) == pytest.approx(0.7, abs=0.03)
    assert float(found.shares.sum()) == pytest.approx(1)


@pytest.mark.parametrize("kind", ["even", "matrix"])
@pytest.mark.parametrize("size", [0.01, 1.0, 100.0])
def test_the_temperature_found_is_a_maximum(kind, size):
    votes, _, given = drawn("symmetric", 0.3)
    fit = fit_noise(votes * size, given, kind)
    for factor in (0.5, 0.8, 0.9, 1.1, 1.25, 2.0):
        odds = (votes * size * fit.temperature * factor).softmax(1).T
        noise = improve(odds, given, Noise.first_guess(given, C), kind, 40)
        assert log_likelihood(odds, given, noise) < fit.likelihood


@pytest.mark.parametrize("kind", ["even", "matrix"])
def test_no_temperature_of_a_fine_grid_is_better_by_half_a_label(kind):
    """Fails if the search stops beside the top: it once did by a sixth of the temperature."""
    for seed in range(4):
        votes, _, given = drawn("pairwise", 0.3, seed=seed)
        found = fit_noise(votes, given, kind).temperature

        def profile(temperature: float, votes: Tensor = votes, given: Tensor = given) -> float:
            odds = (votes * temperature).softmax(1).T
            noise = improve(odds, given, Noise.first_guess(given, C), kind, 300)
            return log_likelihood(odds, given, noise)

        best = max(profile(found * factor) for factor in torch.linspace(-0.3, 0.3, 13).exp().tolist())
        assert profile(found) > best - 0.5


@pytest.mark.parametrize("size", [1e-200, 1e-8, 1e8, 1e200])
def test_the_size_of_votes_goes_into_the_temperature_alone(size):
    votes, _, given = drawn("symmetric", 0.3)
    plain, far = fit_noise(votes, given, "even"), fit_noise(votes * size, given, "even")
    assert far.temperature * size == pytest.approx(plain.temperature, rel=1e-6)
    torch.testing.assert_close(far.beliefs, plain.beliefs, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("kind", ["even", "matrix"])
@pytest.mark.parametrize("sure", [200.0, torch.inf])
def test_votes_for_a_class_that_is_never_given_say_nothing(kind, sure):
    """Fails if such samples have no chance at all: logarithms of 0/0, or likelihoods without end."""
    votes, _, given = drawn("symmetric", 0.3)
    votes, given = votes[given < C - 1], given[given < C - 1]
    if sure < torch.inf:
        votes[:3, C - 1] += sure
    else:
        votes[:3, : C - 1] = -torch.inf
    fit = fit_noise(votes, given, kind)
    assert fit.beliefs.isfinite().all()
    assert fit.clean.isfinite().all()
    assert fit.likelihood < 0
    assert fit.informative
    assert float(fit.beliefs[:, C - 1].max()) == 0


@pytest.mark.parametrize("sure", [0.0, 150.0, 500.0])
def test_a_class_of_one_label_does_not_decide_the_kind_of_noise(sure):
    """Without its fold it is never given; a likelihood without end of that fold would speak for a matrix."""
    random = torch.Generator().manual_seed(1)
    true = torch.arange(600) % 5
    given = torch.where(torch.rand(600, generator=random) < 0.2, true.roll(7), true)
    true[0] = given[0] = 5
    votes = torch.randn(600, 6, generator=random, dtype=torch.float64) + 4 * torch.eye(6)[true]
    votes[0, 5] += sure
    folds = [torch.arange(start, 600, 5) for start in range(5)]
    pair = (fit_noise(votes, given, "even"), fit_noise(votes, given, "matrix"))
    assert better_kind([pair], given, folds) == "even"


def test_votes_that_are_always_right_end_the_search():
    """Without a wrong label the likelihood grows with the temperature without end."""
    given = torch.arange(200) % C
    votes = torch.nn.functional.one_hot(given, C).double()
    for kind in ("even", "matrix"):
        fit = fit_noise(votes, given, kind)
        assert fit.beliefs.argmax(1).equal(given)
        assert float(fit.beliefs.max(1).values.min()) > 0.99


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


def test_votes_that_say_nothing_are_known_as_such():
    random = torch.Generator().manual_seed(0)
    given = torch.randint(0, C, (1000,), generator=random)
    for votes in (torch.zeros(1000, C, dtype=torch.float64), torch.randn(1000, C, generator=random).double()):
        assert not fit_noise(votes, given, "even").informative
    votes, _, labels = drawn("symmetric", 0.3)
    fit = fit_noise(votes, labels, "even")
    shares = labels.bincount(minlength=C).double() / len(labels)
    assert fit.gain == pytest.approx(fit.likelihood - float(shares.log()[labels].sum()))
    assert fit.informative


def test_shares_of_classes_are_not_taken_for_noise():
    """Votes are likelihoods; classes are drawn at 90 to 10 and no label is wrong."""
    random = torch.Generator().manual_seed(0)
    labels = (torch.rand(4000, generator=random) < 0.1).long()
    x = torch.randn(4000, generator=random, dtype=torch.float64) + 2.0 * labels
    votes = torch.stack([-(x**2) / 2, -((x - 2) ** 2) / 2], 1)
    fit = fit_noise(votes, labels, "matrix")
    assert fit.temperature == pytest.approx(1, rel=0.25)
    assert float(fit.matrix.diagonal().min()) > 0.9
