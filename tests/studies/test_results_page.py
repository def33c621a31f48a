"""docs/results.md is made from outcomes alone, and says what did not hold and what did not run."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image

from undertow.engine.study_runner import run_study
from undertow.errors import NotThere
from undertow.studies.catalogue import STUDIES, find_study
from undertow.studies.outcome import StudyOutcome

PLACE = Path(__file__).parents[2] / "docs" / "results.py"
NAME = "richness/target-scale"


@pytest.fixture(scope="module")
def results():
    spec = importlib.util.spec_from_file_location("results", PLACE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def outcome_rows(seeds=2, values=(0.05, 0.3, 0.6)):
    """D_LR rises with alpha; nothing else was measured."""
    return [
        {"case": case, "seed": seed, "measure": "d_lr", "value": value + seed / 100, "split": "test"}
        for case, value in zip(("alpha 0.2", "alpha 2", "alpha 20"), values, strict=False)
        for seed in range(seeds)
    ]


def save(folder, scale, failures=(), seeds=2, values=(0.05, 0.3, 0.6)):
    facts = {"seeds": seeds, "task_seconds": 120.0, "changes": ["epochs 9 → 3"], "failures": list(failures),
             "unfinished": 4 * bool(failures)}  # fmt: skip
    place = folder / NAME / scale
    StudyOutcome.of(find_study(NAME), scale, pd.DataFrame(outcome_rows(seeds, values)), facts).save(place)
    Image.effect_noise((2400, 2400), 80).save(place / "figure.png")


def pages(results, tmp_path, *folders):
    """The first page, and the page of paper 002's studies."""
    results.main([str(folder) for folder in folders], tmp_path / "results.md")
    return (tmp_path / "results.md").read_text(), (tmp_path / "results" / "richness.md").read_text()


def test_the_pages_tell_all(results, tmp_path):
    save(tmp_path / "out", "laptop")
    first, studies = pages(results, tmp_path, tmp_path / "out")
    row = next(line for line in first.splitlines() if line.startswith("| D_LR grows with alpha"))
    assert row.endswith(
        "| laptop, 2 of 5 | holds | [richness/target-scale](results/richness.md#richnesstarget-scale) |"
    )
    assert "| alpha 0.2: D\\_LR, on test samples | 0.049 | 0.055 (0.05 to 0.06) | " in first
    assert "| not run yet | [latent/masc-dynamics](results/latent.md#latentmasc-dynamics) |" in first
    assert f"```bash\nundertow study run {NAME} --scale laptop --seeds 2\n```" in studies
    assert "Laptop scale, 2 seeds, 2 minutes. Rows " in studies
    assert "- holds: D\\_LR grows with alpha" in studies
    assert "*cannot tell*: " in studies
    assert "| figure 11, tables 2 and 7 | [richness/target-scale](#richnesstarget-scale) |" in studies


def test_what_does_not_agree_is_told_first_with_its_cause(results, tmp_path):
    save(tmp_path / "out", "laptop", values=(0.6, 0.3, 0.05))
    first, _ = pages(results, tmp_path, tmp_path / "out")
    against, _ = first.split("## Paper 000")
    assert "## What does not agree: 1 claim and 3 numbers" in against
    assert "| 002 | D_LR grows with alpha: larger alpha is lazier |" in against
    assert (
        "| 002 | alpha 20: D\\_LR, on test samples | 0.055 (0.05 to 0.06), the paper 0.56 | not known |"
        in against
    )


def test_what_the_paper_says_is_never_a_heading_of_our_own_claims(results, tmp_path):
    first, _ = pages(results, tmp_path)
    theirs, ours = first.split("## Ours: claims that no paper makes")
    assert "the paper says" in theirs
    assert "the paper says" not in ours
    mine = [claim.text for name in STUDIES for claim in find_study(name).claims if claim.ours]
    assert mine
    assert all(f"| {text.replace('|', chr(92) + '|')} |" in ours for text in mine)


def test_a_later_run_replaces_its_entry_and_keeps_the_others(results, tmp_path):
    save(tmp_path / "out", "laptop")
    pages(results, tmp_path, tmp_path / "out")
    kept = json.loads((tmp_path / "results.json").read_text())
    kept["latent/transfer laptop"] = {**kept[f"{NAME} laptop"], "study": "latent/transfer", "claims": []}
    kept[f"{NAME} laptop"]["minutes"] = 99
    (tmp_path / "results.json").write_text(json.dumps(kept))
    pages(results, tmp_path, tmp_path / "out")
    again = json.loads((tmp_path / "results.json").read_text())
    assert again[f"{NAME} laptop"]["minutes"] == 2
    assert "latent/transfer laptop" in again


def test_an_outcome_with_fewer_networks_does_not_replace_one_with_more(results, tmp_path, capsys):
    save(tmp_path / "out", "laptop", seeds=3)
    save(tmp_path / "small", "laptop", seeds=1)
    pages(results, tmp_path, tmp_path / "out")
    pages(results, tmp_path, tmp_path / "small")
    assert json.loads((tmp_path / "results.json").read_text())[f"{NAME} laptop"]["seeds_done"] == 3
    assert "kept as it was, with 9 networks" in capsys.readouterr().out


def ordered(first):
    return next(line for line in first.splitlines() if line.startswith("| D_LR grows with alpha"))


def test_the_largest_scale_counts_and_each_number_once(results, tmp_path):
    save(tmp_path / "out", "laptop")
    save(tmp_path / "out", "paper", values=(0.6, 0.3, 0.05))
    first, _ = pages(results, tmp_path, tmp_path / "out")
    assert "| paper, 2 of 5 | **does not hold**" in ordered(first)
    assert ordered(first).endswith(
        "; laptop, 2 of 5: holds | [richness/target-scale](results/richness.md#richnesstarget-scale) |"
    )
    assert first.partition("## Paper 000")[2].count("| alpha 0.2: D\\_LR, on test samples |") == 1


def test_a_larger_scale_without_all_its_cases_decides_nothing(results, tmp_path):
    save(tmp_path / "out", "laptop")
    save(tmp_path / "out", "paper", values=(0.6, 0.3))
    first, studies = pages(results, tmp_path, tmp_path / "out")
    assert "| laptop, 2 of 5 | holds |" in ordered(first)
    assert "| paper, 2 of 5, 2 of 3 cases | " in first  # of its numbers
    assert "Paper scale, 2 seeds" in studies


def test_what_another_recipe_gave_is_shown_as_such_and_not_counted(results, tmp_path):
    save(tmp_path / "out", "laptop")
    pages(results, tmp_path, tmp_path / "out")
    kept = json.loads((tmp_path / "results.json").read_text())
    kept[f"{NAME} laptop"]["recipe"] = "another"
    (tmp_path / "results.json").write_text(json.dumps(kept))
    first, studies = pages(results, tmp_path)
    assert "Not run yet; below is what an earlier recipe gave." in studies
    assert "An earlier recipe's verdicts" in studies
    own = [one for name in results.names_in("richness") for one in find_study(name).claims if not one.ours]
    proved = sum(one.proved for one in own)
    assert proved
    claims = len(own) - proved
    assert f"| 002 | {claims} | 0 | 0 | 0 | {claims} | 0 of {proved} | 0 of 0 | 0 | 0 of " in first


def test_pictures_are_small_or_left_out(results, tmp_path):
    """Noise does not compress: no width of it fits, and nothing is written."""
    save(tmp_path / "out", "laptop")
    pages(results, tmp_path, tmp_path / "out")
    assert not list(tmp_path.glob("pictures/*"))
    Image.new("RGB", (2400, 500), "white").save(tmp_path / "out" / NAME / "laptop" / "figure.png")
    _, studies = pages(results, tmp_path, tmp_path / "out")
    (shown,) = tmp_path.glob("pictures/*")
    assert shown.stat().st_size <= 17_000
    assert f"(../pictures/{shown.name})" in studies


def test_kept_rows_give_the_same_outcome_again_and_seeds_are_added(results, tmp_path, capsys):
    """Fails if a value, a type or a task is lost on the way: the hash of the rows tells."""
    outcome = run_study("richness/inductive-bias", "laptop", seeds=2, out=tmp_path / "out")
    results.main([str(tmp_path / "out")], tmp_path / "results.md")
    results.main(["--restore", str(tmp_path / "again")], tmp_path / "results.md")
    assert "4 answers are in" in capsys.readouterr().out
    restored = run_study(
        "richness/inductive-bias", "laptop", seeds=2, out=tmp_path / "again", finished_only=True
    )
    assert restored.rows_mark == outcome.rows_mark
    assert restored.facts["unfinished"] == 0
    more = run_study("richness/inductive-bias", "laptop", seeds=3, out=tmp_path / "again", finished_only=True)
    assert more.facts["unfinished"] == 2


def test_smoke_is_no_result(results, tmp_path):
    save(tmp_path, "smoke")
    with pytest.raises(NotThere, match="got smoke only"):
        results.main([str(tmp_path)], tmp_path / "results.md")


def test_failures_and_what_is_unfinished_are_said(results, tmp_path):
    save(tmp_path / "out", "laptop", failures=["out of memory"])
    _, studies = pages(results, tmp_path, tmp_path / "out")
    assert "A task failed: out of memory." in studies
    assert "Unfinished: 4 tasks are not done yet." in studies


@pytest.mark.parametrize(
    ("told", "wanted"),
    [
        ({"numbers": "4 of 4 cases: a; b", "agree": 4, "of": 4, "p": 0.0625}, "too few networks, 5 can decide"),
        ({"numbers": "5 of 7 cases: a; b", "agree": 5, "of": 7, "p": 0.227}, "as chance may have it"),
        ({"numbers": "cannot tell of ResNet: fits 47 %, wanted 98 %; MLP: fits 3 %"}, "ResNet: fits 47 %, wanted 98 %"),
        ({"numbers": " ".join(["word"] * 60)}, "word ..."),
        ({"numbers": "temporal/memory: no row has kept of 'ResNet'", "unfinished": 3}, "its networks have not run yet"),
    ],
)  # fmt: skip
def test_what_cannot_be_told_says_why_in_the_table(results, told, wanted):
    entry = {"study": NAME, "scale": "laptop", "seeds": 3, "unfinished": told.get("unfinished", 0)}
    claim = {
        "claim": "a",
        "place": "",
        "cause": "",
        "study": NAME,
        "verdict": "cannot tell",
        "entry": entry,
        "proved": False,
    }
    verdict = results._claim_line({**claim, **told})[4]
    assert verdict.startswith("*cannot tell*: ")
    assert wanted in verdict
    assert len(verdict) < 180


def test_a_study_of_which_nothing_ran_is_no_outcome(results, tmp_path):
    """Judging what is finished leaves an outcome without rows; it once ended the ledger with pyarrow's words."""
    place = tmp_path / "out" / NAME / "laptop"
    StudyOutcome.of(find_study(NAME), "laptop", pd.DataFrame(), {"seeds": 5, "unfinished": 15}).save(place)
    first, studies = pages(results, tmp_path, tmp_path / "out")
    assert "| not run yet | [richness/target-scale]" in first
    assert "Not run yet." in studies
