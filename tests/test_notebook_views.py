"""What notebooks show of runs, verdicts and labels; names from outside never become markup."""

from __future__ import annotations

from pathlib import Path

import torch

import undertow as ut
from undertow.auditing.finding import Finding
from undertow.auditing.outcome import Verdict


def test_a_verdict_is_a_table():
    shown = Verdict([Finding("place", "In <b>x</b>.", "yes", short="<i>")], "It <memorised>.")._repr_html_()
    assert "It &lt;memorised&gt;." in shown
    assert "&lt;i&gt;" in shown
    assert "<b>x" not in shown


def test_a_run_says_what_it_holds(tmp_path: Path):
    with ut.Recorder(tmp_path / "a<b") as recorder:
        recorder.save(torch.nn.Linear(2, 2), 3)
    assert "<b>a&lt;b</b> · 1 checkpoint · epoch 3" in ut.open_run(tmp_path / "a<b")._repr_html_()


def test_labels_show_the_rate_and_the_first_suspects():
    rng = torch.Generator().manual_seed(0)
    truth = torch.arange(200) % 2
    x = torch.randn(200, 4, generator=rng) + 6 * truth[:, None]
    given = truth.clone()
    given[:10] = 1 - given[:10]
    names = ["<cat>" if one else "dog" for one in given.tolist()]
    shown = ut.label_errors(features=x, labels=names)._repr_html_()
    assert shown.count("<tr>") == 11
    assert "&lt;cat&gt;" in shown
    assert "<cat>" not in shown
