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
from undertow.studies.temporal.networks import HUNDRED_CASE, MLP_CASE, NETWORKS, RESNET_CASE, SVHN_CASE
from undertow.words import number


def verdicts(name, rows):
    return [
        verdict for _, verdict in StudyOutcome.of(find_study(name), "paper", pd.DataFrame(rows)).verdicts()
    ]


def state(case, seed=0, fit=1.0, moved=0.07):
    """What claims presuppose: the network fits its pictures, and its weights move over the window."""
    where = {"case": case, "seed": seed}
    return [
        {**row("train_fit", fit, split="train"), **where},
        {**row("window_drift", moved, layer="all"), **where},
    ]


def column(case, accuracies, pointwise=1.0, theorem=1.0, deep=300, fit=1.0, moved=0.07):
    """Rows of one cut: shallow parts from 150 to 300."""
    times = np.linspace(150, 300, len(accuracies))
    where = {"case": case, "seed": 0, "layer": "layer2", "split": "train", "checkpoint": deep}
    rows = []
    for at, accuracy in zip(times, accuracies, strict=True):
        rows.append({**row("accuracy", accuracy, shallow=at), **where})
        rows.append({**row("loss", 1 - accuracy, shallow=at), **where})
    rows.append({**row("accuracy", 1.0, shallow=deep), **where, "layer": "output"})
    rows.append({**row("pointwise", pointwise), **where})
    rows.append({**row("memory_delta", 0.01), **where})
    rows += [{**row("memory_share", 0.9, position=q), **where} for q in (2.0, 10.0)]
    rows.append({**row("theorem_2", theorem), **where})
    return [*rows, *state(case, fit=fit, moved=moved)]


def test_memory_is_claimed_of_cifar_by_itself_and_of_most_networks_and_cuts():
    nets = tuple(NETWORKS)
    fine = [line for case in nets for line in column(case, [0.99, 0.99, 1.0])]
    found = verdicts("temporal/memory", fine)
    assert [one.holds for one in found] == [True] * 5
    assert (found[1].agree, found[1].of) == (5, 5)
    worse = [
        line for case in nets for line in column(case, [0.89 if case == RESNET_CASE else 0.99, 1.0], 0.99)
    ]
    assert [one.holds for one in verdicts("temporal/memory", worse)] == [
        False,
        None,
        None,
        True,
        True,
    ]  # 4 of 5: p = .19


def test_a_network_that_does_not_fit_its_pictures_cannot_tell():
    found = verdicts("temporal/memory", column(RESNET_CASE, [0.5, 0.6], fit=0.89))
    assert [one.holds for one in found] == [None, None, None, None, True]
    assert "fits 89 % of its training labels, wanted 98 %" in found[0].numbers


def test_a_network_whose_weights_stand_still_cannot_tell():
    """Composites of equal networks keep everything: once .5 % of movement spoke for the paper's 7 %."""
    found = verdicts("temporal/memory", column(RESNET_CASE, [0.99, 1.0], moved=0.005))
    assert [one.holds for one in found] == [None, None, None, None, True]
    assert "its weights move by 0.5 % over the window, wanted 2 %" in found[0].numbers


def test_theorem_2_cannot_be_told_without_its_premise():
    assert verdicts("temporal/memory", column(MLP_CASE, [1, 1], theorem=None))[-1].holds is None


@pytest.mark.parametrize(("widens", "expected"), [(1.0, True), (0.0, False), (None, None)])
def test_window_claim(widens, expected):
    where = {"case": MLP_CASE, "seed": 0, "layer": "layer1", "split": "train"}
    rows = [
        {**row("window_widens_shallow", widens), **where},
        {**row("window_tau_shallow", 0.6, reason="too few"), **where},
        {**row("window_p_shallow", 0.01), **where},
    ]
    assert [one.holds for one in verdicts("temporal/window", rows)[0].cases] == [expected]


@pytest.mark.parametrize(("early", "expected"), [(0.85, True), (0.75, False)])
def test_consistency_is_high_early(early, expected):
    """In the first fifth of the epochs alone, one checkpoint back; the untrained network does not count."""
    where = {"case": MLP_CASE, "seed": 0, "layer": "layer1", "split": "train"}
    times = range(0, 105, 5)
    rows = [
        {
            **row("consistency_shallow", early if 0 < back < at <= 20 else 0.1, shallow=back, checkpoint=at),
            **where,
        }
        for at in times
        for back in times
    ]
    rows.append({**row("window_tau_shallow", 0.6, reason="too few"), **where})
    assert [one.holds for one in verdicts("temporal/window", rows)[1].cases] == [expected]


def consistencies(clean, noisy, split="test", accuracy=0.92):
    """Rows of one cut: how many pictures have which consistency."""
    rows = []
    for case, values in ((f"{RESNET_CASE}, clean labels", clean), (f"{RESNET_CASE}, 40 % noise", noisy)):
        where = {"case": case, "seed": 0, "layer": "layer1", "split": split}
        rows.append({**row("accuracy", accuracy), "case": case, "seed": 0, "split": "test"})
        rows.append({**row("consistency", values.mean()), **where})
        for value, count in zip(*np.unique(values, return_counts=True), strict=True):
            rows.append({**row("pictures", count, position=value), **where})
    return rows


@pytest.mark.parametrize(("gap", "expected"), [(4, True), (0, None)])
def test_label_noise_is_judged_by_welch_over_pictures(gap, expected):
    """The p-value from counts is that of Welch and Satterthwaite over the pictures themselves."""
    rng = np.random.default_rng(0)
    a, b = (rng.binomial(20, share, count) / 20 for share, count in ((0.97, 300), (0.97 - gap / 20, 200)))
    found = verdicts("temporal/label-noise", consistencies(a, b))[2]
    p = stats.ttest_ind(a, b, equal_var=False).pvalue
    assert f", p {number(p)}" in found.numbers
    assert [one.holds for one in found.cases] == [expected]


@pytest.mark.parametrize(("noisy", "expected"), [(np.full(8, 1.0), None), (np.linspace(0.2, 0.8, 8), True)])
def test_label_noise_where_clean_consistencies_have_no_spread(noisy, expected):
    """All alike on both sides is no evidence; on one side it is the test of one sample against a number."""
    found = verdicts("temporal/label-noise", consistencies(np.ones(8), noisy))[2]
    assert [one.holds for one in found.cases] == [expected]
    assert (f"p {number(stats.ttest_1samp(noisy, 1.0).pvalue)}" if expected else "no p") in found.numbers


def test_label_noise_is_not_judged_of_a_network_that_knows_no_new_pictures():
    """It wavers on them with clean labels too: once its noise looked the same, once a still one's looked different."""
    found = verdicts("temporal/label-noise", consistencies(np.full(8, 0.9), np.full(8, 0.5), accuracy=0.37))[
        2
    ]
    assert found.holds is None
    assert "right on 37% of the test pictures, the paper's on 92%" in found.numbers


def test_seeds_that_disagree_are_networks_that_do():
    rng = np.random.default_rng(0)
    high, low = rng.binomial(20, 0.97, 300) / 20, rng.binomial(20, 0.8, 300) / 20
    turned = [{**line, "seed": 1} for line in consistencies(low, high)]
    found = verdicts("temporal/label-noise", [*consistencies(high, low), *turned])[2]
    assert [one.holds for one in found.cases] == [True, False]
    assert found.holds is False


def test_sgd_noise_claims_need_every_cut_and_epoch():
    def cut(name, steep, rejected):
        where = {"case": MLP_CASE, "seed": 0, "layer": name, "checkpoint": 50}
        rows = [{**row("share", 0.5 * steep**-k, position=k), **where} for k in range(5)]
        rows += [{**row("isotropic_share", 0.04 - 0.001 * k, position=k), **where} for k in range(5)]
        return [*rows, *({**row("rejected", float(n < rejected), sample=n), **where} for n in range(20))]

    both = verdicts("temporal/sgd-noise", [*cut("layer1", 2, 20), *cut("layer2", 3, 19)])
    assert [verdict.holds for verdict in both] == [True, True]
    one = verdicts("temporal/sgd-noise", [*cut("layer1", 1.05, 20), *cut("layer2", 3, 5)])
    assert [verdict.holds for verdict in one] == [False, False]


def test_intervention_claims_need_five_seeds():
    def case(name, accuracy, mce, seeds):
        return [
            {**row(measure, value + seed / 1000, checkpoint=9), "case": name, "seed": seed, "split": "test"}
            for measure, value in (("accuracy", accuracy), ("mce", mce))
            for seed in range(seeds)
        ]

    def judged(seeds, last=0.8):
        rows = [*case("trained once", 0.9, 0.3, seeds), *case("first block kept", 0.8, 0.4, seeds)]
        return verdicts(
            "temporal/reinitialise", [*rows, *case("first two blocks kept", last, 1.2 - last, seeds)]
        )

    assert [one.holds for one in judged(5)] == [True, True]
    assert [one.holds for one in judged(3)] == [None, None]
    assert [one.holds for one in judged(5, last=0.95)] == [False, False]


def test_forgetting_needs_more_than_chance():
    def rows(case, sure, fall, seed=0, settling=0.0):
        where = {"seed": seed, "layer": "layer1", "split": "train", "checkpoint": 1000, "case": case}
        made = [
            {
                **row("forgetting", 0.3, shallow=300 + at, verdict="larger" if at < sure else "not larger"),
                **where,
            }
            for at in range(40)
        ]
        own = {**where, "layer": "output"}
        for at in range(40):
            made.append({**row("loss", 0.01 * (1 + settling * (40 - at)), shallow=300 + at), **own})
            made.append({**row("loss", fall * (40 - at), shallow=300 + at), **where})
            made.append({**row("accuracy", 1 - fall * (40 - at), shallow=300 + at), **where})
        return [*made, *state(case, seed)]

    nets = (RESNET_CASE, HUNDRED_CASE, SVHN_CASE)
    found = verdicts("temporal/forgetting", [line for net in nets for line in rows(net, 10, 0.001)])
    assert (found[0].agree, found[0].of, found[2].agree) == (3, 3, 3)
    found = verdicts("temporal/forgetting", [line for net in nets for line in rows(net, 1, 0.001)])
    assert found[2].agree == 0  # one of forty is chance
    falling = verdicts("temporal/forgetting", rows(RESNET_CASE, 10, 0.001, settling=0.1))[2]
    assert falling.holds is None  # later deep parts are better by themselves
    assert "own loss still falls" in falling.numbers
    whole = verdicts("temporal/forgetting", rows(RESNET_CASE, 10, 0.0))[0]
    assert whole.holds is None
    assert "nothing is left to forget" in whole.numbers
    flat, steep = (verdicts("temporal/forgetting", rows(MLP_CASE, 0, fall))[1] for fall in (0.0001, 0.01))
    assert (flat.holds, steep.holds) == (True, False)
    split = [*rows(RESNET_CASE, 9, 0.001), *rows(RESNET_CASE, 9, -0.001, seed=1)]
    assert [one.holds for one in verdicts("temporal/forgetting", split)[0].cases] == [True, False]


def sides(case, **values):
    wanted = {"gap": 0.1, "right": 0.2, "as_printed": 1, "chain_holds": 1, "step_holds": 1, **values}
    wanted |= {f"overall_{name}": 0.1 for name in ("gap", "seen", "delta", "labels")} | {"overall_right": 0.3}
    wanted |= {name: one for name, one in values.items() if name.startswith("overall")}
    where = {"case": case, "seed": 0, "layer": "layer1", "position": 0}
    return [{**row(name, value), **where} for name, value in wanted.items()]


def test_bound_claims_are_of_every_class_and_stand_ins_of_most():
    low_and_high = {"mmd": (0.2, 0.6), "wasserstein": (0.1, 0.5), "tv_lower": (-0.3, 0.2)}
    rows = sides(MLP_CASE)
    for name, (low, high) in low_and_high.items():
        made = row(f"correlation_{name}", (low + high) / 2, low=low, high=high)
        rows.append({**made, "case": MLP_CASE, "seed": 0})
    found = verdicts("temporal/bound", rows)
    assert [one.holds for one in found] == [True, True, True, True, None]
    assert (found[4].agree, found[4].of) == (1, 1)  # three stand-ins of one network
    assert [one.holds for one in found[4].cases] == [True, True, None]  # an interval around 0 cannot tell
    broken = verdicts("temporal/bound", sides(MLP_CASE, as_printed=0, step_holds=0, overall_gap=0.4))
    assert [one.holds for one in broken[:4]] == [
        None,
        True,
        False,
        False,
    ]  # the theorem has the whole variation


def test_induction_never_averages_p_values():
    def rows(p, share, fit=0.95):
        made = []
        for seed, one in enumerate(p):
            where = {"case": "features in the plane", "seed": seed}
            values = {"region_share": share, "region_control": 0.1, "region_p": one, "train_fit": fit}
            made += [{**row(name, value), **where} for name, value in values.items()]
        return made

    assert verdicts("temporal/induction", rows([0.01, 0.01], 0.9))[0].holds is True
    assert (
        verdicts("temporal/induction", rows([0.001, 0.08], 0.9))[0].holds is False
    )  # their mean is below .05
    untrained = verdicts("temporal/induction", rows([0.01], 0.9, fit=0.2))[0]
    assert untrained.holds is None
    assert "fits 20 %" in untrained.numbers


def test_label_noise_asks_for_corruptions_that_there_are():
    from undertow.data.corruptions import CORRUPTIONS, EXTRA

    assert set(find_study("temporal/label-noise").options["corruptions"]) == {*CORRUPTIONS, *EXTRA}


def test_some_samples_are_balanced_where_each_class_fits():
    samples = Samples.of(torch.arange(100.0)[:, None], torch.arange(100) % 10)
    assert len(some(samples, 200)) == 100
    assert some(samples, 20).y.bincount().tolist() == [2] * 10
    assert len(some(samples, 3)) == 3
    uneven = Samples.of(torch.arange(60.0)[:, None], torch.tensor([0] * 50 + [1] * 10))
    assert some(uneven, 20).y.bincount().tolist() == [10, 10]
    assert len(some(uneven, 40)) == 40, "one class is too small to balance: a draw of all"
    assert torch.equal(some(uneven, 40).x, some(uneven, 40).x)


def test_pixels_keep_what_the_network_sees():
    x = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    made = pixels(Samples.of(x, torch.tensor([0, 1, 2, 3])))
    assert made.x.dtype == torch.uint8
    torch.testing.assert_close(made.x.float() / 255, x, rtol=0, atol=0.5 / 255 + 1e-7)
    assert pixels(made) is made


@pytest.mark.parametrize(("late", "expected"), [(0.0009, True), (0.0011, False)])
def test_the_balance_is_judged_in_training_time(late, expected):
    """A rate that drops to a hundredth makes every change a hundredth: once that alone spoke for the paper."""
    config = find_study("temporal/balance").case(MLP_CASE).train
    assert config.learning_rate(300) == pytest.approx(config.learning_rate(11) / 100)
    rows = []
    for seed in range(5):
        rows += state(MLP_CASE, seed)
        for at, size in ((10, 0.1), (299, late)):
            where = {"case": MLP_CASE, "seed": seed, "layer": "layer1", "split": "train", "checkpoint": at}
            names = ("together_part", "feature_part", "parameter_part")
            rows += [{**row(name, size), **where} for name in names]
    assert [one.holds for one in verdicts("temporal/balance", rows)[:3]] == [expected] * 3
