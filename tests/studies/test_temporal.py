"""What the temporal studies conclude, on rows whose truth is known."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from undertow.data.samples import Samples
from undertow.studies.catalogue import find_study
from undertow.studies.findings import row
from undertow.studies.outcome import StudyOutcome
from undertow.studies.temporal.composite_measures import pixels, some
from undertow.studies.temporal.networks import MLP_CASE, RESNET_CASE
from undertow.words import number


def verdicts(name, rows):
    return [
        verdict for _, verdict in StudyOutcome.of(find_study(name), "paper", pd.DataFrame(rows)).verdicts()
    ]


def column(case, accuracies, consistencies, theorem=1.0, deep=300, own=1.0):
    """Rows of one cut: shallow parts from 150 to 300."""
    times = np.linspace(150, 300, len(accuracies))
    where = {"case": case, "seed": 0, "layer": "layer1", "split": "train", "checkpoint": deep}
    rows = []
    for at, accuracy, consistency in zip(times, accuracies, consistencies, strict=True):
        rows.append({**row("accuracy", accuracy, shallow=at), **where})
        rows.append({**row("consistency", consistency, shallow=at), **where})
        rows.append({**row("loss", 1 - accuracy, shallow=at), **where})
    rows.append({**row("accuracy", own, shallow=deep), **where, "layer": "output"})
    rows.append({**row("memory_delta", 0.01), **where})
    rows += [{**row("memory_share", 0.9, position=q), **where} for q in (2.0, 10.0)]
    rows.append({**row("theorem_2", theorem), **where})
    return rows


@pytest.mark.parametrize(
    ("accuracies", "consistencies", "expected"),
    [
        ([0.99, 0.99, 1.0], [0.97, 0.98, 1.0], [True, True, True]),
        ([0.90, 0.99, 1.0], [0.90, 0.98, 1.0], [False, False, True]),  # the farthest third does not count
        ([0.99, 0.99, 1.0], [0.97, 0.90, 1.0], [True, True, False]),
    ],
)
def test_memory_claims(accuracies, consistencies, expected):
    rows = [*column(MLP_CASE, accuracies, consistencies), *column(RESNET_CASE, [1, 1, 1], [1, 1, 1])]
    assert [verdict.holds for verdict in verdicts("temporal/memory", rows)] == [*expected, True]


def test_theorem_2_cannot_be_told_without_its_premise():
    rows = column(MLP_CASE, [1, 1], [1, 1], theorem=None)
    assert verdicts("temporal/memory", rows)[-1].holds is None


def test_transfer_looks_at_later_shallow_parts():
    rows = column(MLP_CASE, [0.99, 0.98, 0.5], [1, 1, 0.5], deep=150, own=0.99)
    assert [verdict.holds for verdict in verdicts("temporal/transfer", rows)] == [False, False, True]


@pytest.mark.parametrize(("widens", "expected"), [(1.0, True), (0.0, False), (None, None)])
def test_window_claim(widens, expected):
    where = {"case": MLP_CASE, "seed": 0, "layer": "layer1", "split": "train"}
    rows = [
        {**row("window_widens_shallow", widens), **where},
        {**row("window_tau_shallow", 0.6, reason="too few"), **where},
        {**row("window_p_shallow", 0.01), **where},
    ]
    assert verdicts("temporal/window", rows)[0].holds is expected


def consistencies(clean, noisy):
    """Rows of one cut, for test and corrupted pictures alike."""
    rows = []
    for case, values in ((f"{MLP_CASE}, clean labels", clean), (f"{MLP_CASE}, 40 % noise", noisy)):
        for split in ("test", "corrupted"):
            where = {"case": case, "seed": 0, "layer": "layer1", "split": split}
            rows.append({**row("consistency", values.mean()), **where})
            rows += [{**row("pointwise", value, position=n), **where} for n, value in enumerate(values)]
    return rows


@pytest.mark.parametrize(("gap", "expected"), [(0.2, True), (0.0, False)])
def test_label_noise_is_judged_by_welch_at_every_cut(gap, expected):
    """The p-value is that of Welch and Satterthwaite, by hand."""
    rng = np.random.default_rng(0)
    a, b = (np.clip(rng.normal(mean, 0.05, count), 0, 1) for mean, count in ((0.99, 300), (0.99 - gap, 200)))
    collapses, near_one = verdicts("temporal/label-noise", consistencies(a, b))
    assert collapses.holds is expected
    assert near_one.holds is True
    parts = np.array([a.var(ddof=1) / 300, b.var(ddof=1) / 200])
    df = parts.sum() ** 2 / (parts**2 / (299, 199)).sum()
    p = 2 * stats.t.sf(abs(a.mean() - b.mean()) / parts.sum() ** 0.5, df)
    assert f"{number(a.mean())} and {number(b.mean())}, p {number(p)}" in collapses.numbers


@pytest.mark.parametrize(("noisy", "expected"), [(np.full(8, 1.0), False), (np.linspace(0.2, 0.8, 8), True)])
def test_label_noise_where_clean_consistencies_have_no_spread(noisy, expected):
    """All alike on both sides is no evidence; on one side it is the test of one sample against a number."""
    collapses = verdicts("temporal/label-noise", consistencies(np.ones(8), noisy))[0]
    assert collapses.holds is expected
    p = f"p {number(stats.ttest_1samp(noisy, 1.0).pvalue)}" if expected else "no p"
    assert collapses.numbers.endswith(p)


def test_sgd_noise_claims_need_every_cut():
    def cut(name, share, p):
        where = {"case": MLP_CASE, "seed": 0, "layer": name}
        rows = [{**row("share", share / 5, position=k), **where} for k in range(1, 6)]
        rows += [{**row("isotropic_share", 0.04, position=k), **where} for k in range(1, 6)]
        return [*rows, *({**row("isotropy_p", p, sample=n), **where} for n in range(20))]

    both = verdicts("temporal/sgd-noise", [*cut("layer1", 0.8, 0.0005), *cut("layer2", 0.9, 0.0005)])
    assert [verdict.holds for verdict in both] == [True, True]
    one = verdicts("temporal/sgd-noise", [*cut("layer1", 0.3, 0.0005), *cut("layer2", 0.9, 0.5)])
    assert [verdict.holds for verdict in one] == [False, False]


def test_intervention_claims():
    def case(name, accuracy, mce):
        where = {"case": name, "seed": 0, "split": "test"}
        return [{**row("accuracy", accuracy, checkpoint=9), **where}, {**row("mce", mce), **where}]

    worse = [
        *case("trained once", 0.9, 0.3), *case("first block kept", 0.8, 0.4), *case("first two blocks kept", 0.8, 0.4),
    ]  # fmt: skip
    assert [verdict.holds for verdict in verdicts("temporal/reinitialise", worse)] == [True, True]
    better = [*worse[:4], *case("first two blocks kept", 0.95, 0.2)]
    assert [verdict.holds for verdict in verdicts("temporal/reinitialise", better)] == [False, False]


def test_forgetting_needs_a_certain_rise():
    def rows(verdict, sure):
        where = {"seed": 0, "layer": "layer1", "split": "train", "checkpoint": 1000}
        made = []
        for case, rise in ((RESNET_CASE, 0.5), (MLP_CASE, 0.1)):
            made += [
                {
                    **row(
                        "forgetting", 0.3, shallow=300 + at, verdict=verdict if at < sure else "not larger"
                    ),
                    **where,
                    "case": case,
                }
                for at in range(40)
            ]
            made += [
                {**row("loss", rise * late, shallow=at), **where, "case": case}
                for at, late in ((300, 1), (1000, 0))
            ]
        return made

    assert [one.holds for one in verdicts("temporal/forgetting", rows("larger", 10))] == [True, True]
    assert [one.holds for one in verdicts("temporal/forgetting", rows("larger", 1))] == [
        False,
        True,
    ]  # chance
    assert [one.holds for one in verdicts("temporal/forgetting", rows("cannot tell", 40))] == [False, True]


@pytest.mark.parametrize(("second", "expected"), [(0.2, True), (-0.2, False)])
def test_the_bound_needs_one_stand_in_that_rises_everywhere(second, expected):
    rows = []
    for case, low in ((MLP_CASE, 0.2), (RESNET_CASE, second)):
        for name in ("mmd", "wasserstein", "tv_lower"):
            edge = low if name == "mmd" else -0.3
            rows.append(
                {**row(f"correlation_{name}", edge + 0.2, low=edge, high=edge + 0.4), "case": case, "seed": 0}
            )
    assert verdicts("temporal/bound", rows)[0].holds is expected


def test_label_noise_asks_for_corruptions_that_there_are():
    from undertow.data.corruptions import CORRUPTIONS

    assert set(find_study("temporal/label-noise").options["corruptions"]) <= set(CORRUPTIONS)


def test_some_samples_are_balanced_where_each_class_fits():
    samples = Samples.of(torch.arange(100.0)[:, None], torch.arange(100) % 10)
    assert len(some(samples, 200)) == 100
    assert some(samples, 20).y.bincount().tolist() == [2] * 10
    assert len(some(samples, 3)) == 3


def test_pixels_keep_what_the_network_sees():
    x = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    made = pixels(Samples.of(x, torch.tensor([0, 1, 2, 3])))
    assert made.x.dtype == torch.uint8
    torch.testing.assert_close(made.x.float() / 255, x, rtol=0, atol=0.5 / 255 + 1e-7)
    assert pixels(made) is made
