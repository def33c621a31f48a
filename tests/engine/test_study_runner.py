"""A study as a function: the same road as the command, without the screen."""

from __future__ import annotations

import inspect
from dataclasses import replace

import pandas as pd
import pytest

from undertow.engine import check_studies, run_study
from undertow.errors import BadValue, UnknownName
from undertow.studies import Case, find_study

NAME = "richness/nystrom"


def test_a_name_and_a_scale_are_enough(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = []
    outcome = run_study(NAME, "smoke", progress=told.append)
    assert [one.done for one in told] == [1, 2, 3, 4]
    assert outcome.failures == []
    assert str(outcome).startswith(f"{NAME} (smoke): Eigenvalues and spans")
    assert all(verdict.word in str(outcome) for _, verdict in outcome.verdicts())
    saved = pd.read_parquet(tmp_path / "studies" / NAME / "smoke" / "rows.parquet")
    pd.testing.assert_frame_equal(saved, outcome.findings.rows)


def test_finished_tasks_are_not_run_again(tmp_path):
    run_study(NAME, "smoke", out=tmp_path)
    told = []
    outcome = run_study(find_study(NAME), "smoke", seeds=range(2), out=tmp_path, progress=told.append)
    assert {one.task.arguments["seed"] for one in told} == {1}
    assert (outcome.facts["seeds"], outcome.facts["first_seed"]) == (2, 0)
    assert check_studies([find_study(NAME)], "smoke", 2, tmp_path) == []


def test_one_case_alone_leaves_the_others_unfinished(tmp_path):
    told = []
    outcome = run_study(NAME, "smoke", out=tmp_path, cases=["exponent 1"], progress=told.append)
    assert [one.task.arguments["case"] for one in told] == ["exponent 1"]
    assert outcome.findings.cases == ("exponent 1",)
    assert outcome.facts["unfinished"] == 3
    assert len(check_studies([find_study(NAME)], "smoke", 1, tmp_path)) == 1
    assert check_studies([find_study(NAME)], "smoke", 1, tmp_path, ["exponent 1"]) == []
    whole = run_study(NAME, "smoke", out=tmp_path, progress=told.append)
    assert len(told) == 4, "the case that was done is not run again"
    assert whole.facts["unfinished"] == 0


def test_an_unknown_case_is_told_with_its_neighbours_before_any_work(tmp_path):
    told = r"There is no case of richness/nystrom 'exponent'\. Did you mean 'exponent 2'"
    with pytest.raises(UnknownName, match=told):
        run_study(NAME, "smoke", out=tmp_path, cases=["exponent"])
    assert list(tmp_path.iterdir()) == []


def test_a_task_that_fails_stops_no_other_and_is_told(tmp_path):
    study = find_study(NAME)
    broken = Case("exponent 1", options={"exponent": "much"})
    kept = tuple(broken if case.name == broken.name else case for case in study.cases)
    outcome = run_study(replace(study, cases=kept), "smoke", out=tmp_path)
    assert len(outcome.failures) == 1
    assert "TypeError" in outcome.failures[0]
    assert "exponent 1" not in outcome.findings.cases
    assert len(outcome.findings.cases) == 3


def test_wrong_settings_are_told_before_any_work(tmp_path):
    with pytest.raises(UnknownName, match=r"There is no scale 'smok'\. Did you mean 'smoke'"):
        run_study(NAME, "smok", out=tmp_path)
    with pytest.raises(UnknownName, match="richness/nystrom"):
        run_study("richness/nystrm", "smoke", out=tmp_path)
    with pytest.raises(BadValue, match="seeds"):
        run_study(NAME, "smoke", seeds=0, out=tmp_path)
    with pytest.raises(ValueError, match="gpus is a setting of the Ray engine"):
        run_study(NAME, "smoke", gpus=1, out=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_signature_tells_what_it_takes():
    known = inspect.signature(run_study).parameters
    assert list(known)[:4] == ["study", "scale", "seeds", "out"]
    assert all(f"{name}:" in run_study.__doc__ for name in known)
