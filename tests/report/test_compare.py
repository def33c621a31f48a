"""Which of two runs is better on what."""

from __future__ import annotations

import pytest

import undertow as ut
from undertow.errors import BadData, BadValue
from undertow.report.page import page_text
from undertow.report.saved import read_saved
from undertow.shares import difference, wilson


def measures(accuracy: float, d_lr: float) -> dict[str, float]:
    sure = wilson(accuracy, 500)
    return {"accuracy": accuracy, "accuracy_low": sure.low, "accuracy_high": sure.high, "d_lr": d_lr}


def test_differences_have_intervals_and_a_winner(make_audit, tmp_path):
    first = make_audit(tmp_path / "a", lenses=(), audit={"measures": measures(0.68, 0.2)})
    second = make_audit(tmp_path / "b", lenses=(), audit={"measures": measures(0.94, 0.3)})
    close = make_audit(tmp_path / "c", lenses=(), audit={"measures": measures(0.69, 0.3)})
    found = ut.compare([first, second, close])
    clear, rich, near, _ = found.differences
    exact = difference(wilson(0.94, 500), wilson(0.68, 500))
    assert (clear.gap, clear.low, clear.high) == tuple(exact)
    assert (clear.better, near.better, rich.better) == ("b", "cannot tell", "cannot tell")
    assert ut.compare([second, first]).differences[0].better == "b"
    assert "test accuracy: b +26 points" in str(found)
    assert len(found.table) == 4
    page = found.to_html(tmp_path / "x.html").read_text()
    for own in found.differences:  # the page says what the screen says
        assert own.size in page
        assert own.told in page
    assert "<li>" in found._repr_html_()
    assert "<h1>a, b, c</h1>" in page
    assert "<h1>b is better than a: 26.0 points of test accuracy.</h1>" in _page(first, second)
    assert "<h1>b is better than a: 26.0 points of test accuracy.</h1>" in _page(second, first)
    assert "<h1>a, c</h1>" in _page(first, close)


def test_runs_of_other_samples_are_not_ranked(make_audit, tmp_path):
    """Fails if 500 samples of one set and 400 of another name a winner without a word."""
    made = [
        make_audit(tmp_path / name, lenses=(), audit={"measures": measures(share, 0.2), "data": data})
        for name, share, data in (
            ("a", 0.68, {"name": "cats.npz", "classes": [], "train": 9, "test": 400}),
            ("b", 0.94, {"name": "dogs.npz", "classes": [], "train": 9, "test": 500}),
        )
    ]
    found = ut.compare(made)
    assert "Not judged on the same samples: a on 400 of cats.npz, b on 500 of dogs.npz." in str(found)
    page = _page(*made)
    assert found.note in page
    assert "<h1>a, b</h1>" in page
    assert ut.compare([made[0], made[0]]).note == ""


def _page(*folders) -> str:
    return page_text([read_saved(folder) for folder in folders])


def test_what_cannot_be_compared_is_said(make_audit, tmp_path):
    bare = make_audit(tmp_path / "a", lenses=())
    with pytest.raises(BadValue, match="two runs or more"):
        ut.compare([bare])
    with pytest.raises(BadData, match="undertow audit"):
        ut.compare([bare, bare])
