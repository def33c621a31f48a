"""What is kept comes back exactly, or not at all."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import pytest

from undertow.errors import BadValue
from undertow.session.cache import Cache, key_of

KEY = key_of("weights", "samples", 3)


@dataclass(frozen=True)
class Inner:
    name: str
    share: float | None


@dataclass(frozen=True, eq=False)
class Kept:
    """Everything that values of gauges are made of."""

    number: int
    exact: float
    maybe: float | None
    words: str
    parts: tuple[Inner, ...]
    by_layer: dict[str, float | None]
    array: np.ndarray
    arrays: dict[str, np.ndarray]
    nothing: np.ndarray | None


def kept() -> Kept:
    random = np.random.default_rng(0)
    return Kept(
        number=2**40,
        exact=0.1 + 0.2,
        maybe=None,
        words="Größe",
        parts=(Inner("a", 1 / 3), Inner("b", None)),
        by_layer={"layer1": float(np.nextafter(1.0, 2.0)), "all": None},
        array=random.standard_normal((3, 5)),
        arrays={
            "float32": random.standard_normal((2, 0, 3)).astype("f4"),
            "int": np.arange(4, dtype=np.int16),
        },
        nothing=None,
    )


def test_typed_values_come_back_equal_to_the_last_bit(tmp_path: Path):
    cache, value = Cache(tmp_path / "cache"), kept()
    assert cache.put("probes layer/2", 20, KEY, value) is value
    found = cache.get("probes layer/2", 20, KEY, Kept)
    assert isinstance(found, Kept)
    for own in fields(Kept):
        one, other = getattr(value, own.name), getattr(found, own.name)
        if isinstance(one, np.ndarray):
            same_array(one, other)
        elif own.name == "arrays":
            assert one.keys() == other.keys()
            for name in one:
                same_array(one[name], other[name])
        else:
            assert one == other
            assert type(one) is type(other)
    found.array[0] = 0  # what comes back may be written to


def same_array(one: np.ndarray, other: np.ndarray) -> None:
    assert (one.dtype, one.shape) == (other.dtype, other.shape)
    np.testing.assert_array_equal(one, other)


def test_other_names_numbers_and_keys_are_other_values(tmp_path: Path):
    cache = Cache(tmp_path)
    cache.put("a", 1, KEY, Inner("one", 1.0))
    assert cache.get("a", 2, KEY, Inner) is None
    assert cache.get("b", 1, KEY, Inner) is None
    assert cache.get("a", 1, key_of("weights", "samples", 4), Inner) is None
    cache.put("a/b", 1, KEY, Inner("slash", 1.0))
    cache.put("a-b", 1, KEY, Inner("dash", 1.0))
    assert cache.get("a/b", 1, KEY, Inner) == Inner("slash", 1.0), "layers may be called anything"


def test_a_value_with_any_flipped_byte_is_as_good_as_none(tmp_path: Path):
    """Fails if a damaged file is taken for what was measured, or stops the work."""
    cache = Cache(tmp_path)
    cache.put("a", 1, KEY, kept())
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    for place in range(0, len(whole), 7):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
        assert cache.get("a", 1, KEY, Kept) is None, place
    for length in (0, 5, len(KEY), len(KEY) + 10, len(whole) - 1):
        file.write_bytes(whole[:length])
        assert cache.get("a", 1, KEY, Kept) is None, length
    file.write_bytes(whole)
    assert cache.get("a", 1, KEY, Kept) is not None


def test_values_of_a_folder_behind_are_found_and_it_is_left_as_it_is(tmp_path: Path):
    """Another's run that must not be written to; fails if its damaged file is removed, or taken for measured."""
    theirs = Cache(tmp_path / "theirs")
    theirs.put("a", 1, KEY, Inner("one", 1.0))
    cache = Cache(tmp_path / "mine", tmp_path / "theirs")
    assert cache.has("a", 1, KEY)
    assert cache.get("a", 1, KEY, Inner) == Inner("one", 1.0)
    (file,) = theirs.folder.iterdir()
    damaged = file.read_bytes()[:-1]
    file.write_bytes(damaged)
    assert cache.get("a", 1, KEY, Inner) is None
    assert not cache.has("a", 1, KEY)
    cache.put("a", 1, KEY, Inner("two", 2.0))
    assert cache.get("a", 1, KEY, Inner) == Inner("two", 2.0)
    assert file.read_bytes() == damaged


def test_a_value_of_another_type_is_as_good_as_none(tmp_path: Path):
    """Fails if an older undertow's value, of other fields, is read as today's."""
    cache = Cache(tmp_path)
    cache.put("a", 1, KEY, Inner("one", 1.0))
    assert cache.get("a", 1, KEY, Kept) is None


def test_what_cannot_be_kept_is_said(tmp_path: Path):
    @dataclass(frozen=True)
    class Odd:
        thing: object

    with pytest.raises(BadValue, match="wanted plain values and numpy arrays, got 'object'"):
        Cache(tmp_path).put("a", 1, KEY, Odd(object()))
    assert not list(tmp_path.glob("*.bin"))


def test_keys_differ_with_any_part_and_not_with_the_order_of_names():
    assert key_of(1, None, "a") != key_of(1, "a", None)
    assert key_of({"a": 1, "b": 2}) == key_of({"b": 2, "a": 1})
    assert key_of("ab", "c") != key_of("a", "bc")


def test_a_damaged_value_that_may_not_be_removed_is_passed_over(tmp_path: Path, monkeypatch):
    """Fails on the system's own error where a cache with a flipped byte may only be read."""
    cache = Cache(tmp_path)
    cache.put("a", 1, KEY, Inner("one", 1.0))
    (file,) = tmp_path.glob("*.bin")
    file.write_bytes(file.read_bytes()[:-1])

    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "unlink", refuse)
    assert cache.get("a", 1, KEY, Inner) is None
    assert not cache.has("a", 1, KEY)
