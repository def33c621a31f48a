"""Every study is declared fully, can be found, and runs at its smallest scale."""

from __future__ import annotations

import subprocess
import sys
from pkgutil import resolve_name

import pytest

from undertow.engine import run_study
from undertow.errors import UnknownName
from undertow.studies.catalogue import STUDIES, find_studies, find_study
from undertow.studies.recipe import SCALES

ALL = sorted(STUDIES)


@pytest.mark.parametrize("name", ALL)
def test_a_study_is_declared_fully(name):
    study = find_study(name)
    assert study.name == name
    assert study.claims
    assert callable(resolve_name(study.measure))
    for scale in SCALES:
        small = study.at(scale)
        assert len({task.key for task in small.tasks(seeds=2)}) == 2 * len(small.cases)
        if scale != "paper":
            assert study.differences(scale), "a scale says what it changes"
            assert study.change(scale).minutes is not None, "what it costs is measured"
    for one in study.published:
        study.case(one.case)
        assert one.source


@pytest.fixture(scope="module")
def smoke_folder(tmp_path_factory):
    """One for all: studies that train the same networks train them once, as they do for anyone."""
    return tmp_path_factory.mktemp("smoke")


@pytest.mark.parametrize("name", ALL)
def test_smoke_scales_run(name, smoke_folder, monkeypatch):
    """From training to figure, without data from outside."""
    monkeypatch.delenv("UNDERTOW_DATA", raising=False)
    outcome = run_study(name, "smoke", out=smoke_folder)
    assert not outcome.failures
    assert len(outcome.findings.rows)
    assert outcome.findings.cases == tuple(case.name for case in outcome.study.cases)
    assert (smoke_folder / name / "smoke" / "figure.png").stat().st_size > 5_000
    for claim, verdict in outcome.verdicts():
        assert not verdict.numbers.startswith(name), (
            f"{claim.text}: {verdict.numbers}"
        )  # a number was missing


def test_patterns_and_near_names():
    assert [study.name for study in find_studies(["richness/target-*"])] == ["richness/target-scale"]
    assert len(find_studies(["richness/*", "richness/target-scale"])) == len(find_studies(["richness/*"]))
    with pytest.raises(UnknownName, match="Did you mean 'richness/target-scale'"):
        find_studies(["richness/targetscale"])
    with pytest.raises(UnknownName, match="study list"):
        find_study("x")


def test_listing_needs_no_torch():
    code = (
        "import sys; from undertow.studies.catalogue import STUDIES, find_study; "
        "[find_study(name).differences('laptop') for name in STUDIES]; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
