"""docs/results.md is made from outcomes alone, and says what did not hold and what did not run."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image

from undertow.errors import NotThere
from undertow.studies.catalogue import find_study
from undertow.studies.outcome import StudyOutcome

PLACE = Path(__file__).parents[2] / "docs" / "results.py"
NAME = "richness/target-scale"


@pytest.fixture(scope="module")
def results():
    spec = importlib.util.spec_from_file_location("results", PLACE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def save(folder, scale, failures=()):
    """An outcome in which D_LR rises with alpha; nothing else was measured."""
    lines = [
        {"case": case, "seed": seed, "measure": "d_lr", "value": value + seed / 100, "split": "test"}
        for case, value in (("alpha 0.2", 0.05), ("alpha 2", 0.3), ("alpha 20", 0.6))
        for seed in range(2)
    ]
    facts = {"seeds": 2, "task_seconds": 120.0, "changes": ["epochs 9 → 3"], "failures": list(failures),
             "unfinished": 4 * bool(failures)}  # fmt: skip
    place = folder / NAME / scale
    StudyOutcome.of(find_study(NAME), scale, pd.DataFrame(lines), facts).save(place)
    Image.effect_noise((2400, 2400), 80).save(place / "figure.png")


def test_the_page_tells_all(results, tmp_path):
    save(tmp_path / "out", "laptop")
    results.main([str(tmp_path / "out")], tmp_path / "results.md")
    text = (tmp_path / "results.md").read_text()
    assert f"```bash\nundertow study run {NAME} --scale laptop --seeds 2\n```" in text
    assert "Laptop scale, 2 seeds, 2 minutes. Rows " in text
    assert "- holds: D\\_LR grows with alpha" in text
    assert "*cannot tell*: " in text
    assert "| alpha 0.2: d_lr split test | 0.049 | 0.055 (0.05 to 0.06) | " in text
    assert "not run yet at these settings | [latent/masc-dynamics](#latentmasc-dynamics) |" in text
    assert "| figure 11, tables 2 and 7 | [richness/target-scale](#richnesstarget-scale) |" in text


def test_a_later_run_replaces_its_entry_and_keeps_the_others(results, tmp_path):
    save(tmp_path / "out", "laptop")
    results.main([str(tmp_path / "out")], tmp_path / "results.md")
    kept = json.loads((tmp_path / "results.json").read_text())
    kept["latent/transfer laptop"] = {**kept[f"{NAME} laptop"], "study": "latent/transfer", "claims": []}
    kept[f"{NAME} laptop"]["minutes"] = 99
    (tmp_path / "results.json").write_text(json.dumps(kept))
    results.main([str(tmp_path / "out")], tmp_path / "results.md")
    again = json.loads((tmp_path / "results.json").read_text())
    assert again[f"{NAME} laptop"]["minutes"] == 2
    assert "latent/transfer laptop" in again


def test_what_another_recipe_gave_is_shown_as_such_and_not_counted(results, tmp_path):
    save(tmp_path / "out", "laptop")
    results.main([str(tmp_path / "out")], tmp_path / "results.md")
    kept = json.loads((tmp_path / "results.json").read_text())
    kept[f"{NAME} laptop"]["recipe"] = "another"
    (tmp_path / "results.json").write_text(json.dumps(kept))
    results.main([], tmp_path / "results.md")
    text = (tmp_path / "results.md").read_text()
    assert "Not run yet at these settings; below is what an earlier recipe gave." in text
    assert "An earlier recipe's verdicts" in text
    assert " holds," not in text.partition("| 002 | ")[2].partition("\n")[0]


def test_pictures_are_small_or_left_out(results, tmp_path):
    """Noise does not compress: no width of it fits, and nothing is written."""
    save(tmp_path / "out", "laptop")
    results.main([str(tmp_path / "out")], tmp_path / "results.md")
    assert not list(tmp_path.glob("pictures/*"))
    Image.new("RGB", (2400, 500), "white").save(tmp_path / "out" / NAME / "laptop" / "figure.png")
    results.main([str(tmp_path / "out")], tmp_path / "results.md")
    (shown,) = tmp_path.glob("pictures/*")
    assert shown.stat().st_size <= results.MOST_BYTES
    assert f"(pictures/{shown.name})" in (tmp_path / "results.md").read_text()


def test_smoke_is_no_result(results, tmp_path):
    save(tmp_path, "smoke")
    with pytest.raises(NotThere, match="got smoke only"):
        results.main([str(tmp_path)], tmp_path / "results.md")


def test_failures_and_what_is_unfinished_are_said(results, tmp_path):
    save(tmp_path / "out", "laptop", failures=["out of memory"])
    results.main([str(tmp_path / "out")], tmp_path / "results.md")
    text = (tmp_path / "results.md").read_text()
    assert "A task failed: out of memory." in text
    assert "Unfinished: 4 tasks are not done yet." in text


@pytest.mark.parametrize(
    ("told", "wanted"),
    [
        ({"numbers": "4 of 4 cases: a; b", "agree": 4, "of": 4, "p": 0.0625}, "too few cases for a test, 5 can decide"),
        ({"numbers": "5 of 7 cases: a; b", "agree": 5, "of": 7, "p": 0.227}, "as chance may have it"),
        ({"numbers": "cannot tell of ResNet: fits 47 %, wanted 98 %; MLP: fits 3 %"}, "ResNet: fits 47 %, wanted 98 %"),
        ({"numbers": " ".join(["word"] * 60)}, "word ..."),
    ],
)  # fmt: skip
def test_what_cannot_be_told_says_why_in_the_table(results, told, wanted):
    entry = {"scale": "laptop", "seeds": 3, "unfinished": 0}
    claim = {"claim": "a", "place": "", "cause": "", "study": NAME, "verdict": "cannot tell", "entry": entry}
    verdict = results._claim_line({**claim, **told})[4]
    assert verdict.startswith("*cannot tell* (")
    assert wanted in verdict
    assert len(verdict) < 180
