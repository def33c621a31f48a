"""`undertow labels` as a person meets it: suspects on the screen, files, a cleaned run, refusals."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import undertow as ut
from undertow.cli import main
from undertow.report.gallery import suspects


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    config = ut.TrainConfig(
        model="mlp:256-256-256", data="digits", noise="0.4", epochs=60, device="cpu", checkpoints="0,1,2,4,60"
    )
    return ut.train(config, tmp_path_factory.mktemp("runs") / "noisy")


def test_suspects_on_the_screen_and_in_the_folder(capsys, run, tmp_path):
    out, probs = tmp_path / "all.csv", tmp_path / "probs.npy"
    code = main(
        ["labels", str(run.path), "--top", "3", "--out", str(out), "--pred-probs", str(probs), "--choose"]
    )
    said = capsys.readouterr().out
    assert code == 0
    assert re.search(r"\d % of the labels are wrong|cannot tell", said.lower())
    assert "proposed" in said
    assert "is the checkpoint to use, as far as noisy labels can tell" in said
    assert re.search(rf"repair {re.escape(str(run.path))} --checkpoint \d+ --layer \S+ --out", said)
    assert "on layer layer" not in said
    assert "True labels are known here" in said
    assert len(pd.read_csv(out)) == 1297
    assert np.load(probs).shape == (1297, 10)
    pictures = suspects(run.path, [str(digit) for digit in range(10)])
    assert len(pictures) == 120


def test_cleaned_labels_are_trained_on(capsys, run, tmp_path):
    cleaned = tmp_path / "cleaned.parquet"
    assert main(["labels", str(run.path), "--clean", "drop", "--cleaned", str(cleaned), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert str(cleaned) in told["written"]
    assert 0 <= told["rate_low"] < told["rate_high"] <= 1
    assert len(told["suspects"]) == 20
    again = tmp_path / "again"
    arguments = [
        "mlp:256-256-256",
        "--data",
        "digits",
        "--labels",
        str(cleaned),
        "--epochs",
        "20",
        "--out",
        str(again),
    ]
    assert main(["train", *arguments]) == 0
    before, after = (one.metrics["test_accuracy"].iloc[-1] for one in (run, ut.open_run(again)))
    assert after > before + 0.1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--clean", "relable", "--cleaned", "a.parquet"], 'Did you mean "relabel"'),
        (["--clean", "drop"], "Add --cleaned"),
        (["--cleaned", "a.txt"], "a .parquet or .csv file"),
        (["--top", "-1"], "0 or more"),
        (["--checkpoints", "one"], "wanted all, last, every:5 or a list"),
        (["--checkpoints", "3"], "The nearest are"),
        (["--layers", "layer9"], "layer9"),
        (["--held-out", "nosy"], 'Did you mean "noisy"'),
        (["--folds", "1"], "2 or more"),
        (["--out", "a.xlsx"], ".csv"),
        (["--features", "a.npy", "--labels", "y.csv"], "got both. Leave one of them out"),
        (["--texts", "none.txt"], "there is no file none.txt"),
        (["--to-fiftyone", "a.json"], "a .jsonl file"),
        (["--apply", "none.csv", "--cleaned", "a.parquet"], "there is no file none.csv"),
        (["--apply", "none.csv"], "--apply needs --cleaned cleaned.parquet"),
        (["--apply", "none.csv", "--cleaned", "a.parquet", "--out", "a.csv"], "nothing for --out"),
        (["--apply", "none.csv", "--cleaned", "a.parquet", "--to-cleanlab", "a.csv"], "Leave it out"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(capsys, run, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert main(["labels", str(run.path), *arguments]) != 0
    said = capsys.readouterr()
    assert message in said.err
    assert "Traceback" not in said.err
    assert len(said.err.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


CLASSES = ["zero", "one", "two", "three", "=four", "five", "six", "seven", "eight", "nine"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Digits as people have them: embeddings, named labels of which a fifth are drawn anew, pictures, texts."""
    from sklearn.datasets import load_digits

    folder, digits, drawn = tmp_path_factory.mktemp("files"), load_digits(), np.random.default_rng(0)
    rows = np.arange(900)
    labels = np.where(drawn.random(900) < 0.2, drawn.integers(0, 10, 900), digits.target[rows])
    np.save(folder / "emb.npy", digits.data[rows])
    np.savez(folder / "emb.npz", digits.data[rows])
    np.save(folder / "pictures.npy", (15 * digits.images[rows]).astype(np.uint8))
    named = pd.Series(np.array(CLASSES)[labels]).where(rows >= 5, None)
    pd.DataFrame({"row": rows, "label": named}).to_csv(folder / "y.csv", index=False)
    np.save(folder / "y.npy", np.where(rows >= 5, labels, -1))
    np.save(folder / "true.npy", digits.target[rows])
    (folder / "texts.txt").write_text("\n".join(f"<b>text {row}</b>" for row in rows))
    return folder


def test_features_and_labels_without_a_run(capsys, files, tmp_path, monkeypatch):
    monkeypatch.chdir(files)
    out = tmp_path / "all.csv"
    common = ["--labels", "y.csv", "--texts", "texts.txt", "--out", str(out)]
    assert main(["labels", "--features", "emb.npy", *common, "--top", "3"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"\d % of the labels are wrong|cannot tell", said.lower())
    assert "5 samples have no label" in said
    assert "<b>text " in said
    table = pd.read_csv(out)
    assert table["sample"].tolist() == list(range(900))
    assert set(table["given_label"].dropna()) == {*CLASSES[:4], "'=four", *CLASSES[5:]}
    assert main(["labels", "--features", "a=emb.npy,b=emb.npz", "--labels", "y.csv", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["samples"] == 900
    assert told["suspects"][0]["given_label"] in CLASSES
    assert told["written"] == []


def test_the_answer_is_that_of_python(capsys, files, monkeypatch):
    monkeypatch.chdir(files)
    found = ut.label_errors(features=np.load("emb.npy"), labels=np.load("y.npy"))
    assert main(["labels", "--features", "emb.npy", "--labels", "y.npy", "--json", "--top", "5"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["sample"] for row in told["suspects"]] == found.suspects(5)["sample"].tolist()
    np.save("p.npy", found.pred_probs)
    assert main(["labels", "--probabilities", "p.npy", "--labels", "y.npy", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["samples"] == 900


@pytest.mark.parametrize("shown", [["--images", "pictures.npy"], ["--texts", "texts.txt"], []])
def test_the_report_of_a_folder_with_suspects_only(capsys, files, tmp_path, monkeypatch, shown):
    monkeypatch.chdir(files)
    folder = tmp_path / "found"
    arguments = ["--features", "emb.npy", "--labels", "y.csv", *shown, "--report", str(folder)]
    assert main(["labels", *arguments]) == 0
    assert "report.html" in capsys.readouterr().out
    listed = suspects(folder, sorted(CLASSES))
    assert len(listed) == 120
    assert {own["given"] for own in listed} <= set(CLASSES)
    assert all(bool(own["image"]) == ("--images" in shown) for own in listed)
    assert all(own["text"].startswith("<b>") == ("--texts" in shown) for own in listed)
    page = (folder / "report.html").read_text()
    assert 'id="labels"' in page
    assert 'id="richness"' not in page
    assert "of the labels are wrong" in page or "Cannot tell" in page
    assert "<b>text" not in page  # texts are no markup
    assert main(["report", str(folder)]) == 0


def test_pictures_of_a_folder(files, tmp_path, monkeypatch):
    from PIL import Image

    monkeypatch.chdir(files)
    pictures = np.load("pictures.npy")
    (tmp_path / "img").mkdir()
    for row, picture in enumerate(pictures):
        Image.fromarray(picture).save(tmp_path / "img" / f"{row}.png")
    arguments = ["--features", "emb.npy", "--labels", "y.csv", "--images", str(tmp_path / "img")]
    exports = ["--to-fiftyone", str(tmp_path / "f.jsonl"), "--to-labelstudio", str(tmp_path / "t.json")]
    assert main(["labels", *arguments, *exports, "--report", str(tmp_path / "found")]) == 0
    with np.load(tmp_path / "found" / "suspects.npz") as stored:
        row = int(stored.files[0])
        np.testing.assert_array_equal(stored[str(row)][..., 0], pictures[row])
    lines = (tmp_path / "f.jsonl").read_text().splitlines()
    assert Path(json.loads(lines[12])["filepath"]) == tmp_path / "img" / "12.png"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "RUN is missing. Give the run's folder, or --features emb.npy --labels y.csv"),
        (["--features", "emb.npy"], "Add --labels y.csv"),
        (["--labels", "y.csv"], "Add --features emb.npy or --probabilities p.npy"),
        (["--features", "no.npy", "--labels", "y.csv"], "there is no file no.npy"),
        (["--features", "y.csv", "--labels", "y.csv"], "column row of y.csv only numbers the rows"),
        (["--features", "emb.npy", "--labels", "no.csv"], "there is no file no.csv"),
        (["--features", "emb.npy", "--labels", "two.csv"], "Call the column label, or leave only one"),
        (["--features", "emb.npy", "--labels", "short.csv"], "one row for each label"),
        (["--features", "nan.npy", "--labels", "y.csv"], "NaN or infinity in 1 of 900 rows, first in row 7"),
        (["--features", "words.npy", "--labels", "y.csv"], "wanted numbers"),
        (["--features", "bad.npy", "--labels", "y.csv"], "cannot be read"),
        (["--features", "emb.npy", "--labels", "scores.csv"], "Scores are no labels"),
        (
            ["--features", "emb.npy", "--labels", "y.csv", "--texts", "short.csv"],
            "one for each of 900 samples",
        ),
        (
            ["--features", "emb.npy", "--labels", "y.csv", "--images", "emb.npy"],
            "wanted (samples, height, width)",
        ),
        (["--features", "emb.npy", "--labels", "y.csv", "--choose"], "--choose needs a run"),
        (
            ["--features", "emb.npy", "--labels", "y.csv", "--checkpoints", "last"],
            "--checkpoints needs a run",
        ),
        (["--probabilities", "emb.npy", "--labels", "y.csv"], "wanted rows that add up to 1"),
        (["--apply", "two.csv", "--cleaned", "a.parquet"], "a run's folder or a file of labels"),
        (
            ["nowhere", "--apply", "answers.csv", "--cleaned", "a.parquet"],
            "file of labels nowhere. Check its path",
        ),
        (["--features", "flat.npy", "--labels", "y.csv"], "got (900,). Give a row for each sample"),
        (["--features", "number.npy", "--labels", "y.csv"], "got (). Give a row for each sample"),
        (["--features", "words.parquet", "--labels", "y.csv"], "wanted numbers (samples, columns)"),
        (["--probabilities", "y.npy", "--labels", "y.csv"], "got (900,). Give a row for each sample"),
        (
            ["--probabilities", "eight.npy", "--labels", "y.csv"],
            "wanted (900, 10), samples by classes, got (900, 8)",
        ),
        (["--features", "emb.npy", "--labels", "y.csv", "--report", "y.csv"], "wanted a folder"),
    ],
)
def test_what_is_wrong_with_files_is_said_in_one_line(
    capsys, files, tmp_path, monkeypatch, arguments, message
):
    for path in files.glob("*"):
        (tmp_path / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    rows = np.load("emb.npy")
    rows[7, 3] = np.nan
    np.save("nan.npy", rows)
    np.save("words.npy", rows.astype(str))
    Path("bad.npy").write_bytes(b"nothing")
    np.save("flat.npy", rows[:, 0])
    np.save("number.npy", np.float32(3))
    np.save("eight.npy", np.full((900, 8), 1 / 8))
    pd.DataFrame({"text": ["a"] * 900}).to_parquet("words.parquet")
    Path("answers.csv").write_text("sample,label\n1,one\n")
    Path("two.csv").write_text("a,b\n1,2\n")
    Path("short.csv").write_text("label\n" + "1\n2\n" * 30)
    Path("scores.csv").write_text("label\n" + "0.5\n" * 900)
    assert main(["labels", *arguments]) != 0
    said = capsys.readouterr()
    assert message in said.err
    assert "Traceback" not in said.err
    assert len(said.err.strip().splitlines()) == 1


def test_a_review_goes_back_into_training(capsys, run, tmp_path):
    """From suspects to a better run: export, answer as one who knows, apply, train."""
    tasks, cleaned, again = tmp_path / "tasks.json", tmp_path / "cleaned.parquet", tmp_path / "again"
    assert main(["labels", str(run.path), "--to-labelstudio", str(tasks), "--json"]) == 0
    true = run.data().train.true
    listed = json.loads(tasks.read_text())
    for task in listed:
        choice = {"type": "choices", "value": {"choices": [str(int(true[task["data"]["sample"]]))]}}
        task["annotations"] = [{"was_cancelled": False, "result": [choice]}]
    tasks.write_text(json.dumps(listed))
    capsys.readouterr()
    assert main(["labels", str(run.path), "--apply", str(tasks), "--cleaned", str(cleaned), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert len(told["changed"]) + len(told["confirmed"]) == len(listed)
    assert told["not_reviewed"] == 1297 - len(listed)
    kept = pd.read_parquet(cleaned)
    assert kept["sample"].tolist() == list(range(1297))
    seen = [task["data"]["sample"] for task in listed]
    assert kept["label"].to_numpy()[seen].tolist() == true[seen].tolist()
    arguments = ["--data", "digits", "--labels", str(cleaned), "--epochs", "20", "--out", str(again)]
    assert main(["train", "mlp:256-256-256", *arguments]) == 0
    before, after = (one.metrics["test_accuracy"].iloc[-1] for one in (run, ut.open_run(again)))
    assert after > before + 0.1


def test_a_table_with_a_new_column_goes_back_too(capsys, files, tmp_path, monkeypatch):
    monkeypatch.chdir(files)
    out, cleaned = tmp_path / "all.csv", tmp_path / "cleaned.parquet"
    assert main(["labels", "--features", "emb.npy", "--labels", "y.csv", "--out", str(out)]) == 0
    table = pd.read_csv(out)
    table["reviewed"] = np.where(table["flagged"], np.array(CLASSES)[np.load("true.npy")], "")
    table.to_csv(out, index=False)
    capsys.readouterr()
    assert main(["labels", "y.csv", "--apply", str(out), "--cleaned", str(cleaned)]) == 0
    said = capsys.readouterr().out
    assert re.search(r"Labels: \d+ changed, \d+ confirmed, 0 left open, \d+ not reviewed, 0 unknown", said)
    assert "5 samples without a label are left out" in said
    kept = pd.read_parquet(cleaned)
    assert kept["sample"].tolist() == list(range(5, 900))
    assert kept["name"].tolist() == [sorted(CLASSES)[label] for label in kept["label"]]
    flagged = table["flagged"].to_numpy()[5:]
    assert (
        kept["name"].to_numpy()[flagged].tolist()
        == np.array(CLASSES)[np.load("true.npy")][5:][flagged].tolist()
    )


def test_names_of_rows_that_were_not_read_are_told(capsys, files, tmp_path, monkeypatch):
    monkeypatch.chdir(files)
    table = pd.read_csv("y.csv")
    table.insert(0, "id", [f"s{at}" for at in range(len(table))])
    table.to_csv(tmp_path / "named.csv", index=False)
    arguments = ["--features", "emb.npy", "--labels", str(tmp_path / "named.csv"), "--json"]
    assert main(["labels", *arguments]) == 0
    assert "its column id was not read" in json.loads(capsys.readouterr().out)["notes"][0]


def test_labels_cleaned_without_a_run(capsys, files, tmp_path, monkeypatch):
    monkeypatch.chdir(files)
    cleaned = tmp_path / "cleaned.parquet"
    arguments = ["--features", "emb.npy", "--labels", "y.npy", "--clean", "drop", "--cleaned", str(cleaned)]
    assert main(["labels", *arguments, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    missing = (np.load("y.npy") < 0).sum()
    assert len(pd.read_parquet(cleaned)) >= 900 - told["flagged"] - missing


def test_a_run_that_is_not_mine_is_left_as_it_is(capsys, run, tmp_path, monkeypatch):
    """With --no-keep, with --report, and where the folder cannot be written to; what it has kept is used still."""

    def folder():
        return {path: path.stat().st_mtime_ns for path in run.path.rglob("*")}

    before, out, page = folder(), tmp_path / "all.csv", tmp_path / "page"
    assert main(["labels", str(run.path), "--no-keep", "--out", str(out)]) == 0
    assert sorted(tmp_path.iterdir()) == [out]
    assert folder() == before
    assert main(["labels", str(run.path), "--report", str(page), "--top", "0"]) == 0
    assert (page / "report.html").is_file()
    assert len(suspects(page, [str(digit) for digit in range(10)])) == 120
    assert folder() == before
    capsys.readouterr()
    allowed = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != run.path and allowed(path, mode))
    assert main(["labels", str(run.path), "--out", str(out), "--json"]) == 0
    told = capsys.readouterr()
    assert "cannot be written to" in told.err
    assert json.loads(told.out)["written"] == [str(out)]
    assert folder() == before


def test_the_plan_of_a_run_and_of_features_comes_before_any_work(capsys, run, tmp_path):
    assert main(["labels", str(run.path), "--plan"]) == 0
    assert re.search(
        r"1,297 samples, 10 classes, \d+ views: about .* s on one core, .* kept", capsys.readouterr().out
    )
    big = np.lib.format.open_memmap(tmp_path / "big.npy", "w+", np.float32, (400_000, 64))  # a file of holes
    big.flush()
    np.save(tmp_path / "y.npy", np.arange(400_000) % 1000)
    given = ["labels", "--features", "big.npy", "--labels", "y.npy", "--plan", "--json"]
    # In a process of its own: what this one has held for other tests counts in what is said.
    command = [sys.executable, "-m", "undertow", *given]
    told = json.loads(
        subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    )
    assert told["disk"] == 10 * 400_000 * 1000 * 4
    assert told["memory"] < 2e9
    assert told["seconds"] > 1
