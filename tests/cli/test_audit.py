"""`undertow audit` as a person and a CI job meet it."""

from __future__ import annotations

import json
import shutil

import pandas as pd
import pytest
import torch

import undertow as ut
from undertow.cli import main
from undertow.rows import COLUMNS

TRAIN = ["train", "mlp:32-32", "--data", "digits", "--noise", "0.4", "--device", "cpu", "--quiet"]
FACTORY = """
import undertow as ut

def net():
    return ut.build_model("mlp:32-32", (1, 8, 8), 10, seed=4)
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "noisy"
    assert main([*TRAIN, "--epochs", "4", "--checkpoints", "0,2,4", "--out", str(path)]) == 0
    return path


def call(capsys, *arguments):
    code = main([str(argument) for argument in arguments])
    seen = capsys.readouterr()
    return code, seen.out, seen.err


def test_the_verdict_is_on_the_screen_and_in_the_folder(capsys, run):
    code, out, err = call(capsys, "audit", run)
    assert (code, err) == (0, "")
    assert out.startswith("This takes about ")
    assert "noisy · test labels taken as true" in out
    for topic in (
        "training",
        "memorising",
        "knowledge",
        "repair",
        "richness",
        "window",
        "noise",
        "checkpoint",
    ):
        assert f"│  {topic} " in out
    headline = json.loads((run / "audit.json").read_text())["headline"]
    assert "".join(headline.split()) in "".join(out.replace("│", "").split()), "cut off at the panel's edge"
    assert (run / "audit.parquet").exists()
    assert "<html" in (run / "report.html").read_text(encoding="utf-8")
    code, out, _ = call(capsys, "audit", run)
    assert out.startswith("All of it was computed before.")


def test_json_and_csv_elsewhere(capsys, run, tmp_path):
    arguments = [
        "--json",
        "--csv",
        tmp_path / "rows.csv",
        "--out",
        tmp_path / "out",
        "--no-report",
        "--quick",
    ]
    code, out, err = call(
        capsys, "audit", run, *arguments, "--lenses", "richness", "--fail-if", "accuracy < 0.01"
    )
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["quick"] is True
    assert found["failed"] == []
    assert found["measures"]["accuracy_low"] < found["measures"]["accuracy"]
    rows = pd.read_csv(tmp_path / "rows.csv")
    assert tuple(rows.columns) == COLUMNS
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "audit.json",
        "audit.parquet",
        "cache",
    }


def test_the_gate(capsys, run):
    quick = ["audit", run, "--lenses", "richness", "--no-report"]
    code, out, err = call(
        capsys, *quick, "--fail-if", "accuracy < 2", "--fail-if", "d_lr > 5", "--fail-if", "broken<1"
    )
    assert code == 3
    assert err.splitlines()[0].startswith("undertow: failed: accuracy < 2 (it is 0.")
    assert err.splitlines()[1] == "undertow: failed: broken < 1 (it is 0)"
    assert "training" in out
    assert call(capsys, *quick, "--fail-if", "accuracy > 2", "--fail-if", "d_lr > 5")[0] == 0


LENS = """
from undertow.rows import Row

class Found:
    def rows(self):
        return [Row("own", "loudness", 4, "output", 11.0)]

def look(session):
    return Found()
"""


def test_a_lens_of_ones_own_has_rows_and_a_gate(capsys, run, tmp_path, monkeypatch):
    (tmp_path / "lens_of_audit.py").write_text(LENS)
    monkeypatch.syspath_prepend(tmp_path)
    where = ["audit", run, "--out", tmp_path / "out", "--lenses", "lens_of_audit:look"]
    code, _, err = call(capsys, *where, "--fail-if", "loudness > 10")
    assert code == 3
    assert err == "undertow: failed: loudness > 10 (it is 11)\n"
    assert "own" in set(pd.read_parquet(tmp_path / "out" / "audit.parquet")["lens"])
    code, _, err = call(capsys, *where, "--no-report", "--fail-if", "loudnes > 10")
    assert code == 1, "a gate that cannot look must not pass"
    assert "loudnes" in err


def test_a_quick_gate_leaves_a_full_audit_alone(capsys, run):
    call(capsys, "audit", run)
    full = {name: (run / name).read_bytes() for name in ("audit.json", "audit.parquet", "report.html")}
    code, out, err = call(capsys, "audit", run, "--quick", "--fail-if", "accuracy < 2")
    assert code == 3
    assert err.startswith("undertow: failed: accuracy < 2")
    assert f"Written: {run / 'audit-quick' / 'audit.parquet'}" in out
    assert {name: (run / name).read_bytes() for name in full} == full


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--fail-if", "latent_gp > 0.1"], 2, "Did you mean 'latent_gap'"),
        (["--fail-if", "latent_gap above 0.1"], 2, "NAME OPERATOR NUMBER"),
        (["--fail-if", "latent_gap > 0.1", "--lenses", "richness"], 1, "this audit has none"),
        (["--layers", "layr1"], 2, "Did you mean 'layer1'"),
        (["--labels", "dirty"], 2, "dirty"),
        (["--memory", "much"], 2, "much"),
        (["--checkpoints", "3"], 2, "The nearest are"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(capsys, run, tmp_path, arguments, code, message):
    got, _, err = call(capsys, "audit", run, "--out", tmp_path, "--no-report", *arguments)
    assert got == code
    assert message in err
    assert len(err.splitlines()) == 1


def test_anyones_folder_with_a_factory(capsys, run, tmp_path, monkeypatch):
    """Checkpoints by another loop, a model by name, labels that nobody knows."""
    (tmp_path / "factory_of_audit.py").write_text(FACTORY)
    monkeypatch.syspath_prepend(tmp_path)
    folder = tmp_path / "ckpts"
    folder.mkdir()
    opened = ut.open_run(run)
    for at in opened.epochs:
        torch.save(opened.weights(at), folder / f"step{at}.pth")
    arguments = [
        "--model",
        "factory_of_audit:net",
        "--data",
        "digits",
        "--labels",
        "none",
        "--json",
        "--no-report",
    ]
    code, out, err = call(capsys, "audit", folder, *arguments)
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["situation"] == "no labels"
    assert found["unit"] == "step"
    assert found["measures"]["window"] >= 0
    assert "accuracy" not in found["measures"]


def test_a_bar_for_the_whole_on_a_terminal(monkeypatch, run, tmp_path):
    """One bar that ends where it should, whatever the stages are called."""
    from rich.console import Console

    from undertow.cli import progress

    screen = Console(force_terminal=True, width=90, file=(tmp_path / "screen").open("w"))
    monkeypatch.setattr(progress, "console", lambda: screen)
    bar = progress.ProgressBar()
    fresh = shutil.copytree(
        run, tmp_path / "run", ignore=shutil.ignore_patterns("cache")
    )  # nothing known yet
    ut.audit(ut.open_run(fresh), out=tmp_path / "out", lenses="richness", progress=bar)
    screen.file.close()
    assert bar.done == pytest.approx(1.0)
    assert "passes, epoch" in (tmp_path / "screen").read_text()


def test_good_and_bad_news_differ_by_sign_word_and_colour(capsys, run):
    """A tick beside "memorising: yes" was read as good news."""
    from undertow.cli.audit import answer_text

    found = {"topic": "memorising", "answer": "yes", "short": "yes"}
    bad, good = answer_text(found), answer_text({**found, "answer": "no", "short": "no"})
    assert (bad.plain, good.plain) == ("✗ yes (bad)", "✓ no (good)")
    assert bad.style != good.style
    assert answer_text({**found, "meaning": "good"}).plain == "✓ yes (good)"
    assert answer_text({**found, "answer": "cannot tell", "short": "?"}).plain == "○ unknown"
    assert answer_text({"topic": "richness", "answer": "no", "short": "lazy"}).plain == "○ lazy (neutral)"
    _, out, _ = call(capsys, "audit", run, "--json", "--no-report")
    assert {one["meaning"] for one in json.loads(out)["verdict"]} <= {"good", "bad", "unknown"}


def test_a_head_whose_weight_is_computed(capsys, tmp_path, monkeypatch):
    """Fails if a head with weight norm ends in torch's own words."""
    net = "nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), weight_norm(nn.Linear(16, 10)))"
    imports = "from torch import nn\nfrom torch.nn.utils.parametrizations import weight_norm\n"
    (tmp_path / "normed_net.py").write_text(f"{imports}\ndef net():\n    return {net}\n")
    monkeypatch.syspath_prepend(tmp_path)
    import normed_net

    torch.save(normed_net.net().state_dict(), tmp_path / "model.pt")
    code, out, err = call(
        capsys, "audit", tmp_path / "model.pt", "--model", "normed_net:net", "--data", "digits"
    )
    assert (code, err) == (0, "")
    assert "richness" in out
