"""`undertow study` as a user sees it."""

from __future__ import annotations

import json

import pytest

from undertow.cli import main


def smoke(name, out):
    return ["study", "run", name, "--scale", "smoke", "--out", str(out), "--workers", "1"]


def test_list_names_every_study(capsys):
    from undertow.studies.catalogue import STUDIES

    assert main(["study", "list"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in STUDIES)
    assert "min" in out


@pytest.mark.parametrize("width", [80, 100])
def test_no_name_is_broken_and_rooms_stay_together(capsys, monkeypatch, width):
    from rich.console import Console

    from undertow.cli import study
    from undertow.studies.catalogue import STUDIES

    monkeypatch.setattr(study, "console", lambda: Console(width=width, highlight=False))
    assert main(["study", "list"]) == 0
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines() if line.split(" ")[0] in STUDIES] == list(STUDIES)
    assert "richness/...: paper 002, Decoupling dynamical richness" in out
    rooms = [name.partition("/")[0] for name in STUDIES]
    assert rooms == sorted(rooms, key=["richness", "latent", "temporal", "beyond"].index)


def test_show_says_what_a_scale_changes(capsys):
    assert main(["study", "show", "richness/weight-decay", "--scale", "laptop"]) == 0
    out = capsys.readouterr().out
    assert "epochs 200 → 10" in out
    assert "lr 1e-06 → 0.0001" in out
    assert "D_LR rises" in out
    assert "Paper 002: Decoupling dynamical richness" in out


def test_run_tells_paper_ours_within_and_claims(capsys, tmp_path):
    command = smoke("richness/target-scale", tmp_path)
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "within" in out
    assert "holds: " in out
    assert "changed: epochs 100 → 3" in out
    assert (tmp_path / "richness/target-scale/smoke/claims.json").exists()
    assert main([*command, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["study"] == "richness/target-scale"
    assert len(told["comparison"]) == 21


def test_wrong_names_are_answered(capsys, tmp_path):
    assert main(["study", "run", "richness/target-scal"]) == 2
    assert "Did you mean 'richness/target-scale'" in capsys.readouterr().err
    assert main(["study", "run", "richness/target-scale", "--scale", "huge", "--out", str(tmp_path)]) == 2
    assert "There is no scale 'huge'" in capsys.readouterr().err
    assert main(["study", "run"]) == 2
    assert "wanted names of studies, or --all" in capsys.readouterr().err
    assert main(["study", "run", "richness/target-scale", "--all"]) == 2
    assert "wanted names of studies, or --all" in capsys.readouterr().err


def test_one_case_is_run_by_its_name(capsys, tmp_path):
    command = smoke("richness/nystrom", tmp_path)
    assert main([*command, "--cases", "exponent 1", "--cases", "exponent 2"]) == 0
    out = capsys.readouterr().out
    assert "2/2  richness/nystrom, exponent 2, seed 0" in out
    assert "exponent 0.5" not in out
    assert main([*command, "--cases", "exponent"]) == 2
    assert "Did you mean 'exponent 2' or 'exponent 1'" in capsys.readouterr().err


@pytest.fixture
def no_data(monkeypatch, tmp_path):
    """Neither a mirror nor an earlier download nor the network."""
    monkeypatch.delenv("UNDERTOW_DATA", raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.setenv("UNDERTOW_CACHE", str(tmp_path / "cache"))


def test_missing_data_stops_before_any_training(capsys, tmp_path, no_data):
    """Also where another study of the same command would have its data."""
    names = ["richness/nystrom", "richness/weight-decay"]
    assert main(["study", "run", *names, "--out", str(tmp_path / "out"), "--workers", "1"]) == 1
    error = capsys.readouterr().err
    assert "Nothing was trained, because data is missing for richness/weight-decay. mnist: " in error
    assert "UNDERTOW_DATA" in error
    assert not (tmp_path / "out" / "runs").exists()
    assert not (tmp_path / "out" / "richness").exists()


def test_a_case_needs_its_own_data_alone(capsys, tmp_path, no_data):
    names = ["temporal/memory", "--scale", "paper", "--out", str(tmp_path / "out"), "--workers", "1"]
    assert main(["study", "run", *names, "--cases", "conv net on SVHN"]) == 1
    error = capsys.readouterr().err
    assert "svhn: " in error
    assert "mnist" not in error


def test_a_finished_study_needs_no_data(capsys, tmp_path, monkeypatch):
    command = smoke("richness/nystrom", tmp_path)
    assert main(command) == 0
    monkeypatch.setattr("undertow.engine.study_runner.check_data", lambda studies: found.extend(studies))
    found = []
    assert main(command) == 0
    assert found == []


def test_list_tells_costs_and_where_data_is(capsys, no_data):
    assert main(["study", "list", "--json"]) == 0
    told = {one["study"]: one for one in map(json.loads, capsys.readouterr().out.splitlines())}
    one = told["richness/target-scale"]
    assert one["data"] == {"smoke": {}, "laptop": {"mnist": "to download"}, "paper": {"mnist": "to download"}}
    assert one["cost"]["laptop"].endswith(" min")
    assert told["latent/masc-dynamics"]["cost"]["paper"].endswith(" GPU h")
    assert main(["study", "show", "richness/target-scale"]) == 0
    assert "data: mnist (to download)" in capsys.readouterr().out


def test_report_writes_one_page(capsys, tmp_path):
    assert main(smoke("richness/nystrom", tmp_path)) == 0
    capsys.readouterr()
    assert main(["study", "report", str(tmp_path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {
        "path": str(tmp_path / "report.html"),
        "bytes": (tmp_path / "report.html").stat().st_size,
        "studies": 1,
    }
    assert "richness/nystrom" in (tmp_path / "report.html").read_text()


def test_a_folder_without_studies_is_refused_with_a_way_on(capsys, tmp_path):
    assert main(["study", "report", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert "holds no study" in error
    assert "undertow study run NAME --out" in error
    assert main(["study", "report", str(tmp_path / "nowhere")]) == 1
    assert "does not exist" in capsys.readouterr().err
