"""Reading a run's folder: what may be missing, and what may not be damaged."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import undertow.report
from undertow.errors import NotThere, RunProblem
from undertow.report import read_saved
from undertow.report.saved import stamp

SOURCE = Path(undertow.report.__file__).parent
GROUND = {
    "undertow",
    "undertow._lazy",
    "undertow._version",
    "undertow.errors",
    "undertow.files",
    "undertow.kept",
    "undertow.outputs",
    "undertow.pictures",
    "undertow.plots",
    "undertow.shares",
    "undertow.spreadsheets",
    "undertow.words",
}


def test_everything_is_read(audited):
    saved = read_saved(audited)
    assert saved.name == "m40"
    assert saved.layers == ["input", "layer1", "layer2", "layer3", "head"]
    assert saved.classes == [str(digit) for digit in range(10)]
    written = pd.read_parquet(audited / "audit.parquet")
    probed = written[(written["lens"] == "latent") & (written["measure"] == "accuracy")]
    assert len(saved.of("latent", "accuracy")) == len(probed)
    assert len(saved.metrics) == 33
    assert [own["topic"] for own in saved.findings][:2] == ["training", "memorising"]
    assert saved.of("latent", "no such measure").empty


def test_a_run_without_an_audit_is_a_run(tmp_path):
    (tmp_path / "run.json").write_text('{"config": null}')
    saved = read_saved(tmp_path)
    assert saved.rows.empty
    assert saved.of("latent").empty
    assert saved.layers == []
    assert saved.classes == []


def test_a_folder_without_a_run_is_answered(tmp_path):
    with pytest.raises(NotThere, match=r"not a run's folder: it has neither run.json nor audit.parquet"):
        read_saved(tmp_path)
    with pytest.raises(NotThere, match="no such folder"):
        read_saved(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("audit.json", "{", "wanted JSON, but it cannot be read"),
        ("audit.json", "[]", "wanted a JSON object, got an array"),
        ("audit.json", '{"format": 99}', "format: wanted format 1 or older, got 99. Update undertow"),
        ("audit.parquet", "not parquet", "wanted a table of rows, but it cannot be read"),
        ("metrics.parquet", "", "wanted a table of metrics, but it cannot be read"),
    ],
)
def test_a_damaged_file_is_an_error_not_an_empty_section(tmp_path, name, text, message):
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / name).write_text(text)
    with pytest.raises(RunProblem, match=message):
        read_saved(tmp_path)


def test_a_table_of_something_else_is_refused(tmp_path):
    pd.DataFrame({"lens": ["latent"]}).to_parquet(tmp_path / "audit.parquet")
    with pytest.raises(RunProblem, match="column measure: wanted it, but there is none"):
        read_saved(tmp_path)


def test_coordinates_may_be_missing_and_columns_may_be_integers(tmp_path):
    """Fails if names become the text 'None', or a column of pure nulls breaks the types."""
    rows = {
        "lens": ["richness"],
        "measure": ["d_lr"],
        "checkpoint": [3],
        "value": [1],
        "layer": [None],
        "low": [None],
    }
    pd.DataFrame(rows).to_parquet(tmp_path / "audit.parquet")
    found = read_saved(tmp_path).of("richness")
    assert found["checkpoint"].tolist() == [3.0]
    assert found["layer"].isna().all()
    assert found["low"].isna().all()


def test_layers_come_in_the_audits_order(make_audit, tmp_path):
    """Fails if an audit that was extended by a shallow layer shows it as the deepest."""
    made = make_audit(
        tmp_path / "a", layers=("b", "a"), lenses=("latent",), audit={"settings": {"layers": ["a", "b"]}}
    )
    assert read_saved(made).layers == ["input", "a", "b"]
    assert read_saved(make_audit(tmp_path / "c", layers=("b", "a"), audit={"settings": {}})).layers == [
        "input",
        "b",
        "a",
    ]


def test_the_stamp_changes_with_the_files(audited, tmp_path):
    (tmp_path / "run.json").write_text("{}")
    before = stamp(tmp_path)
    assert before == stamp(tmp_path)
    (tmp_path / "run.json").write_text(json.dumps({"finished": "now"}))
    assert stamp(tmp_path) != before


def torch_after(code: str) -> bool:
    asked = f"{code}\nimport sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    return done.stdout.strip() == "True"


def test_a_report_needs_no_torch(audited, tmp_path):
    code = f"from undertow.report import *\nwrite_report([{str(audited)!r}], {str(tmp_path / 'r.html')!r})\n"
    code += f"draw({str(audited)!r}, 'swap', out={str(tmp_path)!r})\nserve"
    assert not torch_after(code)
    assert (tmp_path / "r.html").exists()


def outside(code: str) -> set[str]:
    """Modules of undertow that `code` imports and that are neither the report's nor the ground's."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    ours = {name for name in found if name.split(".")[0] in ("undertow", "torch")}
    return {
        name
        for name in ours
        if name not in GROUND and not name.startswith(("undertow.report", "undertow.stored"))
    }


def test_the_report_imports_tables_only():
    assert {path.name: own for path in SOURCE.glob("*.py") if (own := outside(path.read_text()))} == {}


def test_the_guard_notices_a_planted_import():
    assert outside("from undertow.training.run import open_run") == {"undertow.training.run"}
    assert outside("def f():\n    import torch") == {"torch"}
