"""Stored features: what was written comes back by class, in blocks, and the disk is clean afterwards."""

from __future__ import annotations

import shutil
import tempfile
from collections import namedtuple
from contextlib import closing

import pytest
import torch

from undertow.errors import BadData, RunProblem
from undertow.features.spill import FeatureStore

N, DIM, CLASSES = 60, 37, 4


def sample(dtype=torch.float32):
    g = torch.Generator().manual_seed(0)
    labels = torch.randint(3, (N,), generator=g)  # class 3 has no rows
    return torch.randn(N, DIM, generator=g).to(dtype), labels


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with closing(FeatureStore("fc", sample()[1], CLASSES)) as store:
        yield store


def fill(store, features, batch=7):
    for start in range(0, len(features), batch):
        rows = slice(start, min(start + batch, len(features)))
        store.write(rows, features[rows])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64], ids=str)
def test_rows_come_back_by_class_in_the_order_of_the_samples(store, dtype):
    """Fails if the order on disk is not undone, or a batch overwrites another."""
    features, labels = sample(dtype)
    fill(store, features)
    for c in range(3):
        rows = store.rows(c)
        expected = features[labels == c].float()
        assert rows.shape == tuple(expected.shape)
        assert torch.equal(rows.read(0, len(expected)), expected)
        assert torch.equal(rows.read(2, 5), expected[2:5])
    assert store.rows(3).shape == (0, DIM)
    assert store.rows(3).read(0, 5).shape == (0, DIM)


def test_batches_may_come_in_any_order(store):
    features, labels = sample()
    for start in reversed(range(0, N, 10)):
        store.write(slice(start, start + 10), features[start : start + 10])
    assert torch.equal(store.rows(1).read(0, 99), features[labels == 1])


def test_other_labels_on_the_same_features(store):
    """Fails if rows are taken by the order on disk, which follows the first labels."""
    features, labels = sample()
    other = labels.flip(0)
    fill(store, features)
    rows = store.rows(2, labels=other)
    got, expected = rows.read(0, rows.shape[0]), features[other == 2]
    # By places in the file, so the order is another; the set of rows is the same.
    assert sorted(got.tolist()) == sorted(expected.tolist())
    assert got.shape == expected.shape


def test_the_folder_is_gone_afterwards(store, tmp_path):
    fill(store, sample()[0])
    (scratch,) = tmp_path.iterdir()
    (file,) = scratch.iterdir()
    assert file.stat().st_size == N * DIM * 4
    store.close()
    assert not list(tmp_path.iterdir())


def test_rows_never_written_are_missed(store):
    """Fails where holes in a file are read as zeros."""
    features, labels = sample()
    store.write(slice(0, 50), features[:50])
    missing = int((labels[50:] == 1).sum())
    with pytest.raises(BadData, match=rf"'fc': {missing} of \d+ rows of class 1 were never written"):
        store.rows(1)


def test_a_full_disk_is_told_before_anything_is_written(store, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**4, 10**4 - 100, 100))
    with pytest.raises(RunProblem, match=r"'fc' take 8\.9 kB.*100 B left.*TMPDIR"):
        fill(store, sample()[0])


def test_misuse_is_refused(store, tmp_path, monkeypatch):
    features, labels = sample()
    with pytest.raises(BadData, match="from 0 to 1"):
        FeatureStore("fc", labels, 2)
    store.write(slice(0, 7), features[:7])
    with pytest.raises(BadData, match=r"7 rows of width 37, got \(7, 5\)"):
        store.write(slice(7, 14), features[7:14, :5])
    with pytest.raises(BadData, match=r"7 rows of width 37, got \(3, 37\)"):
        store.write(slice(7, 14), features[:3])
    features[8, 0] = float("nan")
    with pytest.raises(BadData, match=r"layer 'fc'.*1 of 7 rows"):
        store.write(slice(7, 14), features[7:14])
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(RunProblem, match="Cannot make a folder"):
        FeatureStore("fc", labels, CLASSES)
