"""Attacks that nobody had listed: each is refused in one sentence, or changes nothing."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet
from torch import nn

import undertow as ut
from undertow.cli import main
from undertow.errors import UndertowError

COMPOSED, PARTED = (unicodedata.normalize(form, "café") for form in ("NFC", "NFD"))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with ut.Recorder(tmp_path / "run") as recorder:
        for epoch in range(3):
            recorder.save(nn.Linear(3, 2), epoch, test_accuracy=0.5)
    return tmp_path / "run"


@pytest.fixture
def samples(tmp_path: Path) -> tuple[Path, np.ndarray]:
    """Features that tell three classes apart."""
    y = np.arange(120) % 3
    x = np.random.default_rng(0).normal(size=(120, 4)).astype(np.float32)
    x[np.arange(120), y] += 4
    np.save(tmp_path / "x.npy", x)
    return tmp_path / "x.npy", y


@pytest.mark.parametrize("kind", ["a file", "a link to itself", "a link to nothing"])
def test_something_else_in_place_of_the_checkpoints(run: Path, capsys, kind: str):
    """Fails if it is said that names carry no epoch."""
    inner = run / "checkpoints"
    inner.rename(run.parent / "away")
    if kind == "a file":
        inner.write_text("x")
    else:
        inner.symlink_to("checkpoints" if kind == "a link to itself" else "nowhere")
    assert main(["show", str(run)]) == 1
    assert f"{inner}: wanted the folder of the run's checkpoints" in capsys.readouterr().err


def test_a_link_upwards_among_the_checkpoints_changes_nothing(run: Path, capsys):
    (run / "checkpoints" / "more").symlink_to("..")
    assert ut.open_run(run, model=lambda: nn.Linear(3, 2)).epochs == (0, 1, 2)
    assert main(["runs", str(run.parent)]) == 0
    assert capsys.readouterr().out.count("run") == 2  # the heading, and one run


def test_a_key_that_is_there_twice_is_read_as_it_was_sealed(run: Path):
    """The last one counts, as the seal says; another value of the first is none."""
    facts = run / "run.json"
    facts.write_text(facts.read_text().replace("{", '{"versions": {"torch": "0"},', 1))
    assert ut.open_run(run, model=lambda: nn.Linear(3, 2)).facts.versions != {"torch": "0"}


@pytest.mark.parametrize("name", ["y" * 5000, "/".join(["z" * 200] * 40)])
def test_a_path_that_is_too_long(tmp_path: Path, capsys, name: str):
    assert main(["show", str(tmp_path / name)]) == 1
    told = capsys.readouterr().err
    assert "File name too long" in told
    assert len(told) < 400
    with pytest.raises(UndertowError, match="cannot be read: File name too long"):
        ut.open_run(tmp_path / name)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([{"a": at % 3} for at in range(120)]),
        pa.array([[at % 3] for at in range(120)]),
    ],
    ids=["struct", "list"],
)
def test_a_nested_column_is_no_column_of_labels(samples, tmp_path: Path, capsys, column: pa.Array):
    """Fails if {'a': 1} becomes the name of a class."""
    parquet.write_table(pa.table({"label": column}), tmp_path / "y.parquet")
    assert main(["labels", "--features", str(samples[0]), "--labels", str(tmp_path / "y.parquet")]) == 1
    assert "labels: wanted one class number or name for each sample, got" in capsys.readouterr().err


def test_a_dictionary_of_labels_is_its_words(samples, tmp_path: Path):
    x, y = samples
    words = np.array(["cat", "dog", "emu"])[y]
    parquet.write_table(pa.table({"label": pa.array(words).dictionary_encode()}), tmp_path / "y.parquet")
    assert main(["labels", "--features", str(x), "--labels", str(tmp_path / "y.parquet")]) == 0


def test_two_ways_to_write_one_letter_are_one_class(samples):
    """Fails if the same name from two systems makes two classes that no feature tells apart."""
    x, y = samples
    names = [("cat", PARTED, "emu")[c] if at % 2 else ("cat", COMPOSED, "emu")[c] for at, c in enumerate(y)]
    found = ut.label_errors(features=np.load(x), labels=names)
    assert set(found.classes) == {"cat", COMPOSED, "emu"}


def header(entries: dict[str, object], body: int) -> bytes:
    words = json.dumps(entries).encode()
    return struct.pack("<Q", len(words)) + words + b"\0" * body


HEADERS = {
    "overlapping": header(
        {
            "weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
            "bias": {"dtype": "F32", "shape": [2], "data_offsets": [16, 24]},
        },
        24,
    ),
    "beyond the file": header(
        {"weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 1 << 50]}}, 24
    ),
    "more numbers than bytes": header(
        {"weight": {"dtype": "F32", "shape": [1 << 40, 1 << 40], "data_offsets": [0, 24]}}, 24
    ),
    "longer than the file": struct.pack("<Q", 1 << 63) + b"{}",
}


@pytest.mark.parametrize("kind", HEADERS)
def test_headers_that_lie(tmp_path: Path, kind: str):
    (tmp_path / "epoch_1.safetensors").write_bytes(HEADERS[kind])
    with pytest.raises(UndertowError, match=r"epoch_1\.safetensors"):
        ut.open_run(tmp_path, model=lambda: nn.Linear(3, 2)).model(1)


SHOW = [sys.executable, "-m", "undertow", "show"]


@pytest.mark.parametrize(
    ("changed", "how"),
    [
        ({"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, ""),
        ({"HOME": None}, ""),
        ({"HOME": "/proc/nowhere", "XDG_CACHE_HOME": "/proc/nowhere"}, ""),
        ({"TMPDIR": "/nowhere"}, ""),
        ({}, "<&-"),
    ],
    ids=["locale C", "no HOME", "HOME that cannot be", "no TMPDIR", "stdin closed"],
)
def test_surroundings_of_a_bare_container(run: Path, changed: dict[str, str | None], how: str):
    env = {**os.environ, **changed}
    known = {name: value for name, value in env.items() if value is not None}
    command = " ".join(["exec", *SHOW, f"'{run}'", how])
    done = subprocess.run(["sh", "-c", command], capture_output=True, env=known, check=False)
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr


def test_scratch_files_without_a_folder_for_them(tmp_path: Path, monkeypatch):
    """Features of a wide layer need a file: what is missing is said, with what helps."""
    x, y = torch.randn(300, 8), torch.arange(300) % 3
    with ut.Recorder(tmp_path / "run") as recorder:
        recorder.save(nn.Sequential(nn.Linear(8, 256), nn.ReLU(), nn.Linear(256, 3)), 1)
    run = ut.open_run(
        tmp_path / "run", model=lambda: nn.Sequential(nn.Linear(8, 256), nn.ReLU(), nn.Linear(256, 3))
    )
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    with pytest.raises(UndertowError, match=r"Cannot make a folder for features: .* Set TMPDIR to another"):
        ut.probe_grid(
            run, (x, y), (x[:60], y[:60]), layers=["1"], probes=("masc",), memory="1.1MB", batch_size=64
        )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux")
def test_what_is_printed_onto_a_full_disk_is_said(run: Path):
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*SHOW, str(run)], stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 1
    assert done.stderr.strip().splitlines() == [
        b"undertow: What it prints cannot be written: No space left on device."
    ]
