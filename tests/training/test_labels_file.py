"""Training on the labels of a file: cleaned ones, fewer samples, the same bits, and what is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet

import undertow as ut
from undertow.cli import main
from undertow.cli.train import default_name
from undertow.data.samples import Samples
from undertow.errors import BadData, BadValue, NotThere, RunProblem, UndertowError, UnknownName
from undertow.training.labels_file import COPY, LabelsFile, inputs_mark
from undertow.training.prepare import load_source, prepare_data

NOISY = ut.TrainConfig(
    "mlp:256-256", data="digits", noise="0.4", epochs=25, lr=2e-3, checkpoints="every:5", device="cpu"
)
CLEANED = replace(NOISY, noise="0")


def write(path: Path, sample: object, label: object, mark: str | None = None) -> Path:
    """A labels file as someone else's program would write it."""
    table = pa.table({"sample": sample, "label": label})
    if mark is not None:
        table = table.replace_schema_metadata({"undertow.data": mark})
    if path.suffix == ".parquet":
        parquet.write_table(table, path)
    else:
        table.to_pandas().to_csv(path, index=False)
    return path


def tensors(run: ut.Run) -> dict[tuple[int, str], torch.Tensor]:
    return {(at, name): value for at in run.epochs for name, value in run.weights(at).items()}


def same_weights(one: ut.Run, other: ut.Run) -> bool:
    first, second = tensors(one), tensors(other)
    return first.keys() == second.keys() and all(torch.equal(first[key], second[key]) for key in first)


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> ut.Run:
    return ut.train(NOISY, tmp_path_factory.mktemp("noisy") / "run")


def true_labels(run: ut.Run) -> torch.Tensor:
    true = run.data().train.true
    assert true is not None
    return true


def test_clean_labels_give_back_what_noise_took(noisy: ut.Run, tmp_path: Path):
    everyone = torch.arange(len(noisy.data().train))
    noisy.labels_file(everyone, true_labels(noisy)).write(tmp_path / "cleaned.parquet")
    cleaned = ut.train(replace(CLEANED, labels=str(tmp_path / "cleaned.parquet")), tmp_path / "run")
    before, after = noisy.metrics.test_accuracy.iloc[-1], cleaned.metrics.test_accuracy.iloc[-1]
    assert after > before + 0.1
    assert after > 0.9


def test_the_noisy_labels_in_a_file_train_to_the_bits_of_the_noisy_run(noisy: ut.Run, tmp_path: Path):
    """Fails if the file changes the order of samples, the inputs or the seeds."""
    data = noisy.data().train
    shuffled = torch.randperm(len(data), generator=torch.Generator().manual_seed(0))
    write(tmp_path / "given.parquet", shuffled.numpy(), data.y[shuffled].numpy())
    again = ut.train(replace(CLEANED, labels=str(tmp_path / "given.parquet")), tmp_path / "run")
    assert same_weights(noisy, again)
    pd.testing.assert_frame_equal(noisy.labels, again.labels)  # the true ones as well
    assert noisy.data().fingerprint == again.data().fingerprint


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_samples_that_are_not_listed_are_left_out(tmp_path: Path, ending: str):
    source = load_source(CLEANED).train
    kept = np.flatnonzero(np.arange(len(source)) % 3 != 0)
    label = (source.y[torch.from_numpy(kept)].numpy() + 1) % 10
    file = write(tmp_path / f"some.{ending}", kept[::-1], label[::-1])
    config = replace(CLEANED, labels=str(file), epochs=1)
    run = ut.train(config, tmp_path / "run")
    file.unlink()

    data = run.data().train  # from the run's own copy
    assert torch.equal(data.x, source.x[torch.from_numpy(kept)])
    assert data.y.tolist() == label.tolist()
    assert data.true is not None
    assert data.true.tolist() == source.y[torch.from_numpy(kept)].tolist()
    assert run.labels is not None
    assert run.labels["given"].tolist() == label.tolist()
    assert run.labels["true"].tolist() == data.true.tolist()
    assert run.labels["index"].tolist() == source.index[torch.from_numpy(kept)].tolist()
    facts = json.loads((run.path / "run.json").read_text())
    assert facts["data"]["train"] == len(kept)
    assert facts["data"]["labels"] == {"file": str(file), "content": LabelsFile.read(run.path / COPY).mark}


def test_a_run_without_a_labels_file_says_nothing_of_one(noisy: ut.Run):
    facts = json.loads((noisy.path / "run.json").read_text())
    assert "labels" not in facts["data"]
    assert not (noisy.path / COPY).exists()
    assert "labels" not in NOISY.changes()


def test_of_own_data_the_true_labels_stay_unknown(tmp_path: Path):
    """The file may be what is right: the labels that it corrects must not pass for the truth."""
    source = load_source(CLEANED)
    own = ut.DataSet("mine", source.train, source.test, source.classes)
    label = source.train.y.clone()
    label[:50] = (label[:50] + 1) % 10
    file = LabelsFile.of(torch.arange(len(label)), label)
    assert prepare_data(CLEANED, own, labels=file).train.true is None
    # unless it is said that they are known
    known = replace(own, train=replace(own.train, true=source.train.y))
    true = prepare_data(CLEANED, known, labels=file).train.true
    assert true is not None
    assert torch.equal(true, source.train.y)


def test_a_second_cleaning_counts_samples_as_the_source_does(noisy: ut.Run, tmp_path: Path):
    """A run on a part of the samples knows which they were: its row 0 need not be sample 0."""
    rows = torch.arange(10, len(noisy.data().train), 2)
    noisy.labels_file(rows, noisy.data().train.y[rows]).write(tmp_path / "once.parquet")
    once = ut.train(replace(CLEANED, labels=str(tmp_path / "once.parquet"), epochs=0), tmp_path / "once")
    again = once.labels_file(torch.tensor([5, 0]), torch.tensor([3, 4]))
    assert again.sample.tolist() == [10, 20]
    assert again.label.tolist() == [4, 3]
    assert again.inputs == inputs_mark(load_source(CLEANED).train)
    again.write(tmp_path / "twice.parquet")
    twice = prepare_data(replace(CLEANED, labels=str(tmp_path / "twice.parquet"))).train
    assert torch.equal(twice.x, load_source(CLEANED).train.x[[10, 20]])


def test_the_inputs_mark_knows_nothing_of_labels_but_all_of_inputs(noisy: ut.Run):
    data = noisy.data().train
    assert inputs_mark(data) == inputs_mark(load_source(CLEANED).train)
    assert inputs_mark(data.take(torch.arange(9))) != inputs_mark(data.take(torch.arange(1, 10)))
    other = data.x.clone()
    other[-1, 0, 0, 0] += 0.5
    assert inputs_mark(replace(data, x=other)) != inputs_mark(data)


def test_labels_of_other_samples_are_refused(noisy: ut.Run, tmp_path: Path):
    rows = torch.arange(len(noisy.data().train))
    noisy.labels_file(rows, noisy.data().train.y).write(tmp_path / "cleaned.parquet")
    other = replace(CLEANED, labels=str(tmp_path / "cleaned.parquet"), data="mnist1d")
    with pytest.raises(BadData, match=r"wanted the training samples it was made for .*, got others"):
        ut.train(other, tmp_path / "run")
    smaller = replace(CLEANED, labels=str(tmp_path / "cleaned.parquet"), train_size=500)
    with pytest.raises(BadData, match="the sizes and the noise seed of the run it came from"):
        ut.train(smaller, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_content_mark_is_of_the_content(tmp_path: Path):
    one = LabelsFile.read(write(tmp_path / "a.parquet", [3, 1, 2], [0, 1, 2]))
    other = LabelsFile.read(write(tmp_path / "b.csv", [1, 2, 3], [1, 2, 0]))
    assert one.mark == other.mark
    for sample, label in (([1, 2, 3], [1, 2, 1]), ([1, 2, 4], [1, 2, 0]), ([1, 2], [1, 2])):
        assert LabelsFile.read(write(tmp_path / "c.parquet", sample, label)).mark != one.mark


def test_a_file_written_by_pandas_and_read_back(tmp_path: Path):
    """Whole floats are taken, as spreadsheets write them; other columns are passed over."""
    table = pd.DataFrame({"label": [1.0, 0.0], "note": ["a", "b"], "sample": [7, 4]}, index=[5, 6])
    table.to_parquet(tmp_path / "a.parquet")
    read = LabelsFile.read(tmp_path / "a.parquet")
    assert (read.sample.tolist(), read.label.tolist()) == ([4, 7], [0, 1])
    assert read.sample.dtype == read.label.dtype == torch.int64
    read.write(tmp_path / "b.parquet")
    assert LabelsFile.read(tmp_path / "b.parquet").mark == read.mark


def test_label_files_as_they_are_published(tmp_path: Path):
    """CIFAR-N comes as a dict of arrays in the order of the set, without sample numbers."""
    true = ut.load_data("digits").train.y
    people = np.where(np.random.default_rng(0).random(len(true)) < 0.2, 7, true.numpy())
    pt, table, array = (tmp_path / name for name in ("human.pt", "human.csv", "human.npy"))
    torch.save({"clean_label": true.numpy(), "worse_label": people, "time": np.ones((9, 2))}, pt)
    pd.DataFrame({"worse_label": people, "clean_label": true}).to_csv(table, index=False)
    np.save(array, people)
    read = [LabelsFile.read(Path(name)) for name in (f"{pt}:worse_label", f"{table}:worse_label", str(array))]
    assert len({one.mark for one in read}) == 1
    assert read[0].label.tolist() == people.tolist()
    source = load_source(CLEANED).train
    given = read[0].apply(source, 10, known=True)
    assert torch.equal(given.true, true)
    with pytest.raises(UnknownName, match="Did you mean 'worse_label'"):
        LabelsFile.read(Path(f"{pt}:worst_label"))
    with pytest.raises(UnknownName, match="Did you mean 'worse_label' or 'clean_label'"):
        LabelsFile.read(table)
    np.save(array, people[:100])
    with pytest.raises(BadData, match="a label for each of 1297 training samples in their order, got 100"):
        LabelsFile.read(array).apply(source, 10, known=True)


def test_a_column_of_a_file_is_trained_on(tmp_path: Path):
    true = ut.load_data("digits").train.y
    pd.DataFrame({"worse": (true + 1) % 10, "label": true}).to_parquet(tmp_path / "people.parquet")
    run = ut.train(
        replace(CLEANED, labels=f"{tmp_path}/people.parquet:worse", epochs=1, checkpoints="1"),
        tmp_path / "run",
    )
    assert torch.equal(run.data().train.y, (true + 1) % 10)
    assert torch.equal(ut.open_run(tmp_path / "run").data().train.true, true)


BAD: dict[str, tuple[dict[str, list[object]], type[UndertowError], str]] = {
    "near name": ({"samples": [0], "label": [1]}, UnknownName, "no column in .*'sample'. Did you mean 'samples'"),
    "other names": ({"x": [0], "y": [1]}, UnknownName, "A labels file has the columns sample and label"),
    "twice": ({"sample": [4, 2, 4], "label": [1, 1, 2]}, BadData, "each sample once, got sample 4 2 times"),
    "beyond": ({"sample": [0, 99999], "label": [1, 2]}, BadData, "sample numbers from 0 to 1296, got 99999 .1 such"),
    "negative": ({"sample": [-1, 3], "label": [1, 2]}, BadData, "sample numbers from 0 to 1296, got -1"),
    "no class": ({"sample": [0, 8], "label": [1, 10]}, BadData, "class numbers from 0 to 9, got 10 for 8"),
    "missing": ({"sample": [0, 1], "label": [1, None]}, BadData, "in column label, got none in row 1"),
    "NaN": ({"sample": [0, 1], "label": [float("nan"), 1.0]}, BadData, "in column label, got (nan|none) in row 0"),
    "fraction": ({"sample": [0, 1], "label": [1.0, 2.5]}, BadData, "column label, got 2.5 in row 1"),
    "infinity": ({"sample": [0, 1], "label": [1.0, float("inf")]}, BadData, "column label, got inf in row 1"),
    "words": ({"sample": [0, 1], "label": ["cat", "dog"]}, BadData, "in column label, got string, 'cat'"),
    "empty": ({"sample": [], "label": []}, BadData, "wanted at least one sample, got an empty table"),
    "one class": ({"sample": [0, 1], "label": [3, 3]}, BadData, "wanted two classes or more, got only class 3"),
}  # fmt: skip


@pytest.mark.parametrize("ending", ["parquet", "csv"])
@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_answered_with_a_sentence(case: str, ending: str, tmp_path: Path):
    columns, kind, words = BAD[case]
    file = tmp_path / f"labels.{ending}"
    if ending == "csv":
        pd.DataFrame(columns).to_csv(file, index=False)
    else:
        parquet.write_table(pa.table(columns), file)
    with pytest.raises(kind, match=words):
        ut.train(replace(CLEANED, labels=str(file)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_files_that_are_no_tables(tmp_path: Path):
    with pytest.raises(NotThere, match=r"There is no labels file .*gone\.parquet"):
        LabelsFile.read(tmp_path / "gone.parquet")
    (tmp_path / "torn.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(BadData, match=r"torn\.parquet: wanted a table of labels, but it cannot be read"):
        LabelsFile.read(tmp_path / "torn.parquet")
    (tmp_path / "nothing.csv").touch()
    with pytest.raises(BadData, match=r"nothing\.csv: wanted a table of labels"):
        LabelsFile.read(tmp_path / "nothing.csv")
    with pytest.raises(
        BadValue, match=r"wanted a \.parquet or \.csv or \.npy or \.pt file, got '.*labels\.xlsx'"
    ):
        LabelsFile.read(tmp_path / "labels.xlsx")


def test_noise_besides_a_labels_file_is_refused():
    with pytest.raises(
        BadValue, match=r"no label noise besides the file's labels, got '0\.4'. Leave --noise out"
    ):
        replace(NOISY, labels="cleaned.parquet")


def test_resume_goes_by_the_content(tmp_path: Path):
    source = load_source(CLEANED).train
    file = write(tmp_path / "a.parquet", np.arange(200), source.y[:200].numpy())
    config = replace(CLEANED, labels=str(file), epochs=2)
    ut.train(config, tmp_path / "run")

    elsewhere = write(tmp_path / "moved.csv", np.arange(200), source.y[:200].numpy())
    longer = ut.train(replace(config, labels=str(elsewhere), epochs=3), tmp_path / "run", resume=True)
    assert longer.epochs[-1] == 3

    write(file, np.arange(200), (source.y[:200].numpy() + 1) % 10)
    with pytest.raises(
        RunProblem, match=r"settings it was started with \(labels = 'content [0-9a-f]{16}'\), got 'con"
    ):
        ut.train(replace(config, epochs=4), tmp_path / "run", resume=True)
    with pytest.raises(RunProblem, match=r"labels = 'content [0-9a-f]{16}'\), got None"):
        ut.train(replace(CLEANED, epochs=4), tmp_path / "run", resume=True)


def test_killed_and_resumed_it_ends_with_the_same_bits(noisy: ut.Run, tmp_path: Path):
    rows = torch.arange(0, len(noisy.data().train), 2)
    noisy.labels_file(rows, true_labels(noisy)[rows]).write(tmp_path / "cleaned.parquet")
    command = [
        sys.executable, "-m", "undertow", "train", "mlp:64-64,dropout=0.2", "--data", "digits", "--epochs", "40",
        "--checkpoints", "every:5", "--device", "cpu", "--quiet", "--labels", str(tmp_path / "cleaned.parquet"),
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    killed = subprocess.Popen([*command, "--out", str(tmp_path / "killed")], env=environment)
    awaited, end = tmp_path / "killed/checkpoints/epoch-000005.safetensors", time.monotonic() + 600
    while not awaited.exists() and killed.poll() is None and time.monotonic() < end:
        time.sleep(0.002)
    killed.send_signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL, "too quick to be killed: the test would prove nothing"
    for name in ("killed", "whole"):
        subprocess.run([*command, "--out", str(tmp_path / name), "--resume"], env=environment, check=True)
    resumed, whole = ut.open_run(tmp_path / "killed"), ut.open_run(tmp_path / "whole")
    assert whole.epochs == (0, 5, 10, 15, 20, 25, 30, 35, 40)
    assert same_weights(resumed, whole)
    assert resumed.data().fingerprint == whole.data().fingerprint


def test_an_edit_in_mid_training_sees_the_labels_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Through the command line, and though the file is gone by then: the run has its own copy."""
    source = load_source(CLEANED).train
    file = write(tmp_path / "a.csv", np.arange(300), (source.y[:300].numpy() + 1) % 10)
    seen: list[Samples] = []

    def edit(model: torch.nn.Module, data: ut.DataSet) -> None:
        seen.append(data.train)

    monkeypatch.setattr("undertow.repairing.write_probe_into_head", edit)
    monkeypatch.setattr("undertow.training.loop.Trainer.go_on", _without(file))
    arguments = ["train", "mlp:16", "--data", "digits", "--epochs", "2", "--device", "cpu", "--quiet"]
    code = main([*arguments, "--labels", str(file), "--edit-at", "1", "--out", str(tmp_path / "run")])
    assert code in (None, 0)
    assert len(seen) == 1
    assert seen[0].y.tolist() == ((source.y[:300] + 1) % 10).tolist()


def _without(file: Path):
    from undertow.training.loop import Trainer

    go_on = Trainer.go_on

    def delete_and_go_on(self: Trainer) -> str:
        file.unlink()
        return go_on(self)

    return delete_and_go_on


def test_a_default_folder_tells_the_run_from_the_noisy_one():
    assert (
        default_name(replace(CLEANED, labels="some/where/cleaned.parquet"))
        == "digits-mlp-256-256-labels=cleaned"
    )
    assert default_name(CLEANED) == "digits-mlp-256-256"
