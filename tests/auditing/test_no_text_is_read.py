"""Notes and sentences are for people: no module reads them back."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import undertow

SOURCE = Path(undertow.__file__).parent
ROOMS = ("auditing", "report", "labels", "repairing")
TEXT = r"(?:\.(?:note|sentence|headline)|\[[\"'](?:note|sentence|headline)[\"']\])"
"""A field that holds text, as an attribute or a column."""
METHODS = "startswith|endswith|removeprefix|removesuffix|partition|rpartition|split|rsplit|find|match|contains|extract"
READS = re.compile(
    rf"{TEXT}(?:\.str)?\.(?:{METHODS})\(|[\"'][^\"'\n]*[\"'] in \w+(?:\.\w+)*{TEXT}|\bre\.\w+\([^\n]*{TEXT}"
)


def read_back(code: str) -> list[str]:
    """Places where text is taken apart, or asked what it says."""
    return [found.group() for found in READS.finditer(code)]


def test_nothing_reads_notes_or_sentences():
    found = {
        str(path.relative_to(SOURCE)): places
        for room in ROOMS
        for path in sorted((SOURCE / room).rglob("*.py"))
        if (places := read_back(path.read_text(encoding="utf-8")))
    }
    assert not found


@pytest.mark.parametrize(
    "code",
    [
        'if row.note.startswith("broken"):',
        'name = row["note"].removeprefix("Entered in ")',
        'kind, _, why = rows[0]["note"].partition(":")',
        'broken = table[table["note"].str.startswith("broken")]',
        'if "no longer fit" in finding.sentence:',
        "found = re.search(r'in (.*?):', one.note)",
        "first = audit.headline.split('. ')[0]",
    ],
)
def test_the_guard_notices_planted_code(code: str):
    assert read_back(code)


@pytest.mark.parametrize(
    "code",
    ['Row("a", note=one.note)', 'yield {"note": row.note or why}', 'lines.append(finding.sentence + ".")'],
)
def test_the_guard_lets_text_pass_on(code: str):
    assert not read_back(code)
