"""`undertow labels --apply` with labels that say which samples they are of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import undertow as ut
from undertow.cli import main


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    """Two runs on as many samples and classes, but on others."""
    for name, seed in (("a", 0), ("b", 1)):
        drawn = np.random.default_rng(seed)
        y = np.arange(60) % 3
        x = drawn.normal(size=(60, 4)).astype(np.float32)
        x[np.arange(60), y] += 4
        np.savez(tmp_path / f"{name}.npz", x=x, y=drawn.permutation(y))
        ut.train("mlp:4", tmp_path / name, data=str(tmp_path / f"{name}.npz"), epochs=1)
    return tmp_path / "a", tmp_path / "b"


def cleaned(run: Path) -> Path:
    opened = ut.open_run(run)
    y = opened.data().train.y
    path = run.parent / f"cleaned of {run.name}.parquet"
    opened.labels_file(torch.arange(len(y)), (y + 1) % 3).write(path)
    return path


def test_labels_of_other_samples_are_refused(runs: tuple[Path, Path], tmp_path: Path, capsys):
    """Fails if `labels B --apply cleaned_of_A.parquet` changes most of B's labels and ends well."""
    a, b = runs
    file = cleaned(a)
    out = tmp_path / "new.parquet"
    assert main(["labels", str(b), "--apply", str(file), "--cleaned", str(out)]) == 1
    assert "wanted the training samples it was made for (inputs" in capsys.readouterr().err
    assert not out.exists()
    assert main(["labels", str(a), "--apply", str(file), "--cleaned", str(out)]) == 0
    assert "changed" in capsys.readouterr().out
    assert main(["labels", str(cleaned(b)), "--apply", str(file), "--cleaned", str(out)]) == 1


def test_a_run_on_a_part_numbers_its_samples_otherwise(runs: tuple[Path, Path], tmp_path: Path, capsys):
    """Fails if sample 40 of the source is taken for row 40 of the part that was trained on."""
    a, _ = runs
    opened = ut.open_run(a)
    rows = torch.arange(len(opened.data().train))[10:]
    opened.labels_file(rows, opened.data().train.y[rows]).write(tmp_path / "part.parquet")
    ut.train(
        "mlp:4",
        tmp_path / "part",
        data=str(tmp_path / "a.npz"),
        epochs=1,
        labels=str(tmp_path / "part.parquet"),
    )
    words = [
        "labels",
        str(tmp_path / "part"),
        "--apply",
        str(cleaned(a)),
        "--cleaned",
        str(tmp_path / "n.parquet"),
    ]
    assert main(words) == 2
    assert "numbers as their source does" in capsys.readouterr().err
