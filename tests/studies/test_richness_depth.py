"""The recipes learning-curve, low-rank, layers and greedy-layerwise, their claims and what they measure."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from undertow.data.catalogue import DATA
from undertow.errors import BadData
from undertow.models import build_model
from undertow.richness.alignment import low_rank
from undertow.studies import StudyOutcome, find_study
from undertow.studies.findings import row
from undertow.studies.richness.depth import STUDIES as DEPTH
from undertow.studies.richness.depth_measures import layer_spectra, log_positions, stage_fits, used_dimensions
from undertow.studies.richness.last_layer_measures import LayerSight, last_layer
from undertow.studies.richness.orthonormal_sums import STUDIES as SUMS
from undertow.studies.richness.power_law_break import find_break
from undertow.studies.train_and_measure import trained

STUDIES = (*DEPTH, *SUMS)
NAMES = [study.name for study in STUDIES]


def judge(study, index, rows, scale="laptop"):
    table = pd.DataFrame([{"seed": 0, **one} for one in rows])
    return StudyOutcome.of(study, scale, table).verdicts()[index][1]


@pytest.mark.parametrize("study", STUDIES, ids=NAMES)
@pytest.mark.parametrize("scale", ["smoke", "laptop"])
def test_networks_take_the_data_and_have_the_layers(study, scale):
    """Would fail for VGG-16 on small digits, or for a layer that a change of model has renamed."""
    for case in study.at(scale).cases:
        entry = DATA[case.train.data]
        model = build_model(case.train.model, entry.shape, entry.classes, seed=0)
        names = set(dict(model.named_children()))
        assert set(case.options.get("layers", "head").split(",")) <= names


def test_more_features_than_classes():
    """Fewer could not show an effective dimension of the number of classes."""
    for case in find_study("richness/low-rank").at("laptop").cases:
        entry = DATA[case.train.data]
        model = build_model(case.train.model, entry.shape, entry.classes, seed=0)
        assert entry.classes < model.head.in_features < min(case.train.train_size, case.train.test_size)


# -- where a power law breaks


def power(sizes, at, before, after, noise, seed=0):
    x = np.log10(sizes)
    y = before * x + (after - before) * np.maximum(x - np.log10(at), 0)
    return 10 ** (y + noise * np.random.default_rng(seed).standard_normal(len(x)))


SIZES = np.array([100, 200, 400, 800, 1600, 3200, 6400, 12_800])


def test_a_clear_break_is_found():
    found = find_break(SIZES, power(SIZES, 1000, -0.05, -0.5, noise=0.003))
    assert found.at == pytest.approx(1000, rel=0.15)
    assert found.p < 0.001
    assert (found.before, found.after) == pytest.approx((-0.05, -0.5), abs=0.02)


def test_one_power_law_has_no_break():
    """Over many draws a straight line must not be called broken more often than the test allows (about)."""
    chances = [
        find_break(SIZES, power(SIZES, 1000, -0.3, -0.3, noise=0.01, seed=seed)).p for seed in range(100)
    ]
    assert np.mean(np.array(chances) < 0.05) < 0.2  # the searched place makes the test a little eager


def test_exact_lines_do_not_divide_by_zero():
    assert find_break(SIZES, power(SIZES, 1000, -0.3, -0.3, noise=0)).p > 0.05
    assert find_break(SIZES, power(SIZES, 1600, -0.1, -0.4, noise=0)).p < 0.05


@pytest.mark.parametrize("values", [[0.5] * 5, [0.5] * 7 + [0.0], [0.5] * 7 + [np.nan]])
def test_too_few_or_impossible_points_are_refused(values):
    with pytest.raises(BadData, match="six sizes"):
        find_break(SIZES[: len(values)], values)


# -- claims


def curve(measure, values, sizes=SIZES[:7]):
    return [
        row(measure, v, case=f"{s:,} samples", size=s, split="test", checkpoint=1)
        for s, v in zip(sizes, values, strict=True)
    ]


@pytest.mark.parametrize(("index", "measure"), [(0, "error"), (1, "loss"), (2, "d_lr")])
def test_learning_curves_turn_or_do_not_or_nobody_can_tell(index, measure):
    study, sizes = find_study("richness/learning-curve"), SIZES[:7]

    def verdict(**law):
        return judge(study, index, curve(measure, power(sizes, **law)))

    assert verdict(at=1000, before=-0.05, after=-0.4, noise=0.004).holds is True
    assert verdict(at=1000, before=-0.4, after=-0.05, noise=0.004).holds is False  # it turns up
    assert verdict(at=230, before=-0.05, after=-0.4, noise=0.001).holds is False  # elsewhere
    doubt = verdict(at=1000, before=-0.2, after=-0.2, noise=0.03)
    assert doubt.holds is None
    assert "one power law fits as well" in doubt.numbers


def test_richer_with_data():
    study = find_study("richness/learning-curve")
    falling = np.linspace(0.5, 0.1, 7)
    assert judge(study, 3, curve("d_lr", falling)).holds is True
    assert judge(study, 3, curve("d_lr", falling[::-1])).holds is False


@pytest.mark.parametrize(
    ("dimension", "fit", "holds"), [(10.3, 1.0, True), (8.0, 1.0, False), (8.0, 0.9, None), (14.0, 1.0, None)]
)
def test_dimension_is_held_against_the_classes(dimension, fit, holds):
    """What has not fitted its pictures, or has yet to collapse, says nothing; a laptop leaves out CIFAR-100."""
    rows = [
        row("effective_dimension_rest", dimension, case="ResNet-18 on MNIST", split="train"),
        row("effective_dimension_rest", 97.0, case="VGG-16 on CIFAR-100", split="train"),
        row("accuracy", fit, case="ResNet-18 on MNIST", split="train"),
        row("accuracy", 1.0, case="VGG-16 on CIFAR-100", split="train"),
    ]
    assert judge(find_study("richness/low-rank"), 0, rows).holds is holds
    if dimension > 11:
        assert judge(find_study("richness/low-rank"), 0, rows, "paper").holds is False


def layer_rows(case, shares, measure="utilisation", classes=10):
    return [
        row(measure, share, position=classes, case=case, layer=layer, depth=depth)
        for depth, (layer, share) in enumerate(shares.items(), start=1)
    ]


def test_deeper_layers_must_express_more():
    study = find_study("richness/layers")
    rising = {"layer1": 0.2, "layer2": 0.3, "layer3": 0.5, "avg_pool": 0.98}
    assert judge(study, 0, layer_rows("ResNet-18", rising)).holds is True
    assert judge(study, 0, layer_rows("ResNet-18", {**rising, "layer3": 0.25})).holds is False
    assert judge(study, 1, layer_rows("ResNet-18", rising)).holds is None  # the VGG cases are missing


def test_batch_norm_must_make_the_difference_at_the_end():
    study = find_study("richness/layers")
    with_norm = {"block1": 0.2, "block2": 0.4, "fc2": 0.98}

    def verdicts(without, fit=1.0):
        cases = (("VGG-16 with batch norm", with_norm), ("VGG-16 without batch norm", without))
        rows = [one for case, shares in cases for one in layer_rows(case, shares, classes=100)]
        rows += [row("accuracy", fit, case=case, split="train") for case, _ in cases]
        return [judge(study, index, rows, "paper").holds for index in (1, 2)]

    assert verdicts({"block1": 0.2, "block2": 0.3, "fc2": 0.3}) == [True, True]
    assert verdicts({"block1": 0.2, "block2": 0.1, "fc2": 0.9}) == [False, False]
    assert verdicts({"block1": 0.2, "block2": 0.3, "fc2": 0.3}, fit=0.4) == [None, None]


def test_a_narrow_network_that_is_not_lazy_does_not_speak_against_lazy_ones():
    study = find_study("richness/layers")
    with_norm = {"block1": 0.2, "block2": 0.4, "fc2": 0.99}

    def verdicts(scale, last):
        without = {"block1": 0.2, "block2": 0.1, "fc2": last}
        cases = (("VGG-16 with batch norm", with_norm), ("VGG-16 without batch norm", without))
        classes = {"laptop": 10, "paper": 100}[scale]
        rows = [one for case, shares in cases for one in layer_rows(case, shares, classes=classes)]
        rows += [row("accuracy", 1.0, case=case, split="train") for case, _ in cases]
        return [judge(study, index, rows, scale).holds for index in (1, 2)]

    assert verdicts("laptop", 0.97) == [None, None]
    assert verdicts("laptop", 0.9) == [False, False]
    assert verdicts("paper", 0.97) == [False, False]


def test_greedy_collapses_layer_two():
    study = find_study("richness/greedy-layerwise")
    full = {"layer1": 0.2, "layer2": 0.3, "layer3": 0.5, "avg_pool": 0.98}
    early, late = {**full, "layer2": 0.6}, {**full, "layer2": 0.1}
    for shares, holds in ((early, True), (late, False)):
        rows = layer_rows("full backpropagation", full) + layer_rows("layer by layer", shares)
        assert judge(study, 0, rows).holds is holds
        told = layer_rows("full backpropagation", full, "quality") + layer_rows(
            "layer by layer", shares, "quality"
        )
        assert judge(study, 1, told).holds is holds


@pytest.mark.parametrize(("fit", "holds"), [(0.6, None), (0.99, False)])
def test_a_layer_that_has_not_fitted_has_not_collapsed(fit, holds):
    full = {"layer1": 0.2, "layer2": 0.3, "layer3": 0.5, "avg_pool": 0.98}
    rows = layer_rows("full backpropagation", full) + layer_rows("layer by layer", {**full, "layer2": 0.1})
    rows.append(row("stage_fit", fit, case="layer by layer", layer="layer2", split="train"))
    assert judge(find_study("richness/greedy-layerwise"), 0, rows).holds is holds


# -- measures


def test_fits_of_stages_are_those_of_their_last_epochs(tmp_path):
    config = find_study("richness/greedy-layerwise").at("smoke").case("layer by layer").train
    greedy = trained(replace(config, train_size=100, test_size=50, epochs=10), (), tmp_path)
    running = greedy.metrics.set_index("epoch")["train_accuracy"]
    found = {one["layer"]: one["value"] for one in stage_fits(greedy)}
    assert list(found) == list(greedy.fresh().cuts)
    assert list(found.values()) == [running.loc[end] for end in (2, 4, 6, 8, 10)]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    config = find_study("richness/layers").at("smoke").cases[0].train
    return trained(replace(config, train_size=100, test_size=100), (), tmp_path_factory.mktemp("run"))


def test_d_lr_in_float64_sees_what_is_a_billionth_of_the_means():
    """Fails if rounding decides: late in a training by weight decay alone outputs differ by 1e-14 of themselves."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(400, 8, generator=generator, dtype=torch.float64)
    outputs = features @ torch.randn(8, 3, generator=generator, dtype=torch.float64)
    plain = LayerSight(features, outputs, torch.zeros(400)).d_lr()
    assert plain == pytest.approx(
        float(low_rank(features - features.mean(0), outputs - outputs.mean(0))), abs=1e-12
    )
    tiny = LayerSight(1 + 1e-9 * features, 1 + 1e-9 * outputs, torch.zeros(400)).d_lr()
    assert tiny == pytest.approx(plain, abs=1e-5)
    with pytest.raises(BadData, match="all samples have the same features or outputs"):
        LayerSight(features, torch.ones_like(outputs), torch.zeros(400)).d_lr()


def test_the_last_of_the_layers_is_the_last_layer(run):
    """Would fail if a layer were taken before its pool, or if pooling touched what is flat already."""
    rows = pd.DataFrame(layer_spectra(run, case="", seed=0, layers="layer2,avg_pool", map_side=2))
    ours = rows[(rows["measure"] == "utilisation") & (rows["layer"] == "avg_pool")]["value"].to_numpy()
    whole = pd.DataFrame(last_layer(run, case="", seed=0))
    theirs = whole[whole["measure"] == "utilisation"]["value"].to_numpy()
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    widths = rows[rows["measure"] == "width"].set_index("layer")["value"].to_dict()
    assert widths == {"layer2": 8 * 2 * 2, "avg_pool": 32}
    assert rows[rows["layer"] == "layer2"]["note"].str.startswith("linear view only").all()


def test_maps_are_flattened_without_pool(run):
    rows = pd.DataFrame(layer_spectra(run, case="", seed=0, layers="layer2,avg_pool"))
    assert rows[rows["measure"] == "width"].iloc[0]["value"] == 8 * 4 * 4
    # 128 features of 100 samples: the finite-size warning is kept with the numbers.
    assert rows[rows["layer"] == "layer2"]["note"].str.contains("finite size").all()


def test_used_dimension_lies_between_outputs_and_features(run):
    rows = pd.DataFrame(used_dimensions(run, case="", seed=0)).set_index("measure")["value"]
    assert 1 < rows["used_dimension"] <= 32


def test_positions_have_both_ends():
    assert log_positions(5) == [1, 2, 3, 4, 5]
    many = log_positions(65_536)
    assert many[:120] == list(range(1, 121))
    assert many[-1] == 65_536
    assert len(many) < 300


# -- where sums with and without QR part


def sums(last, right):
    """Two layers whose sums part at the third feature: small in layer1, of intensity `last` in avg_pool."""
    rows = [row("accuracy", right, checkpoint=20, split="test")]
    for depth, (layer, strength) in enumerate((("layer1", 0.001), ("avg_pool", last))):
        for position, intensity in enumerate((1.0, 0.5, strength), start=1):
            where = {"layer": layer, "depth": depth, "position": position, "checkpoint": 20, "split": "test"}
            rows.append(row("intensity", intensity, qr="with", **where))
            for way, more in (("with", 0.0), ("without", 0.5 * (position == 3))):
                rows += [
                    row(name, 0.2 * position + more, qr=way, **where) for name in ("quality", "utilisation")
                ]
    return [{"case": "ResNet-18", **one} for one in rows]


@pytest.mark.parametrize(
    ("last", "right", "said"),
    [(0.001, 0.95, True), (0.4, 0.95, False), (0.4, 0.46, None)],
)
def test_sums_part_where_eigenvalues_are_small(last, right, said):
    """A last layer that knows its training pictures only is left out; the others are judged all the same."""
    verdict = judge(find_study("richness/qr"), 1, sums(last, right))
    assert verdict.holds is (True if said is None else said)
    assert [one.holds for one in verdict.cases] == [True, said, True, said]
