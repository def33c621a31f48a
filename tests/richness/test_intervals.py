"""Intervals: the answer of endlessly many samples is inside as often as promised; parts subtract exactly."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from undertow.errors import BadData, BadValue
from undertow.richness import d_lr, d_lr_interval
from undertow.richness.intervals import drawn_groups, jackknifed


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


@pytest.mark.parametrize("projection", [True, False])
@pytest.mark.parametrize(("n", "p", "offset"), [(90, 12, 0.0), (90, 12, 1e3), (60, 200, 0.0), (60, 200, 1e3)])
@pytest.mark.filterwarnings("ignore:d_lr. only")
def test_the_interval_is_the_jackknife_of_what_is_left(n, p, offset, projection):
    """Against D_LR of the rest, gathered anew. Fails if means are not moved back, for wide and for long features."""
    features, outputs = (torch.from_numpy(part) + offset for part in Gaussian(p=p).draw(n, 0))
    found = d_lr_interval(features, outputs, projection, seed=3)
    rests = [
        d_lr(*(np.delete(part.numpy(), own.numpy(), 0) for part in (features, outputs)), projection)
        for own in drawn_groups(n, 20, 3)
    ]
    logit = np.log(np.array(rests) / (1 - np.array(rests)))
    centre = 20 * np.log(found.value / (1 - found.value)) - 19 * logit.mean()
    reach = 2.0930241 * np.sqrt(19 / 20 * ((logit - logit.mean()) ** 2).sum())  # t with 19 degrees
    wanted = [1 / (1 + np.exp(-end)) for end in (centre - reach, centre, centre + reach)]
    assert [found.low, found.centre, found.high] == pytest.approx(wanted, rel=1e-6)


def test_float32_features_have_the_interval_of_their_float64_copies():
    """Fails if products of groups lose digits to an offset."""
    features, outputs = (torch.from_numpy(part).float() for part in Gaussian(p=150).draw(600, 0))
    features += 30
    few, exact = d_lr_interval(features, outputs), d_lr_interval(features.double(), outputs.double())
    assert [few.value, few.low, few.high] == pytest.approx([exact.value, exact.low, exact.high], rel=1e-6)


@pytest.mark.parametrize("value", [1e-3, 0.999])
def test_intervals_stay_in_range(value):
    """Fails on a plain scale: an interval twice as wide as the value's distance to the end."""
    rest = np.array([value + step * 4e-5 for step in range(-10, 10)])
    assert 2.09 * np.sqrt(19 / 20 * ((rest - rest.mean()) ** 2).sum()) > min(value, 1 - value)
    found = jackknifed(value, rest.tolist())
    assert 0 < found.low < found.high < 1
    assert found.groups == 20


def test_groups_are_all_samples_once():
    dealt = drawn_groups(103, 20, 0)
    assert torch.cat(list(dealt)).sort().values.tolist() == list(range(103))
    assert {len(own) for own in dealt} == {5, 6}


def test_what_has_no_interval_is_refused():
    features, outputs = Gaussian().draw(60, 0)
    with pytest.raises(BadValue, match="5 or more"):
        d_lr_interval(features, outputs, groups=4)
    with pytest.raises(BadData, match="at least 40 samples for 20 groups, got 30"):
        d_lr_interval(features[:30], outputs[:30])
    with pytest.raises(BadValue, match="between 0 and 1"):
        d_lr_interval(features, outputs, level=95)
    with pytest.raises(BadData, match="at the end of its range"):
        jackknifed(0.0, [0.0] * 5)
    with pytest.raises(BadData, match="got 60 and 59 rows"):
        d_lr_interval(features, outputs[:59])
