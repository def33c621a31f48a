"""Stored features: what was written comes back by class, in blocks, and the disk is clean afterwards."""

from __future__ import annotations

import shutil
from collections import namedtuple

import pytest
import torch

from undertow.errors import BadData, BadValue, RunProblem, UnknownName
from undertow.features.spill import FeatureStore

N, DIM, CLASSES = 60, 37, 4


def sample(dtype=torch.float32):
    g = torch.Generator().manual_seed(0)
    labels = torch.randint(3, (N,), generator=g)  # class 3 has no rows
    return torch.randn(N, DIM, generator=g).to(dtype), labels


def filled(store, features, batch=7, layer="fc"):
    for start in range(0, len(features), batch):
        rows = slice(start, min(start + batch, len(features)))
        store.write(rows, {layer: features[rows]})


@pytest.fixture(params=["disk", "memory"])
def where(request, tmp_path):
    return {"folder": tmp_path, "in_memory": request.param == "memory"}


def test_rows_come_back_by_class_in_the_order_of_the_samples(where):
    """Fails if the order on disk is not undone, or a batch overwrites another."""
    features, labels = sample()
    with FeatureStore(labels, CLASSES, **where) as store:
        filled(store, features)
        for c in range(3):
            rows = store.rows("fc", c)
            expected = features[labels == c]
            assert rows.shape == tuple(expected.shape)
            assert torch.equal(rows.read(0, len(expected)), expected)
            assert torch.equal(rows.read(2, 5), expected[2:5])
        assert store.rows("fc", 3).shape == (0, DIM)
        assert store.gram("fc", 3).shape == (0, 0)


def test_batches_may_come_in_any_order(where):
    features, labels = sample()
    with FeatureStore(labels, CLASSES, **where) as store:
        for start in reversed(range(0, N, 10)):
            store.write(slice(start, start + 10), {"fc": features[start : start + 10]})
        assert torch.equal(store.rows("fc", 1).read(0, 99), features[labels == 1])


def test_other_labels_on_the_same_features(where):
    """Fails if rows are taken by the order on disk, which follows the first labels."""
    features, labels = sample()
    other = labels.flip(0)
    with FeatureStore(labels, CLASSES, **where) as store:
        filled(store, features)
        rows = store.rows("fc", 2, labels=other)
        got, expected = rows.read(0, rows.shape[0]), features[other == 2]
        # By places in the file, so the order is another; the set of rows is the same.
        assert sorted(got.tolist()) == sorted(expected.tolist())
        assert got.shape == expected.shape


@pytest.mark.parametrize("block", [None, 1, 4, 100])
def test_gram_and_projection_against_the_whole(where, block):
    features, labels = sample()
    with FeatureStore(labels, CLASSES, **where) as store:
        filled(store, features)
        rows = features[labels == 0].double()
        gram = store.gram("fc", 0, block=block, precise=True)
        torch.testing.assert_close(gram, rows @ rows.T, rtol=1e-12, atol=1e-12)
        weights = torch.randn(len(rows), 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        got = store.project("fc", 0, weights, block=block, precise=True)
        torch.testing.assert_close(got, rows.T @ weights, rtol=1e-12, atol=1e-12)
        single = store.gram("fc", 0, block=block)  # float32 products, on the scale of the diagonal
        torch.testing.assert_close(single, gram, rtol=0, atol=1e-6 * float(gram.max()))


def test_half_precision_rounds_and_refuses_what_it_cannot_hold(where):
    """Fails if numbers beyond 65504 become infinite in silence."""
    features, labels = sample()
    with FeatureStore(labels, CLASSES, dtype=torch.float16, **where) as store:
        filled(store, features)
        got = store.rows("fc", 1).read(0, N)
        assert got.dtype == torch.float32
        torch.testing.assert_close(got, features[labels == 1], rtol=5e-4, atol=1e-6)
        features[3, 0] = 1e6
        with pytest.raises(BadData, match=r"'fc': 1 of 7 rows have numbers beyond float16's 65504"):
            store.write(slice(0, 7), {"fc": features[:7]})


def test_the_folder_is_gone_afterwards_also_after_an_error(tmp_path):
    features, labels = sample()
    with FeatureStore(labels, CLASSES, folder=tmp_path) as store:
        filled(store, features)
        (scratch,) = tmp_path.iterdir()
        (file,) = scratch.iterdir()
        assert file.stat().st_size == N * DIM * 4
    assert not list(tmp_path.iterdir())
    with pytest.raises(ZeroDivisionError), FeatureStore(labels, CLASSES, folder=tmp_path) as store:  # noqa: PT012
        filled(store, features)
        raise ZeroDivisionError
    assert not list(tmp_path.iterdir())


def test_rows_never_written_are_missed(where):
    """Fails where holes in a file are read as zeros."""
    features, labels = sample()
    with FeatureStore(labels, CLASSES, **where) as store:
        store.write(slice(0, 50), {"fc": features[:50]})
        missing = int((labels[50:] == 1).sum())
        with pytest.raises(BadData, match=rf"'fc': {missing} of \d+ rows of class 1 were never written"):
            store.gram("fc", 1)
        with pytest.raises(UnknownName, match=r"no stored layer 'fd'\. Did you mean 'fc'"):
            store.gram("fd", 1)


def test_a_full_disk_is_told_before_anything_is_written(tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**4, 10**4 - 100, 100))
    features, labels = sample()
    with (
        FeatureStore(labels, CLASSES, folder=tmp_path) as store,
        pytest.raises(RunProblem, match=r"8\.9 kB.*100 B left"),
    ):
        filled(store, features)


def test_misuse_is_refused(tmp_path):
    features, labels = sample()
    with pytest.raises(BadValue, match=r"torch.float32 or torch.float16"):
        FeatureStore(labels, CLASSES, dtype=torch.int8)
    with pytest.raises(BadData, match="from 0 to 1"):
        FeatureStore(labels, 2)
    with pytest.raises(BadValue, match="inside its block"):
        FeatureStore(labels, CLASSES).write(slice(0, N), {"fc": features})
    with (
        pytest.raises(RunProblem, match="Cannot make a folder"),
        FeatureStore(labels, 4, folder=tmp_path / "none"),
    ):
        pass
    with FeatureStore(labels, CLASSES) as store:
        store.write(slice(0, 7), {"fc": features[:7]})
        with pytest.raises(BadData, match="rows of width 37, got 5"):
            store.write(slice(7, 14), {"fc": features[7:14, :5]})
        with pytest.raises(BadData, match="wanted 7 rows"):
            store.write(slice(7, 14), {"fc": features[:3]})
        features[8, 0] = float("nan")
        with pytest.raises(BadData, match=r"layer 'fc'.*1 of 7 rows"):
            store.write(slice(7, 14), {"fc": features[7:14]})
