"""The probe grid on a real memorising run: its numbers, its routes, what it keeps and what it skips."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch
from scipy.stats import binomtest

import undertow as ut
from undertow.errors import BadData, BadValue, UnknownName
from undertow.latent import KNN, LDA, MASC, VeLPIC
from undertow.latent.grid import probe_grid
from undertow.latent.settings import GridConfig
from undertow.rows import COLUMNS
from undertow.session import Session
from undertow.session.session import FRESH

CONFIG = ut.TrainConfig("mlp:48-40", data="digits", noise="0.4", epochs=6, checkpoints="0,2,6", device="cpu")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> ut.Run:
    return ut.train(CONFIG, tmp_path_factory.mktemp("grid") / "run")


def value(table: pd.DataFrame, **where: object) -> float:
    kept = table
    for name, wanted in where.items():
        kept = kept[kept[name] == wanted]
    assert len(kept) == 1, f"{len(kept)} rows for {where}"
    return float(kept["value"].iloc[0])


def features(run: ut.Run, at: int, layer: str, x: torch.Tensor) -> torch.Tensor:
    """The activation by hand, without taps or streams."""
    model, inputs = run.model(at), x * 2 - 1
    with torch.no_grad():
        first = model.layer1(inputs.flatten(1))
        return {"input": inputs.flatten(1), "layer1": first, "layer2": model.layer2(first)}[layer]


def test_every_number_against_probes_fitted_by_hand(run: ut.Run, tmp_path: Path):
    table = probe_grid(run, out=tmp_path, probes=["masc", "velpic", "lda", "knn"])
    data = run.data()
    for at, layer in [(0, "layer1"), (6, "layer2"), (6, "input")]:
        train, test = (features(run, at, layer, part.x) for part in (data.train, data.test))
        for name, kind in {"masc": MASC, "velpic": VeLPIC, "lda": LDA, "knn": KNN}.items():
            for fit, labels in {"given": data.train.y, "true": data.train.true}.items():
                probe = kind().fit(train, labels)
                where = {"checkpoint": at, "layer": layer, "probe": name, "fit": fit, "measure": "accuracy"}
                expected = float((probe.predict(test) == data.test.y).double().mean())
                # Batches of other sizes round differently: at most one answer in 500 may tip.
                assert abs(value(table, **where, split="test", labels="true") - expected) <= 1 / 500
                expected = float((probe.predict(train) == data.train.y).double().mean())
                got = value(table, **where, split="train", labels="given")
                assert abs(got - expected) <= 2 / len(data.train)
    own = value(table, checkpoint=6, probe="model", split="test")
    assert own == pytest.approx(run.metrics["test_accuracy"].iloc[-1])


def test_dimensions_and_controls(run: ut.Run, tmp_path: Path):
    table = probe_grid(run, out=tmp_path, probes="masc")
    sizes = table[table["measure"] == "dimension"]
    assert len(sizes) == 3 * 3 * 3
    assert (sizes["low"] <= sizes["value"]).all()
    assert (sizes["value"] <= sizes["high"]).all()
    scores = table[(table["measure"] == "accuracy") & (table["split"] == "test")]
    shuffled = scores[scores["fit"] == "shuffled"]["value"]
    given = scores[(scores["fit"] == "given") & (scores["probe"] == "masc")]["value"]
    assert shuffled.max() < 0.35 < 0.5 < given.min()
    assert set(scores[scores["checkpoint"] == 0]["layer"]) == {"input", "layer1", "layer2", "output"}


def test_intervals_are_wilsons_and_columns_those_of_all_tables(run: ut.Run, tmp_path: Path):
    table = probe_grid(run, out=tmp_path, probes="mean", fits="given", checkpoints="last")
    assert tuple(table.columns) == COLUMNS
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "probes.parquet"), table)
    for _, row in table[table["measure"] == "accuracy"].iterrows():
        wanted = binomtest(round(row["value"] * row["n"]), row["n"]).proportion_ci(0.95, method="wilson")
        assert (row["low"], row["high"]) == pytest.approx((wanted.low, wanted.high), abs=1e-12)


@pytest.mark.parametrize("memory", ["1.3MB", "2GB"])
def test_a_small_budget_changes_the_route_and_not_the_answer(run: ut.Run, tmp_path: Path, memory: str):
    options = {"probes": ["masc", "velpic", "mean"], "fits": ["given", "true"]}
    held = probe_grid(run, out=tmp_path / "a", checkpoints="last", **options)
    session = Session(run, out=tmp_path / "b", checkpoints="last", memory=memory)
    other = probe_grid(session, **options)
    # Layers that do not fit are streamed: once for moments and once for answers of each set of labels.
    assert (session.passed[6, "train"] > 3 * 1297) == (memory == "1.3MB")
    assert (session.passed[6, "train"] == 1297) == (memory == "2GB")
    keys = ["layer", "probe", "fit", "measure", "split", "labels"]
    both = held.merge(other, on=keys, suffixes=("_held", "_other"))
    assert len(both) == len(held) == len(other)
    assert (
        both["value_held"] - both["value_other"]
    ).abs().max() <= 0.0041  # dimensions agree, answers may tip
    assert both[both["measure"] == "dimension"]["value_held"].equals(
        both[both["measure"] == "dimension"]["value_other"]
    )


def test_wide_layers_go_through_files(tmp_path: Path):
    """More features than samples in a class: the Gram route, on disk."""
    config = replace(CONFIG, model="mlp:900", epochs=1, checkpoints="1")
    run = ut.train(config, tmp_path / "run")
    options = {
        "layers": "layer1",
        "probes": ["masc", "velpic", "logistic"],
        "fits": "given",
        "checkpoints": "last",
    }
    held = probe_grid(run, out=tmp_path / "a", **options)
    wide = probe_grid(run, out=tmp_path / "b", memory="16MB", **options)
    where = {"split": "test", "measure": "accuracy"}
    for probe in ("masc", "velpic"):
        assert value(held, probe=probe, **where) == pytest.approx(
            value(wide, probe=probe, **where), abs=0.0041
        )
    reason = wide[(wide["probe"] == "logistic") & (wide["n"] == 0)]["note"].iloc[0]
    assert "needs the layer's features in memory" in reason
    assert value(held, probe="logistic", **where) > 0.5
    again = probe_grid(run, out=tmp_path / "b", **options)
    assert value(again, probe="logistic", **where) > 0.5, (
        "a reason is no number: with more memory it is filled in"
    )


def test_what_is_done_is_not_done_again(run: ut.Run, tmp_path: Path, monkeypatch):
    out = tmp_path
    first = probe_grid(run, out=out, probes="masc", fits="given", checkpoints="0,2")
    fitted: list[str] = []
    original = MASC.fit_each
    monkeypatch.setattr(MASC, "fit_each", lambda self, *a: fitted.append("masc") or original(self, *a))
    again = probe_grid(run, out=out, probes="masc", fits="given", checkpoints="0,2")
    assert not fitted
    pd.testing.assert_frame_equal(first, again)
    more = probe_grid(run, out=out, probes="masc", fits="given", checkpoints="all")
    assert len(fitted) == 2, "two layers of the one new checkpoint; the input is the same at all"
    assert len(more) == len(first) * 3 // 2
    assert not more.duplicated(["checkpoint", "layer", "probe", "fit", "measure", "split", "labels"]).any()


def test_another_set_up_has_rows_of_its_own(run: ut.Run, tmp_path: Path):
    out = tmp_path
    options = {"probes": "mean", "fits": "given", "checkpoints": "last"}
    first = probe_grid(run, out=out, **options)
    fewer = probe_grid(run, out=out, samples=200, **options)
    assert set(fewer["n"]) == {200}
    assert set(first["n"]) == {500, 1297}
    pd.testing.assert_frame_equal(probe_grid(run, out=out, **options), first)


def test_a_killed_grid_goes_on(run: ut.Run, tmp_path: Path):
    """Kill -9 while the second checkpoint is measured; the first one's values are there and are not made again."""
    code = (
        "import undertow as ut, sys\n"
        "from undertow.session import NoProgress\n"
        "class Slow(NoProgress):\n"
        "    def step(self, label, share): sys.stdin.read()\n"
        f"ut.probe_grid(ut.open_run({str(run.path)!r}), out={str(tmp_path)!r}, probes='masc', progress=Slow())\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "OMP_NUM_THREADS": "1"}, stdin=subprocess.PIPE
    )
    end = time.monotonic() + 600
    # The input is probed once for all checkpoints, the other two layers and the answers at each.
    while len(list((tmp_path / "cache").glob("*.bin"))) < 4 and time.monotonic() < end:
        time.sleep(0.01)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").glob("*.bin")}
    assert {path.name[-12:-4] for path in kept} == {"00000000"}
    assert not (tmp_path / "probes.parquet").exists()
    went_on = probe_grid(run, out=tmp_path, probes="masc")
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    whole = probe_grid(run, out=tmp_path / "whole", probes="masc")
    pd.testing.assert_frame_equal(went_on, whole)


def test_foreign_checkpoints_and_a_fresh_model_as_control(tmp_path: Path):
    data = ut.load_data("blobs:classes=3")

    def build() -> torch.nn.Module:
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))

    torch.save(build().state_dict(), tmp_path / "epoch_5.pt")
    run = ut.open_run(tmp_path, model=build)
    table = probe_grid(
        run, train=(data.train.x, data.train.y), test=(data.test.x, data.test.y), probes="mean"
    )
    assert sorted(set(table["checkpoint"])) == [FRESH, 5]
    assert set(table["fit"]) == {"given", "shuffled"}, "true labels are unknown here"
    with pytest.raises(BadValue, match="a training and a test split with labels, got 'no test samples'"):
        probe_grid(run, train=(data.train.x, data.train.y))


def test_bad_names(run: ut.Run, tmp_path: Path):
    with pytest.raises(UnknownName, match="Did you mean 'velpic'"):
        GridConfig(probes=("velpc",))
    with pytest.raises(UnknownName, match="Did you mean 'shuffled'"):
        GridConfig(fits=("shufled",))
    with pytest.raises(UnknownName, match="Did you mean 'layer1'"):
        probe_grid(run, layers="layr1", out=tmp_path)
    with pytest.raises(BadValue, match="The nearest are"):
        probe_grid(run, checkpoints="3", out=tmp_path)
    with pytest.raises(BadValue):
        GridConfig(memory="much")


PEAK = """
import resource, sys, torch, undertow as ut
torch.set_num_threads(1)
count, folder = int(sys.argv[1]), sys.argv[2]
source = torch.Generator().manual_seed(0)
x, y = torch.randn(count, 16, generator=source), torch.arange(count) % 4
build = lambda: ut.build_model("mlp:512", (16,), 4, seed=0)
torch.save(build().state_dict(), folder + "/epoch_1.pt")
run = ut.open_run(folder, model=build)
ut.probe_grid(run, train=(x, y), test=(x[:500], y[:500]), layers="layer1", probes=["masc", "velpic"], fits="given",
              checkpoints="last", memory="40MB", out=f"{folder}/{count}")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def test_the_memory_budget_is_kept_while_samples_grow_tenfold(tmp_path: Path):
    """Held in memory, the features of 40,000 samples would take 74 MB more than those of 4,000 do."""
    peaks = []
    for count in (4_000, 40_000):
        command = [sys.executable, "-c", PEAK, str(count), str(tmp_path)]
        peaks.append(
            int(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1])
        )
    samples = 36_000 * (16 * 4 + 8) * 3  # the samples themselves, as arrays, tensors and sorted by class
    assert peaks[1] - peaks[0] < samples + 30e6


LDA_PEAK = """
import re, sys, torch
from pathlib import Path
from undertow.latent import LDA
torch.set_num_threads(1)
def taken(what):
    return 1024 * int(re.search(what + r":\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
count, dim = int(sys.argv[1]), int(sys.argv[2])
rows, labels = torch.randn(count, dim), torch.arange(count) % 4
LDA().fit(rows[:200, :20], labels[:200])
Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
before = taken("VmRSS")
LDA().fit(rows, labels)
print(taken("VmHWM") - before, LDA().fit_bytes(count, dim, 4))
"""


@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="needs Linux, to forget a peak of memory"
)
@pytest.mark.parametrize(("count", "dim"), [(2500, 1500), (1000, 2500)])
def test_lda_takes_no_more_memory_than_it_says(count: int, dim: int):
    command = [sys.executable, "-c", LDA_PEAK, str(count), str(dim)]
    taken, said = map(int, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    assert said / 4 < taken < said + 10e6


def test_lda_beyond_the_budget_is_a_reason(tmp_path: Path):
    data = ut.load_data("blobs:classes=3")
    torch.save(ut.build_model("mlp:1500", (2,), 3, seed=0).state_dict(), tmp_path / "epoch_1.pt")
    run = ut.open_run(tmp_path, model=lambda: ut.build_model("mlp:1500", (2,), 3, seed=0))
    options = {"probes": ["lda", "mean"], "fits": "given", "checkpoints": "last", "layers": "layer1"}
    scarce = probe_grid(run, data, **options, memory="40MB", out=tmp_path / "a")
    notes = scarce[scarce["probe"] == "lda"]["note"]
    assert notes.str.contains("lda needs .* for the matrices of a layer of width 1500, --memory leaves").all()
    assert (scarce[scarce["probe"] == "mean"]["n"] > 0).all()
    enough = probe_grid(run, data, **options, memory="1GB", out=tmp_path / "b")
    assert (enough[enough["probe"] == "lda"]["n"] > 0).all()


def test_other_weights_are_other_numbers(tmp_path: Path):
    """Fails if rows are kept by the checkpoint's number alone."""
    data = ut.load_data("blobs:classes=3")

    def save(seed: int) -> ut.Run:
        torch.save(ut.build_model("mlp:8", (2,), 3, seed=seed).state_dict(), tmp_path / "epoch_5.pt")
        return ut.open_run(tmp_path, model=lambda: ut.build_model("mlp:8", (2,), 3, seed=0))

    options = {"probes": "mean", "fits": "given", "checkpoints": "last", "layers": "layer1"}
    first, second = probe_grid(save(1), data, **options), probe_grid(save(2), data, **options)
    assert not first["value"].equals(second["value"])


def test_only_what_is_asked_for_is_answered(run: ut.Run, tmp_path: Path):
    probe_grid(run, out=tmp_path, probes="mean", checkpoints="last")
    only = probe_grid(run, out=tmp_path, probes="mean", checkpoints="last", fits="true")
    assert set(only[only["probe"] == "mean"]["fit"]) == {"true"}


def test_a_probe_that_does_not_go_is_a_reason_and_not_the_end(run: ut.Run, tmp_path: Path):
    table = probe_grid(run, out=tmp_path, probes=["qda", "mean"], checkpoints="last", fits="given")
    failed = table[(table["probe"] == "qda") & (table["n"] == 0)]
    assert len(failed)
    assert failed["note"].str.contains("QDA").all()
    assert (table[table["probe"] == "mean"]["n"] > 0).all()


def test_a_scalar_output_is_read_as_it_was_trained(tmp_path: Path):
    config = ut.TrainConfig(
        "mlp:16",
        data="heaviside",
        loss="mse",
        target="scalar",
        epochs=15,
        lr=1e-2,
        checkpoints="15",
        device="cpu",
    )
    run = ut.train(config, tmp_path / "run")
    table = probe_grid(run, probes="mean", fits="given", checkpoints="last")
    own = value(table, probe="model", split="test")
    assert own == pytest.approx(run.metrics["test_accuracy"].iloc[-1])
    assert own > 0.9


def test_the_fresh_model_is_the_same_each_time_and_costs_no_random_numbers(tmp_path: Path):
    data = ut.load_data("blobs:classes=3")
    torch.save(torch.nn.Linear(2, 3).state_dict(), tmp_path / "epoch_1.pt")
    run = ut.open_run(tmp_path, model=lambda: torch.nn.Linear(2, 3))
    tables = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        state = torch.get_rng_state()
        tables.append(probe_grid(run, data, layers="input", probes="mean", out=tmp_path / str(seed)))
        assert torch.equal(state, torch.get_rng_state())
    pd.testing.assert_frame_equal(*tables)


def test_checkpoints_as_numbers_and_data_that_do_not_fit(run: ut.Run, tmp_path: Path):
    options = {"out": tmp_path, "probes": "mean", "fits": "given"}
    assert set(probe_grid(run, checkpoints=[0, 6], **options)["checkpoint"]) == {0, 6}
    assert set(probe_grid(run, checkpoints=2, **options)["checkpoint"]) == {2}
    with pytest.raises(BadData, match=r"cannot take samples of shape \(2,\)"):
        probe_grid(run, ut.load_data("blobs"), **options)
    with pytest.raises(BadValue, match=r"wanted a list of names, got .*Known: masc, velpic"):
        GridConfig(probes=(MASC(),))
