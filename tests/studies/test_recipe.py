"""A recipe says what to train, and what a scale changes, without leaving anything out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from undertow.errors import BadData, BadValue, UnknownName
from undertow.studies.claims import Claim, ClaimVerdict
from undertow.studies.findings import Findings, number
from undertow.studies.outcome import StudyOutcome, read_facts
from undertow.studies.recipe import SCALES, Case, Published, ScaleChange, Study
from undertow.studies.task import Task
from undertow.training.config import TrainConfig


def draw(found):
    from undertow.plots import line, panels

    figure, axes = panels(1, title=found.study.title)
    line(axes[0], found.curve("plain", "loss", x="position"), "plain")
    return figure


def larger(found):
    a, b = found.mean("plain", "score"), found.mean("wide", "score")
    return ClaimVerdict(b > a, f"{a:g} and {b:g}")


STUDY = Study(
    name="test/study", title="A test", source="nowhere, table 1",
    cases=(
        Case("plain", TrainConfig(model="mlp:8", epochs=200)),
        Case("wide", TrainConfig(model="mlp:64", epochs=200), actions=("freeze 150 layer1",), options={"k": 3}),
        Case("untrained", None, options={"k": 1}),
    ),
    measure="tests:nothing", claims=(Claim("wide scores higher", larger),), figure=draw,
    published=(
        Published("plain", "score", 0.5, 0.1, "table 1"),
        Published("wide", "score", 0.8, None, "table 1", {"split": "test"}),
    ),
    options={"samples": 10_000},
    changes={
        "smoke": ScaleChange(train={"epochs": 2}, only=("plain",), options={"samples": 10}),
        "laptop": ScaleChange(train={"epochs": 20}, cases={"wide": {"model": "mlp:32", "k": 5}}, because="it is small"),
    },
)  # fmt: skip


def rows(*values):
    columns = ["case", "seed", "measure", "value", "split", "checkpoint", "position"]
    return pd.DataFrame(values, columns=columns)


ROWS = rows(
    ("plain", 0, "score", 0.4, "test", 0, np.nan), ("plain", 0, "score", 0.6, "test", 9, np.nan),
    ("plain", 1, "score", 0.6, "test", 0, np.nan), ("plain", 1, "score", 0.8, "test", 9, np.nan),
    ("wide", 0, "score", None, "test", 9, np.nan),
    ("plain", 0, "loss", 3.0, "test", 9, 1), ("plain", 1, "loss", 1.0, "test", 9, 1),
    ("plain", 0, "loss", 2.0, "test", 9, 2),
)  # fmt: skip


def test_a_scale_changes_settings_actions_options_and_cases():
    laptop = STUDY.at("laptop")
    assert [case.train.epochs for case in laptop.cases if case.train] == [20, 20]
    assert laptop.case("wide").train.model == "mlp:32"
    assert laptop.case("wide").options == {"k": 5}
    assert [case.name for case in STUDY.at("smoke").cases] == ["plain"]
    assert STUDY.at("paper") == STUDY


def test_differences_name_every_change_and_the_cases_left_out():
    assert STUDY.differences("paper") == []
    laptop = STUDY.differences("laptop")
    assert "epochs 200 → 20 (plain, wide)" in laptop
    assert "model mlp:64 → mlp:32 (wide)" in laptop
    assert "k 3 → 5 (wide)" in laptop
    assert laptop[-1] == "it is small"
    assert "without wide, untrained" in STUDY.differences("smoke")
    assert "samples 10000 → 10" in STUDY.differences("smoke")


def test_cases_that_differ_in_their_last_word_are_named_once():
    from dataclasses import replace

    plain = STUDY.case("plain")
    names = ("plain", "MLP 0", "MLP 0.2", "MLP", "MLP, edited 1", "MLP 1")
    study = replace(
        STUDY,
        cases=tuple(replace(plain, name=name) for name in names),
        changes={"smoke": ScaleChange(only=("plain",))},
    )
    assert "without MLP 0 / 0.2 / 1, MLP, MLP, edited 1" in study.differences("smoke")


def test_a_scale_that_names_no_case_or_setting_is_refused():
    from dataclasses import replace

    with pytest.raises(UnknownName, match="laptop"):
        STUDY.at("labtop")
    with pytest.raises(UnknownName, match="wide"):
        replace(STUDY, changes={"smoke": ScaleChange(only=("wde",))}).at("smoke")


def test_tasks_carry_the_seed_and_differ_by_it():
    tasks = STUDY.at("laptop").tasks(seeds=2)
    assert len({task.key for task in tasks}) == len(tasks) == 6
    assert [task.arguments["config"].get("seed", 0) for task in tasks[:2]] == [0, 1]
    assert tasks[-1].arguments["config"] is None
    with pytest.raises(BadValue, match="seeds"):
        STUDY.tasks(0)


def test_the_key_of_a_task_is_its_content():
    """Fails if the order of arguments or the label entered the key: work would be done twice."""
    one = Task("a:b", {"x": 1, "y": {"p": 2, "q": 3}}, "first")
    same = Task("a:b", {"y": {"q": 3, "p": 2}, "x": 1}, "second")
    assert one.key == same.key
    assert one.key != Task("a:b", {"x": 2, "y": {"p": 2, "q": 3}}).key
    assert one.key != Task("a:c", {"x": 1, "y": {"p": 2, "q": 3}}).key
    with pytest.raises(BadValue, match="plain"):
        _ = Task("a:b", {"x": object()}).key


def test_findings_average_within_a_seed_first():
    """Seed means are .5 and .7; a plain mean over rows would weigh seeds by their rows."""
    found = Findings(STUDY, ROWS)
    seen = found.seen("plain", "score")
    assert (seen.mean, seen.low, seen.high, seen.seeds) == pytest.approx((0.6, 0.5, 0.7, 2))
    assert found.mean("plain", "score", checkpoint="last") == pytest.approx(0.7)
    assert found.mean("plain", "score", checkpoint="first") == pytest.approx(0.5)
    curve = found.curve("plain", "loss", x="position")
    np.testing.assert_allclose(curve.mean, [2.0, 2.0])
    np.testing.assert_allclose(curve.low, [1.0, 2.0])


def test_a_missing_number_is_an_error_not_nan():
    found = Findings(STUDY, ROWS)
    with pytest.raises(BadData, match="no row has score of 'wide', split test"):
        found.mean("wide", "score", split="test")
    with pytest.raises(BadData, match="colour blue"):
        found.mean("plain", "score", colour="blue")
    assert not Findings(STUDY, pd.DataFrame()).has("plain", "score")


def test_comparison_says_within_or_leaves_it_open():
    table = StudyOutcome.of(STUDY, "paper", ROWS).comparison().set_index("case")
    assert table.loc["plain", "within"]
    assert table.loc["plain", "ours"] == pytest.approx(0.6)
    assert pd.isna(table.loc["wide", "ours"])
    assert table.loc["wide", "tolerance"] == pytest.approx(0.16)  # a fifth


@pytest.mark.parametrize(("wide", "word"), [(0.9, "holds"), (0.1, "does not hold"), (None, "cannot tell")])
def test_claims_hold_fail_or_cannot_be_told(wide, word):
    table = ROWS.copy()
    table.loc[table["case"] == "wide", "value"] = wide
    ((_, verdict),) = StudyOutcome.of(STUDY, "paper", table).verdicts()
    assert verdict.word == word
    assert ("0.6 and" in verdict.numbers) == (wide is not None)


def test_an_outcome_survives_its_folder(tmp_path):
    outcome = StudyOutcome.of(STUDY, "laptop", ROWS, {"seeds": 2})
    outcome.save(tmp_path)
    png, svg = outcome.draw(tmp_path)
    again = StudyOutcome.read(tmp_path, lambda name: STUDY)
    pd.testing.assert_frame_equal(again.comparison(), outcome.comparison())
    assert again.scale == "laptop"
    assert read_facts(tmp_path)["seeds"] == 2
    assert png.read_bytes()[:4] == b"\x89PNG"
    assert "A test" in svg.read_text()  # text stays text


def test_a_folder_of_a_later_undertow_is_refused(tmp_path):
    from undertow.errors import NotThere, RunProblem

    (tmp_path / "study.json").write_text('{"format": 99, "undertow": "9.0"}')
    with pytest.raises(RunProblem, match=r"got 99 \(undertow 9\.0\). Update undertow"):
        read_facts(tmp_path)
    (tmp_path / "study.json").write_text("{")
    with pytest.raises(RunProblem, match="cannot be read"):
        read_facts(tmp_path)
    with pytest.raises(NotThere, match="no study"):
        read_facts(tmp_path / "nowhere")


def test_numbers_read_easily():
    assert [number(value) for value in (0.0, 0.0487, 3082.4, 2.3e4, 7.5e-14, 1.0)] == [
        "0", "0.0487", "3082", "2.3e+04", "7.5e-14", "1",
    ]  # fmt: skip


def test_scales_are_the_three_of_the_design():
    assert SCALES == ("smoke", "laptop", "paper")


def test_how_often_tests_are_looked_at_does_not_make_another_recipe():
    """No row depends on it; what is trained otherwise is another recipe."""
    seldom, longer = (
        replace(STUDY, cases=(Case("plain", replace(STUDY.cases[0].train, **other)), *STUDY.cases[1:]))
        for other in ({"test_at": "checkpoints"}, {"epochs": 201})
    )
    assert seldom.mark == STUDY.mark != longer.mark
