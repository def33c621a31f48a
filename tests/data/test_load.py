"""The one door to all data, and the package's lazy names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from torch.utils.data import TensorDataset

import undertow.data
from undertow.data import DATA, DataSet, load_data
from undertow.data.inputs import SCALINGS, to_inputs
from undertow.errors import BadData, BadValue, NotThere, UnknownName


def arrays() -> tuple[np.ndarray, np.ndarray]:
    return np.random.default_rng(0).standard_normal((40, 3)), np.arange(40) % 4


@pytest.mark.parametrize("kind", ["name", "path", "text path", "arrays", "pair", "dataset", "data set"])
def test_every_kind_of_source_is_taken(tmp_path: Path, kind: str) -> None:
    x, y = arrays()
    np.savez(tmp_path / "mine.npz", x=x, y=y)
    source = {
        "name": "blobs:n=40,classes=4",
        "path": tmp_path / "mine.npz",
        "text path": str(tmp_path / "mine.npz"),
        "arrays": (x, y),
        "pair": ((x, y), (x, y)),
        "dataset": TensorDataset(torch.from_numpy(x), torch.from_numpy(y)),
        "data set": load_data((x, y)),
    }[kind]
    data = load_data(source)
    assert isinstance(data, DataSet)
    assert len(data.classes) == 4


def test_sizes_give_balanced_subsets_that_the_seed_decides() -> None:
    data = load_data("digits", train_size=300, test_size=100, seed=1)
    assert data.train.y.bincount().tolist() == [30] * 10
    assert data.test.y.bincount().tolist() == [10] * 10
    whole = load_data("digits")
    assert set(data.train.index.tolist()) <= set(whole.train.index.tolist())
    assert data.fingerprint == load_data("digits", train_size=300, test_size=100, seed=1).fingerprint
    assert data.fingerprint != load_data("digits", train_size=300, test_size=100, seed=2).fingerprint
    only_test = load_data("digits", test_size=50)
    assert (len(only_test.train), len(only_test.test)) == (1297, 50)


def test_sizes_apply_to_a_data_set_that_is_at_hand() -> None:
    whole = load_data("blobs")
    small = load_data(whole, train_size=9)
    assert (len(small.train), len(whole.train)) == (9, 1000)
    assert small.fingerprint != whole.fingerprint


def test_too_large_a_subset_is_refused() -> None:
    with pytest.raises(BadData, match="Ask for at most"):
        load_data("digits", train_size=5000)
    with pytest.raises(BadValue, match="10 classes, got 5"):
        load_data("digits", test_size=5)


def test_unknown_names_are_answered_with_near_ones() -> None:
    with pytest.raises(UnknownName, match=r"no data set 'mnist_1d'\. Did you mean 'mnist1d'"):
        load_data("mnist_1d")
    with pytest.raises(UnknownName, match="Did you mean 'blobs'"):
        load_data("blob:n=50")
    with pytest.raises(UnknownName, match=r"Known: digits, .*hub:owner/name, a path"):
        load_data("qqqq")


@pytest.mark.parametrize("path", ["./nothing", "some/where", "mine.npz", "~/nothing-here", "x.npy"])
def test_a_missing_path_is_said_to_be_missing(path: str) -> None:
    with pytest.raises(NotThere, match="there is no such file or folder"):
        load_data(path)


def test_a_known_word_wins_over_a_file_and_a_dot_gives_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("digits", "others"):
        for name in ("cat", "dog"):
            (tmp_path / folder / name).mkdir(parents=True)
            for at in range(5):
                Image.new("L", (3, 3), at).save(tmp_path / folder / name / f"{at}.png")
    assert load_data("digits").shape == (1, 8, 8)
    assert load_data("./digits").classes == ("cat", "dog")
    assert load_data("others").classes == ("cat", "dog")


def test_a_folder_of_parquet_files_is_read_by_its_path_or_as_a_mirror(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "set" / "data" / "train-00000-of-00001.parquet"
    file.parent.mkdir(parents=True)
    picture = tmp_path / "one.png"
    Image.new("RGB", (3, 3), (1, 2, 3)).save(picture)
    pq.write_table(pa.table({"image": [picture.read_bytes()] * 10, "label": [0, 1] * 5}), file)
    data = load_data(tmp_path / "set")
    assert (data.name, data.shape, len(data.train)) == ("set", (3, 3, 3), 8)
    monkeypatch.setenv("UNDERTOW_DATA", str(tmp_path))
    (tmp_path / "set").rename(tmp_path / "cifar10")
    assert load_data("cifar10").fingerprint == data.fingerprint


@pytest.mark.parametrize("source", [5, None, [1, 2], (1, 2, 3), {"x": 1}])
def test_other_things_are_refused(source: object) -> None:
    with pytest.raises(BadValue, match="wanted a name, a path"):
        load_data(source)  # type: ignore[arg-type]


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(BadValue, match="from 0 on, got -1"):
        load_data("blobs", seed=-1)


def test_digits_scaled_by_default_are_pixels_over_eight_minus_one() -> None:
    data = load_data("digits")
    inputs = to_inputs(data.train.x, data.scaling)
    assert torch.equal(inputs, data.train.x * 2 - 1)
    assert (float(inputs.min()), float(inputs.max())) == (-1, 1)


def test_the_catalogue_names_scalings_that_there_are() -> None:
    assert {entry.scaling for entry in DATA.values()} <= set(SCALINGS)
    assert all((entry.scaling == "half") == (entry.kind == "image") for entry in DATA.values())


# -- the package


def test_listing_data_sets_imports_no_torch() -> None:
    """The command line lists sets in a tenth of a second; torch alone takes two. Fails on any eager import."""
    code = (
        "import sys; from undertow.data import DATA; assert len(DATA) > 10;"
        "assert not {'torch', 'numpy', 'pyarrow', 'PIL', 'sklearn'} & set(sys.modules), 'imported too early';"
        "from undertow.data import Samples; assert 'torch' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_public_name_is_there() -> None:
    """Fails if the stub names something that is not there."""
    assert all(getattr(undertow.data, name) is not None for name in undertow.data.__all__)
    assert set(undertow.data.__all__) <= set(dir(undertow.data))


def test_a_wrong_attribute_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="lode_data"):
        _ = undertow.data.lode_data  # type: ignore[attr-defined]
