"""Every csv that undertow writes: no cell of text is a formula, and what was written is read back."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from undertow.cli import main
from undertow.report.study import read_study
from undertow.spreadsheets import unguarded, write_csv
from undertow.studies import StudyOutcome, find_study

RISKY = ("=1+1", "+1", "-1", "@A1", "\t=1", "\r=1", "\n=1", "a\r=1", "a\n=1", "a,=1")


def cells(path: Path) -> list[str]:
    with path.open(newline="") as stream:
        return [cell for row in csv.reader(stream) for cell in row]


def is_formula(cell: str) -> bool:
    """Whether a spreadsheet would run the cell; numbers it only reads."""
    try:
        float(cell)
    except ValueError:
        return cell[:1] in set("=+-@\t\r\n")
    return False


@pytest.mark.parametrize("kind", ["object", "string", "category"])
def test_each_kind_of_text_is_guarded_and_read_back(tmp_path: Path, kind: str):
    table = pd.DataFrame({"name": pd.Series([*RISKY, "plain", "'quoted"], dtype=kind), "value": -1.5})
    write_csv(tmp_path / "t.csv", table)
    assert not [cell for cell in cells(tmp_path / "t.csv") if is_formula(cell)]
    with (tmp_path / "t.csv").open(newline="") as stream:
        back = [unguarded(row["name"]) for row in csv.DictReader(stream)]
    assert back == [*RISKY, "plain", "'quoted"]
    assert "-1.5" in cells(tmp_path / "t.csv"), "numbers stay numbers"


class Net(nn.Module):
    """A model with a layer whose name is a formula."""

    def __init__(self) -> None:
        super().__init__()
        self.add_module("=cmd()", nn.Linear(64, 8))
        self.add_module("@head", nn.Linear(8, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, last = self.children()
        return last(torch.relu(first(x.flatten(1))))


def build() -> nn.Module:
    torch.manual_seed(0)
    return Net()


@pytest.mark.parametrize(
    "command", [["audit", "--quick", "--no-report"], ["probe", "--probes", "mean"]], ids=["audit", "probe"]
)
def test_layers_called_like_formulas(tmp_path: Path, monkeypatch, capsys, command: list[str]):
    """Fails if a command's --csv writes names as they are."""
    monkeypatch.syspath_prepend(Path(__file__).parent)
    (tmp_path / "ck").mkdir()
    save_file(build().state_dict(), tmp_path / "ck" / "epoch_1.safetensors")
    rng = np.random.default_rng(0)
    y = rng.integers(0, 10, 200)
    x = (rng.normal(size=(200, 64)) + y[:, None]).astype(np.float32)
    np.savez(tmp_path / "d.npz", x_train=x[:120], y_train=y[:120], x_test=x[120:], y_test=y[120:])
    name, *flags = command
    words = [
        name,
        tmp_path / "ck",
        "--model",
        "test_spreadsheets:build",
        "--data",
        tmp_path / "d.npz",
        *flags,
    ]
    assert main([str(one) for one in (*words, "--csv", tmp_path / "rows.csv")]) == 0, capsys.readouterr().err
    found = cells(tmp_path / "rows.csv")
    assert any("=cmd()" in cell for cell in found), "the test asks for no such layer"
    assert not [cell for cell in found if is_formula(cell)]


def test_a_study_compares_cases_of_any_name(tmp_path: Path, monkeypatch):
    study = find_study("richness/target-scale")
    row = {
        "case": "=1+1",
        "measure": "@x",
        "where": "-y",
        "source": "+z",
        "paper": 1.0,
        "ours": -0.5,
        "within": False,
    }
    monkeypatch.setattr(StudyOutcome, "comparison", lambda self: pd.DataFrame([row]))
    rows = pd.DataFrame([{"case": "a", "measure": "b", "value": 1.0, "seed": 0}])
    StudyOutcome.of(study, "smoke", rows, {}).save(tmp_path)
    assert not [cell for cell in cells(tmp_path / "comparison.csv") if is_formula(cell)]
    assert read_study(tmp_path).comparison.iloc[0].to_dict().items() >= row.items()
