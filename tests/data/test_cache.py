"""The cache of decoded sets: what it finds, what it must not, and what it throws away."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from undertow import files
from undertow.data import cache
from undertow.data.cache import Decoded, cached, content_key


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("UNDERTOW_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("UNDERTOW_CACHE_LIMIT", raising=False)
    cache.warn_once.cache_clear()
    return tmp_path / "cache"


class Maker:
    """Makes an entry and counts how often it was asked to."""

    def __init__(self, size: int = 1000) -> None:
        self.calls = 0
        self.size = size

    def __call__(self) -> Decoded:
        self.calls += 1
        return Decoded({"x": torch.arange(self.size) % 251 == 0, "y": torch.arange(3)}, {"classes": '["a"]'})


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))


def test_a_second_call_finds_the_first_ones_entry() -> None:
    make = Maker()
    first, second = cached("k", make), cached("k", make)
    assert make.calls == 1
    assert second.notes == first.notes == {"classes": '["a"]'}
    for name, tensor in first.tensors.items():
        assert torch.equal(second.tensors[name], tensor)
        assert second.tensors[name].dtype == tensor.dtype
    cached("other", make)
    assert make.calls == 2


def test_writing_to_a_loaded_tensor_does_not_reach_the_file() -> None:
    """Fails if the file is mapped shared: one training would spoil the data of the next."""
    make = Maker()
    cached("k", make)
    cached("k", make).tensors["y"].fill_(9)
    assert cached("k", make).tensors["y"].tolist() == [0, 1, 2]
    assert make.calls == 1


@pytest.mark.parametrize("harm", ["torn", "empty", "text", "foreign", "other key", "folder"])
def test_a_torn_or_foreign_file_is_made_anew(folder: Path, harm: str) -> None:
    make = Maker()
    cached("k", make)
    (entry,) = entries(folder)
    whole = entry.read_bytes()
    match harm:
        case "torn":
            entry.write_bytes(whole[: len(whole) // 2])
        case "empty":
            entry.write_bytes(b"")
        case "text":
            entry.write_text("not a tensor")
        case "foreign":
            save_file({"x": torch.zeros(2)}, entry)
        case "other key":
            save_file({"x": torch.zeros(2)}, entry, {cache.STAMP: "not k"})
        case _:
            entry.unlink()
            entry.mkdir()
    if harm == "folder":  # cannot be replaced: works uncached and says so
        with pytest.warns(RuntimeWarning, match="not kept"):
            assert cached("k", make).tensors["y"].tolist() == [0, 1, 2]
        return
    assert cached("k", make).tensors["y"].tolist() == [0, 1, 2]
    assert cached("k", make).tensors["y"].tolist() == [0, 1, 2]
    assert make.calls == 2


def test_the_least_recently_used_goes_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails if age of writing decides instead of last use, or if the limit is not kept."""
    monkeypatch.setenv("UNDERTOW_CACHE_LIMIT", "25KB")
    make = Maker(size=10_000)
    cached("a", make)
    cached("b", make)
    long_ago = time.time() - 1000
    for age, entry in enumerate(entries(folder)):
        os.utime(entry, (long_ago + age, long_ago + age))
    cached("a", make)  # now b is the older one
    cached("c", make)
    assert make.calls == 3
    assert sum(entry.stat().st_size for entry in entries(folder)) <= 25_000
    cached("a", make)
    cached("c", make)
    assert make.calls == 3
    cached("b", make)
    assert make.calls == 4


def test_what_is_larger_than_the_limit_is_not_kept_and_evicts_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached("small", Maker(10))
    monkeypatch.setenv("UNDERTOW_CACHE_LIMIT", "1KB")
    make = Maker(5000)
    cached("big", make)
    cached("big", make)
    assert make.calls == 2
    assert len(entries(folder)) == 1
    monkeypatch.setenv("UNDERTOW_CACHE_LIMIT", "0")
    cached("none", Maker(10))
    assert len(entries(folder)) == 1


def test_only_our_own_files_are_deleted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails if pointing the cache at a folder with someone's weights could cost them."""
    folder.mkdir()
    mine = folder / "my-model.safetensors"
    save_file({"w": torch.zeros(100_000)}, mine)
    monkeypatch.setenv("UNDERTOW_CACHE_LIMIT", "15KB")
    for key in "abc":
        cached(key, Maker(10_000))
    assert mine.is_file()
    assert len(entries(folder)) == 2


def test_leftovers_of_killed_processes_go_after_a_day(folder: Path) -> None:
    folder.mkdir()
    old, new = folder / ".data-x.safetensors.1.part", folder / ".data-x.safetensors.2.part"
    for part in (old, new):
        part.write_bytes(b"half")
    os.utime(old, (time.time() - 2 * files.DAY,) * 2)
    cached("k", Maker())
    assert (old.exists(), new.exists()) == (False, True)


def test_an_unwritable_folder_works_uncached_with_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("UNDERTOW_CACHE", str(tmp_path / "file" / "cache"))
    make = Maker()
    with pytest.warns(RuntimeWarning, match=r"not kept.*Set UNDERTOW_CACHE"):
        cached("k", make)
    assert cached("k", make).tensors["y"].tolist() == [0, 1, 2]  # a second warning would be an error
    assert make.calls == 2


def test_a_failure_in_making_leaves_nothing_behind(folder: Path) -> None:
    def fail() -> Decoded:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        cached("k", fail)
    assert not entries(folder)


def test_the_key_follows_content_order_and_words(tmp_path: Path) -> None:
    """Fails if a name or a date counts, or if two lists of parts run into one."""
    one, two, copy = (tmp_path / name for name in ("one", "two", "copy"))
    one.write_bytes(b"1" * 5000)
    two.write_bytes(b"2" * 5000)
    copy.write_bytes(b"1" * 5000)
    keys = [
        content_key("v1", one, two),
        content_key("v2", one, two),
        content_key("v1", two, one),
        content_key("v1", one),
        content_key("v1one"),
        content_key("v1", "one"),
        content_key("v", "1one"),
    ]
    assert len(set(keys)) == len(keys)
    assert content_key("v1", copy, two) == keys[0]
