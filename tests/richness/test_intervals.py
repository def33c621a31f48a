"""Intervals: the answer of endlessly many samples is inside as often as promised; parts subtract exactly."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from undertow.errors import BadData, BadValue
from undertow.features import Moments
from undertow.richness import d_lr, d_lr_interval, jackknife, measure_richness
from undertow.richness.intervals import interval_of, moments_without


class Gaussian:
    """Features with falling variances and a linear head: D_LR of endlessly many samples is known."""

    def __init__(self, p=12, c=8, decay=0.5):
        rng = np.random.default_rng(0)
        self.variances = np.arange(1.0, p + 1) ** -decay
        self.head = rng.standard_normal((p, c)) * np.where(np.arange(p) < c, 1, 0.1)[:, None]
        self.mean, self.bias = 0.3 * rng.standard_normal(p), 0.2 * rng.standard_normal(c)

    def draw(self, n, seed):
        rng = np.random.default_rng(seed)
        features = rng.standard_normal((n, len(self.variances))) * np.sqrt(self.variances) + self.mean
        return features, features @ self.head + self.bias

    def d_lr(self):
        spread = np.diag(self.variances)
        outputs, centre = self.head.T @ spread @ self.head, self.head.T @ self.mean + self.bias
        inverse = np.linalg.inv(outputs + np.outer(centre, centre))
        used = np.trace(self.head.T @ spread @ spread @ self.head @ inverse)
        return 1 - used / (np.linalg.norm(spread) * np.sqrt(np.trace(inverse @ outputs @ inverse @ outputs)))


def test_the_answer_is_inside_as_often_as_promised():
    """Fails if the bias of few samples stays (value and centre then differ by as much as the deviation),
    if the t quantile is missing, or if groups are not left out but taken.
    """
    source = Gaussian()
    wanted, draws = source.d_lr(), 120
    found = [d_lr_interval(*source.draw(100, seed), seed=seed) for seed in range(draws)]
    inside = np.mean([each.low <= wanted <= each.high for each in found])
    assert 0.89 <= inside <= 0.99  # 0.95 give or take three standard errors
    values, centres = (np.array([getattr(each, name) for each in found]) for name in ("value", "centre"))
    assert abs(values.mean() - wanted) > 3 * values.std() / np.sqrt(draws)
    assert abs(centres.mean() - wanted) < 0.5 * abs(values.mean() - wanted)
    assert np.mean([each.bias for each in found]) == pytest.approx((values - centres).mean())


def test_an_interval_is_of_the_plain_measure_and_narrows_with_samples():
    source = Gaussian()
    few, many = (d_lr_interval(*source.draw(n, 0)) for n in (100, 10_000))
    assert many.value == pytest.approx(d_lr(*source.draw(10_000, 0)), rel=0, abs=1e-10)
    assert (few.high - few.low) / (many.high - many.low) == pytest.approx(10, rel=0.5)
    wide = d_lr_interval(*source.draw(100, 0), level=0.99)
    assert wide.low < few.low < few.high < wide.high
    assert d_lr_interval(*source.draw(100, 0)) == few
    assert d_lr_interval(*source.draw(100, 0), seed=1) != few
    shortcut = d_lr_interval(*source.draw(100, 0), projection=False)
    assert shortcut.value == pytest.approx(d_lr(*source.draw(100, 0), projection=False), rel=0, abs=1e-10)


def test_what_is_left_after_a_part_was_taken_out():
    """Fails if the means are not moved back, or the outputs are forgotten."""
    features, outputs = (torch.from_numpy(part) + 1e3 for part in Gaussian().draw(90, 0))
    zeros = torch.zeros(90, dtype=torch.int64)
    part, rest, whole = (
        Moments.of(features[own], zeros[own], 1, outputs[own])
        for own in (slice(30), slice(30, 90), slice(90))
    )
    found = moments_without(whole, part)
    assert found.count == 60
    for name in ("means", "upper"):
        torch.testing.assert_close(getattr(found, name).triu(), getattr(rest, name).triu(), rtol=0, atol=1e-8)
    for name in ("feature_mean", "output_mean", "cross", "output_scatter"):
        torch.testing.assert_close(getattr(found.joint, name), getattr(rest.joint, name), rtol=0, atol=1e-8)
    with pytest.raises(BadData, match="two groups with samples or more"):
        moments_without(whole, whole)
    two = Moments.of(features, torch.arange(90) % 2, 2)
    with pytest.raises(BadValue, match="moments of one class"):
        moments_without(two, two)


def test_the_jackknife_of_a_mean_is_the_textbook_interval():
    """Groups of one sample: the jackknife's error of a mean is the standard error, and it has no bias."""
    values = torch.randn(30, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    parts = [Moments.of(row[None], torch.zeros(1, dtype=torch.int64), 1) for row in values]
    found = jackknife(parts, lambda moments: float(moments.means[0, 0]))
    error = float(values.std()) / 30**0.5
    assert found.centre == pytest.approx(float(values.mean()), abs=1e-12)
    assert found.high - found.centre == pytest.approx(2.0452296 * error, rel=1e-6)  # t with 29 degrees
    assert found.centre - found.low == pytest.approx(2.0452296 * error, rel=1e-6)
    assert found.groups == 30


@pytest.mark.parametrize(("scale", "value"), [("log", 1e-3), ("logit", 1e-3), ("logit", 0.999)])
def test_intervals_stay_in_range(scale, value):
    """Fails on a plain scale: an interval twice as wide as the value's distance to the end."""
    rest = [value + step * 4e-5 for step in range(-10, 10)]
    plain, found = (interval_of(value, rest, scale=each, level=0.95) for each in ("plain", scale))
    assert plain.low < 0 or plain.high > 1
    assert 0 < found.low < found.high
    assert found.high < 1 or scale == "log"


def test_all_measures_of_a_network_have_intervals():
    """Fails if a measure is computed of the part instead of the rest, or groups lose rows."""
    g = torch.Generator().manual_seed(0)
    y = torch.randint(3, (400,), generator=g)
    x = torch.randn(400, 6, generator=g) + 2 * torch.eye(3, 6)[y]
    torch.manual_seed(0)
    model = nn.Linear(6, 3)
    plain, found = measure_richness(model, x, y), measure_richness(model, x, y, groups=10, batch_size=64)
    assert plain.intervals == {}
    assert set(found.intervals) == {"d_lr", "effective_dimension", "effective_dimension_rest", "nc1"}
    assert found.d_lr == pytest.approx(plain.d_lr, rel=1e-9)
    assert found.collapse is not None
    assert plain.collapse is not None
    assert found.collapse.nc1 == pytest.approx(plain.collapse.nc1, rel=1e-9)
    for name, wanted in (("d_lr", found.d_lr), ("nc1", found.collapse.nc1)):
        interval = found.intervals[name]
        assert interval.value == wanted
        assert interval.low < interval.centre < interval.high
        assert interval.high - interval.low < wanted
    assert set(measure_richness(model, x, groups=10).intervals) == {
        "d_lr", "effective_dimension", "effective_dimension_rest",
    }  # fmt: skip


def test_a_measure_without_an_interval_says_why():
    """A class that only one sample has: without its group it has no mean."""
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(101, 4, generator=g), torch.tensor([0, 1] * 50 + [2])
    torch.manual_seed(0)
    found = measure_richness(nn.Linear(4, 3), x, y, groups=5)
    assert found.collapse is not None
    assert "nc1" not in found.intervals
    assert any("got none of class 2" in note for note in found.notes)


def test_what_has_no_interval_is_refused():
    features, outputs = Gaussian().draw(60, 0)
    onehot = torch.eye(4, dtype=torch.float64).repeat(20, 1)
    with pytest.raises(BadValue, match="5 or more"):
        d_lr_interval(features, outputs, groups=4)
    with pytest.raises(BadData, match="at least 40 samples for 20 groups, got 30"):
        d_lr_interval(features[:30], outputs[:30])
    with pytest.raises(BadValue, match="between 0 and 1"):
        d_lr_interval(features, outputs, level=95)
    with pytest.raises(BadData, match="at the end of its range"):
        interval_of(0.0, [0.0] * 5, scale="logit", level=0.95)
    with pytest.raises(BadData, match="got 60 and 59 rows"):
        d_lr_interval(features, outputs[:59])
    with pytest.raises(BadData, match="at least 40 samples"):
        measure_richness(nn.Linear(4, 2), onehot[:20].float(), groups=20)
