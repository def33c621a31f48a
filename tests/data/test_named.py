"""Public sets: the mirror, the hub's library, and what is said when there is neither."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from undertow.data import hub
from undertow.data.catalogue import DATA, Place
from undertow.data.folder import load_folder
from undertow.data.named import find_splits, load_named, parse_place, read_hub, read_mirror
from undertow.data.tables import as_data_set
from undertow.errors import BadData, BadValue, NotThere, UnknownName

NAMES = ("cat", "dog", "eel")
Pixels = NDArray[np.uint8]


def draw(count: int, *, size: tuple[int, ...] = (5, 4), colour: bool = True, seed: int = 0) -> list[Pixels]:
    """Random pictures (H, W, 3) or (H, W)."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 256, (*size, 3) if colour else size, np.uint8) for _ in range(count)]


def png(pixels: Pixels) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def write_parquet(
    file: Path,
    blobs: Sequence[bytes | None],
    labels: Sequence[Any],
    *,
    image: str = "image",
    label: str = "label",
    names: Sequence[str] | None = None,
) -> None:
    """A table as the hub's: images as struct of bytes and path, class names in the metadata."""
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    rows = [{"bytes": blob, "path": f"{at}.png"} for at, blob in enumerate(blobs)]
    table = pa.table({image: pa.array(rows, kind), label: pa.array(labels)})
    if names is not None:
        features = {image: {"_type": "Image"}, label: {"names": list(names), "_type": "ClassLabel"}}
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, file)


def write_pictures(folder: Path, pictures: Sequence[Pixels]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for at, pixels in enumerate(pictures):
        Image.fromarray(pixels).save(folder / f"{at}.png")


def as_tensor_layout(pictures: Sequence[Pixels]) -> Pixels:
    """(N, C, H, W), made without the code under test."""
    stack = np.stack(pictures)
    return np.moveaxis(stack if stack.ndim == 4 else stack[..., None], -1, 1)


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty mirror that UNDERTOW_DATA names."""
    monkeypatch.setenv("UNDERTOW_DATA", str(tmp_path / "mirror"))
    (tmp_path / "mirror").mkdir()
    return tmp_path / "mirror"


@pytest.fixture
def own_hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The hub's library keeps its copies in a folder of the test."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hub")
    yield tmp_path / "hub"
    assert datasets.is_progress_bar_enabled(), "the settings of the library were not put back"


def fill(
    folder: Path, *, train: int = 9, test: int = 6, colour: bool = True, test_split: str = "test"
) -> None:
    for split, count, seed in (("train", train, 1), (test_split, test, 2)):
        blobs = [png(pixels) for pixels in draw(count, colour=colour, seed=seed)]
        labels = [at % 3 for at in range(count)]
        write_parquet(folder / "data" / f"{split}-00000-of-00001.parquet", blobs, labels, names=NAMES)


# -- the mirror


@pytest.mark.parametrize(("name", "colour"), [("mnist", False), ("cifar10", True)])
def test_a_mirror_gives_the_pixels_labels_and_names_that_went_in(
    mirror: Path, name: str, colour: bool
) -> None:
    fill(mirror / name, colour=colour)
    data = load_named(name, seed=0)
    np.testing.assert_array_equal(data.train.x, as_tensor_layout(draw(9, colour=colour, seed=1)))
    np.testing.assert_array_equal(data.test.x, as_tensor_layout(draw(6, colour=colour, seed=2)))
    assert data.train.y.tolist() == [0, 1, 2] * 3
    assert data.train.x.dtype == torch.uint8
    assert (data.classes, data.name, data.note, data.scaling) == (NAMES, name, "", "half")


def test_a_subset_stands_in_only_where_the_full_set_is_missing_and_is_said(mirror: Path) -> None:
    fill(mirror / "svhn_subset")
    assert load_named("svhn", 0).note == "svhn_subset stands in for svhn."
    fill(mirror / "svhn", train=12)
    data = load_named("svhn", 0)
    assert (len(data.train), data.note) == (12, "")


def test_changed_bytes_are_not_answered_from_the_cache(mirror: Path) -> None:
    fill(mirror / "svhn")
    before = load_named("svhn", 0)
    fill(mirror / "svhn", test=3)
    assert (len(before.test), len(load_named("svhn", 0).test)) == (6, 3)


def test_grey_and_palette_pictures_become_colour_in_a_colour_set(mirror: Path) -> None:
    """Tiny ImageNet has grey JPEGs: a decoder that trusts the first picture would fail on them."""
    grey, colour = draw(1, colour=False, seed=3)[0], draw(1, seed=4)[0]
    blobs = [png(colour), png(grey)] * 3
    for split in ("train", "valid"):
        file = mirror / "tiny_imagenet" / "data" / f"{split}-00000-of-00001.parquet"
        write_parquet(file, blobs, [0, 1] * 3, names=("a", "b"))
    data = load_named("tiny_imagenet", 0)
    np.testing.assert_array_equal(data.test.x[0], np.moveaxis(colour, -1, 0))
    np.testing.assert_array_equal(data.test.x[1], np.stack([grey] * 3))


@pytest.mark.parametrize("split", ["validation", "valid", "val"])
def test_a_validation_split_serves_as_test(mirror: Path, split: str) -> None:
    fill(mirror / "cifar10", test_split=split)
    assert len(load_named("cifar10", 0).test) == 6


def test_test_comes_before_validation(mirror: Path) -> None:
    fill(mirror / "cifar10", test=3, test_split="validation")
    fill(mirror / "cifar10", test=6)
    assert len(load_named("cifar10", 0).test) == 6


def test_the_hubs_column_names_are_known(mirror: Path) -> None:
    """CIFAR-100 on the hub: img, fine_label, coarse_label; the fine ones are wanted."""
    for split in ("train", "test"):
        file = mirror / "cifar100" / "data" / f"{split}-00000-of-00001.parquet"
        write_parquet(
            file, list(map(png, draw(6))), [0, 1] * 3, image="img", label="fine_label", names=("a", "b")
        )
    assert load_named("cifar100", 0).classes == ("a", "b")


def test_shards_are_joined_in_order_and_a_missing_one_is_noticed(mirror: Path) -> None:
    fill(mirror / "svhn")
    pictures = draw(6, seed=8)
    data = mirror / "svhn" / "data"
    (data / "train-00000-of-00001.parquet").unlink()
    for shard in range(2):
        blobs = [png(pixels) for pixels in pictures[3 * shard :][:3]]
        write_parquet(data / f"train-{shard:05}-of-00002-0123abcd.parquet", blobs, [0, 1, 2], names=NAMES)
    np.testing.assert_array_equal(load_named("svhn", 0).train.x, as_tensor_layout(pictures))
    (data / "train-00000-of-00002-0123abcd.parquet").unlink()
    with pytest.raises(BadData, match=r"wanted 2 files .* got 1"):
        load_named("svhn", 0)


def test_the_hubs_own_folders_are_found(tmp_path: Path) -> None:
    """A copy of a hub repository may hold a folder for each configuration instead of `data`."""
    place = Place(repo="owner/svhn", config="cropped_digits")
    fill(tmp_path)
    (tmp_path / "data").rename(tmp_path / "cropped_digits")
    assert find_splits(tmp_path, place)["train"][0].parent.name == "cropped_digits"
    assert find_splits(tmp_path, replace(place, config=""))["train"][0].parent.name == "cropped_digits"
    fill(tmp_path / "again")
    (tmp_path / "again" / "data").rename(tmp_path / "full_numbers")
    assert find_splits(tmp_path, place)["train"][0].parent.name == "cropped_digits"
    with pytest.raises(NotThere, match="several folders with some: cropped_digits, full_numbers"):
        find_splits(tmp_path, replace(place, config=""))


def test_without_a_test_split_some_is_held_out_and_that_is_said(mirror: Path) -> None:
    fill(mirror / "owner" / "name", train=30)
    (mirror / "owner" / "name" / "data" / "test-00000-of-00001.parquet").unlink()
    data = load_named("hub:owner/name", seed=4)
    assert (len(data.train), len(data.test)) == (24, 6)
    assert data.test.y.bincount().tolist() == [2, 2, 2]
    assert "20% of each class (6 samples) held out with seed 4" in data.note


def test_labels_without_names_are_numbered(mirror: Path) -> None:
    for split in ("train", "test"):
        write_parquet(mirror / "svhn" / "data" / f"{split}.parquet", list(map(png, draw(6))), [0, 1] * 3)
    assert load_named("svhn", 0).classes == ("0", "1")


def broken(mirror: Path, **changes: object) -> None:
    """A mirror of svhn with one thing wrong in its training split."""
    fill(mirror / "svhn")
    given = {"blobs": list(map(png, draw(6))), "labels": [0, 1, 2] * 2, "names": NAMES, **changes}
    write_parquet(mirror / "svhn" / "data" / "train-00000-of-00001.parquet", **given)  # type: ignore[arg-type]


whole = list(map(png, draw(6)))
BROKEN = {
    "unreadable image": (
        {"blobs": [*whole[:4], b"no image", whole[0]]},
        r"svhn/train, row 4: wanted an image",
    ),
    "cut image": (
        {"blobs": [*whole[:2], whole[0][:60], *whole[3:]]},
        r"svhn/train, row 2: wanted a whole image",
    ),
    "no image": ({"blobs": [*whole[:5], None]}, r"column image: .* none in row 5"),
    "other size": ({"blobs": [*whole[:5], png(draw(1, size=(7, 4))[0])]}, r"row 5: wanted 4x5 .* got 4x7"),
    "float labels": ({"labels": [0.0, 1.0, 2.0] * 2}, "whole-number class labels, got double"),
    "text labels": ({"labels": ["a", "b", "c"] * 2}, "whole-number class labels, got string"),
    "no label": ({"labels": [0, 1, None, 0, 1, 2]}, "none in row 2"),
    "label out of range": ({"labels": [0, 1, 2, 0, 3, 2]}, r"0 to 2, got 3 at index 4"),
    "hidden labels": ({"labels": [-1] * 6}, r"got -1 at index 0 \(6 such"),
    "one class": ({"labels": [1] * 6}, "only class 1"),
    "no rows": ({"blobs": [], "labels": np.array([], np.int64)}, "at least one sample"),
    "image column": (
        {"image": "picture", "names": None},
        "wanted a column of images, got columns picture, label",
    ),
    "label column": ({"label": "kind", "names": None}, "wanted a column of labels, got columns image, kind"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_table_is_refused_and_not_cached(mirror: Path, what: str) -> None:
    changes, says = BROKEN[what]
    broken(mirror, **changes)
    for _ in range(2):
        with pytest.raises(BadData, match=says):
            load_named("svhn", 0)


def test_a_file_that_is_no_parquet_is_named(mirror: Path) -> None:
    fill(mirror / "svhn")
    (mirror / "svhn" / "data" / "test-00000-of-00001.parquet").write_bytes(b"PAR1 or not")
    with pytest.raises(BadData, match=r"test-00000-of-00001\.parquet: wanted a parquet file"):
        load_named("svhn", 0)


def test_a_mirror_without_files_says_what_it_wants(mirror: Path) -> None:
    (mirror / "mnist").mkdir()
    with pytest.raises(NotThere, match=r"data/train-\*\.parquet, as on the hub, got none"):
        load_named("mnist", 0)
    fill(mirror / "mnist")
    (mirror / "mnist" / "data" / "train-00000-of-00001.parquet").unlink()
    with pytest.raises(NotThere, match="wanted a split 'train', got test"):
        load_named("mnist", 0)


# -- names and options


def test_hub_options_are_read() -> None:
    name, place = parse_place("hub:owner/name:config=small,image=picture,label=kind,test=dev")
    assert name == "owner/name"
    assert place == Place(repo="owner/name", config="small", image="picture", label="kind", test="dev")
    assert parse_place("svhn") == ("svhn", DATA["svhn"].hub)


def test_named_columns_and_splits_are_used(mirror: Path) -> None:
    folder = mirror / "owner" / "name" / "data"
    write_parquet(folder / "fit-0-of-1.parquet", list(map(png, draw(6))), [0, 1] * 3, image="a", label="b")
    write_parquet(folder / "dev-0-of-1.parquet", list(map(png, draw(4))), [0, 1] * 2, image="a", label="b")
    data = load_named("hub:owner/name:image=a,label=b,train=fit,test=dev", 0)
    assert (len(data.train), len(data.test)) == (6, 4)
    with pytest.raises(UnknownName, match=r"no split of .* 'dve'\. Did you mean 'dev'"):
        load_named("hub:owner/name:image=a,label=b,train=fit,test=dve", 0)
    with pytest.raises(UnknownName, match=r"no column of .* 'c'"):
        load_named("hub:owner/name:image=a,label=c,train=fit", 0)


def test_bad_names_and_options() -> None:
    with pytest.raises(UnknownName, match=r"no option of hub:owner/name 'lable'\. Did you mean 'label'"):
        parse_place("hub:owner/name:lable=x")
    with pytest.raises(UnknownName, match=r"no option of mnist 'n'\. Known: none"):
        parse_place("mnist:n=5")
    with pytest.raises(UnknownName, match="Did you mean 'mnist'"):
        parse_place("mnst")
    with pytest.raises(BadValue, match="hub:owner/name"):
        parse_place("hub:")


# -- the hub's library


def test_the_hub_reader_and_the_mirror_reader_give_the_same_bits(tmp_path: Path, own_hub_cache: Path) -> None:
    """The library reads a local folder as it reads a repository; the bytes take both ways."""
    folder = tmp_path / "tiny"
    fill(folder)
    from_hub, from_mirror = read_hub(Place(repo=str(folder))), read_mirror(folder, Place(repo=""))
    assert own_hub_cache.is_dir()
    assert from_hub.notes == from_mirror.notes
    assert sorted(from_hub.tensors) == ["test_x", "test_y", "train_x", "train_y"]
    for name, tensor in from_mirror.tensors.items():
        assert torch.equal(from_hub.tensors[name], tensor), name


def test_a_repository_of_single_pictures_is_read_too(tmp_path: Path, own_hub_cache: Path) -> None:
    """There the library's tables hold paths only; a cache key from them would miss changed pictures."""
    folder = tmp_path / "pets"
    for seed, (split, name) in enumerate((s, n) for s in ("train", "test") for n in ("cat", "dog")):
        write_pictures(folder / split / name, draw(3, seed=seed))
    ours = load_folder(folder, 0)
    theirs = as_data_set(read_hub(Place(repo=str(folder))), "pets", seed=0)
    assert theirs.fingerprint == ours.fingerprint
    assert theirs.classes == ours.classes
    _, files = hub.fetch_tables(Place(repo=str(folder)))
    assert files == []


@pytest.mark.parametrize("way", ["path", "path with dots", "link", "nothing"])
def test_a_set_reads_no_pictures_but_its_own(tmp_path: Path, own_hub_cache: Path, way: str) -> None:
    """Fails if a row's path may be any file of this machine."""
    folder, private = tmp_path / "theirs", tmp_path / "private"
    write_pictures(private, draw(1))
    told = {
        "path": str(private / "0.png"), "path with dots": "../private/0.png", "link": "link.png", "nothing": None,
    }[way]  # fmt: skip
    fill(folder)
    (folder / "link.png").symlink_to(private / "0.png")
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    rows = [{"bytes": None, "path": told}] * 3
    features = {"image": {"_type": "Image"}, "label": {"names": list(NAMES), "_type": "ClassLabel"}}
    table = pa.table({"image": pa.array(rows, kind), "label": [0, 1, 2]})
    about = {"huggingface": json.dumps({"info": {"features": features}})}
    pq.write_table(table.replace_schema_metadata(about), folder / "data" / "train-00000-of-00001.parquet")
    with pytest.raises(BadData, match="leads out of it" if told else "neither an image nor the path"):
        read_hub(Place(repo=str(folder)))


def test_an_earlier_download_is_used_without_the_network(
    tmp_path: Path, own_hub_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tiny"
    fill(folder)
    expected = read_hub(Place(repo=str(folder)))
    (own_hub_cache / "tiny").rename(own_hub_cache / "owner___tiny")  # where a download would lie
    monkeypatch.setattr(hub, "_hub_answers", lambda repo: False)
    found = read_hub(Place(repo="owner/tiny"))
    assert torch.equal(found.tensors["train_x"], expected.tensors["train_x"])
    with pytest.raises(hub.HubProblem, match="no earlier download"):
        read_hub(Place(repo="owner/other"))


def test_the_offline_switch_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails if one set without network leaves the user's whole process offline."""
    datasets = pytest.importorskip("datasets")
    from huggingface_hub import constants

    monkeypatch.setattr(hub, "_hub_answers", lambda repo: False)
    for settings in (datasets.config, constants):
        monkeypatch.setattr(settings, "HF_HUB_OFFLINE", False)
    with pytest.raises(hub.HubProblem):
        hub.fetch_tables(Place(repo="owner/none"))
    assert not datasets.config.HF_HUB_OFFLINE
    assert not constants.HF_HUB_OFFLINE


def test_a_silent_hub_is_given_up_soon_with_both_ways(
    monkeypatch: pytest.MonkeyPatch, own_hub_cache: Path
) -> None:
    """Left alone the library retries for about 25 s: fails if the first question is not asked or not bounded."""
    import huggingface_hub

    waits: list[float] = []

    def silent(self: object, repo: str, timeout: float = 0) -> None:
        waits.append(timeout)
        raise TimeoutError("no answer")

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", silent)
    monkeypatch.delenv("UNDERTOW_DATA", raising=False)
    with pytest.raises(NotThere) as caught:
        load_named("mnist", 0)
    assert waits == [hub.PATIENCE]
    message = str(caught.value)
    assert "UNDERTOW_DATA is not set" in message
    assert "mnist/data/train-*.parquet" in message
    assert "the hub does not answer" in message
    assert "ylecun/mnist" in message


def test_a_set_that_the_hub_does_not_have_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("datasets")
    monkeypatch.delenv("UNDERTOW_DATA", raising=False)
    with pytest.raises(NotThere, match="the hub has no public data set 'a/b/c'"):
        load_named("hub:a/b/c", 0)  # refused before any request: no such name can be


def test_without_the_library_both_ways_are_said(mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(NotThere) as caught:
        load_named("cifar10", 0)
    message = str(caught.value)
    assert "has no folder cifar10" in message
    assert "pip install 'undertow[hub]'" in message
    assert "cifar10/data/train-*.parquet" in message


# -- real sets

REAL = {  # of the mirror's subsets: name -> training, test samples, classes
    "mnist": (60_000, 10_000, 10),
    "fashion_mnist": (60_000, 10_000, 10),
    "cifar10": (25_000, 10_000, 10),
    "cifar100": (10_000, 5_000, 100),
    "svhn": (801, 282, 10),
    "tiny_imagenet": (8_000, 2_000, 40),
}


@pytest.mark.realdata
@pytest.mark.parametrize("name", ["svhn", "tiny_imagenet"])
def test_real_sets_have_the_catalogues_shape(real_data: Path, name: str) -> None:
    data = load_named(name, 0)
    if data.note:
        assert (len(data.train), len(data.test), len(data.classes)) == REAL[name]
    assert data.shape == DATA[name].shape
    assert data.kind == "image"


@pytest.mark.realdata
def test_real_svhn_is_the_same_by_both_readers(real_data: Path, own_hub_cache: Path) -> None:
    folder = next(real_data.glob("svhn*"))
    place = Place(repo=str(folder), mode="RGB")
    from_hub, from_mirror = read_hub(place), read_mirror(folder, place)
    assert all(torch.equal(from_hub.tensors[name], tensor) for name, tensor in from_mirror.tensors.items())


@pytest.mark.realdata
def test_real_mnist_is_decoded_once(real_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The known first label and mean pixel of MNIST; the second load reads no picture."""
    first = load_named("mnist", 0)
    monkeypatch.setattr(Image, "open", lambda *_: pytest.fail("a picture was decoded again"))
    again = load_named("mnist", 0)
    assert again.fingerprint == first.fingerprint
    assert first.train.y[:5].tolist() == [5, 0, 4, 1, 9]
    assert abs(float(first.train.x.float().mean()) / 255 - 0.1307) < 1e-4
    assert (len(first.train), len(first.test)) == (60_000, 10_000)
