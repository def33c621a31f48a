"""The audit as a whole: its numbers against the lenses called by hand, what is kept, what is computed again."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pandas as pd
import pytest
import torch
from torch import nn

import undertow as ut
from undertow.auditing import AuditConfig
from undertow.data import to_inputs
from undertow.errors import BadData, BadValue, NotThere, UnknownName
from undertow.rows import COLUMNS
from undertow.session.checkpoints import thinned
from undertow.sizes import parse_size
from undertow.temporal import consistency_matrix
from undertow.temporal.matrix import Composer
from undertow.training.seal_again import seal_again

LIGHT: dict[str, Any] = {"probes": ["velpic"], "fits": ["given"]}


def one(table: pd.DataFrame, **where: Any) -> pd.Series:
    for name, wanted in where.items():
        table = table[table[name] == wanted]
    assert len(table) == 1, f"{len(table)} rows for {where}"
    return table.iloc[0]


def measures(table: pd.DataFrame, lens: str) -> set[str]:
    return set(table[(table["lens"] == lens) & table["value"].notna()]["measure"])


# ---------------------------------------------------------------------- what comes out


def test_the_table_is_as_agreed(audited):
    """The report is made from these columns and names alone."""
    table = audited("memorising").table
    assert tuple(table.columns) == COLUMNS
    assert measures(table, "model") == {"accuracy", "loss", "memorised", "answered"}
    assert measures(table, "latent") == {"accuracy", "dimension"}
    assert measures(table, "richness") == {
        "d_lr", "effective_dimension", "effective_dimension_rest", "squared_parameter_norm",
        "initial_kernel_alignment", "nc1",
        "nc1_stabilised", "trace_within", "nc2_etf", "nc3", "nc4", "quality", "utilisation", "intensity",
    }  # fmt: skip
    assert measures(table, "temporal") == {
        "accuracy", "consistency", "window", "density", "parameter_drift", "feature_drift", "trajectory",
        "swap_early_late", "swap_late_early", "swap_early", "swap_late",
    }  # fmt: skip
    assert measures(table, "repair") == {"accuracy_before", "accuracy_after", "difference"}
    whole = table[table["low"].notna() & (table["measure"] != "d_lr")]  # D_LR's interval is without its bias
    assert (whole["low"] <= whole["value"] + 1e-12).all()
    assert (whole["value"] <= whole["high"] + 1e-12).all()
    assert table["note"].map(lambda note: isinstance(note, str)).all()


def test_files_hold_what_the_result_does(audited):
    result = audited("memorising")
    stored = json.loads((result.folder / "audit.json").read_text())
    wanted = {
        "format", "undertow", "made", "run", "run_id", "unit", "situation", "quick", "verdict", "headline", "measures",
        "settings", "data", "table", "seal",
    }  # fmt: skip
    assert set(stored) == wanted
    assert stored["situation"] == "test labels taken as true"
    assert stored["measures"] == result.measures
    assert set(stored["verdict"][0]) == {
        "topic", "sentence", "answer", "short", "numbers", "meaning", "rule"
    }  # fmt: skip
    assert stored["data"] == {
        "name": "digits", "classes": [str(n) for n in range(10)], "train": 1297, "test": 500
    }  # fmt: skip
    pd.testing.assert_frame_equal(pd.read_parquet(result.folder / "audit.parquet"), result.table)
    lines = str(result.verdict).splitlines()
    assert lines[:2] == [result.headline, ""]
    assert lines[2].split()[:4] == ["training", "yes", "good", "Trained:"]


def test_the_models_own_numbers(audited, trained):
    run, table = trained("memorising"), audited("memorising").table
    own = table[table["lens"] == "model"]
    for _, metric in run.metrics.iterrows():
        at = int(metric["epoch"])
        if at in run.epochs:
            where = {"checkpoint": at, "measure": "accuracy"}
            assert one(own, **where, split="test")["value"] == pytest.approx(metric["test_accuracy"])
            assert one(own, **where, split="train", labels="given")["value"] == pytest.approx(
                metric["train_fit"]
            )
            assert one(own, **where, split="train", labels="true")["value"] == pytest.approx(
                metric["train_true"]
            )
            seen = one(own, checkpoint=at, measure="memorised")["value"]
            assert seen == pytest.approx(metric["train_wrong_fit"])
            loss = one(own, checkpoint=at, measure="loss", split="test")
            assert loss["value"] == pytest.approx(metric["test_loss"], rel=1e-5)
            assert loss["low"] < loss["value"] < loss["high"]


def test_richness_is_that_of_the_lens(audited, trained):
    run, table = trained("memorising"), audited("memorising").table
    rich, data = table[table["lens"] == "richness"], run.data()
    model = run.model(30)
    found = ut.richness.measure_richness(model, to_inputs(data.test.x, "half"), data.test.y)
    for name in ("d_lr", "effective_dimension", "effective_dimension_rest", "squared_parameter_norm"):
        value = one(rich, checkpoint=30, measure=name)["value"]
        assert value == pytest.approx(getattr(found, name).value, rel=1e-6), name
    for name in ("nc1", "trace_within", "nc2_etf", "nc3"):
        value = one(rich, checkpoint=30, measure=name)["value"]
        assert value == pytest.approx(getattr(found, name).value, rel=1e-5), name
    assert one(rich, checkpoint=0, measure="initial_kernel_alignment")["value"] == pytest.approx(1.0)
    quality = rich[(rich["measure"] == "quality") & (rich["checkpoint"] == 30)].sort_values("position")
    assert quality["position"].tolist() == list(range(1, 101))
    assert quality["value"].is_monotonic_increasing


def test_composites_are_those_of_the_lens(audited, trained):
    run, table = trained("memorising"), audited("memorising").table
    found = ut.composite_matrix(run)
    pairs = table[table["lens"] == "temporal"]
    for place, cut in enumerate(found.cuts):
        shares = consistency_matrix(found.predictions[place], found.deep).values
        for i, shallow in enumerate(found.shallow):
            for j, deep in enumerate(found.deep):
                where = {"layer": cut, "shallow": shallow, "checkpoint": deep}
                assert one(pairs, measure="consistency", **where)["value"] == pytest.approx(shares[i, j])
                right = one(pairs, measure="accuracy", **where)["value"]
                assert right == pytest.approx(found.accuracy()[place, i, j])
    early = one(pairs, measure="swap_early_late", layer="layer1")
    assert (early["shallow"], early["checkpoint"]) == (12, 30)
    assert early["value"] == pytest.approx(found.accuracy()[0, 2, 4])
    assert one(pairs, measure="swap_late", layer="layer1")["value"] == pytest.approx(
        found.accuracy()[0, 4, 4]
    )


def test_drift_and_trajectories(audited, trained):
    run, table = trained("memorising"), audited("memorising").table
    drift = table[table["measure"] == "parameter_drift"]
    last, first = run.weights(30), run.weights(0)
    moved = sum(float((last[name] - first[name]).double().square().sum()) for name in last) ** 0.5
    size = sum(float(value.double().square().sum()) for value in last.values()) ** 0.5
    assert one(drift, checkpoint=0, layer="all")["value"] == pytest.approx(moved / size)
    assert set(drift["layer"]) == {"all", "layer1", "layer2", "head"}
    features = table[table["measure"] == "feature_drift"]
    assert (features[features["checkpoint"] == 30]["value"] == 0).all()
    assert (features[features["checkpoint"] == 0]["value"] > 0.1).all()
    paths = table[table["measure"] == "trajectory"]
    assert len(paths) == 2 * 5 * 100
    labels = run.data().test.y
    assert all(labels[int(point["sample"])] == point["label"] for _, point in paths.head(100).iterrows())


def test_repair_rows_say_what_repair_says(audited, trained):
    table = audited("memorising").table
    rows = table[(table["lens"] == "repair") & (table["measure"] == "difference")]
    wanted = ut.repair(trained("memorising")).judgement
    head = one(rows, layer="head")
    assert (head["value"], head["low"], head["high"]) == pytest.approx((wanted.gain, wanted.low, wanted.high))
    assert head["note"].startswith("head: accepted")
    graft = ut.repair(trained("memorising"), layer="best").judgement
    assert rows["value"].tolist()[1] == pytest.approx(graft.gain)


def test_a_page_can_be_made(audited, tmp_path):
    path = audited("memorising").to_html(tmp_path / "report.html")
    assert "<html" in path.read_text(encoding="utf-8")


# ---------------------------------------------------------------------- going on


class Interrupting:
    """Stops the audit after so many steps, as ctrl-C would."""

    def __init__(self, after: int) -> None:
        self.left, self.seen, self.closed = after, [], False

    def plan(self, words: str, steps: int) -> None:
        self.words, self.steps = words, steps

    def step(self, label: str, share: float) -> None:
        self.seen.append((label, share))
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def own(trained, tmp_path) -> ut.Run:
    """A copy of the clean run, to be audited from the start."""
    source = trained("clean").path
    shutil.copytree(
        source,
        tmp_path / "run",
        ignore=shutil.ignore_patterns("audit*", "cache", "probes.parquet", "report*"),
    )
    return ut.open_run(tmp_path / "run")


def forwarded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Samples that go through the first layer of any model that is built from now on."""
    seen: list[int] = []
    load = ut.Run.model

    def counting(self: ut.Run, *given: Any) -> nn.Module:
        model = load(self, *given)
        model.layer1.register_forward_hook(lambda _module, args, _output: seen.append(len(args[0])))
        return model

    monkeypatch.setattr(ut.Run, "model", counting)
    return seen


def composed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """Composites that are computed from now on: cut, shallow, deep."""
    seen: list[tuple[str, int, int]] = []
    compute = Composer.matrix

    def noting(self: Composer, *given: Any, **more: Any) -> Any:
        found = compute(self, *given, **more)
        seen.extend((cut, s, d) for cut in found.cuts for s in found.shallow for d in found.deep)
        return found

    monkeypatch.setattr(Composer, "matrix", noting)
    return seen


@pytest.fixture(scope="module")
def whole(trained, tmp_path_factory) -> Any:
    """An audit of the clean run that nothing disturbed."""
    return ut.audit(trained("clean"), out=tmp_path_factory.mktemp("whole"), **LIGHT)


@pytest.mark.parametrize("after", [1, 3, 4, 5])
def test_a_killed_audit_goes_on_to_the_same_table(own, whole, after):
    """Killed after the first checkpoint, in the middle, after the last one, and after composites."""
    progress = Interrupting(after)
    with pytest.raises(KeyboardInterrupt):
        ut.audit(own, progress=progress, **LIGHT)
    assert progress.closed
    assert not (own.path / "audit.json").exists()
    # Features that were seen before those of the last checkpoint are compared with them later.
    waiting = "feature-drift*-00000000.bin" if after == 1 else "none"
    kept = {
        path: path.stat().st_mtime_ns for path in (own.path / "cache").iterdir() if not path.match(waiting)
    }
    assert kept
    again = ut.audit(own, **LIGHT)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    pd.testing.assert_frame_equal(again.table, whole.table)
    assert again.measures == whole.measures


def test_nothing_is_computed_twice(own, monkeypatch):
    """The second audit runs the model on a few samples only: to try whether they fit, and the cuts."""
    seen = forwarded(monkeypatch)
    run = ut.open_run(own.path)
    first = ut.audit(run, **LIGHT)
    seen.clear()
    second = ut.audit(run, **LIGHT)
    assert sum(seen) < 500
    assert second.about["settings"]["estimate"] == "nothing new to compute"
    pd.testing.assert_frame_equal(first.table, second.table)


def test_a_new_checkpoint_costs_what_is_new(own, monkeypatch):
    light = {**LIGHT, "lenses": "temporal"}
    ut.audit(own, checkpoints=[0, 8], **light)
    asked = composed(monkeypatch)
    result = ut.audit(own, checkpoints=[0, 8, 12], **light)
    assert {(s, d) for _, s, d in asked} == {(0, 12), (8, 12), (12, 0), (12, 8), (12, 12)}
    alone = ut.audit(own, checkpoints=[0, 8, 12], out=own.path.parent / "alone", **light)
    pd.testing.assert_frame_equal(result.table, alone.table)


def test_a_new_layer_costs_what_is_new(own, monkeypatch):
    ut.audit(own, layers="layer1", **LIGHT)
    asked = composed(monkeypatch)
    result = ut.audit(own, layers=["layer1", "layer2"], **LIGHT)
    assert {cut for cut, _, _ in asked} == {"layer2"}
    alone = ut.audit(own, layers=["layer1", "layer2"], out=own.path.parent / "alone", **LIGHT)
    pd.testing.assert_frame_equal(result.table, alone.table)


def test_other_weights_are_read_anew(own):
    """Fails if parts are known by the checkpoint's number only."""
    before = ut.audit(own, lenses=["richness"])
    shutil.copy(own.checkpoint(4).path, own.checkpoint(12).path)
    seal_again(own.path)  # the exchange is meant
    after = ut.audit(ut.open_run(own.path), lenses=["richness"])
    assert after.measures["accuracy"] == one(
        before.table, checkpoint=4, measure="accuracy", split="test"
    )["value"]  # fmt: skip


def test_a_quick_audit_replaces_no_full_one(own):
    """Fails if CI's quick gate takes the place of the audit that somebody looks at."""
    light = {"lenses": ["richness"], "quick": True, "samples": 200}
    assert ut.audit(own, **light).folder == own.path
    ut.audit(own, lenses=["richness"])
    kept = {path: path.read_bytes() for path in own.path.rglob("audit*") if path.is_file()}
    assert json.loads(kept[own.path / "audit.json"])["quick"] is False
    parts = {path: path.read_bytes() for path in (own.path / "cache").iterdir()}
    again = ut.audit(own, **light)
    assert again.folder == own.path / "audit-quick"
    assert again.about["settings"]["notes"][0].startswith(f"kept in {again.folder}")
    assert json.loads((again.folder / "audit.json").read_text())["quick"] is True
    assert {path: path.read_bytes() for path in [*kept, *parts]} == kept | parts
    assert ut.audit(own, out=own.path, **light).folder == own.path, "who names the folder gets it"


def test_progress_adds_up_to_the_whole(own):
    progress = Interrupting(-1)
    ut.audit(own, progress=progress, **LIGHT)
    assert sum(share for _, share in progress.seen) == pytest.approx(1.0)
    assert {label.partition(",")[0] for label, _ in progress.seen} == {"passes", "composites"}
    assert progress.words.startswith("This takes about ")
    assert "of memory in all (Python, libraries, model and samples counted): " in progress.words
    planned = parse_size(progress.words.partition(" of disk")[0].rpartition(", ")[2])
    kept = sum(path.stat().st_size for path in (own.path / "cache").iterdir())
    assert kept / 4 < planned < 4 * kept
    assert progress.closed


# ---------------------------------------------------------------------- situations


def test_noisy_labels_only(trained, tmp_path):
    """The drop shows in the agreement with noisy labels too; nothing that needs true labels is told."""
    run = trained("memorising")
    data = run.data()
    noisy = ut.LabelNoise("uniform", 0.4, seed=5).apply(data.test, 10)
    result = ut.audit(run, data.train, noisy, labels="noisy", out=tmp_path, **LIGHT)
    assert result.context.situation == "noisy labels only"
    rows = result.table
    assert set(rows[rows["lens"] == "model"]["labels"].dropna()) == {"given"}
    assert "true" not in set(rows["labels"].dropna())
    assert "memorised" not in result.measures
    assert result.measures["accuracy"] == pytest.approx(
        float((run.model()(to_inputs(noisy.x, "half")).argmax(1) == noisy.y).double().mean())
    )
    noise = result.verdict.topic("noise")
    assert noise.sentence.startswith("About ")
    assert noise.numbers["low"] < 458 / 1297 < noise.numbers["high"], "found without looking at true labels"
    repaired = rows[rows["lens"] == "repair"]["note"].tolist()
    assert all("unknown noise" in note for note in repaired)


@pytest.mark.parametrize("bare", [True, False])
def test_no_labels_at_all(trained, tmp_path, bare):
    run = trained("clean")
    data = run.data()
    given = {"test": data.test.x} if bare else {"labels": "none"}
    result = ut.audit(run, out=tmp_path, **given)
    rows = result.table
    assert set(rows["lens"]) == {"model", "richness", "temporal"}
    assert measures(rows, "model") == {"answered"}
    assert {"d_lr", "initial_kernel_alignment", "effective_dimension"} <= measures(rows, "richness")
    assert {"consistency", "window", "parameter_drift", "trajectory"} <= measures(rows, "temporal")
    assert not measures(rows, "temporal") & {"accuracy", "swap_early"}
    assert rows["label"].isna().all()
    assert result.headline.startswith("No labels: ")
    told = {finding.topic: finding.answer for finding in result.verdict}
    assert {told[topic] for topic in ("memorising", "knowledge", "repair", "noise", "checkpoint")} == {
        "cannot tell"
    }


def test_anyones_checkpoints(trained, whole, tmp_path):
    """Plain .pt files, a factory, tensors: the same numbers as from our own folder."""
    run, folder = trained("clean"), tmp_path / "ckpts"
    folder.mkdir()
    for at in run.epochs:
        torch.save({"state_dict": run.weights(at)}, folder / f"net_epoch{at}.pt")
    data = run.data()
    train, test = ((to_inputs(part.x, "half"), part.y) for part in (data.train, data.test))
    opened = ut.open_run(folder, model=lambda: ut.build_model("mlp:48-48", (1, 8, 8), 10, seed=3))
    result = ut.audit(opened, train, test, **LIGHT)
    for name in ("accuracy", "latent_gap", "d_lr", "window", "head_gain"):
        assert result.measures[name] == pytest.approx(whole.measures[name], rel=1e-5), name
    assert result.context.wrong_labels is None
    assert (folder / "audit.parquet").exists()


def test_quick_looks_at_less(trained, tmp_path):
    result = ut.audit(trained("memorising"), quick=True, samples=300, out=tmp_path, **LIGHT)
    assert result.about["data"]["train"] == result.about["data"]["test"] == 300
    assert json.loads((tmp_path / "audit.json").read_text())["quick"] is True
    assert AuditConfig(quick=True).thinned().samples == 1000


def test_the_initial_kernel_of_a_run_that_kept_no_checkpoint_0(tmp_path):
    """Models of undertow are built from a seed, so what was before training is known all the same."""
    config = ut.TrainConfig("mlp:16-16", data="digits", epochs=2, checkpoints="1,2", device="cpu")
    run = ut.train(config, tmp_path / "run")
    result = ut.audit(run, lenses="richness")
    x = to_inputs(run.data().test.x, "half")
    with torch.no_grad():
        before, after = (model[:-1](x) for model in (run.fresh().eval(), run.model(2)))
    assert result.measures["initial_kernel_alignment"] == pytest.approx(
        ut.richness.initial_kernel_alignment(before, after), rel=1e-5
    )


def test_one_output_for_all_classes(tmp_path):
    """A regression has no head to repair and no D_LR here; it is audited as far as it goes."""
    config = ut.TrainConfig(
        "mlp:16", data="digits", loss="mse", target="scalar", epochs=2, checkpoints="0,2", device="cpu"
    )
    run = ut.train(config, tmp_path / "run")
    result = ut.audit(run, **LIGHT)
    assert result.measures["accuracy"] == pytest.approx(run.metrics["test_accuracy"].iloc[-1])
    assert result.verdict.topic("richness").answer == result.verdict.topic("repair").answer == "cannot tell"


class OddHead(nn.Module):
    """Ends in a convolution: nothing enters a last linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU())
        self.last = nn.Conv2d(4, 10, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.body(x)).flatten(1)


def test_a_model_without_a_linear_head_is_audited_as_far_as_it_goes(tmp_path):
    with torch.random.fork_rng(devices=[]), ut.Recorder(tmp_path / "run") as recorder:
        torch.manual_seed(0)
        for at in range(2):
            recorder.save(OddHead(), at)
    run = ut.open_run(tmp_path / "run", model=OddHead)
    result = ut.audit(run, ut.load_data("digits"), layers="body", **LIGHT)
    assert "accuracy" in measures(result.table, "latent")
    assert not measures(result.table, "richness")
    assert result.verdict.topic("richness").answer == "cannot tell"
    reasons = result.table[(result.table["lens"] == "repair") & result.table["value"].isna()]["note"]
    assert reasons.str.startswith("head: ").any()


# ---------------------------------------------------------------------- what is refused, and small parts


@pytest.mark.parametrize(
    ("given", "settings", "error", "words"),
    [
        ({}, {"layers": "layr1"}, UnknownName, "Did you mean 'layer1'"),
        ({}, {"probes": "mask"}, UnknownName, "Did you mean 'masc'"),
        ({}, {"lenses": "latnt"}, UnknownName, "Did you mean 'latent'"),
        ({}, {"checkpoints": [7]}, BadValue, "The nearest are"),
        ({}, {"quik": True}, UnknownName, "Did you mean 'quick'"),
        ({}, {"labels": "dirty"}, BadValue, "clean, noisy or none"),
        ({}, {"memory": "much"}, BadValue, "much"),
        ({"train": (torch.zeros(4, 1, 8, 8), torch.arange(4))}, {}, BadValue, "not trained on"),
        ({"test": torch.zeros(4, 7)}, {}, BadData, "cannot take samples of shape"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_before_anything_is_computed(trained, tmp_path, given, settings, error, words):
    with pytest.raises(error, match=words):
        ut.audit(trained("clean"), out=tmp_path / "out", **given, **settings)
    assert not (tmp_path / "out").exists()


def test_a_run_without_data_says_so(spoiled):
    with pytest.raises(NotThere, match="Give the data"):
        ut.audit(spoiled(lambda model: None))


def test_thinned_keeps_both_ends():
    assert thinned(range(100), 5) == (0, 25, 50, 74, 99)
    assert thinned([3, 5], 8) == (3, 5)
    assert thinned([3, 5, 9], 1) == (9,)
