"""Conditions of --fail-if: what is understood, what is refused, and that no gate passes unseen."""

from __future__ import annotations

import pytest

from undertow.auditing import MEASURES, parse_condition
from undertow.errors import BadData, BadValue, UnknownName


@pytest.mark.parametrize(
    ("text", "value", "holds"),
    [
        ("latent_gap > 0.1", 0.2, True),
        ("latent_gap>0.1", 0.1, False),
        ("latent_gap >= .1", 0.1, True),
        (" latent_gap < 1e-1 ", 0.05, True),
        ("latent_gap <= -2", -2.0, True),
        ("latent_gap == 3", 3.0, True),
        ("latent_gap != 3", 3.0, False),
    ],
)
def test_conditions(text: str, value: float, holds: bool):
    assert parse_condition(text).holds({"latent_gap": value}) is holds


@pytest.mark.parametrize(
    "text",
    ["", "latent_gap", "latent_gap 0.1", "latent_gap > x", "0.1 < latent_gap", "a > 1 and b > 2", "d_lr => 1",
     "__import__('os') > 1", "latent_gap > 0.1; 1"],
)  # fmt: skip
def test_anything_else_is_refused_with_an_example(text: str):
    with pytest.raises(BadValue, match=r'For example "latent_gap > 0\.1"'):
        parse_condition(text)


def test_unknown_names_are_answered():
    with pytest.raises(UnknownName, match="Did you mean 'latent_gap'"):
        parse_condition("latent_gp > 0.1")
    assert parse_condition("latent_gap_low > 0.1").name == "latent_gap_low"
    with pytest.raises(UnknownName, match="latent_gap_lo"):
        parse_condition("latent_gap_lo > 0.1")


def test_a_number_that_is_not_there_does_not_pass():
    """A gate that cannot look would let everything through."""
    with pytest.raises(BadData, match="memorised: wanted a number to compare"):
        parse_condition("memorised > 0.1").holds({"accuracy": 0.9})


def test_every_measure_of_an_audit_is_known(audited):
    names = {name.removesuffix("_low").removesuffix("_high") for name in audited("memorising").measures}
    assert names == set(MEASURES)
