"""Label noise: distributions, exact published draws, nesting, and one sentence for bad settings."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from scipy import optimize, stats
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from undertow.data.noise import (
    LabelNoise,
    counted_transition,
    draw_from_rows,
    expected_wrong,
    flip_rates,
    parse_noise,
)
from undertow.data.samples import Samples
from undertow.errors import BadData, BadValue, NotThere, UnknownName

KINDS = ("uniform", "symmetric", "pairwise", "instance", "part")
CONFUSED = ((0.7, 0.2, 0.1), (0.0, 1.0, 0.0), (0.5, 0.5, 0.0))


def some_samples(count: int = 6000, classes: int = 5, seed: int = 0) -> Samples:
    source = torch.Generator().manual_seed(seed)
    x = torch.randint(0, 256, (count, 1, 4, 4), generator=source, dtype=torch.uint8)
    return Samples.of(x, torch.arange(count) % classes)


def grouped_samples(count: int = 3000, apart: float = 1.0) -> Samples:
    """Five classes in a row, each overlapping with the next."""
    source = torch.Generator().manual_seed(2)
    y = torch.arange(count) % 5
    x = torch.randn(count, 8, generator=source)
    x[:, 0] += apart * y
    return Samples.of(x, y)


def noise_of(kind: str, p: float, **settings: object) -> LabelNoise:
    return LabelNoise(kind, p, **settings)  # type: ignore[arg-type]


def changed(noisy: Samples) -> Tensor:
    assert noisy.true is not None
    return noisy.y != noisy.true


@pytest.mark.parametrize(
    "noise",
    [
        LabelNoise("uniform", 0.4),
        LabelNoise("uniform", 0.4, rng="authors"),
        LabelNoise("symmetric", 0.3),
        LabelNoise("pairwise", 0.3),
        LabelNoise("pairwise", 0.3, pairs=(2, 1, 0)),
        LabelNoise("asymmetric", 1.0, matrix=CONFUSED),
        LabelNoise("asymmetric", 0.5, matrix=CONFUSED),
    ],
    ids=lambda noise: f"{noise.kind}-{noise.rng}-{noise.p}",
)
def test_counts_follow_the_transition_matrix(noise: LabelNoise) -> None:
    """Fails if uniform leaves the same class out, if symmetric includes it, or if a row and a column are mixed up."""
    classes, count = 3, 30_000
    noisy = noise.apply(some_samples(count, classes), classes)
    rows = noise.transition(classes)
    torch.testing.assert_close(rows.sum(1), torch.ones(classes).double())
    seen = (counted_transition(noisy, classes) * (count / classes)).round()
    for row, counts in zip(rows, seen, strict=True):
        possible = row > 0
        assert counts[~possible].sum() == 0
        if possible.sum() > 1:
            test = stats.chisquare(counts[possible], row[possible] * counts.sum())
            assert test.pvalue > 1e-4


def test_uniform_noise_leaves_the_expected_share_wrong() -> None:
    count, p = 50_000, 0.4
    noisy = LabelNoise("uniform", p).apply(some_samples(count, 10), 10)
    wrong = expected_wrong(p, 10)
    assert wrong == pytest.approx(0.36)
    spread = (wrong * (1 - wrong) / count) ** 0.5
    assert abs(changed(noisy).double().mean() - wrong) < 4 * spread


def test_the_authors_draw_is_the_legacy_generators_in_their_order() -> None:
    """Fails for < instead of <=, for labels drawn before the mask, or for one label drawn per sample."""
    samples, p = some_samples(1000, 7), 0.37
    source = np.random.RandomState(5)
    chance = [source.uniform() for _ in range(1000)]
    expected = [int(label) for label in samples.y]
    for at in [i for i, u in enumerate(chance) if u <= p]:
        expected[at] = int(source.randint(7))
    assert LabelNoise("uniform", p, seed=5, rng="authors").apply(samples, 7).y.tolist() == expected


@pytest.mark.realdata
@pytest.mark.parametrize(
    ("p", "wrong"), [(0.0, 0), (0.2, 10_778), (0.4, 21_536), (0.6, 32_303), (0.8, 43_276)], ids=str
)
def test_the_published_shares_of_mnist_come_out_exactly(real_data: Path, p: float, wrong: int) -> None:
    """The authors report .17963 .35893 .53838 .72127 changed labels; here to the last label."""
    file = next((real_data / "mnist" / "data").glob("train-*.parquet"))
    labels = torch.from_numpy(pq.read_table(file, columns=["label"])["label"].to_numpy().copy())
    samples = Samples.of(torch.zeros(len(labels), 1), labels)
    noisy = LabelNoise("uniform", p, rng="authors").apply(samples, 10)
    assert int(changed(noisy).sum()) == wrong
    published = {0.0: 0.0, 0.2: 0.17963, 0.4: 0.35893, 0.6: 0.53838, 0.8: 0.72127}
    assert round(wrong / len(labels), 5) == published[p]


@pytest.mark.parametrize("kind", [*KINDS, "margin"])
def test_noise_at_a_small_share_is_part_of_the_noise_at_a_larger_one(kind: str) -> None:
    """Fails if the draws depend on p."""
    samples = grouped_samples() if kind == "margin" else some_samples()
    shares = (0.1, 0.2, 0.4, 0.6) if kind == "margin" else (0.1, 0.3, 0.6, 0.9)
    noisy = [noise_of(kind, p).apply(samples, 5) for p in shares]
    for less, more in pairwise(noisy):
        hit = changed(less)
        assert hit.any()
        assert torch.equal(less.y[hit], more.y[hit])


def test_the_authors_replaced_sets_are_nested() -> None:
    """Their labels differ between degrees, but the places that may change are nested."""
    samples = some_samples(4000, 5)
    chance = np.random.RandomState(42).random_sample(4000)
    for p in (0.2, 0.8):
        noisy = LabelNoise("uniform", p, rng="authors").apply(samples, 5)
        assert not changed(noisy)[torch.from_numpy(chance > p)].any()


@pytest.mark.parametrize("kind", [*KINDS, "margin"])
def test_a_seed_fixes_the_labels_and_leaves_global_generators_alone(kind: str) -> None:
    samples = grouped_samples(500)
    legacy = np.random.get_state()[1].tolist()  # noqa: NPY002 - that it is untouched is the point
    torch_state = torch.get_rng_state()
    first, again, other = (noise_of(kind, 0.4, seed=seed).apply(samples, 5) for seed in (3, 3, 4))
    LabelNoise("uniform", 0.5, rng="authors").apply(samples, 5)
    assert torch.equal(first.y, again.y)
    assert not torch.equal(first.y, other.y)
    assert torch.equal(torch_state, torch.get_rng_state())
    assert legacy == np.random.get_state()[1].tolist()  # noqa: NPY002


@pytest.mark.parametrize("kind", KINDS)
def test_no_noise_and_full_noise(kind: str) -> None:
    samples = some_samples(1000)
    clean = noise_of(kind, 0.0).apply(samples, 5)
    assert torch.equal(clean.y, samples.y)
    full = noise_of(kind, 1.0).apply(samples, 5)
    share = float(changed(full).double().mean())
    assert share == 1 if kind != "uniform" else 0.7 < share < 0.9


@pytest.mark.parametrize("kind", ["symmetric", "pairwise", "instance", "part"])
def test_with_two_classes_every_wrong_label_is_the_other_one(kind: str) -> None:
    samples = some_samples(400, 2)
    assert torch.equal(noise_of(kind, 1.0).apply(samples, 2).y, 1 - samples.y)


def test_given_and_true_labels_are_both_kept() -> None:
    """Fails if a second round of noise takes the noisy labels for the true ones."""
    samples = some_samples(500)
    before = samples.y.clone()
    once = LabelNoise("symmetric", 0.5).apply(samples, 5)
    twice = LabelNoise("symmetric", 0.5, seed=1).apply(once, 5)
    assert once.true is not None
    assert torch.equal(once.true, before)
    assert twice.true is not None
    assert torch.equal(twice.true, before)
    assert torch.equal(samples.y, before)
    assert torch.equal(once.index, samples.index)


def test_pairwise_noise_takes_the_next_class() -> None:
    samples = some_samples(100)
    assert torch.equal(LabelNoise("pairwise", 1.0).apply(samples, 5).y, (samples.y + 1) % 5)


def test_draws_at_the_ends_stay_among_the_possible_classes() -> None:
    """Ten times 0.1 sums to 1 - 1e-16 and three times 1/3 leaves nothing for a fourth class: fails without care."""
    tenths = torch.full((10, 10), 0.1, dtype=torch.float64)
    thirds = torch.tensor([[1 / 3, 1 / 3, 1 / 3, 0.0]] * 4, dtype=torch.float64)
    late = torch.full((1,), np.nextafter(1.0, 0.0), dtype=torch.float64)
    first = torch.zeros(1, dtype=torch.int64)
    assert draw_from_rows(tenths, first, late).tolist() == [9]
    assert draw_from_rows(thirds, first, late).tolist() == [2]
    assert draw_from_rows(thirds.flip(1), first, torch.zeros(1).double()).tolist() == [1]


@pytest.mark.parametrize("p", [0.05, 0.4, 0.9])
def test_instance_rates_have_mean_p_and_follow_the_input(p: float) -> None:
    place = torch.randn(2001, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rates = flip_rates(place, p)
    assert float(rates.mean()) == pytest.approx(p, abs=1e-12)
    assert rates.min() >= -1e-12
    assert rates.max() <= 1 + 1e-12
    assert torch.equal(rates.argsort(), place.argsort())
    # Independent: the same quantiles by scipy.
    reach = min(p, 1 - p) / 0.1
    quantile = (stats.rankdata(place) - 0.5) / len(place)
    np.testing.assert_allclose(rates, stats.truncnorm.ppf(quantile, -reach, reach, p, 0.1), rtol=1e-6)


def test_instance_rates_rise_with_p_for_every_sample() -> None:
    """Nesting rests on this."""
    place = torch.arange(301, dtype=torch.float64)
    rates = torch.stack([flip_rates(place, p) for p in np.linspace(0, 1, 101)])
    assert float(rates.diff(dim=0).min()) >= -1e-12


def test_equal_inputs_get_equal_rates() -> None:
    assert flip_rates(torch.tensor([1.0, 5.0, 5.0, 9.0]).double(), 0.3)[1:3].unique().numel() == 1


def test_instance_noise_goes_where_the_input_says() -> None:
    """Inputs of one class that lie together go to one wrong class; fails if the target ignores the input."""
    source = torch.Generator().manual_seed(1)
    centres = 8 * torch.randn(6, 20, generator=source)
    group = torch.arange(3000) % 6
    x = centres[group] + 0.1 * torch.randn(3000, 20, generator=source)
    noisy = LabelNoise("instance", 0.5).apply(Samples.of(x, group % 3), 3)
    assert abs(float(changed(noisy).double().mean()) - 0.5) < 4 * (0.25 / 3000) ** 0.5
    table = np.zeros((6, 3))
    np.add.at(table, (group[changed(noisy)].numpy(), noisy.y[changed(noisy)].numpy()), 1)
    favourite = (table.max(1) / table.sum(1)).mean()
    assert favourite > 0.8  # blind targets would give 0.5
    rates = [float(changed(noisy)[group == one].double().mean()) for one in range(6)]
    assert max(rates) - min(rates) > 0.1  # blind rates differ by about .05


def test_part_noise_goes_where_the_input_says_at_a_rate_that_does_not() -> None:
    """Fails if the target ignores the input, or if the rate follows it."""
    source = torch.Generator().manual_seed(1)
    group = torch.arange(6000) % 6
    x = 8 * torch.randn(6, 20, generator=source)[group] + 0.1 * torch.randn(6000, 20, generator=source)
    noisy = LabelNoise("part", 0.4).apply(Samples.of(x, group % 3), 3)
    wrong = changed(noisy)
    assert abs(float(wrong.double().mean()) - 0.4) < 4 * (0.24 / 6000) ** 0.5
    table = np.zeros((6, 3))
    np.add.at(table, (group[wrong].numpy(), noisy.y[wrong].numpy()), 1)
    assert (table.max(1) / table.sum(1)).mean() > 0.8  # blind targets would give 0.5
    rates = [float(wrong[group == one].double().mean()) for one in range(6)]
    assert max(rates) - min(rates) < 0.09


def test_part_noise_draws_from_the_published_softmax() -> None:
    """Rows of one input: wrong labels are counted against softmax(W x) with W from the same generator."""
    seed, count = 3, 20_000
    x = torch.cat([torch.tensor([[0.4, -0.2, 0.1]]).repeat(count, 1), torch.tensor([[-1.0, 2.0, 0.5]])])
    y = torch.cat([torch.zeros(count), torch.ones(1)]).long()
    noisy = LabelNoise("part", 1.0, seed=seed).apply(Samples.of(x, y), 4)
    source = torch.Generator().manual_seed(seed)
    torch.rand(2, count + 1, generator=source, dtype=torch.float64)
    torch.rand(count + 1, generator=source, dtype=torch.float64)
    weights = torch.randn(3, 4, generator=source, dtype=torch.float64).numpy()
    flat = x.double().numpy()
    scores = ((flat[0] - flat.mean()) / flat.std(ddof=1)) @ weights
    wanted = np.exp(scores[1:]) / np.exp(scores[1:]).sum()
    seen = np.bincount(noisy.y[:count].numpy(), minlength=4)
    assert seen[0] == 0
    assert stats.chisquare(seen[1:], wanted * count).pvalue > 1e-4


def test_margin_noise_goes_to_the_nearer_class() -> None:
    """Fails if flips go to any class; the side is blind at 0.5."""
    samples = grouped_samples(apart=3.0)
    noisy = LabelNoise("margin", 0.2).apply(samples, 5)
    wrong = changed(noisy)
    assert float(wrong.double().mean()) == pytest.approx(0.2, abs=4 * (0.16 / 3000) ** 0.5)
    step = (noisy.y - samples.y)[wrong]
    assert (step.abs() == 1).double().mean() > 0.95  # the classes lie in a row
    place = samples.tensor[:, 0] / 3 - samples.y  # towards the next class above 0, the one before below
    sides = (samples.y > 0) & (samples.y < 4)
    assert float(((noisy.y - samples.y).sign() == place.sign())[wrong & sides].double().mean()) > 0.8


def test_margin_noise_is_the_published_one_by_hand() -> None:
    """Flips at c (1 - margin^2) / 2, with c by another solver; inputs of eight values need no leading directions."""
    samples, p, seed = grouped_samples(), 0.25, 4
    source = torch.Generator().manual_seed(seed)
    chance, half = torch.rand(2, 3000, generator=source, dtype=torch.float64).numpy()
    x, y = samples.tensor.double().numpy(), samples.y.numpy()
    x = (x - x.mean()) / x.std(ddof=1)
    likely = np.zeros((3000, 5))
    for held in (half < 0.5, half >= 0.5):
        likely[held] = LogisticRegression(C=0.01, max_iter=500).fit(x[~held], y[~held]).predict_proba(x[held])
    order = np.argsort(-likely, axis=1)
    margin = (
        np.take_along_axis(likely, order[:, :1], 1)[:, 0] - np.take_along_axis(likely, order[:, 1:2], 1)[:, 0]
    )
    tau = (1 - margin**2) / 2 * ((y == order[:, 0]) | (y == order[:, 1]))
    factor = optimize.brentq(lambda c: np.minimum(c * tau, 1).mean() - p, 0, 100)
    other = np.where(y == order[:, 0], order[:, 1], order[:, 0])
    wanted = np.where(chance < np.minimum(factor * tau, 1), other, y)
    found = LabelNoise("margin", p, seed=seed).apply(samples, 5).y.numpy()
    assert (found == wanted).mean() > 0.998  # the regressions end a hair apart


def test_margin_noise_says_what_it_cannot_do() -> None:
    with pytest.raises(
        BadValue, match=r"a share below 0\.\d\d, of labels that a clean model finds likely, got 1"
    ):
        LabelNoise("margin", 1.0).apply(grouped_samples(), 5)
    assert LabelNoise("margin", 0.0).apply(grouped_samples(), 5).y.equal(grouped_samples().y)
    one = replace(grouped_samples(500), y=torch.zeros(500, dtype=torch.int64))
    with pytest.raises(BadData, match="two classes in each half"):
        LabelNoise("margin", 0.1).apply(one, 5)


@pytest.mark.parametrize("kind", ["instance", "part", "margin"])
def test_noise_that_follows_the_input_has_no_single_matrix_but_can_be_counted(kind: str) -> None:
    noise = noise_of(kind, 0.4)
    with pytest.raises(BadValue, match="counted_transition"):
        noise.transition(5)
    counted = counted_transition(noise.apply(grouped_samples(6000), 5), 5)
    torch.testing.assert_close(counted.sum(1), torch.ones(5).double())
    assert abs(float(counted.diagonal().mean()) - 0.6) < 0.05


@pytest.mark.parametrize("p", [-0.1, 1.4, 40, float("nan"), "0.4", True, None])
def test_a_bad_share_gets_one_sentence(p: object) -> None:
    with pytest.raises(
        BadValue, match=r"label noise: wanted a share from 0 to 1, got .*For 40 % write 0\.4\.$"
    ):
        LabelNoise("uniform", p)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (((0.5, 0.4), (0.0, 1.0)), r"row 0 to sum to 1, got 0\.9"),
        (((1.0, 0.0), (1.2, -0.2)), "probabilities in row 1"),
        (((1.0, 0.0), (float("nan"), 1.0)), "probabilities in row 1"),
        (((1.0, 0.0, 0.0), (0.0, 1.0, 0.0)), "a square matrix of 2 rows, got '3 cells in row 0'"),
        (None, "a transition matrix"),
    ],
)
def test_a_bad_matrix_is_refused(matrix: tuple[tuple[float, ...], ...] | None, message: str) -> None:
    with pytest.raises(BadValue, match=message):
        LabelNoise("asymmetric", 1.0, matrix=matrix)


def test_settings_that_do_not_fit_the_kind_or_the_data_are_refused() -> None:
    with pytest.raises(BadValue, match="uniform noise only"):
        LabelNoise("symmetric", 0.4, rng="authors")
    with pytest.raises(BadValue, match="'asymmetric' only"):
        LabelNoise("uniform", 0.4, matrix=CONFUSED)
    with pytest.raises(BadValue, match="'pairwise' only"):
        LabelNoise("uniform", 0.4, pairs=(1, 0))
    with pytest.raises(BadValue, match="5 rows, one per class, got '3 rows'"):
        LabelNoise("asymmetric", 1.0, matrix=CONFUSED).apply(some_samples(), 5)
    with pytest.raises(BadValue, match="a class from 0 to 4"):
        LabelNoise("pairwise", 1.0, pairs=(1, 0, 9, 2, 2)).apply(some_samples(), 5)
    with pytest.raises(BadValue, match="two classes"):
        LabelNoise("symmetric", 0.5).apply(some_samples(10, 1), 1)
    with pytest.raises(BadData, match="0 to 3"):
        LabelNoise("symmetric", 0.5).apply(some_samples(), 4)


@pytest.mark.parametrize("kind", ["instance", "part", "margin"])
def test_noise_that_follows_the_input_refuses_inputs_it_cannot_project(kind: str) -> None:
    samples = some_samples(50)
    with pytest.raises(BadData, match=f"{kind} label noise: wanted pixels or vectors, got .* tokens"):
        noise_of(kind, 0.4).apply(replace(samples, x=torch.zeros(50, 4, dtype=torch.int64)), 5)
    with pytest.raises(BadData, match="inputs that differ"):
        noise_of(kind, 0.4).apply(replace(samples, x=torch.ones(50, 4)), 5)


def test_counting_needs_true_labels_of_every_class() -> None:
    with pytest.raises(BadData, match="true labels are known"):
        counted_transition(some_samples(), 5)
    with pytest.raises(BadData, match="none of class 5"):
        counted_transition(LabelNoise("uniform", 0.1).apply(some_samples(), 6), 6)


@pytest.mark.parametrize(
    ("text", "noise"),
    [
        ("0.4", LabelNoise("uniform", 0.4, seed=9)),
        ("0", LabelNoise("uniform", 0.0, seed=9)),
        ("symmetric:0.3", LabelNoise("symmetric", 0.3, seed=9)),
        ("pairwise:0.3", LabelNoise("pairwise", 0.3, seed=9)),
        ("instance:.3", LabelNoise("instance", 0.3, seed=9)),
        ("part:0.4", LabelNoise("part", 0.4, seed=9)),
        ("margin:0.3", LabelNoise("margin", 0.3, seed=9)),
        ("uniform:0.4,rng=authors", LabelNoise("uniform", 0.4, seed=9, rng="authors")),
        ("0.4, rng=authors, seed=42", LabelNoise("uniform", 0.4, seed=42, rng="authors")),
    ],
)
def test_short_texts_mean_noise(text: str, noise: LabelNoise) -> None:
    assert parse_noise(text, seed=9) == noise


@pytest.mark.parametrize("name", ["matrix.csv", "matrix.npy"])
def test_a_matrix_is_read_from_a_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    table = np.array(CONFUSED)
    np.save(path, table) if name.endswith("npy") else np.savetxt(path, table, delimiter=",")
    noise = parse_noise(f"asymmetric:0.5,matrix={path}")
    assert noise == LabelNoise("asymmetric", 0.5, matrix=CONFUSED)
    assert hash(noise) == hash(LabelNoise("asymmetric", 0.5, matrix=table.tolist()))


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("", BadValue, r"Write 0\.4 or symmetric:0\.3"),
        ("lots", BadValue, r"got 'lots'\. Write"),
        ("uniform:", BadValue, "a share from 0 to 1"),
        ("1.4", BadValue, r"got 1\.4"),
        ("symetric:0.3", UnknownName, "Did you mean 'symmetric'"),
        ("uniform:0.4,rng=author", UnknownName, "Did you mean 'authors'"),
        ("uniform:0.4,sed=1", UnknownName, "Did you mean 'seed'"),
        ("uniform:0.4,seed=x", BadValue, "whole number"),
        ("uniform:0.4,seed", BadValue, "name=value"),
        ("asymmetric:1", BadValue, "a transition matrix"),
        ("asymmetric:1,matrix=nowhere.npy", NotThere, "nowhere"),
    ],
)
def test_bad_texts_get_one_sentence(text: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        parse_noise(text)


def test_a_file_that_is_no_matrix_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "words.csv"
    path.write_text("a,b\nc,d\n")
    with pytest.raises(BadData, match="square matrix of numbers"):
        parse_noise(f"asymmetric:1,matrix={path}")
