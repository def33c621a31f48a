"""Everything that a paper shows is listed, with a study that exists or the reason why there is none."""

from __future__ import annotations

import re

import pytest

from undertow.studies.catalogue import STUDIES
from undertow.studies.papers import ITEMS, PAPERS


@pytest.mark.parametrize("room", PAPERS)
def test_every_item_has_a_study_or_a_reason(room):
    for item in ITEMS[room]:
        assert item.study in STUDIES if item.study else item.note, item.what
    named = [item.study for item in ITEMS[room] if item.study]
    assert len(named) == len(set(named))


@pytest.mark.parametrize(("room", "kind", "last"), [
    ("temporal", "figure", 19), ("temporal", "table", 2), ("latent", "figure", 24), ("richness", "figure", 25),
    ("richness", "table", 10),
])  # fmt: skip
def test_no_figure_or_table_is_left_out(room, kind, last):
    assert _numbers(room, kind) == set(range(1, last + 1))


def _numbers(room, kind):
    """The numbers behind "figure", "figures", "table" or "tables", with ranges such as "21 to 24"."""
    found = set()
    for part in (part for item in ITEMS[room] for part in _parts(item.what)):
        words = part.replace(",", " ").split()
        if words[0] in (kind, f"{kind}s"):
            numbers = [int(word) for word in words if word.isdigit()]
            found |= set(range(numbers[0], numbers[-1] + 1)) if "to" in words else set(numbers)
    return found


def _parts(text):
    """A text such as "figure 3, table 3 row 7" in pieces; rows are no tables of their own."""
    plain = re.sub(r" row \d+", "", text)
    pieces = re.split(r"(?=(?:figure|table|appendix|equation|theorem))", plain)
    return [one.strip(", ") for one in pieces if one.strip(", ")]
