"""Sizes as people write and read them."""

from __future__ import annotations

import pytest

from undertow.errors import BadValue
from undertow.sizes import parse_size, show_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512", 512),
        (512, 512),
        ("2GB", 2 * 10**9),
        ("2GiB", 2**31),
        ("500MB", 500_000_000),
        ("1.5 gb", 1_500_000_000),
        ("1.5g", 1_500_000_000),
        ("2KiB", 2048),
        ("3T", 3 * 10**12),
    ],
)
def test_sizes_are_read(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "GB", "two GB", "-2GB", "2 XB", "1,5GB", "2iB", "0", "0.5B", "1e9", "nan"]
)
def test_sizes_that_mean_nothing_are_refused(text):
    with pytest.raises(BadValue, match="limit: wanted"):
        parse_size(text, "limit")


def test_nothing_is_a_size_where_it_is_allowed():
    assert parse_size("0", least=0) == 0


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1500, "1.5 kB"),
        (335_544_320, "336 MB"),
        (2.1e9, "2.1 GB"),
        (5e13, "50.0 TB"),
    ],
)
def test_sizes_are_shown(size, text):
    assert show_size(size) == text
