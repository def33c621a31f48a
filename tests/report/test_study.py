"""The page of studies tells what their folders hold, and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from undertow.errors import NotThere, RunProblem
from undertow.report.study import claim_words, ranged, read_studies, read_study
from undertow.report.study_page import MOST, render_studies, studies_text

CLAIMS = [
    {"claim": "layers know more", "verdict": "holds", "numbers": "0.9 and 0.4"},
    {"claim": "the edit helps", "verdict": "does not hold", "numbers": "0.3 and 0.4"},
    {"claim": "it lasts", "verdict": "cannot tell", "numbers": "no rows"},
]


def rows(seeds=2):
    """Accuracy of two probes over two checkpoints, a curve over positions, and a value that is missing."""
    found = []
    for seed in range(seeds):
        for at, probe, value in ((0, "masc", 0.1), (9, "masc", 0.8), (0, "velpic", 0.2), (9, "velpic", 0.6)):
            found.append(
                {"measure": "accuracy", "checkpoint": at, "probe": probe, "value": value + seed / 10}
            )
        found.append({"measure": "quality", "checkpoint": 9, "position": 3.0, "value": 0.5})
        found.append({"measure": "loss", "checkpoint": 9, "value": None})
        for one in found:
            one.setdefault("seed", seed)
    return pd.DataFrame([{"case": "plain", "split": "test", **one} for one in found])


def write(folder, name="latent/made-up", scale="laptop", *, claims=CLAIMS, figure=True, **facts):
    """A folder as `undertow study run` leaves it."""
    path = folder / name / scale
    path.mkdir(parents=True)
    about = {
        "format": 1, "undertow": "0.1.0", "study": name, "title": "A made-up study", "source": "paper 9, figure 1",
        "scale": scale, "seeds": 2, "task_seconds": 90.0, "changes": ["epochs 500 → 40"], "notes": [], "failures": [],
    }  # fmt: skip
    (path / "study.json").write_text(json.dumps(about | facts))
    (path / "claims.json").write_text(json.dumps(claims))
    columns = "case,measure,where,paper,ours,low,high,seeds,tolerance,within,source\n"
    lines = [
        "plain,accuracy,probe masc,0.84,0.85,0.8,0.9,2,0.02,True,table 1",
        "plain,accuracy,,0.5,0.85,0.8,0.9,2,0.02,False,table 1",
        "wide,accuracy,,0.9,,,,,0.02,,table 1",
    ]
    (path / "comparison.csv").write_text(columns + "\n".join(lines) + "\n")
    rows().to_parquet(path / "rows.parquet")
    if figure:
        from PIL import Image

        Image.new("RGB", (400, 100), "white").save(path / "figure.png")
    return path


@pytest.fixture
def folder(tmp_path):
    write(tmp_path)
    write(tmp_path, "temporal/other", "smoke", figure=False)
    return tmp_path


def test_studies_are_found_at_any_depth_in_order(folder):
    write(folder, scale="smoke")
    assert [(own.name, own.scale) for own in read_studies(folder)] == [
        ("latent/made-up", "smoke"), ("latent/made-up", "laptop"), ("temporal/other", "smoke"),
    ]  # fmt: skip
    assert len(read_studies(folder / "latent")) == 2
    assert len(read_studies(folder / "latent/made-up/laptop")) == 1


def test_counts_come_from_the_files(folder):
    own = read_study(folder / "latent/made-up/laptop")
    assert (own.within, len(own.compared), len(own.comparison)) == (1, 2, 3)
    assert claim_words([own]) == (1, 3, "1 do not hold, 1 undecided")
    assert own.minutes == 1.5
    assert own.command == "undertow study run latent/made-up --scale laptop --seeds 2"
    assert own.seed_words == "2 seeds"


def test_seeds_that_have_not_run_are_not_counted(folder):
    own = read_study(write(folder, "latent/begun", seeds=5))
    assert own.seed_words == "2 of 5 seeds"


def test_ends_are_means_and_ranges_over_seeds_at_the_last_checkpoint(folder):
    ends = read_study(folder / "latent/made-up/laptop").ends()
    assert ends["where"].tolist() == ["probe masc", "probe velpic"]  # the split is the same everywhere
    np.testing.assert_allclose(ends[["mean", "low", "high"]], [[0.85, 0.8, 0.9], [0.65, 0.6, 0.7]])
    assert ends["seeds"].tolist() == [2, 2]


def test_a_study_without_rows_has_no_ends(folder):
    pd.DataFrame().to_parquet(folder / "latent/made-up/laptop/rows.parquet")
    assert read_study(folder / "latent/made-up/laptop").ends().empty


def test_ranges_are_left_out_for_one_seed():
    assert ranged(0.5, 0.5, 0.5, 1) == "0.5"
    assert ranged(0.5, 0.4, 0.6, 3) == "0.5 (0.4 to 0.6)"


def test_the_page_has_verdicts_numbers_and_the_figure(folder, tmp_path):
    text = render_studies(read_studies(folder), tmp_path / "page.html", "mine").read_text()
    for wanted in (
        "A made-up study", "Layers know more".lower(), "0.9 and 0.4", "Does not hold", "0.85 (0.8 to 0.9)",
        "epochs 500 → 40", "undertow study run latent/made-up --scale laptop --seeds 2", "data:image/png;base64,",
        "1 of the paper's numbers have none", "says nothing about its claims",
    ):  # fmt: skip
        assert wanted in text, wanted
    assert text.count("<img") == 1
    assert "2 of 6" in text  # claims of both


def test_the_same_folder_gives_the_same_page(folder):
    assert studies_text(read_studies(folder)) == studies_text(read_studies(folder))


def test_only_smoke_is_warned_about(tmp_path):
    write(tmp_path)
    assert "says nothing about its claims" not in studies_text(read_studies(tmp_path))


def test_long_tables_are_cut_and_say_so(folder):
    many = pd.DataFrame(
        {"case": [f"case {n}" for n in range(MOST + 5)], "seed": 0, "measure": "loss", "value": 1.0}
    )
    many.to_parquet(folder / "latent/made-up/laptop/rows.parquet")
    text = studies_text([read_study(folder / "latent/made-up/laptop")])
    assert "5 more are in rows.parquet" in text
    assert f"case {MOST - 1}<" in text
    assert f"case {MOST}<" not in text


def test_nothing_from_outside_becomes_markup(tmp_path):
    evil = "<script>alert(1)</script>"
    claims = [{"claim": evil, "verdict": "holds", "numbers": evil}]
    write(tmp_path, claims=claims, title=evil, source=evil, notes=[evil], failures=[evil])
    text = studies_text(read_studies(tmp_path), evil)
    assert evil not in text
    assert "&lt;script&gt;alert(1)" in text


def test_failures_are_shown(tmp_path):
    write(tmp_path, failures=["out of memory"])
    assert "A task failed: out of memory" in studies_text(read_studies(tmp_path))


def test_folders_without_studies_are_refused(tmp_path):
    with pytest.raises(NotThere, match=r"holds no study\. `undertow study run NAME"):
        read_studies(tmp_path)
    with pytest.raises(NotThere, match="does not exist"):
        read_studies(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("study.json", "{", "cannot be read"),
        ("study.json", "[]", "wanted a JSON object, got an array"),
        ("study.json", '{"format": 1}', "study: wanted a value, but there is none"),
        (
            "study.json",
            '{"format": 9, "study": "a/b", "scale": "laptop"}',
            "format: wanted format 1 or older, got 9. Update undertow",
        ),
        ("study.json", '{"format": 1, "study": "a/b", "scale": "huge"}', "scale: invalid enum value 'huge'"),
        ("claims.json", "{}", "Expected array, got object"),
        ("rows.parquet", "nothing", "wanted a table of study rows, but it cannot be read"),
        ("figure.png", "nothing", "wanted a picture, but it cannot be read"),
    ],
)
def test_damaged_files_are_named(tmp_path, file, content, words):
    path = write(tmp_path)
    (path / file).write_text(content)
    with pytest.raises(RunProblem, match=words) as caught:
        studies_text(read_studies(tmp_path))
    assert file in str(caught.value)


def test_a_missing_table_is_named(tmp_path):
    path = write(tmp_path)
    (path / "comparison.csv").unlink()
    with pytest.raises(NotThere, match=r"comparison\.csv"):
        read_studies(tmp_path)


def test_the_page_needs_no_torch(folder, tmp_path):
    code = (
        "import sys\nfrom undertow.report.study import read_studies\n"
        "from undertow.report.study_page import render_studies\n"
        f"render_studies(read_studies({str(folder)!r}), {str(tmp_path / 'p.html')!r})\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
