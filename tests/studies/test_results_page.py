"""docs/results.md is made from outcomes alone, and says what did not hold and what did not run."""

from __future__ import annotations

import importlib.util
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
    facts = {"seeds": 2, "task_seconds": 120.0, "changes": ["epochs 9 → 3"], "failures": list(failures)}
    place = folder / NAME / scale
    StudyOutcome.of(find_study(NAME), scale, pd.DataFrame(lines), facts).save(place)
    Image.effect_noise((2400, 2400), 80).save(place / "figure.png")


def test_the_page_tells_all(results, tmp_path):
    save(tmp_path / "out", "laptop")
    results.main(str(tmp_path / "out"), tmp_path / "results.md")
    text = (tmp_path / "results.md").read_text()
    assert f"```bash\nundertow study run {NAME} --scale laptop --seeds 2\n```" in text
    assert "2 seeds, 2.0 minutes. Verdict: holds in part." in text
    assert "- holds: D\\_LR grows with alpha" in text or "- holds: D_LR grows with alpha" in text
    assert "*cannot tell*: " in text
    assert "| alpha 0.2 | d_lr split test | 0.049 | 0.055 (0.05 to 0.06) | yes |" in text
    assert "Not run here: richness/weight-decay, " in text
    assert "latent/masc-dynamics" in text.partition("Not run here")[2].partition("\n")[0]


def test_pictures_are_small_or_left_out(results, tmp_path):
    """Noise does not compress: no width of it fits, and nothing is written."""
    save(tmp_path / "out", "laptop")
    results.main(str(tmp_path / "out"), tmp_path / "results.md")
    assert not list(tmp_path.glob("pictures/*"))
    Image.new("RGB", (2400, 500), "white").save(tmp_path / "out" / NAME / "laptop" / "figure.png")
    results.main(str(tmp_path / "out"), tmp_path / "results.md")
    (shown,) = tmp_path.glob("pictures/*")
    assert shown.stat().st_size <= 60_000
    assert f"(pictures/{shown.name})" in (tmp_path / "results.md").read_text()


def test_smoke_is_no_result(results, tmp_path):
    save(tmp_path, "smoke")
    with pytest.raises(NotThere, match="got smoke only"):
        results.main(str(tmp_path), tmp_path / "results.md")


def test_failures_make_it_incomplete(results, tmp_path):
    save(tmp_path / "out", "laptop", failures=["out of memory"])
    results.main(str(tmp_path / "out"), tmp_path / "results.md")
    text = (tmp_path / "results.md").read_text()
    assert "Verdict: incomplete: tasks failed." in text
    assert "A task failed: out of memory." in text
