"""Consistency and its window against plain loops, laws, and hard cases."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from undertow.errors import BadData, BadValue, UnknownName
from undertow.shares import wilson
from undertow.temporal import bootstrap_mean, consistency_matrix, memory_window, pointwise_consistency
from undertow.temporal.intervals import edges, resampled_means, share_interval
from undertow.temporal.window import trend_of

TIMES = [0, 1, 2, 5, 9, 10]


def draw(t=6, n=40, classes=3, seed=0):
    """Composites that agree with each other more often than chance."""
    rng = np.random.default_rng(seed)
    base = rng.integers(0, classes, n)
    return np.where(rng.random((t, t, n)) < 0.6, base, rng.integers(0, classes, (t, t, n)))


def naive_pointwise(predictions, times, start, deep):
    """The definition, sample by sample and epoch by epoch."""
    at = {time: place for place, time in enumerate(times)}
    values = []
    for n in range(predictions.shape[2]):
        hits = []
        for u in range(min(start, deep), max(start, deep) + 1):
            if u in at:
                later = at[max(u, deep)]
                hits.append(predictions[at[u], at[deep], n] == predictions[later, later, n])
        values.append(sum(hits) / len(hits))
    return np.array(values)


@pytest.mark.parametrize(("start", "deep"), [(0, 10), (1, 5), (3, 9), (10, 2), (9, 0), (100, 1), (5, 5)])
def test_pointwise_is_the_definition(start, deep):
    """Fails if transferability is compared with f(theta_T2), or unrecorded epochs count."""
    predictions = draw()
    wanted = naive_pointwise(predictions, TIMES, start, deep)
    for given in (predictions, torch.from_numpy(predictions)):
        found = pointwise_consistency(given, TIMES, start, deep)
        np.testing.assert_allclose(found.values, wanted, rtol=1e-14)
    assert found.mean.value == pytest.approx(wanted.mean(), rel=1e-12)
    assert found.mean.low <= found.mean.value <= found.mean.high
    assert found.kind == ("memory" if start < deep else "transferability" if start > deep else "itself")
    assert deep in found.used


def test_a_column_is_enough():
    """The full matrix is never needed for one deep part."""
    predictions = draw()
    steps = np.arange(6)
    own = predictions[steps, steps]
    memory = pointwise_consistency(predictions[:, 4], TIMES, 1, 9)
    np.testing.assert_array_equal(memory.values, pointwise_consistency(predictions, TIMES, 1, 9).values)
    transfer = pointwise_consistency(predictions[:, 1], TIMES, 9, 1, models=own)
    np.testing.assert_array_equal(transfer.values, pointwise_consistency(predictions, TIMES, 9, 1).values)
    with pytest.raises(BadValue, match="models="):
        pointwise_consistency(predictions[:, 1], TIMES, 9, 1)
    with pytest.raises(BadData, match="same samples in the same order"):
        pointwise_consistency(predictions[:, 1], TIMES, 9, 1, models=own[:, ::-1])


def test_what_is_not_recorded_is_said():
    found = pointwise_consistency(draw(), TIMES, 0, 10)
    assert found.used == tuple(TIMES)
    assert found.note == "6 of the 11 epochs or steps from 0 to 10 are recorded"
    assert pointwise_consistency(draw(), TIMES, 0, 2).note == ""


def test_renaming_classes_changes_nothing():
    predictions = draw()
    renamed = np.array([7, 3, 11])[predictions]
    for start, deep in ((0, 10), (10, 0)):
        one = pointwise_consistency(predictions, TIMES, start, deep)
        np.testing.assert_array_equal(one.values, pointwise_consistency(renamed, TIMES, start, deep).values)


def test_an_answer_that_is_no_number_agrees_with_nothing():
    """Fails if two composites that both overflowed count as consistent."""
    predictions = draw()
    predictions[:, :, 0] = -1
    assert pointwise_consistency(predictions, TIMES, 0, 10).values[0] == 0
    assert consistency_matrix(predictions, TIMES).values.max() == 39 / 40


@pytest.mark.parametrize("reference", ["deep", "shallow"])
def test_matrix_is_the_definition(reference):
    predictions = draw()
    found = consistency_matrix(predictions, TIMES, reference)
    for s in range(6):
        for t in range(6):
            model = t if reference == "deep" else s
            same = [predictions[s, t, n] == predictions[model, model, n] for n in range(40)]
            assert found.values[s, t] == pytest.approx(sum(same) / 40, abs=1e-15)
    assert (found.values.diagonal() == 1).all()
    assert (found.low <= found.values).all()
    assert (found.values <= found.high).all()


def test_references_swap_when_time_is_transposed():
    """composite(s, t) against f(theta_t) is the transposed matrix against f(theta_s)."""
    predictions = draw()
    deep = consistency_matrix(predictions, TIMES, "deep").values
    shallow = consistency_matrix(predictions.transpose(1, 0, 2), TIMES, "shallow").values
    np.testing.assert_array_equal(deep, shallow.T)


def test_bad_input_is_answered_in_one_sentence():
    predictions = draw()
    with pytest.raises(UnknownName, match="Did you mean 'shallow'"):
        consistency_matrix(predictions, TIMES, "shalow")
    with pytest.raises(BadValue, match="The nearest are 5, 9, 10"):
        pointwise_consistency(predictions, TIMES, 0, 8)
    with pytest.raises(BadData, match="argmax"):
        consistency_matrix(predictions.astype(float), TIMES)
    with pytest.raises(BadData, match=r"\(T, T, N\)"):
        consistency_matrix(predictions[:4], TIMES)
    with pytest.raises(BadData, match="rise"):
        consistency_matrix(predictions, [0, 1, 2, 5, 9, 9])
    with pytest.raises(BadData, match="6 checkpoints"):
        consistency_matrix(predictions, TIMES[:5])
    with pytest.raises(BadData, match="shape"):
        consistency_matrix(predictions[:, :, :0], TIMES)


# Intervals


def test_shares_have_the_interval_of_all_shares():
    """Fails if a share of composites had another interval than the same share in the verdict."""
    low, high = share_interval(np.array([[0, 280], [399, 400]]), 400)
    wanted = [[wilson(hits / 400, 400) for hits in row] for row in ([0, 280], [399, 400])]
    np.testing.assert_allclose(low, [[one.low for one in row] for row in wanted], atol=1e-12)
    np.testing.assert_allclose(high, [[one.high for one in row] for row in wanted], atol=1e-12)


def test_bootstrap_matches_the_exact_binomial_and_normal_theory():
    """Two references: a share's bootstrap is binomial, a mean's is nearly normal."""
    rng = np.random.default_rng(0)
    hits = rng.random(400) < 0.7
    found = bootstrap_mean(hits, resamples=20000)
    low, high = stats.binom.ppf([0.025, 0.975], 400, hits.mean()) / 400
    assert found.low == pytest.approx(float(low), abs=1 / 400)
    assert found.high == pytest.approx(float(high), abs=1 / 400)
    values = rng.normal(3.0, 2.0, 500)
    found = bootstrap_mean(values, resamples=20000)
    half = 1.96 * values.std() / 500**0.5
    assert found.low == pytest.approx(values.mean() - half, abs=0.05 * half)
    assert found.high == pytest.approx(values.mean() + half, abs=0.05 * half)


def test_rows_are_resampled_together():
    """Fails if each row draws its own samples: the difference would then have a wide interval."""
    values = np.random.default_rng(0).normal(size=(1, 300))
    draws = resampled_means(np.vstack([values, values + 0.1]))
    low, high = edges(draws[:, 1] - draws[:, 0])
    assert float(low) == pytest.approx(0.1, abs=1e-12)
    assert float(high) == pytest.approx(0.1, abs=1e-12)


def test_blocks_do_not_change_the_draws(monkeypatch):
    rows = np.random.default_rng(0).normal(size=(2, 50))
    whole = resampled_means(rows, resamples=37, seed=3)
    monkeypatch.setattr("undertow.temporal.intervals.BLOCK", 200)
    np.testing.assert_allclose(resampled_means(rows, resamples=37, seed=3), whole, rtol=1e-12)


def test_values_all_alike_have_no_width():
    """0.1 summed and divided is not 0.1 in binary: a width of rounding would be shown."""
    assert bootstrap_mean(np.full(10, 0.1)) == (0.1, 0.1, 0.1)
    with pytest.raises(BadValue, match=r"0\.95"):
        bootstrap_mean(np.arange(3.0), confidence=95)
    with pytest.raises(BadData, match="NaN or infinity in 1 of 2"):
        bootstrap_mean(np.array([1.0, np.nan]))


# Windows


def naive_window(values, t, threshold):
    s = t
    while s > 0 and values[s - 1, t] > threshold:
        s -= 1
    return s


def test_window_is_the_longest_stretch_without_a_gap():
    values = np.random.default_rng(0).random((6, 6)) ** 0.2
    np.fill_diagonal(values, 1)
    found = memory_window(values, TIMES, 0.8)
    for t in range(6):
        s = naive_window(values, t, 0.8)
        assert found.earliest[t] == TIMES[s]
        assert found.steps[t] == t - s
        assert found.span[t] == TIMES[t] - TIMES[s]
        assert found.open[t] == (s == 0)
    assert {0, 1, 3, 4} == set(found.steps.tolist()), "the draw should show windows of several lengths"


def test_a_gap_ends_the_window():
    """Fails if checkpoints beyond a gap count, or the threshold itself is above the threshold."""
    values = np.ones((5, 5))
    values[2, 4] = 0.8
    found = memory_window(values, [0, 1, 2, 3, 4])
    assert found.steps.tolist() == [0, 1, 2, 3, 1]
    assert found.open.tolist() == [True, True, True, True, False]


def test_trend_is_kendalls_tau_where_all_windows_are_closed():
    spans = np.random.default_rng(1).permutation(14) + np.arange(14)
    spans = np.argsort(np.argsort(spans + 0.01 * np.arange(14)))  # no ties: then tau-b is our tau
    wanted = stats.kendalltau(np.arange(14), spans)
    found = trend_of(spans, np.zeros(14, dtype=bool), permutations=5000)
    assert found.tau == pytest.approx(wanted.statistic, abs=1e-12)
    assert found.p == pytest.approx(wanted.pvalue, abs=0.03)
    assert found.pairs == 14 * 13 // 2


def test_more_past_is_no_widening():
    """Everything consistent, or a constant window that the start cuts off: plain correlation says widening."""
    times = np.arange(20)
    every = memory_window(np.ones((20, 20)), times)
    assert every.trend().widens is None
    assert "no two can be compared; 20 reach the start" in every.trend().note
    band = (np.abs(times[:, None] - times[None, :]) <= 6).astype(float)
    constant = memory_window(band, times)
    assert constant.span.tolist() == [min(t, 6) for t in range(20)]
    assert stats.spearmanr(times, constant.span).pvalue < 1e-3
    assert constant.trend().widens is None
    assert "all equal" in constant.trend().note


def test_widening_and_narrowing_are_found():
    times = np.arange(1, 25)
    widening = (times[:, None] >= times[None, :] / 2).astype(float)
    found = memory_window(widening, times).trend()
    assert found.widens is True
    assert found.tau > 0.8
    spans = np.arange(24)[::-1].copy()
    assert trend_of(spans, np.zeros(24, dtype=bool)).widens is False


def test_open_windows_can_show_widening():
    """Late windows that reach the start are longer than early closed ones: this much is certain."""
    spans = np.array([0, 1, 1, 1, 1, 1, 7, 8, 9, 10, 11])
    reaches = np.array([True, False, False, False, False, False, True, True, True, True, True])
    found = trend_of(spans, reaches)
    assert found.widens is True
    assert found.pairs == 10 + 25  # closed with closed, closed with open


def test_false_alarms_are_rare_when_the_start_cuts_windows_off():
    """Fails if cut-off windows are taken at face value."""
    alarms = 0
    for seed in range(120):
        true = np.random.default_rng(seed).integers(1, 16, 16)
        limit = np.arange(16)
        found = trend_of(np.minimum(true, limit), true >= limit, seed=seed, permutations=300)
        alarms += found.widens is not None
    assert alarms <= 14  # 6 expected at 5 %


def test_bad_windows_are_refused():
    with pytest.raises(BadData, match="from 0 to 1"):
        memory_window(np.full((2, 2), 1.5), [0, 1])
    with pytest.raises(BadValue, match="threshold"):
        memory_window(np.ones((2, 2)), [0, 1], 80)
