"""Embedded sets against independent computations, and their options."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from scipy.interpolate import interp1d
from scipy.ndimage import gaussian_filter
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from undertow.data import embedded, mnist1d
from undertow.data.catalogue import DATA
from undertow.data.embedded import make_embedded
from undertow.data.samples import Samples
from undertow.errors import BadValue, UnknownName

EMBEDDED = [name for name, entry in DATA.items() if entry.origin == "embedded"]
DRAWN = [name for name in EMBEDDED if name != "digits"]


@pytest.mark.parametrize("name", EMBEDDED)
def test_the_catalogue_says_what_is_made(name: str) -> None:
    data, entry = make_embedded(name, 0), DATA[name]
    made = (data.kind, data.shape, len(data.classes), len(data.train), len(data.test), data.scaling)
    assert made == (entry.kind, entry.shape, entry.classes, entry.train, entry.test, entry.scaling)
    assert data.name == name
    assert set(data.train.y.tolist()) == set(range(entry.classes))


@pytest.mark.parametrize("name", DRAWN)
def test_the_seed_decides_and_global_state_does_not(name: str) -> None:
    """Fails if a maker draws from numpy's or torch's global generator, or advances it."""
    np.random.seed(1)  # noqa: NPY002 (the point of the test)
    torch.manual_seed(1)
    first = make_embedded(name, 5)
    np.random.seed(2)  # noqa: NPY002
    state = torch.get_rng_state()
    again = make_embedded(name, 5)
    assert first.fingerprint == again.fingerprint
    assert torch.equal(state, torch.get_rng_state())
    assert first.fingerprint != make_embedded(name, 6).fingerprint


def test_digits_are_scikit_learns_each_once_and_everyones_split_is_the_same() -> None:
    data = make_embedded("digits", 0)
    pixels, labels = load_digits(return_X_y=True)
    for part in (data.train, data.test):
        np.testing.assert_array_equal(part.x.numpy().reshape(-1, 64) * 16, pixels[part.index])
        np.testing.assert_array_equal(part.y, labels[part.index])
    assert sorted([*data.train.index.tolist(), *data.test.index.tolist()]) == list(range(1797))
    assert data.test.y.bincount().tolist() == [50] * 10
    assert data.train.x.dtype == torch.float32
    assert (data.train.x.min(), data.train.x.max()) == (0, 1)
    assert data.fingerprint == make_embedded("digits", 9).fingerprint


def test_digits_are_the_same_where_scikit_learn_keeps_them_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    from_file = make_embedded("digits", 0).fingerprint
    monkeypatch.setattr(embedded, "find_spec", lambda _: None)
    assert make_embedded("digits", 0).fingerprint == from_file


def test_digits_are_read_without_loading_scikit_learn() -> None:
    """It takes a second, which every process of a sweep would pay."""
    code = (
        "import sys; from undertow.data.embedded import make_embedded; make_embedded('digits', 0); "
        "print([name for name in ('sklearn', 'scipy') if name in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


def test_mod_division_multiplies_back() -> None:
    """Each x = answer * y (mod p) for all p (p - 1) pairs, none twice, tokens p and p + 1 in their places."""
    data = make_embedded("mod-division", 0)
    rows = torch.cat([data.train.x, data.test.x])
    answers = torch.cat([data.train.y, data.test.y])
    x, op, y, equals = rows.T
    assert torch.equal(answers * y % 97, x)
    assert len({*zip(x.tolist(), y.tolist(), strict=True)}) == len(rows) == 97 * 96
    assert (set(op.tolist()), set(equals.tolist()), int(y.min())) == ({97}, {98}, 1)
    assert rows.dtype == torch.int64


def test_mod_division_takes_a_prime_and_a_share() -> None:
    data = make_embedded("mod-division:p=31,share=0.3", 0)
    assert (len(data.train), len(data.test), len(data.classes)) == (279, 651, 31)
    for p in (1, 2, 33, 91):
        with pytest.raises(BadValue, match=f"a prime from 3 on, got {p}"):
            make_embedded(f"mod-division:p={p}", 0)
    for share in ("0", "1", "-1", "nan"):
        with pytest.raises(BadValue, match="share that leaves pairs for both"):
            make_embedded(f"mod-division:share={share}", 0)


def test_heaviside_steps_at_zero() -> None:
    data = make_embedded("heaviside:n=4000", 0)
    for part in (data.train, data.test):
        assert torch.equal(part.y, (part.x[:, 0] > 0).long())
        assert part.x.abs().max() <= 1
    assert abs(float(data.train.x.mean())) < 0.05
    assert 1 - float(data.train.x.max()) < 0.01


def nearest_neighbour_accuracy(train: Samples, test: Samples) -> float:
    return KNeighborsClassifier(5).fit(train.x, train.y).score(test.x, test.y)


@pytest.mark.parametrize("name", ["blobs:classes=4,noise=0.1", "spirals:classes=3"])
def test_teaching_sets_can_be_told_apart_by_neighbours(name: str) -> None:
    data = make_embedded(name, 0)
    assert nearest_neighbour_accuracy(data.train, data.test) > 0.95
    counts = data.train.y.bincount() + data.test.y.bincount()
    assert counts.max() - counts.min() <= 1


def test_spirals_cannot_be_told_apart_by_a_line() -> None:
    """Fails if the arms do not wind round each other."""
    data = make_embedded("spirals", 0)
    line = LogisticRegression().fit(data.train.x, data.train.y)
    assert line.score(data.test.x, data.test.y) < 0.85


def test_noise_is_the_standard_deviation_of_a_blob() -> None:
    data = make_embedded("blobs:n=40000,classes=2,noise=0.5", 0)
    blob = data.train.x[data.train.y == 0].double()
    np.testing.assert_allclose(blob.mean(0), [1, 0], atol=0.02)  # centres lie on the unit circle
    np.testing.assert_allclose(blob.std(0), 0.5, rtol=0.02)


# -- MNIST-1D


def slow_curve(template: np.ndarray, padding: int, scale: float, roll: int, slope: float) -> np.ndarray:
    """One curve without noise, step by step with scipy, as the recipe is told; smooth noise marked by NaN."""
    padded = np.concatenate([template, np.full(padding, np.nan)])
    at = np.linspace(0, 1, 72)
    filled = interp1d(np.linspace(0, 1, len(padded)), np.nan_to_num(padded))(at)
    filled[at * (len(padded) - 1) >= 12] = np.nan
    rolled = np.concatenate([filled[72 - roll :], filled[: 72 - roll]]) * scale
    return rolled - slope * np.linspace(-0.5, 0.5, 72)


class Scripted:
    """A generator that hands out chosen draws, in the order in which `curves` asks for them."""

    def __init__(self, padding: int, scale: float, roll: int, noise: np.ndarray, slope: float) -> None:
        self.whole = iter([padding, roll])
        self.uniform = iter([(scale - 1) / 0.4 + 0.5, slope / 0.75 + 0.5])
        self.normal = iter([noise / 0.25, np.zeros_like(noise)])

    def integers(self, low: int, high: int, count: int, endpoint: bool = False) -> np.ndarray:
        assert (low, high + endpoint) in ((36, 61), (0, 48)), "the published ranges"
        return np.full(count, next(self.whole))

    def random(self, count: int) -> np.ndarray:
        return np.full(count, next(self.uniform))

    def standard_normal(self, shape: tuple[int, int]) -> np.ndarray:
        return np.broadcast_to(next(self.normal), shape)


@pytest.mark.parametrize(("padding", "roll"), [(36, 0), (60, 47), (45, 13)])
def test_curves_follow_the_recipe_step_by_step(padding: int, roll: int) -> None:
    """Fails if stretching, rolling, the place of the smooth noise, the slope or the last reading is off."""
    rng = np.random.default_rng(0)
    noise = 0.25 * rng.standard_normal(72)
    labels = np.arange(10)
    ours = mnist1d.curves(labels, Scripted(padding, 1.15, roll, noise, 0.3))  # type: ignore[arg-type]

    smooth = gaussian_filter(noise, 2) - 0.3 * np.linspace(-0.5, 0.5, 72)
    slow = [slow_curve(template, padding, 1.15, roll, 0.3) for template in mnist1d.templates()]
    whole = np.stack([np.where(np.isnan(curve), smooth, curve) for curve in slow])
    read = interp1d(np.linspace(0, 1, 72), whole, axis=1)(np.linspace(0, 1, 40))
    np.testing.assert_allclose(ours, (read - read.mean()) / read.std(), rtol=0, atol=1e-12)


def test_templates_start_at_zero_and_have_one_spread() -> None:
    templates = mnist1d.templates()
    assert templates.shape == (10, 12)
    np.testing.assert_array_equal(templates[:, 0], 0)
    np.testing.assert_allclose(templates.std(axis=1), 1 / 6, rtol=1e-12)


def test_mnist1d_is_standardised_and_balanced() -> None:
    data = make_embedded("mnist1d", 0)
    x = torch.cat([data.train.x, data.test.x]).double()
    assert abs(float(x.mean())) < 1e-6
    assert abs(float(x.std(correction=0)) - 1) < 1e-6
    assert (data.train.y.bincount() + data.test.y.bincount()).tolist() == [500] * 10


def test_mnist1d_is_as_hard_for_a_linear_model_as_published() -> None:
    """The paper gives 32 % for logistic regression; an error in the noise or the rolling moves it far."""
    data = make_embedded("mnist1d", 0)
    linear = LogisticRegression(max_iter=1000).fit(data.train.x, data.train.y)
    assert 0.27 < linear.score(data.test.x, data.test.y) < 0.38


# -- options


def test_a_typo_in_an_option_is_answered_with_a_near_name() -> None:
    with pytest.raises(UnknownName, match=r"no option of blobs 'clases'\. Did you mean 'classes'\?"):
        make_embedded("blobs:clases=4", 0)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("blobs:n=many", "option n: wanted a whole number, got 'many'"),
        ("blobs:n=1.5", "option n: wanted a whole number, got '1.5'"),
        ("blobs:noise=loud", "option noise: wanted a number, got 'loud'"),
        ("blobs:noise=-1", "option noise: wanted a standard deviation of 0 or more"),
        ("blobs:noise=nan", "option noise: wanted a standard deviation of 0 or more"),
        ("blobs:classes=1", "two classes or more, got 1"),
        ("blobs:classes=20,n=10", "at least 20 training samples, got 10"),
        ("mnist1d:n=9", "at least 10 training samples, got 9"),
        ("heaviside:n=-4", "at least 4 training samples, got -4"),
        ("blobs:n", "name:option=value"),
        ("blobs:", "name:option=value"),
        ("blobs:=4", "name:option=value"),
        ("blobs:n=5,n=6", "each option once"),
    ],
)
def test_bad_options_are_refused(spec: str, says: str) -> None:
    with pytest.raises(BadValue, match=says):
        make_embedded(spec, 0)


def test_options_change_what_is_made() -> None:
    data = make_embedded("blobs:classes=4,n=500", 0)
    assert (len(data.train), len(data.test), len(data.classes)) == (500, 125, 4)
    assert data.name == "blobs:classes=4,n=500"
