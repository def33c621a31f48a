"""`undertow study` as a user sees it."""

from __future__ import annotations

import json

from undertow.cli import main


def test_list_names_every_study(capsys):
    from undertow.studies.catalogue import STUDIES

    assert main(["study", "list"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in STUDIES)
    assert "min" in out


def test_show_says_what_a_scale_changes(capsys):
    assert main(["study", "show", "richness/weight-decay", "--scale", "laptop"]) == 0
    out = capsys.readouterr().out
    assert "epochs 200 → 10" in out
    assert "weight decay 100 → 2000" in out
    assert "D_LR rises" in out


def test_run_tells_paper_ours_within_and_claims(capsys, tmp_path):
    command = [
        "study",
        "run",
        "richness/target-scale",
        "--scale",
        "smoke",
        "--out",
        str(tmp_path),
        "--workers",
        "1",
    ]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "within" in out
    assert "holds: " in out
    assert "changed: epochs 100 → 3" in out
    assert (tmp_path / "richness/target-scale/smoke/claims.json").exists()
    assert main([*command, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["study"] == "richness/target-scale"
    assert len(told["comparison"]) == 18


def test_wrong_names_are_answered(capsys, tmp_path):
    assert main(["study", "run", "richness/target-scal"]) == 2
    assert "Did you mean 'richness/target-scale'" in capsys.readouterr().err
    assert main(["study", "run", "richness/target-scale", "--scale", "huge", "--out", str(tmp_path)]) == 2
    assert "There is no scale 'huge'" in capsys.readouterr().err
    assert main(["study", "run"]) == 2
    assert "study list" in capsys.readouterr().err


def test_missing_data_fails_with_its_sentence_and_keeps_the_rest(capsys, tmp_path, monkeypatch):
    monkeypatch.delenv("UNDERTOW_DATA", raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("UNDERTOW_CACHE", str(tmp_path / "cache"))
    code = main(["study", "run", "richness/weight-decay", "--out", str(tmp_path), "--workers", "1"])
    error = capsys.readouterr().err
    assert code == 1
    assert "1 task failed" in error
    assert "mnist" in error
