"""What the sections show, against what the rows say."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from undertow.report import charts, charts_time, read_saved, views
from undertow.report.summary import about, facts, reproduce, tied, tiles


def written(folder, rows, **metrics):
    pd.DataFrame(rows).to_parquet(folder / "audit.parquet")
    if metrics:
        pd.DataFrame(metrics).to_parquet(folder / "metrics.parquet")
    return read_saved(folder)


def latent(layer, value, checkpoint=1, probe="masc", fit="given", split="test", labels="true"):
    return {
        "lens": "latent", "measure": "accuracy", "layer": layer, "value": value, "checkpoint": checkpoint,
        "probe": probe, "fit": fit, "split": split, "labels": labels,
    }  # fmt: skip


def test_every_probe_of_a_grid_has_a_name_for_people():
    """Fails if a probe's key is no longer that of its rows, as `nearest_mean` was not for `mean`."""
    from undertow.latent.layer import PROBES as FITTED
    from undertow.words import PROBES, probe_name

    assert set(FITTED) == set(PROBES)
    assert probe_name("mean") == "nearest mean"


def test_the_best_layer_is_that_of_the_last_checkpoint(tmp_path):
    """Not of all training: a layer that knew once does not help now."""
    saved = written(tmp_path, [latent("a", 0.9), latent("b", 0.5), latent("a", 0.6, 2), latent("b", 0.7, 2)])
    (best,) = views.best_layers(saved)
    assert best.tags["layer"] == "b"


def test_probes_that_saw_other_labels_do_not_count(tmp_path):
    """A probe fitted with true labels is a control: it would make every run look as if it knew better."""
    saved = written(
        tmp_path,
        [
            latent("a", 0.6),
            latent("b", 0.99, fit="true"),
            latent("c", 0.98, split="train"),
            latent("d", 0.9, labels="given"),
        ],
    )
    assert [curve.tags["layer"] for curve in views.best_layers(saved)] == ["a"]


def test_where_only_noisy_labels_are_known_they_are_shown(tmp_path):
    saved = written(tmp_path, [latent("a", 0.6, labels="given")])
    assert views.best_layers(saved)[0].mean.tolist() == [0.6]


def test_the_recorded_metrics_stand_in_for_an_audit(tmp_path):
    metrics = {"epoch": [0, 1, 2], "test_accuracy": [0.1, None, 0.8], "train_fit": [0.1, 0.5, 0.9]}
    pd.DataFrame(metrics).to_parquet(tmp_path / "metrics.parquet")
    (tmp_path / "run.json").write_text("{}")
    found = views.overview(read_saved(tmp_path))
    assert [curve.tags["role"] for curve in found] == ["test", "fit"]
    assert found[0].x.tolist() == [0, 2]


def test_a_run_without_an_audit_shows_true_labels_as_true(trained):
    """Fails if the accuracy on the given labels, which are wrong in part, is called that on the true ones."""
    saved = read_saved(trained)
    found = {curve.tags["role"]: curve for curve in views.overview(saved)}
    recorded = {"test": "test_accuracy", "fit": "train_fit", "true": "train_true", "wrong": "train_wrong_fit"}
    assert found.keys() == recorded.keys()
    for role, column in recorded.items():
        assert found[role].mean.tolist() == saved.metrics[column].dropna().tolist(), role
    assert found["true"].mean[-1] < found["fit"].mean[-1] < 1


def test_audit_and_training_tell_the_same_curves(trained, audited):
    """The audit looks at a part of the training samples: the same within what a part may differ."""
    before, after = (
        {c.tags["role"]: c for c in views.overview(read_saved(own))} for own in (trained, audited)
    )
    for role in ("test", "fit", "true", "wrong"):
        kept = np.isin(before[role].x, after[role].x)
        np.testing.assert_allclose(before[role].mean[kept], after[role].mean, rtol=0, atol=0.06)


def test_latent_grids_share_their_axes(tmp_path):
    """The script draws differences cell by cell."""
    saved = written(tmp_path, [latent("a", 0.1, 1), latent("b", 0.2, 2), latent("b", 0.3, 2, probe="velpic")])
    first, second = charts.layer_maps(saved)
    assert first.grid.down == second.grid.down == ["a", "b"]
    np.testing.assert_array_equal(second.grid.value, [[np.nan, np.nan], [np.nan, 0.3]])


def test_maps_say_which_of_them_the_model_may_be_set_beside(audited):
    """The page's first choice, its chart through the layers and the heat map rest on this."""
    maps = charts.layer_maps(read_saved(audited))
    assert [own.title for own in maps if own.first] == ["MASC", "VeLPIC", "logistic regression"]
    assert {own.tags["measured"] for own in maps if own.first} == {
        "fitted with given labels, test, true labels"
    }
    assert all(np.isfinite(own.model).all() for own in maps if own.first)


def test_repairs_follow_the_layers_and_keep_the_gains_interval(audited):
    saved = read_saved(audited)
    found = views.repairs(saved)
    places = [saved.layers.index(row["layer"]) for row in found if row["layer"] in saved.layers]
    assert places
    assert places == sorted(places)
    for row in found:
        assert row["low"] < row["after"] - row["before"] < row["high"]
        assert row["name"] == "VeLPIC"


def test_a_repair_without_its_pair_is_left_out(tmp_path):
    assert (
        views.repairs(written(tmp_path, [{"lens": "repair", "measure": "accuracy_after", "value": 0.9}]))
        == []
    )


def test_long_spectra_are_thinned_but_keep_both_ends(make_audit, tmp_path):
    made = make_audit(tmp_path / "run", lenses=("richness",), features=500, checkpoints=3)
    found = [panel.grid for chart in charts.spectra(read_saved(made)) for panel in chart.panels]
    assert len(found) == 3
    for own in found:
        assert len(own.across) <= charts.POSITIONS
        assert (own.across[0], own.across[-1]) == (1, 500)
        assert not np.isnan(own.value).any()


def test_composites_are_shallow_by_deep(audited):
    saved = read_saved(audited)
    (chart,) = charts_time.composites(saved)
    found = {(own.tags["cut"], own.tags["measure"]): own for own in chart.panels}
    assert len(found) == 6
    assert {measure for (_, measure), own in found.items() if own.first} == {"consistency"}
    own = found["layer1", "accuracy"].grid
    rows = saved.of("temporal", "accuracy")
    one = rows[(rows["layer"] == "layer1") & (rows["shallow"] == 4) & (rows["checkpoint"] == 32)][
        "value"
    ].item()
    assert own.value[own.down.index(4), own.across.index(32)] == one


def test_consistency_stays_where_accuracy_has_labels(tmp_path):
    """Fails if choosing true labels for accuracy drops consistency, which has none."""
    base = {"lens": "temporal", "layer": "a", "checkpoint": 1, "shallow": 1, "split": "test"}
    rows = [
        {**base, "measure": "accuracy", "value": 0.5, "labels": "true"},
        {**base, "measure": "consistency", "value": 1},
    ]
    (chart,) = charts_time.composites(written(tmp_path, rows))
    assert [own.tags["measure"] for own in chart.panels] == ["consistency", "accuracy"]


def test_long_trajectories_are_thinned(make_audit, tmp_path):
    made = make_audit(tmp_path / "run", lenses=("temporal",), checkpoints=2, layers=("a",), samples=700)
    (chart,) = charts_time.trajectories(read_saved(made))
    (track,) = chart.rows
    assert track["x"].shape == track["y"].shape == (2, charts_time.SAMPLES)
    assert len(track["labels"]) == charts_time.SAMPLES


def test_swap_and_drift_keep_the_cuts_order(audited):
    saved = read_saved(audited)
    (chart,) = charts_time.swap(saved)
    assert chart.x.names == ["layer1", "layer2", "layer3"]
    rows = saved.of("temporal", "swap_early_late").set_index("layer")
    assert chart.series[0].curve.mean.tolist() == [rows["value"][cut] for cut in chart.x.names]
    drift = charts_time.layer_curves(saved, "parameter_drift")
    assert [curve.tags["layer"] for curve in drift] == ["layer1", "layer2", "layer3", "head", "all"]


def test_drift_without_a_split_stays_beside_drift_with_one(tmp_path):
    """Fails if choosing test samples for feature drift drops parameter drift, which has no samples."""
    base = {"lens": "temporal", "layer": "a", "checkpoint": 1, "value": 0.5}
    rows = [{**base, "measure": "feature_drift", "split": "test"}, {**base, "measure": "parameter_drift"}]
    assert [chart.id for chart in charts_time.over_time(written(tmp_path, rows))] == [
        "parameter-drift",
        "feature-drift",
    ]


def test_the_input_is_no_layer(tmp_path):
    """Raw pixels are a control: "the best layer is the input" says nothing about the network."""
    assert [
        curve.tags["layer"]
        for curve in views.best_layers(written(tmp_path, [latent("input", 0.9), latent("a", 0.5)]))
    ] == ["a"]


def test_runs_counted_in_steps(tmp_path):
    pd.DataFrame({"step": [100, 200], "test_accuracy": [0.1, 0.8]}).to_parquet(tmp_path / "metrics.parquet")
    (tmp_path / "run.json").write_text("{}")
    saved = read_saved(tmp_path)
    assert saved.unit == "step"
    assert views.overview(saved)[0].x.tolist() == [100, 200]
    assert tiles(saved)[0].detail == "best 80.0\u00a0% at\u00a0step\u00a0200"


def test_tiles_say_what_the_rows_say(audited):
    saved = read_saved(audited)
    shown = {tile.label: tile for tile in tiles(saved)}
    last = saved.metrics["test_accuracy"].iloc[-1]
    measures = saved.audit["measures"]
    assert shown["Test accuracy"].value == f"{100 * last:.1f}\u00a0%"
    assert shown["Best layer knows"].value == f"{100 * measures['latent_accuracy']:.1f}\u00a0%"
    assert shown["D_LR"].value == f"{measures['d_lr']:.2f}"
    assert shown["Wrong labels memorised"].value == f"{100 * views.memorised(saved).mean[-1]:.1f}\u00a0%"
    assert about(saved).startswith("digits · mlp:96-96-96 · 600 training"), (
        "one noise figure: the measured one"
    )


def test_the_best_layer_has_one_interval_on_the_page(make_audit, tmp_path):
    """The verdict's, which allows for the choice among layers; the row's where that is of another number."""
    made = make_audit(tmp_path / "run", lenses=("latent",), checkpoints=3)
    plain = read_saved(made)
    best = max(views.best_layers(plain), key=lambda curve: curve.mean[-1])
    value = float(best.mean[-1])
    own = f"({100 * best.low[-1]:.1f}\u00a0% to {100 * best.high[-1]:.1f}\u00a0%)"

    def shown(measures):
        saved = read_saved(make_audit(made, lenses=("latent",), checkpoints=3, audit={"measures": measures}))
        numbers = dict(next((group.pairs for group in facts(saved) if group.title == "Headline numbers"), []))
        tile = next(tile for tile in tiles(saved) if tile.label == "Best layer knows")
        return tile.detail, numbers.get("latent accuracy")

    ends = {"latent_accuracy_low": 0.625, "latent_accuracy_high": 0.999}
    detail, fact = shown({"latent_accuracy": value, **ends})
    assert detail.endswith("(62.5\u00a0% to 99.9\u00a0%)")
    assert fact.endswith("(0.625 to 0.999)")
    for measures in ({}, {"latent_accuracy": value - 0.1, **ends}, {"latent_accuracy": value}):
        assert shown(measures)[0].endswith(own)


def test_the_parameters_norm_is_the_root_of_what_is_saved(tmp_path):
    """The lens saves the square; the square root keeps the order of the interval's ends."""
    row = {
        "lens": "richness", "measure": "squared_parameter_norm", "checkpoint": 1, "value": 9.0, "low": 4.0, "high": 16.0
    }  # fmt: skip
    (curve,) = views.richness(written(tmp_path, [row]))
    assert (curve.mean.item(), curve.low.item(), curve.high.item()) == (3, 2, 4)


def test_facts_say_what_a_seed_of_minus_one_means(audited):
    (training,) = (group for group in facts(read_saved(audited)) if group.title == "Training")
    assert dict(training.pairs)["seed init"] == "as seed"
    assert dict(training.pairs)["seed"] == "0"


def test_numbers_and_their_intervals_stand_on_one_line(make_audit, tmp_path):
    measures = {"d_lr": 0.2, "d_lr_low": 0.1, "d_lr_high": 0.3, "odd_low": 1.5, "noise": 0.4}
    made = make_audit(tmp_path / "run", lenses=(), checkpoints=3, audit={"measures": measures})
    assert facts(read_saved(made))[-1].pairs == [
        ("d lr", "0.2 (0.1 to 0.3)"),
        ("odd low", "1.5"),
        ("noise", "0.4"),
    ]


def test_numbers_stay_with_their_words():
    assert (
        tied("94.0 % at epoch 8, step 20 and epochs 9")
        == "94.0\u00a0% at epoch\u00a08, step\u00a020 and epochs 9"
    )


def test_a_run_without_rows_has_no_tiles(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    saved = read_saved(tmp_path)
    assert (tiles(saved), about(saved), reproduce(saved)) == ([], "", "")


def test_the_command_that_trains_it_again_is_understood(audited):
    import shlex

    from undertow.cli.app import app

    words = shlex.split(reproduce(read_saved(audited)).replace("\\\n", " "))  # as a shell reads it
    assert words[:3] == ["undertow", "train", "mlp:96-96-96"]
    assert {"--lr", "--shuffle", "--no-greedy"} <= set(words)
    app.parse_args(words[1:], exit_on_error=False, print_error=False)


@pytest.mark.parametrize("config", [None, {}])
def test_a_loop_that_is_not_ours_has_no_command(tmp_path, config):
    import json

    (tmp_path / "run.json").write_text(json.dumps({"config": config}))
    assert reproduce(read_saved(tmp_path)) == ""
