"""`undertow labels` as a person meets it: suspects on the screen, files, a cleaned run, refusals."""

from __future__ import annotations

import json
import re

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
    assert "% of 1,297 labels look wrong" in said
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
    assert told["noise_low"] < told["noise_rate"] < told["noise_high"]
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
        (["--cleaned", "a.csv"], "a .parquet file"),
        (["--top", "-1"], "0 or more"),
        (["--checkpoints", "one"], "joined by commas, such as 1,2,5"),
        (["--checkpoints", "3"], "The nearest are"),
        (["--layers", "layer9"], "layer9"),
        (["--noise", "evn"], 'Did you mean "even"'),
        (["--folds", "1"], "2 or more"),
        (["--out", "a.xlsx"], ".csv"),
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
