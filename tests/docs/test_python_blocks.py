"""Python in the documentation runs: each page's blocks in order, in one namespace, in a reader's folder."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest
from reader import PAGES, SMALLER_PYTHON, blocks, made_smaller, names_for

OWN = {"start.md", "while-training.md", "own-runs.md"}
"""These need nothing from a reader: they run in an empty folder, with no name given."""
TUTORIALS = {"noisy-labels.md", "lightning-run.md"}
"""Written from notebooks, which test_notebooks.py runs."""
HAVING = {page.name: page for page in PAGES if blocks(page, "python") and page.name not in TUTORIALS}


def run_blocks(page: Path, names: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """All that the page defined; its module can be found by name, as dataclasses need it."""
    module = ModuleType("a_page_of_the_docs")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    module.__dict__.update(names)
    for place, block in enumerate(blocks(page, "python")):
        lines = made_smaller(block, SMALLER_PYTHON)
        exec(compile(lines, f"{page.name}, block {place}", "exec"), module.__dict__)
    return module.__dict__


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(OWN))
def test_pages_that_need_nothing_run_in_an_empty_folder(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    defined = run_blocks(HAVING[name], {}, monkeypatch)
    assert len(defined) > 10


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name == "cluster.md"))
        for name in sorted({*HAVING} - OWN)
    ],
)
def test_all_other_pages_run_with_what_a_reader_has(
    name: str, desk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Fails for a name that moved, an argument that went, or a verb that wants more than the page gives it."""
    shutil.copytree(desk, tmp_path / "desk")
    monkeypatch.chdir(tmp_path / "desk")
    if name == "README.md":
        shutil.rmtree("runs/m40")  # its last lines train it
    run_blocks(HAVING[name], names_for(name), monkeypatch)


def test_a_line_that_fails_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    page = tmp_path / "page.md"
    page.write_text("```python\nimport undertow as ut\n```\ntext\n```python\nut.audit(no_such_run)\n```\n")
    with pytest.raises(NameError, match="no_such_run"):
        run_blocks(page, {}, monkeypatch)


def test_what_is_made_smaller_is_on_the_pages():
    """Fails if a change of these tests fits no line any more, so that it could hide nothing."""
    text = "".join(block for page in HAVING.values() for block in blocks(page, "python"))
    for pattern, _ in SMALLER_PYTHON:
        assert made_smaller(text, ((pattern, "changed"),)) != text, pattern
