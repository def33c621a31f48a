"""Numbers, names and answers as people read them."""

from __future__ import annotations

import pytest

from undertow.words import MARKS, layer_name, meaning_of, number


@pytest.mark.parametrize(
    ("topic", "yes", "no"),
    [
        ("training", "good", "bad"), ("memorising", "bad", "good"), ("knowledge", "good", "unknown"),
        ("repair", "good", "unknown"), ("richness", "unknown", "unknown"), ("window", "good", "unknown"),
        ("place", "unknown", "unknown"), ("noise", "bad", "good"), ("checkpoint", "good", "good"),
        ("no such topic", "unknown", "unknown"),
    ],
)  # fmt: skip
def test_what_an_answer_means_where_nobody_says_it(topic, yes, no):
    found = [meaning_of({"topic": topic, "answer": answer}) for answer in ("yes", "no", "cannot tell")]
    assert found == [yes, no, "unknown"]


def test_a_finding_that_says_what_it_means_is_believed():
    assert meaning_of({"topic": "memorising", "answer": "yes", "meaning": "unknown"}) == "unknown"
    assert meaning_of({"topic": "memorising", "answer": "yes", "meaning": "<b>"}) == "bad"


def test_no_two_meanings_share_a_sign_a_word_or_a_colour():
    for field in ("sign", "said", "colour"):
        assert len({getattr(mark, field) for mark in MARKS.values()}) == 3
    assert MARKS["unknown"].word("yes") == "neutral"
    assert MARKS["unknown"].word("cannot tell") == "unknown"


def test_numbers_and_layers():
    assert [number(value) for value in (0.048712, 7.5e-14, 0, 12345.6, 1234)] == [
        "0.0487",
        "7.5e-14",
        "0",
        "1.2e+04",
        "1234",
    ]
    assert (layer_name("3"), layer_name("layer2")) == ("layer 3", "layer2")
