"""The tutorial notebooks run from an empty folder, offline, and are kept without outputs."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from reader import ROOT

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def printed(notebook) -> str:
    """All that its cells said."""
    outputs = [one for cell in notebook.cells if cell.cell_type == "code" for one in cell.outputs]
    return "".join(one.get("text", "") for one in outputs)


def shown(notebook) -> str:
    """All that its cells showed as HTML."""
    outputs = [one for cell in notebook.cells if cell.cell_type == "code" for one in cell.outputs]
    return "".join(one.get("data", {}).get("text/html", "") for one in outputs)


def test_there_are_two():
    assert {path.name for path in NOTEBOOKS} == {"lightning-run.ipynb", "noisy-labels.ipynb"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_kept_without_outputs(path: Path):
    """Fails if somebody's numbers, paths or pictures are committed with it."""
    for cell in nbformat.read(path, 4).cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_its_page_says_the_same(path: Path):
    """Fails if one was edited without the other: `python docs/notebooks.py` writes the pages."""
    page = (ROOT / "docs" / f"{path.stem}.md").read_text(encoding="utf-8")
    assert page == runpy.run_path(str(ROOT / "docs" / "notebooks.py"))["page_of"](path)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_and_finds_the_wrong_labels(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Fails if a cell raises, if objects have no view of their own, or if the story is no longer true."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    notebook = nbformat.read(path, 4)
    nbclient.NotebookClient(
        notebook, timeout=600, resources={"metadata": {"path": tmp_path}}, kernel_name="python3"
    ).execute()
    assert "of the labels are wrong (" in printed(notebook)
    assert "memorised wrong labels" in shown(notebook)
    assert "<b>" in shown(notebook), "a run, a verdict: each as a compact view"
    assert list(tmp_path.rglob("report.html"))
