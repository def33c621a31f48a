"""`undertow report`, `undertow figure` and `undertow serve` as a person meets them."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from undertow.cli import main
from undertow.cli.app import app


@pytest.fixture
def run(tmp_path):
    """A run with an accuracy and a little drift."""
    path = tmp_path / "m40"
    path.mkdir()
    (path / "run.json").write_text(json.dumps({"format": 1, "config": None, "data": {"name": "digits"}}))
    pd.DataFrame({"epoch": [0, 1], "test_accuracy": [0.1, 0.9]}).to_parquet(path / "metrics.parquet")
    drift = {
        "lens": "temporal",
        "measure": "parameter_drift",
        "layer": "all",
        "checkpoint": [0, 1],
        "value": [1.0, 0.0],
    }
    pd.DataFrame(drift).to_parquet(path / "audit.parquet")
    return path


def call(capsys, *arguments):
    code = main([str(argument) for argument in arguments])
    seen = capsys.readouterr()
    return code, seen.out, seen.err


def test_report_lies_with_its_run(capsys, run):
    code, out, err = call(capsys, "report", run)
    assert (code, err) == (0, "")
    assert out.startswith(f"Written: {run / 'report.html'} (")
    assert "Best layer knows" not in (text := (run / "report.html").read_text())
    assert "90.0\u00a0%" in text


def test_several_runs_go_into_one_page(capsys, run, tmp_path):
    code, out, _ = call(capsys, "report", run, run, "--out", tmp_path / "both.html", "--json")
    assert code == 0
    assert json.loads(out) == {
        "path": str(tmp_path / "both.html"),
        "bytes": (tmp_path / "both.html").stat().st_size,
    }
    assert "2 runs" in (tmp_path / "both.html").read_text()


def test_several_runs_without_a_place_go_here(capsys, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert call(capsys, "report", run, run)[0] == 0
    assert (tmp_path / "report.html").exists()
    assert not (run / "report.html").exists()


def test_open_shows_the_file(capsys, run, monkeypatch):
    shown = []
    monkeypatch.setattr("webbrowser.open", shown.append)
    call(capsys, "report", run, "--open")
    assert shown == [(run / "report.html").resolve().as_uri()]


def test_a_folder_without_a_run_is_answered(capsys, tmp_path):
    code, _, err = call(capsys, "report", tmp_path)
    assert code == 1
    assert err.startswith(f"undertow: {tmp_path}: this is not a run's folder")


def test_figures_in_several_formats(capsys, run):
    code, out, _ = call(capsys, "figure", run, "drift", "--format", "png, pdf")
    assert code == 0
    assert out.splitlines() == [
        f"Written: {run / 'figures' / f'drift.{ending}'}" for ending in ("png", "pdf")
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["drfit"], 2, "There is no figure 'drfit'. Did you mean 'drift'?"),
        (["swap"], 1, "nothing for the figure 'swap'"),
        (["drift", "--format", "gif"], 2, "There is no format 'gif'"),
        (["drift", "--format", ","], 2, "--format names no format. Choose some of png, pdf, svg."),
    ],
)
def test_figures_that_cannot_be_drawn_are_answered(capsys, run, arguments, code, message):
    found, _, err = call(capsys, "figure", run, *arguments)
    assert found == code
    assert message in err


def test_serve_says_where_and_stops_quietly(capsys, run, monkeypatch):
    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr("http.server.ThreadingHTTPServer.serve_forever", interrupted)
    code, out, err = call(capsys, "serve", run.parent, "--port", "0")
    assert (code, err) == (0, "")
    assert "http://127.0.0.1:" in out


def test_serve_without_a_folder_is_answered(capsys, tmp_path):
    code, _, err = call(capsys, "serve", tmp_path / "nowhere")
    assert code == 1
    assert "There is no folder" in err


@pytest.mark.parametrize("name", ["report", "figure", "serve"])
def test_commands_are_listed_with_their_help(capsys, name):
    app.help_print([name])
    assert name in capsys.readouterr().out
