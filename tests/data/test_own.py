"""Own data: folders, arrays and torch Datasets; each bad input is refused by file or index."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from undertow.data.decode import decode_images
from undertow.data.folder import load_folder
from undertow.data.own import load_arrays, load_dataset, load_path
from undertow.errors import BadData, NotThere, UnknownName

Pixels = NDArray[np.uint8]


def draw(count: int, *, size: tuple[int, ...] = (5, 4, 3), seed: int = 0) -> Pixels:
    return np.random.default_rng(seed).integers(0, 256, (count, *size), np.uint8)


def write(folder: Path, pictures: Pixels, ending: str = "png") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for at, pixels in enumerate(pictures):
        Image.fromarray(pixels).save(folder / f"{at}.{ending}")


def labels(count: int, classes: int = 2) -> NDArray[np.int64]:
    return np.arange(count) % classes


# -- image folders


def test_a_folder_gives_its_pictures_in_order(tmp_path: Path) -> None:
    for split, seed in (("train", 0), ("test", 10)):
        for number, name in enumerate(("cat", "dog")):
            write(tmp_path / "pets" / split / name, draw(4, seed=seed + number))
    data = load_path(tmp_path / "pets", seed=0)
    expected = np.concatenate([draw(4, seed=0), draw(4, seed=1)]).transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(data.train.x, expected)
    np.testing.assert_array_equal(data.test.x[4:], draw(4, seed=11).transpose(0, 3, 1, 2))
    assert data.train.y.tolist() == [0] * 4 + [1] * 4
    assert (data.classes, data.name, data.note, data.scaling) == (("cat", "dog"), "pets", "", "half")


@pytest.mark.parametrize("test", ["val", "valid", "validation"])
def test_other_names_for_the_test_split(tmp_path: Path, test: str) -> None:
    for split, count in (("train", 4), (test, 2)):
        for name in ("cat", "dog"):
            write(tmp_path / split / name, draw(count))
    assert len(load_folder(tmp_path, 0).test) == 4


@pytest.mark.parametrize("split", ["", "train"])
def test_without_a_test_split_the_seed_holds_out_a_fifth_of_each_class(tmp_path: Path, split: str) -> None:
    write(tmp_path / split / "cat", draw(20))
    write(tmp_path / split / "dog", draw(10))
    data = load_folder(tmp_path, seed=1)
    assert data.test.y.bincount().tolist() == [4, 2]
    assert data.train.y.bincount().tolist() == [16, 8]
    assert "held out with seed 1" in data.note
    assert not torch.equal(data.test.index, load_folder(tmp_path, seed=2).test.index)


def test_what_is_no_picture_is_passed_over(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        write(tmp_path / name, draw(5))
        write(tmp_path / name / "more", draw(5))
        (tmp_path / name / "Thumbs.db").write_text("no picture")
        (tmp_path / name / ".hidden.png").write_text("no picture")
        (tmp_path / name / ".cache").mkdir()
        (tmp_path / name / ".cache" / "old.png").write_text("no picture")
    (tmp_path / ".git").mkdir()
    (tmp_path / "README.txt").write_text("about")
    data = load_folder(tmp_path, 0)
    assert (len(data.train) + len(data.test), data.classes) == (20, ("cat", "dog"))


def test_grey_stays_one_channel_and_one_coloured_picture_makes_all_coloured(tmp_path: Path) -> None:
    write(tmp_path / "cat", draw(5, size=(5, 4)))
    write(tmp_path / "dog", draw(5, size=(5, 4)))
    assert load_folder(tmp_path, 0).shape == (1, 5, 4)
    write(tmp_path / "dog", draw(1))
    assert load_folder(tmp_path, 0).shape == (3, 5, 4)


def test_a_changed_or_moved_picture_is_noticed(tmp_path: Path) -> None:
    """Fails if the cache key leaves out the bytes or the class."""
    write(tmp_path / "cat", draw(5))
    write(tmp_path / "dog", draw(5, seed=1))
    first = load_folder(tmp_path, 0)
    assert load_folder(tmp_path, 0).fingerprint == first.fingerprint
    write(tmp_path / "dog", draw(1, seed=2))
    changed = load_folder(tmp_path, 0)
    assert changed.fingerprint != first.fingerprint
    (tmp_path / "cat" / "4.png").rename(tmp_path / "dog" / "-.png")  # still the fifth of all
    assert load_folder(tmp_path, 0).fingerprint != changed.fingerprint


def test_bad_folders(tmp_path: Path) -> None:
    write(tmp_path / "one" / "cat", draw(3))
    with pytest.raises(BadData, match="two classes or more, got cat"):
        load_folder(tmp_path / "one", 0)
    (tmp_path / "none").mkdir()
    with pytest.raises(BadData, match="got none"):
        load_folder(tmp_path / "none", 0)
    for name in ("cat", "dog"):
        write(tmp_path / "gap" / name, draw(3))
    (tmp_path / "gap" / "eel").mkdir()
    with pytest.raises(BadData, match=r"gap/eel: wanted pictures, got none"):
        load_folder(tmp_path / "gap", 0)


def test_test_classes_must_be_training_classes_but_may_be_fewer(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        write(tmp_path / "train" / name, draw(3))
    (tmp_path / "test").mkdir()
    with pytest.raises(BadData, match=r"test: wanted pictures in sub-folders"):
        load_folder(tmp_path, 0)
    write(tmp_path / "test" / "dog", draw(3))
    assert load_folder(tmp_path, 0).test.y.tolist() == [1, 1, 1]
    write(tmp_path / "test" / "dgo", draw(3))
    with pytest.raises(UnknownName, match=r"'dgo'\. Did you mean 'dog'"):
        load_folder(tmp_path, 0)


@pytest.mark.parametrize("harm", ["text", "cut", "size", "deep"])
def test_a_bad_picture_is_named(tmp_path: Path, harm: str) -> None:
    write(tmp_path / "cat", draw(3, size=(20, 20, 3)))
    write(tmp_path / "dog", draw(3, size=(20, 20, 3)))
    bad = tmp_path / "dog" / "1.png"
    match harm:
        case "text":
            bad.write_text("no picture")
        case "cut":
            bad.write_bytes(bad.read_bytes()[:-200])
        case "size":
            Image.fromarray(draw(1, size=(20, 21, 3))[0]).save(bad)
        case _:
            Image.fromarray(np.zeros((20, 20), np.uint16)).save(bad)
    says = {
        "text": "wanted an image",
        "cut": "wanted a whole image",
        "size": r"wanted 20x20 pixels as .*cat/0\.png has, got 21x20",
        "deep": "wanted 8 bits a channel, got mode I;16",
    }[harm]
    with pytest.raises(BadData, match=rf"dog/1\.png: {says}"):
        load_folder(tmp_path, 0)


# -- decoding


def encoded(image: Image.Image, form: str, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


def test_palettes_alpha_and_black_and_white_are_read() -> None:
    """Warnings are errors here: a palette with transparency, sent straight to RGB, warns."""
    red = Image.new("RGBA", (4, 5), (255, 0, 0, 128))
    palette = red.convert("RGB").quantize(4)
    transparent = encoded(palette, "PNG", transparency=bytes([255, 0, 0, 0]))
    blobs = [encoded(red, "PNG"), encoded(palette, "PNG"), transparent, encoded(red.convert("RGB"), "BMP")]
    x = decode_images(blobs, str)
    assert x.shape == (4, 3, 5, 4)
    assert x[:, 0].unique().tolist() == [255]
    assert x[:, 1:].unique().tolist() == [0]
    bits = decode_images([encoded(Image.new("1", (4, 5), 1), "PNG")], str)
    assert (bits.shape, bits.unique().tolist()) == ((1, 1, 5, 4), [255])


def test_photographs_are_turned_upright() -> None:
    pixels = draw(1, size=(6, 4))[0]
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned a quarter clockwise
    turned = encoded(Image.fromarray(pixels), "PNG", exif=exif)
    np.testing.assert_array_equal(decode_images([turned], str)[0, 0], np.rot90(pixels, -1))


# -- arrays


@pytest.mark.parametrize(
    ("shape", "sample"),
    [
        ((8, 6, 5), (1, 6, 5)),
        ((8, 6, 5, 3), (3, 6, 5)),
        ((8, 6, 5, 1), (1, 6, 5)),
        ((8, 3, 6, 5), (3, 6, 5)),
        ((8, 1, 6, 5), (1, 6, 5)),
        ((8, 3, 6, 3), (3, 6, 3)),
        ((8, 16, 6, 5), (16, 6, 5)),
        ((8, 6, 5, 4), (4, 6, 5)),
    ],
)
def test_axes_are_read_by_the_stated_rule(shape: tuple[int, ...], sample: tuple[int, ...]) -> None:
    x = draw(1, size=shape)[0]
    data = load_arrays(((x, labels(8)), (x, labels(8))), 0)
    assert data.shape == sample
    last = x[-1] if x[-1].shape == sample else x[-1][None] if x.ndim == 3 else np.moveaxis(x[-1], -1, 0)
    np.testing.assert_array_equal(data.test.x[-1], last)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ">f4", np.longdouble])
def test_float_vectors_of_any_width_become_float32(dtype: Any) -> None:
    x = np.linspace(-3, 3, 60).reshape(20, 3).astype(dtype)
    data = load_arrays((x, labels(20)), 0)
    assert (data.kind, data.scaling, data.train.x.dtype) == ("vector", "none", torch.float32)
    np.testing.assert_array_equal(data.train.x, x[data.train.index].astype(np.float32))


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint16, ">i8"])
def test_whole_numbers_are_tokens_or_pixels(dtype: Any) -> None:
    x = np.arange(60).reshape(20, 3).astype(dtype)
    assert load_arrays((x, labels(20)), 0).kind == "tokens"
    images = load_arrays((x.reshape(20, 1, 3), labels(20)), 0)
    assert (images.kind, images.train.x.dtype) == ("image", torch.uint8)


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int16, np.uint64, ">i4"])
def test_labels_of_any_whole_type(dtype: Any) -> None:
    data = load_arrays((np.zeros((20, 3)), labels(20).astype(dtype)), 0)
    assert data.train.y.dtype == torch.int64
    assert torch.equal(data.train.y, data.train.index % 2)


def test_lists_tensors_and_gradients_are_taken() -> None:
    x = torch.randn(20, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    from_tensor = load_arrays((x, torch.arange(20) % 2), 0)
    from_list = load_arrays((x.tolist(), [at % 2 for at in range(20)]), 0)
    assert from_tensor.fingerprint == from_list.fingerprint
    assert not from_tensor.train.x.requires_grad


def test_later_changes_to_the_array_do_not_reach_the_set() -> None:
    x, tensor = np.zeros((4, 3), np.float32), torch.zeros(4, 3)
    data = load_arrays(((x, labels(4)), (tensor, labels(4))), 0)
    x += 1
    tensor += 1
    assert float(data.train.x.sum()) == float(data.test.x.sum()) == 0


def test_float_pixels_choose_their_scaling() -> None:
    unit = np.random.default_rng(0).random((20, 4, 4))
    assert load_arrays((unit, labels(20)), 0).scaling == "half"
    normal = load_arrays((unit * 4 - 2, labels(20)), 0)
    assert normal.scaling == "none"
    assert "taken as scaled already" in normal.note
    with pytest.raises(BadData, match="whole floats up to 255"):
        load_arrays((draw(20).astype(float), labels(20)), 0)
    with pytest.raises(BadData, match="both splits in one range"):
        load_arrays(((unit, labels(20)), (unit * 4 - 2, labels(20))), 0)


def bad_image(value: float) -> NDArray[np.float64]:
    x = np.full((20, 4, 4), 0.5)
    x[13, 2, 2] = value
    return x


BAD: dict[str, tuple[Any, str]] = {
    "NaN": ((bad_image(np.nan), labels(20)), "arrays: .* NaN or infinity in the sample at index 13"),
    "infinity": ((bad_image(-np.inf), labels(20)), "sample at index 13"),
    "too large for float32": ((bad_image(1e300), labels(20)), "sample at index 13"),
    "float labels": ((np.zeros((20, 3)), labels(20) + 0.5), "whole-number class labels, got float64"),
    "whole float labels": ((np.zeros((20, 3)), labels(20) * 1.0), "convert them to int64"),
    "text labels": ((np.zeros((4, 3)), ["a", "b", "a", "b"]), "return_inverse"),
    "column of labels": ((np.zeros((20, 3)), labels(20)[:, None]), r"got \(20, 1\)"),
    "negative label": ((np.zeros((20, 3)), labels(20) - 1), "got -1 at index 0"),
    "labels from one": ((np.zeros((20, 3)), labels(20) + 1), "got 1 at index 0 and no 0"),
    "one class": ((np.zeros((20, 3)), np.zeros(20, int)), "two classes or more, got 1"),
    "one class, not 0": ((np.zeros((20, 3)), np.ones(20, int)), "two classes or more, got 1"),
    "fewer labels": ((np.zeros((20, 3)), labels(19)), "20 samples and 19 labels"),
    "no images": ((np.zeros((0, 3, 3), int), labels(0)), "at least one sample, got none"),
    "no samples": ((np.zeros((0, 3)), labels(0)), "at least one sample, got none"),
    "ragged": (([[1.0, 2.0], [3.0]], [0, 1]), "several sizes"),
    "objects": ((np.array([None] * 20), labels(20)), "wanted numbers, got dtype object"),
    "complex": ((np.zeros((20, 3), complex), labels(20)), "wanted numbers, got dtype complex128"),
    "one axis": ((np.zeros(20), labels(20)), r"got \(20,\)"),
    "five axes": ((np.zeros((20, 1, 2, 2, 2)), labels(20)), r"got \(20, 1, 2, 2, 2\)"),
    "flat bytes": ((np.zeros((20, 9), np.uint8), labels(20)), r"Reshape pixels to \(N, H, W\)"),
    "pixel above 255": (
        (np.full((20, 2, 2), [[0, 0], [0, 256]]), labels(20)),
        "got others in the sample at index 0",
    ),
    "negative token": ((np.arange(-1, 39).reshape(20, 2), labels(20)), "got -1 in the sample at index 0"),
    "test label unknown": (
        ((np.zeros((4, 3)), labels(4)), (np.zeros((3, 3)), [0, 1, 2])),
        "test labels: .* got 2 at index 2",
    ),
    "empty test": (
        ((np.zeros((4, 3)), labels(4)), (np.zeros((0, 3)), labels(0))),
        "arrays/test: .* got none",
    ),
    "test of other shape": (
        ((np.zeros((4, 3)), labels(4)), (np.zeros((4, 2)), labels(4))),
        r"\(3,\) .* \(2,\)",
    ),
    "too few to hold out": ((np.zeros((4, 3)), labels(4)), "too few. Give a test split"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_arrays_are_refused_by_index(what: str) -> None:
    source, says = BAD[what]
    with pytest.raises(BadData, match=says):
        load_arrays(source, 0)


# -- files of arrays


def test_npz_with_and_without_a_test_split(tmp_path: Path) -> None:
    x, y = draw(20), labels(20)
    np.savez(tmp_path / "one.npz", x=x, y=y)
    np.savez_compressed(tmp_path / "two.npz", x_train=x, y_train=y, x_test=x[:6], y_test=y[:6])
    one, two = load_path(tmp_path / "one.npz", 0), load_path(tmp_path / "two.npz", 0)
    assert (len(one.train), len(one.test), one.name) == (16, 4, "one.npz")
    assert (len(two.train), len(two.test), two.note) == (20, 6, "")
    np.testing.assert_array_equal(two.train.x, x.transpose(0, 3, 1, 2))


def test_npz_may_name_its_classes_and_then_leave_some_out(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((20, 3)), y=labels(20), classes=np.array(["cat", "dog", "eel"]))
    assert load_path(tmp_path / "a.npz", 0).classes == ("cat", "dog", "eel")


def test_npy_pairs_and_quadruples_by_file_or_folder(tmp_path: Path) -> None:
    for folder, stems in (("pair", ["x", "y"]), ("four", ["x_train", "y_train", "x_test", "y_test"])):
        (tmp_path / folder).mkdir()
        for stem in stems:
            np.save(tmp_path / folder / f"{stem}.npy", draw(20) if stem[0] == "x" else labels(20))
        by_file = load_path(tmp_path / folder / f"{stems[0]}.npy", 0)
        assert by_file.fingerprint == load_path(tmp_path / folder, 0).fingerprint
        assert len(by_file.test) == (4 if folder == "pair" else 20)


def test_bad_files_are_named(tmp_path: Path) -> None:
    def refused(path: Path, says: str, error: type[Exception] = BadData) -> None:
        with pytest.raises(error, match=says):
            load_path(path, 0)

    refused(tmp_path / "gone.npz", r"gone\.npz: there is no such file", NotThere)
    np.savez(tmp_path / "keys.npz", images=draw(3), labels=labels(3))
    refused(tmp_path / "keys.npz", r"keys\.npz: wanted arrays x and y.*got images, labels")
    np.savez(tmp_path / "half.npz", x_train=draw(4), y_train=labels(4), x_test=draw(4))
    refused(tmp_path / "half.npz", "Add y_test")
    (tmp_path / "text.npz").write_text("no archive")
    refused(tmp_path / "text.npz", r"text\.npz: wanted plain arrays")
    np.savez(tmp_path / "torn.npz", x=draw(40), y=labels(40))
    torn = (tmp_path / "torn.npz").read_bytes()
    (tmp_path / "torn.npz").write_bytes(torn[: len(torn) // 2])
    refused(tmp_path / "torn.npz", r"torn\.npz: wanted plain arrays")
    np.save(tmp_path / "x.npy", draw(4))
    refused(tmp_path / "x.npy", "Add y")
    (tmp_path / "single.npz").write_bytes((tmp_path / "x.npy").read_bytes())
    refused(tmp_path / "single.npz", "got a single one")
    np.save(tmp_path / "other.npy", draw(4))
    refused(tmp_path / "other.npy", r"other\.npy: wanted x\.npy")
    (tmp_path / "data.csv").write_text("1,2")
    refused(tmp_path / "data.csv", r"data\.csv: wanted an \.npz or \.npy")


class Trap:
    """Unpickling it would leave a mark."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    """Fails if allow_pickle is on: the trap would have made its file."""
    mark = tmp_path / "sprung"
    np.savez(tmp_path / "objects.npz", x=np.array([Trap(mark)] * 4, object), y=labels(4))
    np.save(tmp_path / "x.npy", np.array([Trap(mark)], object), allow_pickle=True)
    np.save(tmp_path / "y.npy", labels(1))
    (tmp_path / "bare.npz").write_bytes(pickle.dumps(Trap(mark)))
    for name in ("objects.npz", "x.npy", "bare.npz"):
        with pytest.raises(BadData, match=rf"{name}.*Python objects \(a pickle\)"):
            load_path(tmp_path / name, 0)
    assert not mark.exists()


# -- torch Datasets


class Items(Dataset[Any]):
    """A map-style Dataset of given items."""

    def __init__(self, items: Sequence[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


class Stream(IterableDataset[Any]):
    def __init__(self, items: Sequence[Any]) -> None:
        self.items = items

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)


def test_datasets_of_all_kinds_give_what_the_arrays_give() -> None:
    x, y = draw(20, size=(5, 4)), labels(20)
    wanted = load_arrays((x, y), 0).fingerprint
    kinds: list[Dataset[Any]] = [
        TensorDataset(torch.from_numpy(x)[:, None], torch.from_numpy(y)),
        Items([(pixels, int(label)) for pixels, label in zip(x, y, strict=True)]),
        Items([[Image.fromarray(pixels), torch.tensor(label)] for pixels, label in zip(x, y, strict=True)]),
        Stream([(pixels, label) for pixels, label in zip(x, y, strict=True)]),
    ]
    for dataset in kinds:
        data = load_dataset(dataset, 0)
        assert data.fingerprint == wanted
        assert data.name == type(dataset).__name__


def test_a_pair_of_datasets_is_train_and_test() -> None:
    train = TensorDataset(torch.zeros(6, 3), torch.arange(6) % 2)
    test = TensorDataset(torch.zeros(4, 3), torch.arange(4) % 2)
    data = load_arrays((train, test), 0)
    assert (len(data.train), len(data.test)) == (6, 4)


good = (np.zeros(3, np.float32), 0)
BAD_ITEMS: dict[str, tuple[Dataset[Any], str]] = {
    "mixed sizes": (
        Items([good, good, (np.zeros(4), 1)]),
        r"shape \(3,\) as at index 0, got \(4,\) at index 2",
    ),
    "float label": (Items([good, (np.zeros(3), 1.0)]), r"got float64 of shape \(\) at index 1"),
    "one-hot label": (Items([good, (np.zeros(3), [0, 1])]), r"got int64 of shape \(2,\) at index 1"),
    "no pair": (Items([good, {"x": 1, "y": 2}]), "wanted pairs .* got dict at index 1"),
    "a triple": (Items([(1, 2, 3)]), "wanted pairs .* got tuple at index 0"),
    "empty": (Items([]), "at least one sample, got none"),
    "NaN": (Items([good] * 10 + [(np.full(3, np.nan), 1)] * 10), "sample at index 10"),
}


@pytest.mark.parametrize("what", BAD_ITEMS)
def test_bad_items_are_refused_by_index(what: str) -> None:
    dataset, says = BAD_ITEMS[what]
    with pytest.raises(BadData, match=says):
        load_dataset(dataset, 0)


def test_a_dataset_without_a_length_is_refused() -> None:
    class Endless(Dataset[Any]):
        def __getitem__(self, index: int) -> Any:
            return good

    with pytest.raises(BadData, match="Endless: wanted a Dataset with a length"):
        load_dataset(Endless(), 0)


def test_true_labels_come_with_the_arrays_and_strange_ones_are_refused(tmp_path):
    x, y = np.random.default_rng(0).random((20, 6, 6), np.float32), np.arange(20) % 2
    true = 1 - y
    np.savez(tmp_path / "mine.npz", x_train=x, y_train=y, x_test=x, y_test=y, true_train=true)
    assert load_path(tmp_path / "mine.npz", seed=0).train.true.tolist() == true.tolist()
    np.savez(tmp_path / "short.npz", x_train=x, y_train=y, x_test=x, y_test=y, true_train=true[:5])
    with pytest.raises(BadData, match="wanted one true label per sample, got 5 for 20 samples"):
        load_path(tmp_path / "short.npz", seed=0)
    np.savez(tmp_path / "more.npz", x_train=x, y_train=y, x_test=x, y_test=y, y_train_true=true)
    with pytest.raises(BadData, match=r"got also y_train_true\. Rename"):
        load_path(tmp_path / "more.npz", seed=0)
