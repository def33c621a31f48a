"""What work says of itself where nobody watches a bar: a line now and then in a log."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest
import torch

import undertow as ut
from undertow.cli.progress import ProgressBar
from undertow.session import progress
from undertow.session.progress import LOG_EVERY, LogLines, NoProgress, TextBar, python_progress


@pytest.fixture(autouse=True)
def as_in_real_life(monkeypatch):
    monkeypatch.setattr(progress, "LOG_EVERY", LOG_EVERY)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_short_work_leaves_no_line():
    told = io.StringIO()
    lines = LogLines(told, clock=Clock())
    lines.plan("about 3 s", 4)
    for _ in range(4):
        lines.step("epoch", 0.25)
    lines.close()
    assert told.getvalue() == ""


def test_long_work_says_its_plan_then_how_far_it_is():
    """Fails if every step is a line, if the plan is lost, or if the time left is wrong."""
    told, clock = io.StringIO(), Clock()
    lines = LogLines(told, clock=clock)
    lines.plan("6 of 31 checkpoints", 0)
    lines.plan("about 2 min", 128)
    for at in range(1, 129):
        clock.now += 1
        lines.step(f"epoch {at}", 1 / 128)
    said = told.getvalue().splitlines()
    assert said[:2] == ["6 of 31 checkpoints", "about 2 min"]
    assert len(said) - 2 == 128 // LOG_EVERY
    assert said[2] == " 16 % done: epoch 20 [0:20 < 1:48]"


def test_a_script_gets_lines_a_terminal_a_bar(monkeypatch):
    told = io.StringIO()
    monkeypatch.setattr(sys, "stderr", told)
    assert isinstance(python_progress(None), LogLines)
    assert isinstance(python_progress(False), NoProgress)
    assert isinstance(python_progress(True), TextBar)
    told.isatty = lambda: True
    assert isinstance(python_progress(None), TextBar)


@pytest.mark.parametrize("shown", [True, False])
def test_every_verb_can_be_told_to_show_a_bar_or_nothing(shown, capsys):
    """Fails where a verb takes True or False for a progress of its own."""
    draws = torch.Generator().manual_seed(0)
    y = torch.arange(120) % 3
    x = torch.randn(120, 8, generator=draws) + 3 * torch.nn.functional.one_hot(y, 8)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    split: dict[str, Any] = {"train": (x[:80], y[:80]), "test": (x[80:], y[80:])}
    ut.label_errors(features=x, labels=y, progress=shown)
    ut.probe_grid(model, **split, probes=["velpic"], progress=shown)
    ut.repair(model, **split, progress=shown)
    session = ut.Session(model, **split, progress=shown)
    ut.label_errors(session, progress=shown)
    assert bool(capsys.readouterr().err) == shown


def test_a_command_in_a_log_says_how_far_it_is(capsys: pytest.CaptureFixture[str], monkeypatch):
    """Its answer on standard output stays free of them."""
    monkeypatch.setattr(progress, "LOG_EVERY", 0.0)
    bar = ProgressBar()
    bar.plan("about 2 min", 2)
    bar.step("passes, epoch 3", 0.5)
    bar.close()
    out, err = capsys.readouterr()
    assert out == "about 2 min\n"
    assert err.startswith(" 50 % done: passes, epoch 3 [")
    quiet = ProgressBar(quiet=True)
    quiet.plan("about 2 min", 2)
    quiet.step("passes, epoch 3", 0.5)
    assert capsys.readouterr() == ("", "")
